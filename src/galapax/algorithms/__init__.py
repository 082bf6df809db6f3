"""The algorithms, by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from galapax.algorithm import Algorithm
from galapax.algorithms.de import DE
from galapax.algorithms.ep import EP, FEP
from galapax.algorithms.npga import NPGA
from galapax.algorithms.nsga2 import NSGA2
from galapax.algorithms.random_search import RandomSearch
from galapax.algorithms.sharing_moea import SharingMOEA
from galapax.errors import InputError, unknown_name

ALGORITHMS: dict[str, Any] = {
    "de": DE,
    "ep": EP,
    "fep": FEP,
    "npga": NPGA,
    "nsga2": NSGA2,
    "random": RandomSearch,
    "sharing_moea": SharingMOEA,
}


def get(name: str, **settings: Any) -> Algorithm:
    """The algorithm of that name, with some of its hyper-parameters set."""
    if name.lower() not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    kind = ALGORITHMS[name.lower()]
    known = [f.name for f in dataclasses.fields(kind)]
    for setting in settings:
        if setting not in known:
            raise InputError(f"{name} has no hyper-parameter {setting!r}; it has {', '.join(known)}.")
    return kind(**settings)


def name_of(algorithm: Algorithm) -> str:
    """The registered name of an algorithm, or its class's name."""
    for name, known in ALGORITHMS.items():
        if type(algorithm) is known:
            return name
    return type(algorithm).__name__


def resolve(algorithm: str | Algorithm | None) -> Algorithm:
    """An algorithm from what a user gave: a name, an instance, or None for the default."""
    if algorithm is None:
        return DE()
    if isinstance(algorithm, str):
        return get(algorithm)
    if isinstance(algorithm, type):
        raise InputError(f"algorithm is the class {algorithm.__name__}; give an instance: {algorithm.__name__}().")
    if not isinstance(algorithm, Algorithm):
        raise InputError(
            f"algorithm must be a name ({', '.join(ALGORITHMS)}) or an instance such as gx.DE(); "
            f"got {type(algorithm).__name__}."
        )
    return algorithm


def settings_of(algorithm: Algorithm) -> dict[str, Any]:
    """Its hyper-parameters as plain values: numbers, and functions by name."""
    values = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm)}  # type: ignore[arg-type]
    return {name: v.__name__ if callable(v) else np.asarray(v).tolist() for name, v in values.items()}
