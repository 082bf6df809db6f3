"""The direction of each objective. The one place that knows which objectives are maximised, and that changes signs.

Inside, every objective is minimised. A value as the user means it is the minimised value times the sign of its
objective, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError

Maximize = bool | tuple[bool, ...]  # of all objectives, or of each
Values = TypeVar("Values", bound=Any)  # an array of NumPy or JAX


def check_maximize(value: Any, name: str = "maximize") -> Maximize:
    """Return a valid `maximize`: a bool for all objectives, or a tuple with one for each."""
    is_list = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)
    entries = list(value) if is_list else [False if value is None else value]
    if not entries or not all(isinstance(v, bool | np.bool_) or (type(v) is int and v in (0, 1)) for v in entries):
        raise InputError(
            f"{name} must be True, False, or a list with one of them for each objective, such as [True, False]; "
            f"got {abbreviate(value)}."
        )
    return tuple(map(bool, entries)) if is_list else bool(entries[0])


def check_direction_count(maximize: Maximize, n_objectives: int, problem_name: str) -> None:
    """Raise an InputError unless there is one direction for all objectives, or one for each."""
    if not isinstance(maximize, bool) and len(maximize) != n_objectives:
        count = "1 objective" if n_objectives == 1 else f"{n_objectives} objectives"
        entries = "1 entry" if len(maximize) == 1 else f"{len(maximize)} entries"
        raise InputError(
            f"maximize has {entries}, and {problem_name!r} has {count}: give one entry for each objective, or True or "
            "False for all of them."
        )


def count_directions(maximize: Maximize) -> int | None:
    """Return the number of objectives that `maximize` names one by one; None if it is for all of them."""
    return None if isinstance(maximize, bool) else len(maximize)


def objective_signs(maximize: bool | Sequence[bool]) -> np.ndarray:
    """Return the signs of the objectives, (m,), or (1,) for all of them: -1 where one is maximised, else 1."""
    return np.where(np.atleast_1d(np.asarray(maximize, bool)), -1.0, 1.0)


def orient(objectives: Values, maximize: Maximize) -> Values:
    """Convert objectives (..., m) that the user means to those that are minimised, or back, in their own dtype."""
    if isinstance(maximize, bool):
        return -objectives if maximize else objectives
    return objectives * objective_signs(maximize).astype(objectives.dtype)
