"""The front of a run with several objectives: its feasible individuals that none dominates, and which one to take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from galapax.core.checks import short
from galapax.core.errors import InputError
from galapax.core.evaluation import Evaluation, Population
from galapax.measures import indicators


@dataclass(frozen=True)
class Front:
    """k solutions with m objectives, none of them dominated, failed or infeasible; ordered by the first objective."""

    X: np.ndarray  # (k, d)
    F: np.ndarray  # (k, m), as the user means them: maximised objectives keep their sign
    G: np.ndarray | None  # (k, p) values of the inequalities
    H: np.ndarray | None  # (k, q) values of the equalities
    CV: np.ndarray  # (k,) violation in float64: 0, unless a run in float32 took a point for feasible that is not quite

    def __len__(self) -> int:
        return len(self.X)

    def parts(self) -> dict[str, Any]:
        """Its arrays by name, as a Result has them."""
        return {name: getattr(self, name) for name in ("X", "F", "G", "H", "CV")}


def front_of(individuals: Population, sign: float, at: Callable[[np.ndarray], Evaluation | None] | None) -> Front:
    """A Front of individuals none of which is dominated; of equal solutions one is kept.

    sign: -1 for maximised objectives. at: evaluates the constraints of points, if wanted.
    """
    x, objectives = np.asarray(individuals.x, np.float64), np.asarray(individuals.objectives, np.float64)
    _, first = np.unique(x, axis=0, return_index=True)
    rows = first[np.lexsort((*objectives[first].T[::-1],))]
    x, objectives = x[rows], objectives[rows]
    exact = at(x) if at is not None else None
    if exact is None or exact.violation is None:
        return Front(x, sign * objectives, None, None, np.zeros(len(x)))
    ineq, eq = (None if part is None else np.asarray(part, np.float64) for part in (exact.ineq, exact.eq))
    return Front(x, sign * objectives, ineq, eq, np.asarray(exact.violation, np.float64))


def union(fronts: Sequence[Population]) -> Population:
    """The individuals of all these fronts that none of the others' dominates."""
    parts = [np.concatenate(leaves) for leaves in zip(*((f.x, f.objectives) for f in fronts), strict=True)]
    x, objectives = parts
    stay = indicators.non_dominated(objectives) if len(fronts) > 1 else np.ones(len(x), bool)
    return Population(x[stay], objectives[stay], None)


CHOICES = ("knee", "ideal")


def knee(values: np.ndarray, sign: float) -> int:
    """The row of the front's knee: the one place that says which point stands for a whole front."""
    return choose(values, sign, "knee")


def choose(values: np.ndarray, sign: float, how: Any) -> int:
    """A row of the front with these values (k, m): "knee", "ideal" (closest to it), or weights of the objectives (m,).

    sign: -1 for objectives that are maximised.
    """
    if not len(values):
        raise InputError("the front is empty, so there is no point to choose; see result.message.")
    if isinstance(how, str):
        if how not in CHOICES:
            raise InputError(
                f"choose takes {' or '.join(map(repr, CHOICES))} or one weight per objective; got {how!r}."
            )
        return {"knee": indicators.knee, "ideal": indicators.closest_to_ideal}[how](sign * values)
    try:
        return indicators.weighted(sign * values, how)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"choose takes {' or '.join(map(repr, CHOICES))} or one weight per objective; got {short(how)}."
        ) from None
