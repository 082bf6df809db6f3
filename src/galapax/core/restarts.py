"""Restarts and islands: which search follows when one has converged, and how populations exchange individuals.

A run that restarts is a sequence of searches, each with its own algorithm. Policies are pure: they see the summaries of
the finished searches and draw random numbers that belong to the run.

Islands are several populations of one run that exchange individuals from time to time. Whitley, Rana & Heckendorn
(1999), Journal of Computing and Information Technology 7:33-47, on why it helps and when.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from galapax.core.algorithm import Algorithm, double_population, scale_spread
from galapax.core.checks import check_integer
from galapax.core.errors import InputError, experimental
from galapax.core.stop import UNLIMITED, Stop

SAME_POINT_DISTANCE = 1e-6  # share of the box within which two end points count as the same
SAME_VALUE_RESOLUTIONS = 10.0  # difference of two values that count as the same, in units of their resolution
ROUNDING_ULPS = 64.0  # error of a value, in units of its last place
SAME_VALUE_SHARE = 1e-12  # difference of two values that count as the same, as a share of the span of all ends
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


class NextSearch(NamedTuple):
    """The next search of a run: its algorithm and limits."""

    algorithm: Algorithm
    kind: str
    evaluations: float = math.inf  # limit of this search; the limit of the run holds as well
    generations: int = UNLIMITED  # limit of this search
    polish: bool = False  # refine its best point with the gradient
    doublings: int = 0  # of the first population


def value_resolution(best: float, mean: float, eps: float) -> float:
    """Return the difference of values below which the end of a search says nothing.

    A population that has converged still spans some values: by rounding, by the noise of the function, by the last bits
    of x. Adding a constant to the function or scaling it does not change which ends agree. mean: value of the last
    population.
    """
    if not math.isfinite(best):
        return 0.0
    return max(abs(mean - best) if math.isfinite(mean) else 0.0, ROUNDING_ULPS * eps * abs(best))


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
    finite = [p.best for p in past if math.isfinite(p.best) and p.kind != "probe"]
    span = max(finite) - best.best if finite else 0.0

    def agrees(search: SearchSummary) -> bool:
        same_point = bool(np.max(np.abs(search.x - best.x)) <= SAME_POINT_DISTANCE)
        difference = search.best - best.best
        resolution = max(p.resolution if p.stop is Stop.TOLERANCE else 0.0 for p in (search, best))
        has_converged = search.stop is Stop.TOLERANCE and search.kind != "probe"
        same_value = has_converged and difference <= SAME_VALUE_RESOLUTIONS * resolution
        # on a plateau or at its limit a search has the value without having converged
        same_value |= 0 <= difference <= SAME_VALUE_SHARE * span and span > 0
        return search.violation <= best.violation and (same_value or (has_converged and same_point))

    return [agrees(search) for search in past]


def estimate_confidence(past: Sequence[SearchSummary]) -> float:
    """Estimate how sure it is that no better value is left to be found.

    Were there a better minimum that is found as often as the best one, which k of n searches of a kind have found, the
    chance that all n have missed it is C(n, k) / C(2n, k): that of k marks among 2n places to lie in one half of them.
    This is the mean of (1 - p)^n over the posterior Beta(k, n - k + 1) of the share p of searches that find the best.
    The kinds (first searches and their repetitions, large populations, small ones, differential evolution, descents)
    have shares of their own, and their chances are multiplied; the confidence is 1 minus the product. Two descents
    count as one search, as they see less of the function, and a large population smaller than the smallest that found
    the best does not count: it could not have found it. Multistart theory has the same ingredients: Boender & Rinnooy
    Kan (1987), Mathematical Programming 37:59-80, doi:10.1007/BF02591684.
    """
    counts: dict[str, tuple[int, int]] = {}
    agreeing = find_agreeing_searches(past)
    sizes = [p.doublings for p, agrees in zip(past, agreeing, strict=True) if agrees and p.kind == "large"]
    for search, agrees in zip(past, agreeing, strict=True):
        is_too_small = search.kind == "large" and search.doublings < min(sizes, default=0)
        if search.kind == "probe" or is_too_small:
            continue
        is_cut_short = search.stop is Stop.BUDGET and search.kind != "evolution" and not agrees
        if not is_cut_short:
            kind = "first" if search.kind == "repeat" else search.kind
            n, k = counts.get(kind, (0, 0))
            counts[kind] = n + 1, k + agrees
    if "descent" in counts:
        n, k = counts["descent"]
        counts["descent"] = (n + 1) // 2, (k + 1) // 2
    return 1.0 - math.prod(math.comb(n, k) / math.comb(2 * n, k) for n, k in counts.values())


def summarize_agreement(past: Sequence[SearchSummary]) -> Agreement:
    n_searches = sum(search.kind != "probe" for search in past)
    return Agreement(sum(find_agreeing_searches(past)), n_searches, estimate_confidence(past))


class Restarts:
    """Base class of restart policies; a subclass implements `next`."""

    name: str

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


@dataclass(frozen=True)
class IndependentRestarts(Restarts):
    """Repeat the same search from new starting points (multi-start)."""

    name = "plain"

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        return NextSearch(algorithm, "repeat")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


Topology = Literal["ring", "torus", "complete", "random"]


@experimental
@dataclass(frozen=True)
class Islands:
    """A run as several populations, each on an island of its own.

    count: islands per run, each with the algorithm's whole population.
    migrate_every: generations between two migrations.
    migrants: individuals that every island receives at a migration; they take the place of that many candidates and are
        evaluated with the others, so a migration costs no extra evaluations.
    topology: where they come from. "ring": the island before. "torus": the four neighbours on a grid in turn.
        "complete": every other island in turn. "random": islands drawn anew each time.
    send: "best" sends the best survivors (of several objectives, points of the first front), "random" any of them.
    replace: "worst" gives a migrant the place of the candidate whose parent is worst, "random" any place.
    """

    count: int = 4
    migrate_every: int = 20
    migrants: int = 2
    topology: Topology = "ring"
    send: Literal["best", "random"] = "best"
    replace: Literal["worst", "random"] = "worst"

    def check(self, population: int) -> None:
        """Check the fields, for islands with populations of this size."""
        check_integer(self.count, "islands: count", 1)
        check_integer(self.migrate_every, "islands: migrate_every", 1)
        most = max(1, population // 2)
        if check_integer(self.migrants, "islands: migrants", 1) > most:
            raise InputError(
                f"islands: migrants must be at most half a population, {most} of {population}; got {self.migrants}."
            )
        choices = {"topology": get_args(Topology), "send": ("best", "random"), "replace": ("worst", "random")}
        for name, options in choices.items():
            if getattr(self, name) not in options:
                names = ", ".join(f'"{option}"' for option in options[:-1]) + f' or "{options[-1]}"'
                raise InputError(f"islands: {name} must be {names}; got {getattr(self, name)!r}.")

    def routes(self, turn: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where migrants come from: their island, and their index among those that it sends, (count, migrants).

        turn: the number of the migration, from 1.
        """
        island, slot = np.arange(self.count)[:, None], np.arange(self.migrants)[None, :]
        n_others = max(1, self.count - 1)
        if self.topology == "ring":
            source = np.broadcast_to((island - 1) % self.count, (self.count, self.migrants))
        elif self.topology == "torus":
            rows = max(r for r in range(1, math.isqrt(self.count) + 1) if self.count % r == 0)
            columns = self.count // rows
            row, column = island // columns, island % columns
            around = [(0, -1), (0, 1)] if rows == 1 else [(0, -1), (-1, 0), (0, 1), (1, 0)]
            moves = np.array(around)[(slot + (turn - 1) * self.migrants) % len(around)]
            source = (row + moves[..., 0]) % rows * columns + (column + moves[..., 1]) % columns
        elif self.topology == "complete":
            source = (island + 1 + ((turn - 1) * self.migrants + slot) % n_others) % self.count
        else:
            draws = np.random.default_rng([seed, turn])
            source = (island + 1 + draws.integers(n_others, size=(self.count, self.migrants))) % self.count
        before = source[:, :, None] == source[:, None, :]
        return source, (np.tril(np.ones((self.migrants, self.migrants), int), -1) * before).sum(axis=2)


def parse_islands(islands: object) -> Islands | None:
    """Convert the argument `islands`, an Islands or their number."""
    if islands is None or isinstance(islands, Islands):
        return islands
    if isinstance(islands, bool) or not isinstance(islands, int | np.integer):
        raise InputError(f"islands must be a galapax.Islands, or how many islands there are; got {islands!r}.")
    return Islands(int(islands))
