"""What a run does when a search of its own comes to rest: it begins another one, or ends.

A run is then a row of searches, each with an algorithm of its own, and a policy says which one comes next. Policies are
pure: they know what the searches so far found and spent, and draw numbers that belong to the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from galapax.core.algorithm import Algorithm, double_population, scale_spread
from galapax.core.stop import Stop

SAME_POINT_DISTANCE = 1e-6  # share of the box within which two searches ended at the same point
SAME_VALUE_TOLERANCE = 1e-9  # relative difference of two values that count as the same
MIN_AGREEING_SEARCHES = 5  # searches that must end at the best point before a run is done
MAX_DOUBLINGS = 9  # doublings of the first population
MIN_SEARCH_GENERATIONS = 100  # that a search takes at least, about


class SearchSummary(NamedTuple):
    """A search that is over."""

    kind: str
    population: int
    evaluations: int
    best: float  # to be minimised
    violation: float
    x: np.ndarray  # (d,), in shares of the box
    stop: Stop


class NextSearch(NamedTuple):
    """The next search of a run."""

    algorithm: Algorithm
    kind: str
    evaluations: float = math.inf  # at most so many; the run's own limit holds besides
    polish: bool = False  # refine what it found by its gradient


def count_agreeing_searches(past: Sequence[SearchSummary]) -> int:
    """How many searches converged to the best point that any of them found, or to one as good."""
    if not past:
        return 0
    best = min(past, key=lambda p: (p.violation, p.best))

    def same(p: SearchSummary) -> bool:
        near = bool(np.max(np.abs(p.x - best.x)) <= SAME_POINT_DISTANCE)
        alike = abs(p.best - best.best) <= SAME_VALUE_TOLERANCE * abs(best.best)
        return p.stop is Stop.TOLERANCE and p.violation <= best.violation and (near or alike)

    return sum(map(same, past))


class Restarts:
    """A policy."""

    name: str

    def with_gradients(self, dim: int) -> Restarts:
        """The policy for an objective of `dim` variables that has a gradient."""
        return self

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        """The search that follows those of the past, or why there is none.

        algorithm: what the user chose. evaluations_left: that the run may still make. draw: gives a number in [0, 1).
        """
        raise NotImplementedError

    def predict_next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], leg: NextSearch, evaluations_left: float
    ) -> list[NextSearch]:
        """Searches that are likely to follow `leg`, the next one: what they need may be made ready meanwhile."""
        return []


@dataclass(frozen=True)
class Plain(Restarts):
    """The same search again, from another place."""

    name = "plain"

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        return NextSearch(algorithm, "again")


@dataclass(frozen=True)
class IPOP(Restarts):
    """Each search has twice the population of the one before.

    Auger & Hansen (2005), IEEE CEC, 1769-1776, doi:10.1109/CEC.2005.1554902.
    """

    name = "ipop"

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        if not past:
            return NextSearch(algorithm, "first")
        return NextSearch(double_population(algorithm, past[0].population, min(len(past), MAX_DOUBLINGS)), "large")


@dataclass(frozen=True)
class BIPOP(Restarts):
    """Large populations that double, and between them small ones that begin closer: whichever has spent less goes on.

    Hansen (2009), GECCO Companion, 2389-2396, doi:10.1145/1570256.1570333. Differs from the paper: small populations,
    too, are the first one times a power of two, so that few programs are compiled.
    """

    name = "bipop"

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        if not past:
            return NextSearch(algorithm, "first")
        large, small = ([p for p in past if p.kind == kind] for kind in ("large", "small"))
        spent_large, spent_small = (sum(p.evaluations for p in group) for group in (large, small))
        first = past[0].population
        if not large or spent_large <= spent_small:
            return NextSearch(double_population(algorithm, first, min(len(large) + 1, MAX_DOUBLINGS)), "large")
        times = round((min(len(large), MAX_DOUBLINGS) - 1) * draw() ** 2)
        closer = scale_spread(double_population(algorithm, first, times), 10 ** (-2 * draw()))
        return NextSearch(closer, "small", max(spent_large / 2, first * 2.0**times))

    def predict_next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], leg: NextSearch, evaluations_left: float
    ) -> list[NextSearch]:
        if not past:
            return []
        times = sum(p.kind == "large" for p in past) + (leg.kind == "large") + 1
        affordable = (
            times <= MAX_DOUBLINGS and MIN_SEARCH_GENERATIONS * past[0].population * 2**times <= evaluations_left
        )
        return [NextSearch(double_population(algorithm, past[0].population, times), "large")] if affordable else []
