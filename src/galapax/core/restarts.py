"""The contract of a restart policy, which decides which search follows when one has ended; and whether searches agree.

What finished searches have found says how sure it is that no better value is left: `estimate_confidence`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from galapax.core.algorithm import Algorithm, double_population, scale_spread
from galapax.core.stop import UNLIMITED, Stop

SAME_POINT_DISTANCE = 1e-8  # share of the box within which two end points count as the same,
SAME_POINT_ULPS = 100.0  # or so many roundings of x, if that is more: in float32 searches end no closer to each other
SAME_BASIN_DISTANCE = 1e-3  # share of the box within which two end points of the best value are one minimum
SAME_VALUE_RESOLUTIONS = 10.0  # difference of two values that count as the same, in units of their resolution
ROUNDING_ULPS = 64.0  # error of a value, in units of its last place
SAME_VALUE_SHARE = 1e-12  # the same as a share of the span of all ends
SAME_BASIN_SHARE = 1e-2  # of the box, and of the gap to other minima, within which descents have found the best one
FLAT_SHARE = 1e-5  # of its value, that the last population of a search spans on a plateau
STOP_CONFIDENCE = 0.95  # from which on a run is done
SUCCESS_CONFIDENCE = 0.8  # from which on a run that its limits have ended is a success
MAX_DOUBLINGS = 9  # of the first population
MIN_SEARCH_GENERATIONS = 100  # that a search is expected to take, at least


class SearchSummary(NamedTuple):
    """The result of a finished search."""

    kind: str
    population: int
    evaluations: int
    best: float  # to be minimised
    violation: float
    x: np.ndarray  # (d,), scaled to the unit cube
    stop: Stop
    resolution: float = 0.0  # difference of values that means nothing, see `value_resolution`
    doublings: int = 0  # of the first population
    distance: float = SAME_POINT_DISTANCE  # see `same_point_distance`


class NextSearch(NamedTuple):
    """The next search of a run: its algorithm and limits."""

    algorithm: Algorithm
    kind: str
    evaluations: float = math.inf  # limit of this search; the limit of the run holds as well
    generations: int = UNLIMITED  # limit of this search
    polish: bool = False  # refine its best point with the gradient
    doublings: int = 0  # of the first population
    start: np.ndarray | None = None  # (d,) point of the unit cube to start from


def same_point_distance(eps: float) -> float:
    """Return the share of the box within which two end points count as the same. eps: of the run's precision."""
    return max(SAME_POINT_DISTANCE, SAME_POINT_ULPS * eps)


def value_resolution(best: float, mean: float, eps: float) -> float:
    """Return the difference of values below which the end of a search says nothing.

    A population that has converged still spans some values: by rounding, by the noise of the function, by the last bits
    of x. Adding a constant to the function or scaling it does not change which ends agree. mean: value of the last
    population.
    """
    if not math.isfinite(best):
        return 0.0
    return max(abs(mean - best) if math.isfinite(mean) else 0.0, ROUNDING_ULPS * eps * abs(best))


def find_known_point(past: Sequence[SearchSummary]) -> SearchSummary | None:
    """Return the search whose end is the best point so far, if it has converged there and is feasible."""
    ends = [p for p in past if p.kind != "probe"]
    best = min(ends, key=lambda p: (p.violation, p.best), default=None)
    is_known = best is not None and best.stop is Stop.TOLERANCE and best.violation <= 0 and math.isfinite(best.best)
    return best if is_known else None


def summarize_search(
    past: Sequence[SearchSummary],
    search: NextSearch,
    population: int,
    evaluations: int,
    x: np.ndarray,
    best: float,
    violation: float,
    mean: float,
    stop: Stop,
    eps: float,
) -> SearchSummary:
    """Summarize a search that has ended: near the known point it counts as one that has converged to it.

    past: the searches before it. x: (d,), scaled to the unit cube. mean, eps: see `value_resolution`.
    """
    if search.kind == "multistart":
        mean = best  # its last points belong to several descents and do not surround the best one
    known, resolution = find_known_point(past), value_resolution(best, mean, eps)
    if stop is Stop.KNOWN and known is not None:
        best, x, stop, resolution = known.best, known.x, known.stop, known.resolution
    distance = same_point_distance(eps)
    return SearchSummary(
        search.kind, population, evaluations, best, violation, x, stop, resolution, search.doublings, distance
    )


class Agreement(NamedTuple):
    """How far the searches of a run agree."""

    agreeing: int  # searches that ended at the best point, or at another one of the same value
    searches: int
    confidence: float  # see `estimate_confidence`


def find_agreeing_searches(past: Sequence[SearchSummary]) -> list[bool]:
    """Return which searches ended at the best point of all, or at one of the same value."""
    if not past:
        return []
    best = min(past, key=lambda p: (p.violation, p.best))
    ends = [p for p in past if math.isfinite(p.best) and p.kind != "probe"]
    is_constant = all(p.best == best.best for p in ends)
    # without searches that are stuck on a plateau: its value may be a penalty, next to which all others are the same
    values = [p.best for p in ends if not (p.stop is Stop.STALL and p.resolution <= FLAT_SHARE * abs(p.best))]
    span = max(values, default=best.best) - best.best
    others = [p.best - best.best for p in ends if np.max(np.abs(p.x - best.x)) > SAME_BASIN_SHARE]
    gap = min(others, default=0.0)  # to the best minimum elsewhere

    def agrees(search: SearchSummary) -> bool:
        if search.kind == "descent" and search.stop is not Stop.TOLERANCE:
            return search is best  # it has not moved, as on a plateau, or not far enough
        same_point = bool(np.max(np.abs(search.x - best.x)) <= best.distance)
        difference = search.best - best.best
        resolution = max(p.resolution if p.stop is Stop.TOLERANCE else 0.0 for p in (search, best))
        has_converged = search.stop is Stop.TOLERANCE and search.kind != "probe"
        # a search that stalls there, or at its limit, may have such a value, too
        same_value = search.kind != "probe" and difference <= SAME_VALUE_RESOLUTIONS * resolution
        # on a plateau or at its limit a search has the value without having converged
        same_value |= 0 <= difference <= SAME_VALUE_SHARE * max(span, 0.0) and not is_constant
        same_basin = search.kind == "multistart" and has_converged and difference <= SAME_BASIN_SHARE * gap
        same_basin &= bool(np.max(np.abs(search.x - best.x)) <= SAME_BASIN_SHARE)
        return search.violation <= best.violation and (same_value or same_basin or (has_converged and same_point))

    return [agrees(search) for search in past]


def estimate_confidence(past: Sequence[SearchSummary]) -> float:
    """Estimate how sure it is that no better value is left to be found.

    Were there a better minimum that is found as often as the best one, which k of n searches of a kind have found, the
    chance that all n have missed it is C(n, k) / C(2n, k): that of k marks among 2n places to lie in one half of them.
    This is the mean of (1 - p)^n over the posterior Beta(k, n - k + 1) of the share p of searches that find the best.
    The kinds (first searches and their repetitions, large populations, small ones, differential evolution, lines,
    descents) have shares of their own, and their chances are multiplied; the confidence is 1 minus the product. A large
    population smaller than the smallest that found the best does not count: it could not have found it. Descents end in
    the minimum in whose basin they began, see `estimate_missed_by_descents`.
    """
    counts: dict[str, tuple[int, int]] = {}
    agreeing = find_agreeing_searches(past)
    sizes = [p.doublings for p, agrees in zip(past, agreeing, strict=True) if agrees and p.kind == "large"]
    for search, agrees in zip(past, agreeing, strict=True):
        is_rugged = search.kind == "multistart" and search.stop is not Stop.TOLERANCE  # each descent ended elsewhere
        is_too_small = search.kind == "large" and search.doublings < min(sizes, default=0)
        is_refuted = search.kind == "separable" and search.stop is Stop.STALL  # it began before the sum was refuted
        if search.kind in ("probe", "descent", "refinement") or is_too_small or is_refuted or is_rugged:
            continue
        is_cut_short = search.stop is Stop.BUDGET and search.kind != "evolution" and not agrees
        if not is_cut_short:
            kind = "first" if search.kind == "repeat" else search.kind
            n, k = counts.get(kind, (0, 0))
            counts[kind] = n + 1, k + agrees
    missed = math.prod(math.comb(n, k) / math.comb(2 * n, k) for n, k in counts.values())
    return 1.0 - missed * estimate_missed_by_descents(past, agreeing)


def estimate_missed_by_descents(past: Sequence[SearchSummary], agreeing: Sequence[bool]) -> float:
    """Estimate the chance that the next descent would find a better minimum than all before.

    n descents that have found w minima have missed those of w (w + 1) / (n (n - 1)) of the box (Boender & Rinnooy Kan
    1987, Mathematical Programming 37:59-80, doi:10.1007/BF02591684). Another minimum is the best of then w + 1 with a
    chance of 1 / (w + 1). Only descents that have converged count: on a plateau none moves. If all end at the best
    value and no two at the same point, the minima are no points but a continuum, and count as one.
    """
    descents = [
        (p, agrees) for p, agrees in zip(past, agreeing, strict=True)
        if p.kind == "descent" and p.stop is Stop.TOLERANCE
    ]  # fmt: skip
    n, n_best = len(descents), sum(agrees for _, agrees in descents)
    if n_best < 2:
        return 1.0
    minima: list[tuple[SearchSummary, bool]] = []
    for end in descents:
        if not any(_is_same_minimum(end, minimum) for minimum in minima):
            minima.append(end)
    n_minima = 1 if len(minima) == n == n_best else len(minima)
    return min(1.0, n_minima / (n * (n - 1)))


def _is_same_minimum(a: tuple[SearchSummary, bool], b: tuple[SearchSummary, bool]) -> bool:
    """Return whether two descents, each with whether it ended at the best value, have found the same minimum."""
    distance = float(np.max(np.abs(a[0].x - b[0].x)))
    return a[1] == b[1] and distance <= (SAME_BASIN_DISTANCE if a[1] else a[0].distance)


def summarize_agreement(past: Sequence[SearchSummary]) -> Agreement:
    n_searches = sum(search.kind != "probe" for search in past)
    return Agreement(sum(find_agreeing_searches(past)), n_searches, estimate_confidence(past))


class Restarts:
    """Base class of restart policies, which choose the algorithm of each search; a subclass implements `next`.

    Policies are pure: they see the summaries of the finished searches and draw random numbers that belong to the run.

    ends_near_known: whether a search ends as soon as its population is that of the best known point. It would converge
        there, and confirm the point, for twice as many evaluations.
    """

    name: str
    ends_near_known: ClassVar[bool] = False

    def with_gradients(self, dim: int) -> Restarts:
        """Return the policy for an objective of `dim` variables that has a gradient."""
        return self

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        """Return the search that follows the finished ones, or the reason to end the run.

        algorithm: the one that the user chose. evaluations_left: the rest of the run's budget. draw: draws a uniform
        number in [0, 1).
        """
        raise NotImplementedError

    def predict_next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], upcoming: NextSearch, evaluations_left: float
    ) -> list[NextSearch]:
        """Return searches that are likely to follow `upcoming`, so that their programs can be compiled meanwhile."""
        return []


def search_with_doubled_population(algorithm: Algorithm, first: int, doublings: int) -> NextSearch:
    """Return a search with a population of `first`, doubled that many times."""
    doublings = min(doublings, MAX_DOUBLINGS)
    return NextSearch(double_population(algorithm, first, doublings), "large", doublings=doublings)


@dataclasses.dataclass(frozen=True)
class IndependentRestarts(Restarts):
    """Repeat the same search from new starting points (multi-start)."""

    name = "plain"

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        return NextSearch(algorithm, "repeat")


@dataclasses.dataclass(frozen=True)
class IPOP(Restarts):
    """Double the population with each restart.

    Auger & Hansen (2005), IEEE CEC, 1769-1776, doi:10.1109/CEC.2005.1554902.
    """

    name = "ipop"

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        if not past:
            return NextSearch(algorithm, "first")
        return search_with_doubled_population(algorithm, past[0].population, len(past))


@dataclasses.dataclass(frozen=True)
class BIPOP(Restarts):
    """Alternate doubling large populations with small ones of a smaller step: the regime that spent less is next.

    Hansen (2009), GECCO Companion, 2389-2396, doi:10.1145/1570256.1570333. Differs from the paper: small populations
    are also the first one times a power of two, so that few programs are compiled.
    """

    name = "bipop"

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        if not past:
            return NextSearch(algorithm, "first")
        large, small = ([p for p in past if p.kind == kind] for kind in ("large", "small"))
        spent_large, spent_small = (sum(p.evaluations for p in group) for group in (large, small))
        first, most = past[0].population, max((p.doublings for p in large), default=0)
        if not large or spent_large <= spent_small:
            return search_with_doubled_population(algorithm, first, most + 1)
        doublings = round((most - 1) * draw() ** 2)
        local_search = scale_spread(double_population(algorithm, first, doublings), 10 ** (-2 * draw()))
        limit = max(spent_large / 2, first * 2.0**doublings)
        return NextSearch(local_search, "small", limit, doublings=doublings)

    def predict_next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], upcoming: NextSearch, evaluations_left: float
    ) -> list[NextSearch]:
        if not past:
            return []
        sizes = [(search.kind, search.doublings) for search in past] + [(upcoming.kind, upcoming.doublings)]
        doublings = max(size for kind, size in sizes if kind != "small") + 1
        first = past[0].population
        is_affordable = doublings <= MAX_DOUBLINGS and (
            MIN_SEARCH_GENERATIONS * first * 2**doublings <= evaluations_left
        )
        return [search_with_doubled_population(algorithm, first, doublings)] if is_affordable else []
