"""Candidates moved onto the constraints by differences of values, where nothing derives them: black boxes, and
functions of many solutions at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array

from galapax.operators.constraint_handling import difference_jacobian, difference_points, newton_repair

if TYPE_CHECKING:
    from galapax.engines.search import Carry, Search


def rows_to_repair(search: Search, count: int, number: Any) -> Array:
    """Which of `count` candidates are repaired in generation `number`: they take turns, as many each time, so that the
    work is the same in every generation.
    """
    return (number * search.repairs + jnp.arange(search.repairs, dtype=jnp.int32)) % count


def probe_points(search: Search, asked: Carry, number: Any) -> Array:
    """The points (R, repairs * (1 + d), d) whose constraints `mended` needs."""
    candidates = asked.state.candidates
    chosen = candidates[:, rows_to_repair(search, candidates.shape[1], number)]
    points = jax.vmap(jax.vmap(lambda x: difference_points(x, search.bounds)))(chosen)
    return points.reshape(candidates.shape[0], -1, candidates.shape[2])


def repair(search: Search, asked: Carry, number: Any, values: Array, eq_tolerance: float) -> Carry:
    """The candidates with those whose turn it is moved towards the constraints that they violate.

    values: (R, repairs * (1 + d), p + q), the constraints at `probes`.
    """
    candidates = asked.state.candidates
    runs, count, dim = candidates.shape
    points = probe_points(search, asked, number).reshape(runs, search.repairs, 1 + dim, dim)
    values_at = values.reshape(runs, search.repairs, 1 + dim, -1)

    def one(points: Array, values_at: Array) -> Array:
        jacobian = difference_jacobian(points, values_at)
        return newton_repair(points[0], values_at[0], jacobian, search.shape.ineq, eq_tolerance, search.bounds)

    repaired = candidates.at[:, rows_to_repair(search, count, number)].set(jax.vmap(jax.vmap(one))(points, values_at))
    return asked._replace(state=asked.state._replace(candidates=repaired))


def count_failed_probes(search: Search, count: int, number: Any, failed: Array) -> Array:
    """How many of the probes of each of `count` candidates failed, (R, count), from `failed` (R, repairs * (1 + d))."""
    each = jnp.sum(failed.reshape(failed.shape[0], search.repairs, -1), axis=2)
    return jnp.zeros((failed.shape[0], count), each.dtype).at[:, rows_to_repair(search, count, number)].add(each)


def repair_traced(search: Search, asked: Carry, number: Any) -> tuple[Carry, Array]:
    """`mended` for a traced objective, which says by itself what the constraints are; and `losses`."""
    objective: Any = search.objective  # formulas: a game has no constraints
    values = jax.vmap(lambda x: objective.constraints(search.consts, x))(probe_points(search, asked, number))
    failed = ~jnp.all(jnp.isfinite(values), axis=2)
    candidates = asked.state.candidates
    lost = count_failed_probes(search, candidates.shape[1], number, failed.astype(candidates.dtype))
    return repair(search, asked, number, values, objective.eq_tolerance), lost
