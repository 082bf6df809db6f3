"""The default restart policy: a portfolio of CMA-ES with restarts, L-SHADE, gradient descents and Nelder-Mead.

The methods are good at different problems. CMA-ES needs few evaluations on curved and rotated valleys; adaptive
differential evolution is better among many separable minima. The policy starts with CMA-ES, which converges soon where
it is the right method, and gives L-SHADE a share of the budget if restarts have not helped. Objectives of many
variables that have a gradient begin with sprints: a short CMA-ES, then a descent along the gradient, which is enough
for a smooth function with one minimum. docs/algorithms.md has the measurements behind the shares below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from galapax.algorithms.lshade import LSHADE
from galapax.core.algorithm import Algorithm
from galapax.core.restarts import BIPOP, NextSearch, Restarts, SearchSummary, count_agreeing_searches
from galapax.core.stop import Stop

# generations of the first population that the budget of L-SHADE should allow; the population is chosen by it
MIN_LSHADE_GENERATIONS = 500
MIN_LSHADE_EVALUATIONS_PER_VARIABLE = 500  # with a smaller share of the budget L-SHADE is not started
MIN_SPRINT_DIM = 30  # number of variables from which sprints pay
SPRINT_EVALUATIONS_PER_VARIABLE = 100  # before the descent
UNLIMITED_LSHADE_FACTOR = 2  # without a limit L-SHADE may spend this multiple of the evaluations before it


@dataclass(frozen=True)
class Portfolio(Restarts):
    """CMA-ES restarted by BIPOP, with one search by L-SHADE in between.

    wait: share of the budget that is spent before L-SHADE starts.
    share: share of the budget for L-SHADE.
    sprint: evaluations of each first search that a descent follows; sprints end when two of them disagree. 0 for none.
    """

    name = "portfolio"

    wait: float = 0.2
    share: float = 0.25
    sprint: float = 0.0

    def with_gradients(self, dim: int) -> Portfolio:
        return replace(self, sprint=float(SPRINT_EVALUATIONS_PER_VARIABLE * dim)) if dim >= MIN_SPRINT_DIM else self

    def next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], evaluations_left: float, draw: Callable[[], float]
    ) -> NextSearch | Stop:
        if self.sprint and all(p.kind == "sprint" for p in past) and count_agreeing_searches(past) == len(past):
            return NextSearch(algorithm, "sprint", self.sprint, polish=True)
        if past and count_agreeing_searches(past) == len(past):
            return NextSearch(algorithm, "repeat")  # all agree so far; the same search needs no new program
        cmaes_searches = _select_cmaes(past)
        spent = sum(p.evaluations for p in past)
        lshade_spent = sum(p.evaluations for p in past if p.kind == "evolution")
        total = spent + evaluations_left
        if math.isfinite(total):
            is_due, budget = lshade_spent == 0 and spent >= self.wait * total, self.share * total
        else:
            is_due = len(cmaes_searches) > 2 and spent >= 2 * UNLIMITED_LSHADE_FACTOR * lshade_spent
            budget = float(UNLIMITED_LSHADE_FACTOR * spent)
        lshade = self._lshade_search(past, budget, evaluations_left) if past and is_due else []
        return lshade[0] if lshade else BIPOP().next(algorithm, cmaes_searches, evaluations_left, draw)

    def predict_next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], upcoming: NextSearch, evaluations_left: float
    ) -> list[NextSearch]:
        if not past or count_agreeing_searches(past) == len(past):
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
        return [NextSearch(LSHADE(population=max(18, round(budget / MIN_LSHADE_GENERATIONS))), "evolution", budget)]


def _select_cmaes(past: Sequence[SearchSummary]) -> list[SearchSummary]:
    return [p for p in past if p.kind not in ("evolution", "sprint")]
