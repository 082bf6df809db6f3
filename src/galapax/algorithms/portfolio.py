"""The default restart policies: a portfolio of CMA-ES with restarts, L-SHADE and gradient descents; or under noise
CMA-ES with populations that grow.

The methods are good at different problems. CMA-ES needs few evaluations on curved and rotated valleys, and with large
populations it finds the bottom of a landscape that many minima are laid over; adaptive differential evolution is better
where the objective is a sum over the variables, or has no such bottom. The policy starts with CMA-ES, which converges
soon where it is the right method, and decides by what the first searches say how the rest of the budget is shared.
Objectives that have a gradient begin with descents along it, each from the best of a few samples, which are enough for
a smooth function with one minimum. docs/algorithms.md has the measurements behind the constants below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from galapax.algorithms.cmaes import CMAES, GROWTH
from galapax.algorithms.lshade import LSHADE
from galapax.algorithms.multistart import Multistart
from galapax.algorithms.separable import SeparabilityTest, SeparableSearch
from galapax.core.algorithm import Algorithm, Budget, scale_spread
from galapax.core.problem import Shape
from galapax.core.restarts import (
    BIPOP,
    MAX_DOUBLINGS,
    NextSearch,
    Restarts,
    SearchSummary,
    find_agreeing_searches,
    search_with_doubled_population,
)
from galapax.core.stop import Stop

FIRST_REPEAT_SHRINK = 0.1  # of the first step: the second search is a local one
MAX_REPEAT_COST = 2.0  # evaluations of the second search, in units of the first one's
GROWN_SHRINK = 0.5  # of the first step, for growing populations: a wide start leaves the box
COST_EXPONENT = 0.75  # a search takes about this power of its population in evaluations
MAX_COST_SHARE = 0.5  # of the evaluations left, that a larger population is expected to take
MAX_COST_OVERRUN = 1.5  # of what a larger population was expected to cost, at which its search ends
# generations of the first population that the budget of L-SHADE should allow; the population is chosen by it
MIN_LSHADE_GENERATIONS_PER_VARIABLE, MAX_LSHADE_GENERATIONS = 50, 500
MIN_LSHADE_EVALUATIONS_PER_VARIABLE = 400  # with a smaller share of the budget L-SHADE is not started
MAX_LSHADE_SEARCHES = 3  # the first, and others that verify its answer
MIN_GENERATIONS_UNDER_NOISE = 30  # for which a larger population must have evaluations
UNLIMITED_LSHADE_FACTOR = 2  # without a limit L-SHADE may spend this multiple of the evaluations before it
MAX_SEPARABLE_SEARCHES = 5  # line by line, of a sum over the variables
MIN_SEPARABLE_EVALUATIONS_PER_VARIABLE = 200  # that such a search should have
LOCAL_SHRINK = 0.1  # of the first step, for a search from a point that others have found
MAX_MULTISTART_SHARE, MAX_MULTISTARTS_SHARE = 0.1, 0.4  # of all evaluations, for ten descents or more, and for all
MAX_MULTISTARTS = 8
MIN_MULTISTART_EVALUATIONS_PER_VARIABLE = 400  # that such a search should have
MAX_POPULATION_VALUES = 2**21  # of a member that works line by line or with differences, in favour of memory
SEPARABILITY_PROBE = NextSearch(SeparabilityTest(), "probe", generations=1)


@dataclass(frozen=True)
class Portfolio(Restarts):
    """CMA-ES with growing populations, L-SHADE and BIPOP, by what the searches so far have shown.

    1. As long as all searches agree, the first is repeated from other places and with shorter first steps: searches
       that begin wide tend to the widest basin, and would agree with each other.
    2. If they disagree, a few evaluations tell whether the objective is a sum over its variables. Then each variable's
       line is searched by itself, and if such searches disagree, L-SHADE is next.
    3. Otherwise come descents from many places, until a share of the budget is spent; if the first ten find ten minima,
       these are all.
    4. Then the population doubles. As long as the last one ends below all searches before it, the next is the largest
       that the rest of the budget should suffice for.
    5. If that gains nothing more, L-SHADE has a share of the budget, and BIPOP has the rest.

    An L-SHADE that has converged to the best value, and a population that found it twice, are repeated until the run is
    sure of it.

    share: share of the budget for a search by L-SHADE.
    descends: whether descents by the gradient come first, as long as half of them end at the best value.
    """

    name = "portfolio"
    ends_near_known = True

    share: float = 0.25
    descends: bool = False

    def with_gradients(self, dim: int) -> Portfolio:
        return replace(self, descends=True)

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        agreeing = find_agreeing_searches(past)
        if self.descends and all(p.kind == "descent" for p in past) and 2 * sum(agreeing) >= len(past):
            return NextSearch(algorithm, "descent", generations=1, polish=True)
        searches = _select_cmaes(past)
        if not searches:
            return NextSearch(algorithm, "first")
        converged = [p for p in past if p.kind != "descent" or p.stop is Stop.TOLERANCE]
        if all(find_agreeing_searches(converged)):  # the same search needs no new program
            return _repeat_first(algorithm, searches, draw)
        tests = [p for p in past if p.kind == "probe"]
        if not tests and len(searches[0].x) > 1:
            return SEPARABILITY_PROBE
        is_refuted = any(p.kind == "separable" and p.stop is Stop.STALL for p in past)
        is_separable = any(p.stop is Stop.TOLERANCE for p in tests) and not is_refuted
        if is_separable and (search := self._search_lines(past, evaluations_left)) is not None:
            return search
        if not is_separable:
            if (descents := self._descend(algorithm, past, evaluations_left)) is not None:
                return descents
            if (larger := self._grow(algorithm, past, evaluations_left)) is not None:
                return larger
            last = past[-1]
            if last.kind == "evolution" and last.stop is Stop.BUDGET and agreeing[-1]:  # close to a minimum at best
                return NextSearch(scale_spread(algorithm, LOCAL_SHRINK), "refinement", start=last.x)
        budget = self._lshade_budget(past, agreeing, evaluations_left, is_separable)
        lshade = self._lshade_search(past, budget, evaluations_left)
        return lshade[0] if lshade else BIPOP().next(algorithm, searches, evaluations_left, draw)

    def _search_lines(self, past: Sequence[SearchSummary], evaluations_left: float) -> NextSearch | None:
        """Return another search of each variable's line by itself, None if these are over."""
        dim, searches = len(past[0].x), [p for p in past if p.kind == "separable"]
        is_over = len(searches) >= MAX_SEPARABLE_SEARCHES or any(p.stop is not Stop.TOLERANCE for p in searches)
        search = SeparableSearch().bind(dim, Shape(), Budget())
        is_large = search.population * dim > MAX_POPULATION_VALUES
        if is_over or is_large or evaluations_left < MIN_SEPARABLE_EVALUATIONS_PER_VARIABLE * dim:
            return None
        return NextSearch(search, "separable")

    def _descend(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float
    ) -> NextSearch | None:
        """Return descents from many places, None if each finds another minimum, or enough have been tried."""
        searches = [p for p in past if p.kind == "multistart"]
        if past[-1].kind == "multistart" and past[-1].best <= min(p.best for p in past):
            return NextSearch(scale_spread(algorithm, LOCAL_SHRINK), "refinement", start=past[-1].x)
        spent, total = sum(p.evaluations for p in searches), evaluations_left + sum(p.evaluations for p in past)
        is_rugged = 2 * sum(p.stop is Stop.TOLERANCE for p in searches) < len(searches)
        limit = min(MAX_MULTISTART_SHARE * total, evaluations_left)
        dim = len(past[0].x)
        search = Multistart().bind(dim, Shape(), Budget())
        is_small = limit < MIN_MULTISTART_EVALUATIONS_PER_VARIABLE * dim
        is_over = is_rugged or len(searches) >= MAX_MULTISTARTS or spent / total > MAX_MULTISTARTS_SHARE
        if is_small or is_over or search.population * dim > MAX_POPULATION_VALUES:
            return None
        return NextSearch(search, "multistart", limit)

    def _grow(self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float) -> NextSearch | None:
        """Return a search with a larger population, None if the last one gained nothing by it."""
        searches = _select_cmaes(past)
        large = [p for p in searches if p.kind == "large"]
        doublings = 1
        if large:
            last, agrees = large[-1], find_agreeing_searches(searches)
            if past[-1] is not last or last.stop is Stop.BUDGET or not agrees[-1]:
                return None
            agreeing = [p.doublings for p, same in zip(searches, agrees, strict=True) if same and p.kind == "large"]
            doublings = last.doublings + 1
            affordable = MAX_COST_SHARE * evaluations_left if math.isfinite(evaluations_left) else 0.0
            while _estimate_cost(searches, doublings + 1) <= affordable:
                doublings += 1
            if len(agreeing) > 1 or _estimate_cost(searches, doublings) > evaluations_left:
                doublings = min(agreeing)  # is it found again?
        cost = _estimate_cost(searches, doublings)
        if doublings > MAX_DOUBLINGS or cost > evaluations_left:
            return None
        grown = search_with_doubled_population(scale_spread(algorithm, GROWN_SHRINK), searches[0].population, doublings)
        return grown._replace(evaluations=MAX_COST_OVERRUN * cost)

    def _lshade_budget(
        self, past: Sequence[SearchSummary], agreeing: Sequence[bool], evaluations_left: float, is_separable: bool
    ) -> float:
        """Return the evaluations for a search by L-SHADE, 0 if it is not its turn.

        On a sum over the variables it has twice as many the next time, if it has not converged.
        """
        spent = sum(p.evaluations for p in past)
        evolutions = [p for p in past if p.kind == "evolution"]
        total = spent + evaluations_left
        if math.isfinite(total):
            if not evolutions:
                return self.share * total
            last = evolutions[-1]
            if past[-1] is last and last.stop is Stop.BUDGET and is_separable:
                return 2.0 * last.evaluations
            verifies = past[-1] is last and last.stop is Stop.TOLERANCE and agreeing[-1]
            return self.share * total if verifies and len(evolutions) < MAX_LSHADE_SEARCHES else 0.0
        lshade_spent = sum(p.evaluations for p in evolutions)
        is_due = len(_select_cmaes(past)) > 2 and spent >= 2 * UNLIMITED_LSHADE_FACTOR * lshade_spent
        return float(UNLIMITED_LSHADE_FACTOR * spent) if is_due else 0.0

    def predict_next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], upcoming: NextSearch, evaluations_left: float
    ) -> list[NextSearch]:
        if all(find_agreeing_searches(past)):
            return []
        searches = _select_cmaes(past)
        if upcoming.kind in ("descent", "first", "repeat") and all(p.kind != "probe" for p in past):
            first = [NextSearch(algorithm, "first")] if upcoming.kind == "descent" else []
            lines = self._search_lines(past, evaluations_left)
            return [*first, SEPARABILITY_PROBE, lines] if lines and len(past[0].x) > 1 else first
        if upcoming.kind in ("probe", "multistart"):
            larger = self._grow(algorithm, past, evaluations_left)
        elif upcoming.kind == "large":  # if it gains
            cost = int(_estimate_cost(searches, upcoming.doublings))
            gain = searches[0]._replace(
                kind="large", evaluations=cost, best=-math.inf, stop=Stop.TOLERANCE, doublings=upcoming.doublings
            )
            larger = self._grow(algorithm, [*past, gain], evaluations_left - cost)
        else:
            larger = None
        restarts = [larger] if larger else BIPOP().predict_next(algorithm, searches, upcoming, evaluations_left)
        evolutions = [kind for kind in (upcoming.kind, *(p.kind for p in past)) if kind == "evolution"]
        if evolutions or math.isinf(evaluations_left):
            return restarts
        budget = self.share * (evaluations_left + sum(p.evaluations for p in past))
        return [*self._lshade_search(past, budget, evaluations_left), *restarts]

    def _lshade_search(self, past: Sequence[SearchSummary], budget: float, evaluations_left: float) -> list[NextSearch]:
        """Return the search by L-SHADE with this budget; none if the budget is too small for it or not available."""
        if not MIN_LSHADE_EVALUATIONS_PER_VARIABLE * len(past[0].x) <= budget <= evaluations_left:
            return []
        generations = min(MAX_LSHADE_GENERATIONS, MIN_LSHADE_GENERATIONS_PER_VARIABLE * len(past[0].x))
        return [NextSearch(LSHADE(population=max(18, round(budget / generations))), "evolution", budget)]


def _repeat_first(algorithm: Algorithm, past: Sequence[SearchSummary], draw: Callable[[], float]) -> NextSearch:
    """Return the first search from another place and with a shorter first step."""
    if len(past) > 1:
        return NextSearch(scale_spread(algorithm, 10 ** (-2 * draw())), "repeat")
    local_search = scale_spread(algorithm, FIRST_REPEAT_SHRINK * 10 ** -draw())
    return NextSearch(local_search, "repeat", MAX_REPEAT_COST * past[0].evaluations)


def _estimate_cost(searches: Sequence[SearchSummary], doublings: int) -> float:
    """Estimate the evaluations of a search with a larger population, by those of searches that began wide."""
    costs = [p.evaluations / 2.0 ** (COST_EXPONENT * p.doublings) for p in searches if p.kind in ("first", "large")]
    return float(np.median(costs)) * 2.0 ** (COST_EXPONENT * doublings)


@dataclass(frozen=True)
class GrowingPopulations(Restarts):
    """CMA-ES under noise: a search that makes no progress is soon followed by one with four times the population.

    Many samples average the noise out, and how many that takes is not known beforehand. Growing by IPOP would find out
    too late, since a search without noise needs more patience. Where the rest of the budget has no room for a larger
    population, it takes the largest for which there is.
    """

    name = "growing"

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        if isinstance(algorithm, CMAES):
            algorithm = replace(algorithm, patience=1.0)
        if not past:
            return NextSearch(algorithm, "first")
        return self._next_larger(algorithm, past[0].population, past[-1].doublings, evaluations_left)

    def predict_next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], upcoming: NextSearch, evaluations_left: float
    ) -> list[NextSearch]:
        if not past:
            return []
        return [self._next_larger(upcoming.algorithm, past[0].population, upcoming.doublings, evaluations_left)]

    def _next_larger(self, algorithm: Algorithm, first: int, doublings: int, evaluations_left: float) -> NextSearch:
        step = round(math.log2(GROWTH))
        doublings = min(doublings + step, MAX_DOUBLINGS)
        while doublings > 0 and MIN_GENERATIONS_UNDER_NOISE * first * 2**doublings > evaluations_left:
            doublings -= step
        return search_with_doubled_population(algorithm, first, max(doublings, 0))


def _select_cmaes(past: Sequence[SearchSummary]) -> list[SearchSummary]:
    others = ("evolution", "descent", "probe", "separable", "refinement", "multistart")
    return [p for p in past if p.kind not in others]
