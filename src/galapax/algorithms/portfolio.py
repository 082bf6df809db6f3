"""The default restart policy: a portfolio of CMA-ES with restarts, L-SHADE and gradient descents.

The methods are good at different problems. CMA-ES needs few evaluations on curved and rotated valleys; adaptive
differential evolution is better among many separable minima. The policy starts with CMA-ES, which converges soon where
it is the right method, and gives L-SHADE a share of the budget if restarts have not helped. Objectives that have a
gradient begin with descents along it, each from the best of a few samples, which are enough for a smooth function with
one minimum. docs/algorithms.md has the measurements behind the shares below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from galapax.algorithms.lshade import LSHADE
from galapax.core.algorithm import Algorithm, scale_spread
from galapax.core.restarts import BIPOP, NextSearch, Restarts, SearchSummary, find_agreeing_searches
from galapax.core.stop import Stop

FIRST_REPEAT_SHRINK = 0.1  # of the first step: the second search is a local one
# generations of the first population that the budget of L-SHADE should allow; the population is chosen by it
MIN_LSHADE_GENERATIONS_PER_VARIABLE, MAX_LSHADE_GENERATIONS = 50, 500
MIN_LSHADE_EVALUATIONS_PER_VARIABLE = 500  # with a smaller share of the budget L-SHADE is not started
MAX_LSHADE_SEARCHES = 3  # the first, and others that verify its answer
UNLIMITED_LSHADE_FACTOR = 2  # without a limit L-SHADE may spend this multiple of the evaluations before it


@dataclass(frozen=True)
class Portfolio(Restarts):
    """CMA-ES restarted by BIPOP, with L-SHADE in between.

    As long as all searches agree, the first is repeated from other places and with shorter first steps: searches that
    begin wide tend to the widest basin, and would agree with each other. An L-SHADE that has converged to the best
    value is repeated, too, until the run is sure of it.

    wait: share of the budget that is spent before L-SHADE starts.
    share: share of the budget for a search by L-SHADE.
    descends: whether descents by the gradient come first, as long as half of them end at the best value.
    """

    name = "portfolio"

    wait: float = 0.2
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
        if past and all(agreeing):  # the same search needs no new program
            shrink = FIRST_REPEAT_SHRINK if len(past) == 1 else 1.0
            return NextSearch(scale_spread(algorithm, shrink * 10 ** (-2 * draw())), "repeat")
        cmaes_searches = _select_cmaes(past)
        spent = sum(p.evaluations for p in past)
        evolutions = [p for p in past if p.kind == "evolution"]
        lshade_spent = sum(p.evaluations for p in evolutions)
        total = spent + evaluations_left
        verifies = bool(evolutions) and past[-1] is evolutions[-1] and agreeing[-1] and past[-1].stop is Stop.TOLERANCE
        if math.isfinite(total):
            is_due, budget = not evolutions and spent >= self.wait * total, self.share * total
            is_due |= verifies and len(evolutions) < MAX_LSHADE_SEARCHES
        else:
            is_due = len(cmaes_searches) > 2 and spent >= 2 * UNLIMITED_LSHADE_FACTOR * lshade_spent
            budget = float(UNLIMITED_LSHADE_FACTOR * spent)
        lshade = self._lshade_search(past, budget, evaluations_left) if past and is_due else []
        return lshade[0] if lshade else BIPOP().next(algorithm, cmaes_searches, evaluations_left, draw)

    def predict_next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], upcoming: NextSearch, evaluations_left: float
    ) -> list[NextSearch]:
        if all(find_agreeing_searches(past)):
            return []
        budget = self.share * (evaluations_left + sum(p.evaluations for p in past))
        lshade_is_next = math.isfinite(evaluations_left) and not any(
            kind == "evolution" for kind in (upcoming.kind, *(p.kind for p in past))
        )
        restarts = BIPOP().predict_next(algorithm, _select_cmaes(past), upcoming, evaluations_left)
        return [*self._lshade_search(past, budget, evaluations_left), *restarts] if lshade_is_next else restarts

    def _lshade_search(self, past: Sequence[SearchSummary], budget: float, evaluations_left: float) -> list[NextSearch]:
        """Return the search by L-SHADE with this budget; none if the budget is too small for it or not available."""
        if not MIN_LSHADE_EVALUATIONS_PER_VARIABLE * len(past[0].x) <= budget <= evaluations_left:
            return []
        generations = min(MAX_LSHADE_GENERATIONS, MIN_LSHADE_GENERATIONS_PER_VARIABLE * len(past[0].x))
        return [NextSearch(LSHADE(population=max(18, round(budget / generations))), "evolution", budget)]


def _select_cmaes(past: Sequence[SearchSummary]) -> list[SearchSummary]:
    return [p for p in past if p.kind not in ("evolution", "descent")]
