"""Two kinds of search share a run: CMA-ES with restarts, and L-SHADE.

Neither solves what the other does: CMA-ES follows curved and rotated valleys with few evaluations, adaptive
differential evolution finds its way between many separable minima. The policy begins with CMA-ES, which is done soon
where it is the right method, and gives L-SHADE its part once restarts have not helped. docs/algorithms.md has the
measurements that the shares below come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from galapax.algorithms.lshade import LSHADE
from galapax.core.algorithm import Algorithm
from galapax.core.restarts import BIPOP, Leg, Past, Restarts, found
from galapax.core.stop import Stop

ROUNDS = 500  # generations of its first population that L-SHADE needs; with fewer individuals it has more
FEWEST = 500  # evaluations a variable below which L-SHADE is not worth its start
UNKNOWN = 2  # without a known budget L-SHADE may spend so many times what was spent before it


@dataclass(frozen=True)
class Portfolio(Restarts):
    """CMA-ES by BIPOP, and between its restarts L-SHADE.

    wait: share of the budget that is spent when L-SHADE begins. share: of the budget, what L-SHADE is given.
    """

    name = "portfolio"

    wait: float = 0.2
    share: float = 0.25

    def next(self, algorithm: Algorithm, past: Sequence[Past], left: float, draw: Callable[[], float]) -> Leg | Stop:
        if past and found(past) == len(past):
            return Leg(algorithm, "again")  # all came to the same point: more of the same, which needs no new program
        own = [p for p in past if p.kind != "evolution"]
        spent = sum(p.evaluations for p in past)
        evolved = spent - sum(p.evaluations for p in own)
        total = spent + left
        if math.isfinite(total):
            due, most = evolved == 0 and spent >= self.wait * total, self.share * total
        else:
            due, most = len(own) > 2 and spent >= 2 * UNKNOWN * evolved, float(UNKNOWN * spent)
        if past and due and FEWEST * len(past[0].x) <= most <= left:
            return Leg(LSHADE(population=max(18, round(most / ROUNDS))), "evolution", most)
        return BIPOP().next(algorithm, own, left, draw)
