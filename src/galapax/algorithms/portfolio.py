"""Two kinds of search share a run: CMA-ES with restarts, and L-SHADE.

Neither solves what the other does: CMA-ES follows curved and rotated valleys with few evaluations, adaptive
differential evolution finds its way between many separable minima. The policy begins with CMA-ES, which is done soon
where it is the right method, and gives L-SHADE its part once restarts have not helped. Objectives of many variables
that have a gradient are tried with sprints first: a little of CMA-ES, then descent along the gradient, which is all
that a smooth function of one valley needs. docs/algorithms.md has the measurements behind the shares below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from galapax.algorithms.lshade import LSHADE
from galapax.core.algorithm import Algorithm
from galapax.core.restarts import BIPOP, NextSearch, Restarts, SearchSummary, count_agreeing_searches
from galapax.core.stop import Stop

MIN_LSHADE_GENERATIONS = (
    500  # generations of its first population that L-SHADE needs; with fewer individuals it has more
)
MIN_LSHADE_EVALUATIONS_PER_VARIABLE = 500  # evaluations a variable below which L-SHADE is not worth its start
MIN_SPRINT_DIM = 30  # variables from which on sprints pay
SPRINT_EVALUATIONS_PER_VARIABLE = 100  # evaluations a variable before the descent
UNLIMITED_LSHADE_FACTOR = 2  # without a known budget L-SHADE may spend so many times what was spent before it


@dataclass(frozen=True)
class Portfolio(Restarts):
    """CMA-ES by BIPOP, and between its restarts L-SHADE.

    wait: share of the budget that is spent when L-SHADE begins. share: of the budget, what L-SHADE is given.
    sprint: evaluations of the searches that begin a run, each followed by a descent, until two of them end apart; 0 for
        none.
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
            return NextSearch(
                algorithm, "again"
            )  # all came to the same point: more of the same, which needs no new program
        own = _of_cmaes(past)
        spent = sum(p.evaluations for p in past)
        evolved = sum(p.evaluations for p in past if p.kind == "evolution")
        total = spent + evaluations_left
        if math.isfinite(total):
            due, most = evolved == 0 and spent >= self.wait * total, self.share * total
        else:
            due, most = (
                len(own) > 2 and spent >= 2 * UNLIMITED_LSHADE_FACTOR * evolved,
                float(UNLIMITED_LSHADE_FACTOR * spent),
            )
        evolution = self._evolution(past, most, evaluations_left) if past and due else []
        return evolution[0] if evolution else BIPOP().next(algorithm, own, evaluations_left, draw)

    def predict_next(
        self, algorithm: Algorithm, past: Sequence[SearchSummary], leg: NextSearch, evaluations_left: float
    ) -> list[NextSearch]:
        if not past or count_agreeing_searches(past) == len(past):
            return []
        most = self.share * (evaluations_left + sum(p.evaluations for p in past))
        wanted = math.isfinite(evaluations_left) and not any(
            kind == "evolution" for kind in (leg.kind, *(p.kind for p in past))
        )
        own = BIPOP().predict_next(algorithm, _of_cmaes(past), leg, evaluations_left)
        return [*self._evolution(past, most, evaluations_left), *own] if wanted else own

    def _evolution(self, past: Sequence[SearchSummary], most: float, left: float) -> list[NextSearch]:
        """The search by L-SHADE of so many evaluations, if that is worth its start and can be had."""
        if not MIN_LSHADE_EVALUATIONS_PER_VARIABLE * len(past[0].x) <= most <= left:
            return []
        return [NextSearch(LSHADE(population=max(18, round(most / MIN_LSHADE_GENERATIONS))), "evolution", most)]


def _of_cmaes(past: Sequence[SearchSummary]) -> list[SearchSummary]:
    return [p for p in past if p.kind not in ("evolution", "sprint")]
