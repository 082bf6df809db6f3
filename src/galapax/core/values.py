"""What one call of a simulator gives: objective and constraints together."""

from __future__ import annotations

from typing import Any, NamedTuple

OUTPUT_NAMES = ("fun", "ineq", "eq")


class Values(NamedTuple):
    """What `fun` of a black box may return, so that a simulator runs once for a point; a dict of the same does too.

    fun: a number, or one for each objective. ineq, eq: constraints, a number or several each; feasible when every ineq
        <= 0 and every eq = 0 (to 1e-4).
    """

    fun: Any
    ineq: Any = None
    eq: Any = None


def returned_by_fun(x: Any) -> Any:
    """Stands for a constraint of a problem whose values come with those of `fun`; it is never called."""
    raise NotImplementedError("these constraints are returned by fun, together with its value.")
