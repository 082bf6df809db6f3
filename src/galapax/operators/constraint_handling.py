"""Constraints relaxed by a level epsilon, and points moved onto the constraints that they violate."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.problem import Bounds, Population

INITIAL_PASSING_SHARE = 0.2  # share of the first population within the first level, theta of Takahama & Sakai
DIFFERENCE_STEP = 1e-6  # share of the box between points whose values give a derivative; simulators round their results


def relax_violation(population: Population, epsilon: ArrayLike) -> Population:
    """Return the individuals as they are judged at level epsilon, a number or (n,): a violation up to it counts as
    none.

    What compares by feasibility first then compares as Takahama & Sakai (2006) do, IEEE CEC, 1-8,
    doi:10.1109/CEC.2006.1688283; epsilon = 0 changes nothing.
    """
    if population.violation is None:
        return population
    return population._replace(violation=jnp.where(population.violation <= epsilon, 0, population.violation))


def epsilon_level(first: Array, generation: Array, last: Array | float, power: ArrayLike) -> Array:
    """Return the level of a generation: `first` in the first, falling as a power of the time left, 0 from `last` on."""
    return first * jnp.maximum(0, 1 - generation / last) ** power


def initial_level(violation: Array, share: float) -> Array:
    """Return the level that lets this share of the individuals pass, from their violation (n,)."""
    level = jnp.sort(violation)[int(share * violation.shape[0])]
    return jnp.where(jnp.isfinite(level), level, 0)


def newton_repair(
    x: Array, values: Array, jacobian: Array, ineq: int, eq_tolerance: float | tuple[float, ...], bounds: Bounds
) -> Array:
    """Move x (d,) by a Newton step towards the constraints that it violates; unchanged if it violates none.

    values: (p + q,) at x, p = `ineq` inequalities before the equalities; jacobian (p + q, d). The step aims at half the
    tolerance of an equality, which leaves room for its curvature.
    """
    below, equal = values[:ineq], values[ineq:]
    tolerance = jnp.asarray(eq_tolerance, x.dtype)
    within = jnp.clip(equal, -tolerance / 2, tolerance / 2)
    targets = [jnp.minimum(below, 0), jnp.where(jnp.abs(equal) > tolerance, within, equal)]
    return project_onto_constraints(x, values, jacobian, jnp.concatenate(targets), bounds)


def difference_points(x: Array, bounds: Bounds) -> Array:
    """x (d,) and, for each variable, x with that one moved a little into the box: (1 + d, d)."""
    share = max(DIFFERENCE_STEP, float(jnp.finfo(x.dtype).eps) ** 0.5)
    little = jnp.where(x > bounds.lower + bounds.span / 2, -share, share) * bounds.span
    return jnp.concatenate([x[None], x + jnp.diag(little)])


def difference_jacobian(points: Array, values: Array) -> Array:
    """Return the Jacobian (q, d) from values (1 + d, q) at the points of `difference_points`; 0 for a variable that has
    no width.
    """
    moves = jnp.diagonal(points[1:] - points[0])
    return jnp.where(moves != 0, (values[1:] - values[0]).T / jnp.where(moves != 0, moves, 1), 0)


def project_onto_constraints(x: Array, values: Array, jacobian: Array, targets: Array, bounds: Bounds) -> Array:
    """Move x (d,) so that the constraints linearised at x reach their targets: one Newton step, clipped to the box.

    values, targets (q,): constraints where both agree are left alone. jacobian (q, d). The step is the shortest one in
    units of the box. A point is returned as it came when the step is not finite.
    """
    step = minimum_norm_step(jnp.where((values != targets)[:, None], jacobian * bounds.span, 0), targets - values)
    moved = jnp.clip(x + bounds.span * step, bounds.lower, bounds.upper)
    return jnp.where(jnp.all(jnp.isfinite(step)), moved, x)


def minimum_norm_step(rows: Array, targets: Array) -> Array:
    """Return the shortest s (d,) with rows @ s = targets, for rows (q, d): what the pseudo-inverse gives if they can
    all hold.

    Rows are met one after another, each by moving along the part of it that is orthogonal to those before, so that what
    is met stays met. A row that is zero, or depends on earlier ones, is left out. Sums of products only: it batches
    well, where a library's factorisation is called matrix by matrix on a CPU.
    """
    q, d = rows.shape
    length = jnp.sqrt(jnp.sum(rows**2, axis=1))
    scale = jnp.where(length > 0, length, 1)
    units, goals = rows / scale[:, None], targets / scale
    least = 16 * jnp.finfo(rows.dtype).eps  # what rounding leaves of a dependent row
    places = jnp.arange(min(q, d), dtype=jnp.int32)

    def meet(j: Array | int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        basis, count, step = carry
        fresh = units[j]
        for _ in range(2):  # once more for what rounding left
            fresh = fresh - jnp.sum(basis * jnp.sum(basis * fresh, axis=1)[:, None], axis=0)
        size = jnp.sum(fresh**2)
        usable = size > least
        size = jnp.where(usable, size, 1)
        missing = goals[j] - jnp.sum(units[j] * step)
        basis = jnp.where((usable & (places == count))[:, None], fresh / jnp.sqrt(size), basis)
        step = step + jnp.where(usable, missing / size, 0) * fresh
        return basis, count + usable.astype(jnp.int32), step

    start = jnp.zeros((min(q, d), d), rows.dtype), jnp.int32(0), jnp.zeros(d, rows.dtype)
    return lax.fori_loop(0, q, meet, start)[2]


def augmented_lagrangian(facts: Array, multipliers: Array, penalty: ArrayLike, switch: ArrayLike, ineq: int) -> Array:
    """Return the augmented Lagrangian of one x and one vector of multipliers, or of as many as the leading axes say.

    facts: (..., 1 + p + q), objective, p = `ineq` inequalities g <= 0 and q equalities h = 0. multipliers:
    (..., p + q), those of inequalities at least 0. With r the penalty: f, plus the sum of mu g + r g^2 where
    g >= -mu / (2 r) and of -mu^2 / (4 r) elsewhere, plus the sum of lambda h + r h^2.
    Tahk & Sun (2000), IEEE Trans. Evol. Comput. 4(2):114-124.
    switch: 1 / (2 r), which the caller knows once for many pairs. Below the switch the value is the one at it.
    """
    total = facts[..., 0]
    for j in range(multipliers.shape[-1]):  # written out, so that a table of pairs need not be stored to be reduced
        c, m = facts[..., j + 1], multipliers[..., j]
        c = jnp.maximum(c, -m * switch) if j < ineq else c
        total = total + c * (m + penalty * c)
    return total
