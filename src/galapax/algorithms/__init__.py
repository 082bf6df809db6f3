"""The algorithms, by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from galapax.algorithms.archive import Archived
from galapax.algorithms.cde import CoevolutionaryDE
from galapax.algorithms.cma_mae import CMAMAE
from galapax.algorithms.cmaes import CMAES, MIN_DIAGONAL_DIM, StrategyParameters
from galapax.algorithms.crfmnes import CRFMNES
from galapax.algorithms.de import DE
from galapax.algorithms.ehvi import EHVI, EI
from galapax.algorithms.ep import EP, FEP
from galapax.algorithms.epsilon_de import EpsilonDE
from galapax.algorithms.ga import ThreeParentGA
from galapax.algorithms.lshade import JSO, LSHADE
from galapax.algorithms.lsrtde import LSRTDE
from galapax.algorithms.map_elites import MAPElites
from galapax.algorithms.minmax_cde import GameCDE, Payoff
from galapax.algorithms.model_search import ModelSearch
from galapax.algorithms.moead import MOEAD
from galapax.algorithms.npga import NPGA
from galapax.algorithms.nsga2 import NSGA2
from galapax.algorithms.nsga3 import NSGA3
from galapax.algorithms.portfolio import GrowingPopulations, Portfolio
from galapax.algorithms.pso import PSO
from galapax.algorithms.random_search import RandomSearch
from galapax.algorithms.real_coded_ga import RealCodedGA
from galapax.algorithms.reevaluated import Reevaluated
from galapax.algorithms.sharing_moea import SharingMOEA
from galapax.algorithms.sms_emoa import SMSEMOA
from galapax.core.algorithm import Algorithm, Shared
from galapax.core.errors import InputError, unknown_name_error
from galapax.core.hints import ALGORITHM_NAMES, MISSING_ALGORITHMS, find_answers, spell_plainly
from galapax.core.restarts import (
    BIPOP,
    IPOP,
    IndependentRestarts,
    Restarts,
)

ALGORITHMS: dict[str, Any] = {
    "cde": CoevolutionaryDE,
    "cmaes": CMAES,
    "crfmnes": CRFMNES,
    "de": DE,
    "ep": EP,
    "epsilon_de": EpsilonDE,
    "fep": FEP,
    "ga": ThreeParentGA,
    "jso": JSO,
    "lshade": LSHADE,
    "lsrtde": LSRTDE,
    "moead": MOEAD,
    "npga": NPGA,
    "nsga2": NSGA2,
    "nsga3": NSGA3,
    "pso": PSO,
    "random": RandomSearch,
    "real_coded_ga": RealCodedGA,
    "sharing_moea": SharingMOEA,
    "sms_emoa": SMSEMOA,
}

MODEL_ALGORITHMS: dict[str, Any] = {"ehvi": EHVI, "ei": EI, "model_search": ModelSearch}  # few evaluations, float64
ILLUMINATION_ALGORITHMS: dict[str, Any] = {"cma_mae": CMAMAE, "map_elites": MAPElites}  # of `gx.illuminate`
# up to so many evaluations per variable in so many variables CR-FM-NES ends lower than CMA-ES
MIN_CRFMNES_DIM, MAX_CRFMNES_EVALUATIONS_PER_VARIABLE = 40, 200
MAX_SMS_EMOA_POPULATION = 500  # individuals, up to which SMS-EMOA is the default for three objectives

RESTARTS: dict[str, Restarts] = {
    policy.name: policy for policy in (IndependentRestarts(), IPOP(), BIPOP(), Portfolio())
}


def get(name: str, **settings: Any) -> Algorithm:
    """Build the algorithm of that name, with some of its hyper-parameters set."""
    algorithm: Algorithm = (ALGORITHMS | MODEL_ALGORITHMS)[find_name(name)](**settings)
    return algorithm


def find_name(name: str) -> str:
    """Return the registered name of an algorithm; other spellings are known too, such as NSGA-II."""
    plain_name = spell_plainly(name)
    for registered_name in (*ALGORITHMS, *MODEL_ALGORITHMS):
        if plain_name == spell_plainly(registered_name):
            return registered_name
    for registered_name in find_answers(plain_name, ALGORITHM_NAMES):
        return registered_name
    for answer in find_answers(plain_name, MISSING_ALGORITHMS):
        raise InputError(f"There is no algorithm called {name!r}; {answer}.")
    raise unknown_name_error("algorithm", name, (*ALGORITHMS, *MODEL_ALGORITHMS))


def algorithm_name(algorithm: Algorithm) -> str:
    """The registered name of an algorithm, or its class's name."""
    if isinstance(algorithm, GameCDE):
        return "cde"
    for name, kind in (ALGORITHMS | MODEL_ALGORITHMS | ILLUMINATION_ALGORITHMS).items():
        if type(_without_archive(algorithm)) is kind:
            return name
    return type(_without_archive(algorithm)).__name__


def resolve_algorithm(
    algorithm: str | Algorithm | None,
    constrained: bool = False,
    objectives: int = 1,
    mixed: int = 0,
    population: int | None = None,
) -> Algorithm:
    """An algorithm from what a user gave: a name, an instance, or None for the default.

    mixed: the number of variables, if some of them are integers or choices. population: if the user gave one.
    """
    if algorithm is None:
        if objectives > 1:
            return _default_multi_objective(objectives, population)
        if mixed:  # by measurement, see benchmarks/mixed.py
            return EpsilonDE(population=min(100, max(40, 6 * mixed)))
        return EpsilonDE() if constrained else CMAES()
    if isinstance(algorithm, str):
        return get(algorithm)
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        raise InputError(f"algorithm is the class {algorithm.__name__}; give an instance: {algorithm.__name__}().")
    if isinstance(algorithm, list | tuple | np.ndarray):
        raise InputError("algorithm is an array of numbers; give a starting point by its name: x0=[...].")
    if not isinstance(algorithm, Algorithm):
        raise InputError(
            f"algorithm must be a name ({', '.join((*ALGORITHMS, *MODEL_ALGORITHMS))}) or an instance such as gx.DE(); "
            f"got {type(algorithm).__name__}."
        )
    return algorithm


def _default_multi_objective(objectives: int, population: int | None) -> Algorithm:
    """The default for several objectives, by measurement: benchmarks/front_methods.py."""
    if objectives == 2:
        return NSGA2()
    # a generation of SMS-EMOA takes O(n^2) work ten times over, and large populations cover a front in any case
    small = not isinstance(population, int) or population <= MAX_SMS_EMOA_POPULATION
    return SMSEMOA() if objectives == 3 and small else NSGA3()


def choose_for_many_variables(default: Algorithm, dim: int, max_evaluations: int | None) -> Algorithm:
    """The default, or CR-FM-NES in its place where CMA-ES has no time or no room to learn a matrix."""
    if type(default) is not CMAES:
        return default
    is_short = max_evaluations is not None and max_evaluations <= MAX_CRFMNES_EVALUATIONS_PER_VARIABLE * dim
    return CRFMNES() if dim >= MIN_DIAGONAL_DIM or (dim >= MIN_CRFMNES_DIM and is_short) else default


def default_for_islands(default: Algorithm) -> Algorithm:
    """The default algorithm of runs on islands: CMA-ES has one distribution, and islands live by their populations."""
    return DE() if isinstance(default, CMAES) else default


def parse_restarts(restarts: object, default: Algorithm | None = None, noisy: bool = False) -> Restarts | None:
    """How runs restart, from what a user gave: a name, a policy, None for not at all, or "auto".

    default: the algorithm, if the user left the choice to us; "auto" lets CMA-ES then restart and share with L-SHADE,
    or for a noisy objective restart with growing populations.
    """
    if isinstance(restarts, str) and restarts == "auto":
        if not isinstance(default, CMAES):
            return None
        return GrowingPopulations() if noisy else Portfolio()
    if restarts is None or isinstance(restarts, Restarts):
        return restarts
    if isinstance(restarts, str) and restarts in RESTARTS:
        return RESTARTS[restarts]
    names = ", ".join(f'"{name}"' for name in RESTARTS)
    raise InputError(f'restarts must be {names}, "auto" or None, got {restarts!r}.')


def plain_settings(algorithm: Algorithm) -> dict[str, object]:
    """Its hyper-parameters as plain values: numbers, and functions by name."""
    algorithm = _without_archive(algorithm)
    values = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm)}  # type: ignore[arg-type]
    # a number is told from a Payoff, which is whatever has its methods, in a hundredth of the time
    plain = (int, float, str, np.ndarray)
    visible = {
        name: v
        for name, v in values.items()
        if isinstance(v, plain)
        or (v is not None and not isinstance(v, Shared | Payoff | StrategyParameters | Algorithm))
    }
    return {
        name: getattr(v, "__name__", None) or repr(v) if callable(v) else np.asarray(v).tolist()
        for name, v in visible.items()
    }


def _without_archive(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm without its archive, and without what evaluates survivors again."""
    return algorithm.inner if isinstance(algorithm, Archived | Reevaluated) else algorithm
