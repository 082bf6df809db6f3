"""The non-dominated front of a run with several objectives, and rules that choose a point on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from galapax.core.checks import abbreviate, as_float_array
from galapax.core.errors import InputError
from galapax.core.problem import CandidateEvaluation, Population
from galapax.metrics import indicators


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

    def as_dict(self) -> dict[str, np.ndarray | None]:
        """Return the arrays by name, as a Result has them."""
        return {name: getattr(self, name) for name in ("X", "F", "G", "H", "CV")}


def build_front(
    individuals: Population,
    signs: np.ndarray,
    evaluate_constraints: Callable[[np.ndarray], CandidateEvaluation | None] | None,
) -> Front:
    """Make a Front of individuals none of which is dominated; of equal solutions one is kept.

    signs: see `objective_signs`. evaluate_constraints: returns the constraints at points, if wanted.
    """
    x, objectives = np.asarray(individuals.x, np.float64), np.asarray(individuals.objectives, np.float64)
    _, first_rows = np.unique(x, axis=0, return_index=True)
    rows = first_rows[np.lexsort((*objectives[first_rows].T[::-1],))]
    x, objectives = x[rows], objectives[rows]
    evaluation = evaluate_constraints(x) if evaluate_constraints is not None else None
    if evaluation is None or evaluation.violation is None:
        return Front(x, signs * objectives, None, None, np.zeros(len(x)))
    ineq, eq = (
        None if values is None else np.asarray(values, np.float64) for values in (evaluation.ineq, evaluation.eq)
    )
    return Front(x, signs * objectives, ineq, eq, np.asarray(evaluation.violation, np.float64))


def merge_fronts(fronts: Sequence[Population]) -> Population:
    """Return the individuals of all these fronts that are not dominated by another."""
    columns = [np.concatenate(leaves) for leaves in zip(*((f.x, f.objectives) for f in fronts), strict=True)]
    x, objectives = columns
    is_non_dominated = indicators.non_dominated(objectives) if len(fronts) > 1 else np.ones(len(x), bool)
    return Population(x[is_non_dominated], objectives[is_non_dominated], None)


CHOICE_RULES = ("knee", "ideal")
ASK_USER = "ask"


def knee(values: np.ndarray, signs: np.ndarray) -> int:
    """The row of the front's knee, the point that represents a front wherever one is needed."""
    return choose(values, signs, "knee")


def choose(
    values: np.ndarray,
    signs: np.ndarray,
    how: str | ArrayLike = "knee",
    *,
    reference: ArrayLike | None = None,
    aspiration: ArrayLike | None = None,
) -> int:
    """Choose a row of the front with these values (k, m).

    how: "knee", "ideal" (closest to it), or weights of the objectives (m,). reference: a point (m,) to be close to.
    aspiration: levels (m,) to be reached, by the achievement function, with `how` as its weights if given.
    signs: of the objectives, see `objective_signs`.
    """
    if not len(values):
        raise InputError("the front is empty, so there is no point to choose; the message says what was found.")
    if reference is not None and aspiration is not None:
        raise InputError("choose takes a reference or an aspiration, not both: the first is to be near, the other to "
                         "be reached.")  # fmt: skip
    points, rules = signs * values, " or ".join(map(repr, CHOICE_RULES))
    if reference is not None:
        if not _is_word(how, "knee"):  # the default
            raise InputError("choose takes a reference alone, without weights or a word.")
        return indicators.closest_to(points, signs * _levels(reference, "reference", values.shape[1]))
    if aspiration is not None:
        weights = None if _is_word(how, "knee") else how
        if isinstance(weights, str):
            raise InputError(f"choose takes an aspiration with weights or alone, and not with {how!r}.")
        return indicators.achieving(points, signs * _levels(aspiration, "aspiration", values.shape[1]), weights)
    if isinstance(how, str):
        if how not in CHOICE_RULES:
            raise InputError(f"choose takes {rules}, {ASK_USER!r} or one weight per objective; got {how!r}.")
        return {"knee": indicators.knee, "ideal": indicators.closest_to_ideal}[how](points)
    try:
        return indicators.weighted(points, how)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"choose takes {rules}, {ASK_USER!r} or one weight per objective; got {abbreviate(how)}."
        ) from None


def _is_word(how: object, word: str) -> bool:
    return isinstance(how, str) and how == word  # an array compares element by element


def _levels(values: ArrayLike, name: str, m: int) -> np.ndarray:
    """Check and convert one finite number per objective."""
    try:
        levels = as_float_array(values)
    except ValueError:
        levels = np.zeros(0)
    if levels.shape != (m,) or not np.isfinite(levels).all():
        raise InputError(f"{name} must be {m} finite numbers, one per objective; got {abbreviate(values)}.")
    return levels


def trade_offs(values: np.ndarray, signs: np.ndarray, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Gains and costs of a step from rows of a front (k, m) to a neighbour: (r, m) rows, and (r, m, m) changes.

    The neighbour j of a row is the nearest point that is better in objective j, distances in units of the front's
    range; -1 where there is none. changes[i, j] are its values less those of the row, as the user means them; NaN
    where there is none.
    """
    points, span = signs * values, np.ptp(values, axis=0)
    unit, m = points / np.where(span > 0, span, 1), values.shape[1]
    neighbours, changes = np.full((len(rows), m), -1), np.full((len(rows), m, m), np.nan)
    for i, row in enumerate(rows):
        distances = np.linalg.norm(unit - unit[row], axis=1)
        for j in range(m):
            better = points[:, j] < points[row, j]
            if better.any():
                neighbours[i, j] = int(np.argmin(np.where(better, distances, np.inf)))
                changes[i, j] = values[neighbours[i, j]] - values[row]
    return neighbours, changes
