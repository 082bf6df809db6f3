"""Built-in problems with known optima or fronts: `get("rastrigin", dim=30)`; `PROBLEMS` names them all.

The functions of three suites have numbers, not names: `bbob(function=8, dim=20, instance=3)`,
`bbob_noisy(function=104, dim=20)`, `niching(function=9)`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from galapax.core.errors import InputError, unknown_name_error
from galapax.core.problem import MinMaxProblem, Problem
from galapax.problems import (
    cec2006_g01_g13,
    cec2006_g14_g24,
    classic,
    constrained_fronts,
    engineering,
    minmax,
    mixed,
    multiobjective,
    scalable_fronts,
)
from galapax.problems.bbob import bbob, bbob_noisy, suite
from galapax.problems.cec2013_niching import niching

__all__ = ["PROBLEMS", "SUITES", "bbob", "bbob_noisy", "get", "niching"]

PROBLEMS: dict[str, Callable[..., Problem | MinMaxProblem]] = {
    "sphere": classic.sphere,
    "ellipsoid": classic.ellipsoid,
    "schwefel_1_2": classic.schwefel_1_2,
    "rosenbrock": classic.rosenbrock,
    "schwefel_2_26": classic.schwefel_2_26,
    "rastrigin": classic.rastrigin,
    "ackley": classic.ackley,
    "griewank": classic.griewank,
    "levy": classic.levy,
    "zakharov": classic.zakharov,
    "michalewicz": classic.michalewicz,
    "styblinski_tang": classic.styblinski_tang,
    "goldstein_price": classic.goldstein_price,
    "branin": classic.branin,
    "six_hump_camel": classic.six_hump_camel,
    "hartmann3": classic.hartmann3,
    "hartmann6": classic.hartmann6,
    "fep_f1": classic.fep_f1,
    "fep_f2": classic.fep_f2,
    "fep_f3": classic.fep_f3,
    "fep_f4": classic.fep_f4,
    "fep_f5": classic.fep_f5,
    "gagpu_ackley": classic.gagpu_ackley,
    "gagpu_goldstein_price": classic.gagpu_goldstein_price,
    "g01": cec2006_g01_g13.g01,
    "g02": cec2006_g01_g13.g02,
    "g03": cec2006_g01_g13.g03,
    "g04": cec2006_g01_g13.g04,
    "g05": cec2006_g01_g13.g05,
    "g06": cec2006_g01_g13.g06,
    "g07": cec2006_g01_g13.g07,
    "g08": cec2006_g01_g13.g08,
    "g09": cec2006_g01_g13.g09,
    "g10": cec2006_g01_g13.g10,
    "g11": cec2006_g01_g13.g11,
    "g12": cec2006_g01_g13.g12,
    "g13": cec2006_g01_g13.g13,
    "g14": cec2006_g14_g24.g14,
    "g15": cec2006_g14_g24.g15,
    "g16": cec2006_g14_g24.g16,
    "g17": cec2006_g14_g24.g17,
    "g18": cec2006_g14_g24.g18,
    "g19": cec2006_g14_g24.g19,
    "g20": cec2006_g14_g24.g20,
    "g21": cec2006_g14_g24.g21,
    "g22": cec2006_g14_g24.g22,
    "g23": cec2006_g14_g24.g23,
    "g24": cec2006_g14_g24.g24,
    "spring": engineering.spring,
    "coil_spring": mixed.coil_spring,
    "gear_train": mixed.gear_train,
    "knapsack": mixed.knapsack,
    "machines": mixed.machines,
    "petrol": mixed.petrol,
    "pressure_vessel": mixed.pressure_vessel,
    "reinforced_beam": mixed.reinforced_beam,
    "speed_reducer": mixed.speed_reducer,
    "cde_p1": minmax.cde_p1,
    "minmax_damped_cosine": minmax.minmax_damped_cosine,
    "minmax_damped_sine": minmax.minmax_damped_sine,
    "minmax_multipliers": minmax.minmax_multipliers,
    "minmax_planes": minmax.minmax_planes,
    "minmax_quartic": minmax.minmax_quartic,
    "minmax_saddle": minmax.minmax_saddle,
    "cde_p2": engineering.cde_p2,
    "cde_p3": engineering.cde_p3,
    "cde_p4": engineering.cde_p4,
    "cde_p5": engineering.cde_p5,
    "cde_p6": engineering.cde_p6,
    "zdt1": multiobjective.zdt1,
    "zdt2": multiobjective.zdt2,
    "zdt3": multiobjective.zdt3,
    "zdt4": multiobjective.zdt4,
    "zdt5": multiobjective.zdt5,
    "zdt6": multiobjective.zdt6,
    "moea_zdt1": multiobjective.moea_zdt1,
    "moea_zdt2": multiobjective.moea_zdt2,
    "moea_zdt3": multiobjective.moea_zdt3,
    "moea_zdt6": multiobjective.moea_zdt6,
    "moea_zdt6_6pi": multiobjective.moea_zdt6_6pi,
    "dtlz1": scalable_fronts.dtlz1,
    "dtlz2": scalable_fronts.dtlz2,
    "dtlz3": scalable_fronts.dtlz3,
    "dtlz4": scalable_fronts.dtlz4,
    "dtlz5": scalable_fronts.dtlz5,
    "dtlz6": scalable_fronts.dtlz6,
    "dtlz7": scalable_fronts.dtlz7,
    "wfg1": scalable_fronts.wfg1,
    "wfg2": scalable_fronts.wfg2,
    "wfg4": scalable_fronts.wfg4,
    "wfg5": scalable_fronts.wfg5,
    "wfg6": scalable_fronts.wfg6,
    "wfg7": scalable_fronts.wfg7,
    "wfg8": scalable_fronts.wfg8,
    "wfg9": scalable_fronts.wfg9,
    "tnk": constrained_fronts.tnk,
    "mw1": constrained_fronts.mw1,
    "mw2": constrained_fronts.mw2,
    "mw3": constrained_fronts.mw3,
    "mw4": constrained_fronts.mw4,
    "mw8": constrained_fronts.mw8,
    "mw13": constrained_fronts.mw13,
    "c1_dtlz1": constrained_fronts.c1_dtlz1,
    "c1_dtlz3": constrained_fronts.c1_dtlz3,
    "c2_dtlz2": constrained_fronts.c2_dtlz2,
    "c3_dtlz1": constrained_fronts.c3_dtlz1,
    "c3_dtlz4": constrained_fronts.c3_dtlz4,
    "osy": engineering.osy,
    "welded_beam": engineering.welded_beam,
    "car_side_impact": engineering.car_side_impact,
    "water_resources": engineering.water_resources,
    "crashworthiness": engineering.crashworthiness,
    "blending": engineering.blending,
    "blending_as_printed": engineering.blending_as_printed,
    "blending7": engineering.blending7,
}

SUITES: dict[str, Callable[[int, int], list[Problem]]] = {"bbob": suite}  # of the number of variables, and the instance


def get(name: str, *sizes: int, **parameters: int) -> Any:
    """The problem called `name`: a `Problem`, or a `MinMaxProblem` for cde_p1. `dim` resizes a scalable one.

    The same name and parameters give the identical object, so that what was compiled for it is found again.
    """
    if isinstance(name, str) and (plain_name := re.sub(r"[\s-]+", "_", name.lower())) in PROBLEMS:
        name = plain_name  # as in Goldstein-Price
    if not isinstance(name, str) or name not in PROBLEMS:
        listed = f"galapax list problems shows all {len(PROBLEMS)}."
        raise unknown_name_error("problem", str(name), PROBLEMS, listed)
    if sizes:
        raise InputError(f"give the size of {name} by its name, such as problems.get({name!r}, dim={sizes[0]!r}).")
    accepted = inspect.signature(PROBLEMS[name]).parameters
    for parameter, value in parameters.items():
        if parameter not in accepted:
            takes = f"takes only {', '.join(accepted)}" if accepted else "takes no parameters (its size is fixed)"
            raise InputError(f"{name} has no parameter {parameter!r}: it {takes}.")
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InputError(f"{parameter} of {name} must be a whole number, got {value!r}.")
    settings = {key: int(parameters.get(key, parameter.default)) for key, parameter in accepted.items()}
    return _build(name, **settings)


@cache
def _build(name: str, **parameters: int) -> Problem | MinMaxProblem:
    return PROBLEMS[name](**parameters)
