"""Candidates that are replaced or moved: fresh points for failed ones, and steps onto violated constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.core.algorithm import count_candidate_evaluations
from galapax.core.problem import CandidateEvaluation, EqTolerance
from galapax.numerics import random
from galapax.operators.constraint_handling import difference_jacobian, difference_points, newton_repair
from galapax.operators.sampling import sample_uniform
from galapax.operators.variation import round_codes

if TYPE_CHECKING:
    from galapax.execution.search import Carry, Search


def sample_replacements(count: int, search: Search, keys: Array, attempt: Array | int) -> Array:
    """Draw points (R, count, d) uniformly from the box. keys: (R, 2), of the generation."""

    def one(key: Array) -> Array:
        points = sample_uniform(
            random.fold_in(random.fold_in(key, random.Stream.RESAMPLE), attempt), search.bounds, count
        )
        return round_codes(points, search.bounds)

    return jax.vmap(one)(keys)


def resample_failed(
    search: Search, pending: Carry, keys: Array, number: Array | int, evaluation: CandidateEvaluation
) -> tuple[Carry, CandidateEvaluation]:
    """Replace failed candidates of a traced objective by fresh points; return the carry and the new evaluation.

    All are evaluated again, as often as the one that fails most asks for: it is one program. What counts as an
    evaluation is the fresh points alone; where the run has no evaluations left for one, its candidate stays failed.
    """
    dtype = pending.state.candidates.dtype
    zeros = jnp.zeros(evaluation.failed.shape, dtype)
    evaluation = evaluation._replace(failed=evaluation.failed.astype(dtype), n_resampled=zeros, n_lost=zeros)

    spare = search.spare(pending, number)

    def rows_to_retry(evaluation: CandidateEvaluation) -> Array:
        failed = search.mask_inactive(pending, number, evaluation).failed > 0
        if spare is None or evaluation.n_resampled is None:
            return failed
        budget = spare - jnp.sum(evaluation.n_resampled, axis=1)
        return failed & (count_candidate_evaluations(search.algorithm) * jnp.cumsum(failed, axis=1) <= budget[:, None])

    def should_retry(loop_state: tuple[Array, Array, CandidateEvaluation]) -> Array:
        attempt, _, evaluation = loop_state
        return (attempt < search.resamples) & jnp.any(rows_to_retry(evaluation))

    def retry(loop_state: tuple[Array, Array, CandidateEvaluation]) -> tuple[Array, Array, CandidateEvaluation]:
        attempt, candidates, before = loop_state
        assert before.n_resampled is not None and before.n_lost is not None
        rows = rows_to_retry(before)
        candidates = jnp.where(rows[..., None], sample_replacements(rows.shape[1], search, keys, attempt), candidates)
        attempt_keys = jax.vmap(lambda key: random.fold_in(random.fold_in(key, random.Stream.RESAMPLE), attempt))(keys)
        now = search.evaluate(pending._replace(state=pending.state._replace(candidates=candidates)), attempt_keys)
        n_resampled = before.n_resampled + count_candidate_evaluations(search.algorithm) * rows
        n_lost = before.n_lost + before.failed
        now = now._replace(failed=now.failed.astype(dtype), n_resampled=n_resampled, n_lost=n_lost)

        def pick(new: Array, old: Array) -> Array:
            return jnp.where(rows.reshape(rows.shape + (1,) * (new.ndim - 2)), new, old)

        return attempt + 1, candidates, jax.tree.map(pick, now, before)

    start = (jnp.int32(0), pending.state.candidates, evaluation)
    _, candidates, evaluation = lax.while_loop(should_retry, retry, start)
    return pending._replace(state=pending.state._replace(candidates=candidates)), evaluation


def rows_to_repair(search: Search, count: int, number: Array | int) -> Array:
    """Return which of `count` candidates are repaired in generation `number`: equally many each time, in turn."""
    return (number * search.repairs + jnp.arange(search.repairs, dtype=jnp.int32)) % count


def probe_points(search: Search, pending: Carry, number: Array | int) -> Array:
    """Return the points (R, repairs * (1 + d), d) whose constraints `repair` needs."""
    candidates = pending.state.candidates
    chosen = candidates[:, rows_to_repair(search, candidates.shape[1], number)]
    points = jax.vmap(jax.vmap(lambda x: difference_points(x, search.bounds)))(chosen)
    return points.reshape(candidates.shape[0], -1, candidates.shape[2])


def repair(
    eq_tolerance: EqTolerance | None, search: Search, pending: Carry, number: Array | int, values: Array
) -> Carry:
    """Move the candidates whose turn it is towards the constraints that they violate.

    values: (R, repairs * (1 + d), p + q), the constraints at `probes`.
    """
    candidates = pending.state.candidates
    runs, count, dim = candidates.shape
    points = probe_points(search, pending, number).reshape(runs, search.repairs, 1 + dim, dim)
    values_at = values.reshape(runs, search.repairs, 1 + dim, -1)

    def one(points: Array, values_at: Array) -> Array:
        jacobian = difference_jacobian(points, values_at)
        return newton_repair(points[0], values_at[0], jacobian, search.shape.ineq, eq_tolerance or 0.0, search.bounds)

    repaired = candidates.at[:, rows_to_repair(search, count, number)].set(jax.vmap(jax.vmap(one))(points, values_at))
    return pending._replace(state=pending.state._replace(candidates=repaired))


def count_failed_probes(count: int, search: Search, number: Array | int, failed: Array) -> Array:
    """Count the failed probes of each of `count` candidates, (R, count). failed: (R, repairs * (1 + d))."""
    each = jnp.sum(failed.reshape(failed.shape[0], search.repairs, -1), axis=2)
    return jnp.zeros((failed.shape[0], count), each.dtype).at[:, rows_to_repair(search, count, number)].add(each)


def repair_traced(search: Search, pending: Carry, number: Array | int) -> tuple[Carry, Array]:
    """Repair the candidates of a traced objective; also count their failed probes."""
    objective: Any = search.objective  # formulas: a game has no constraints
    values = jax.vmap(lambda x: objective.constraints(search.consts, x))(probe_points(search, pending, number))
    failed = ~jnp.all(jnp.isfinite(values), axis=2)
    candidates = pending.state.candidates
    lost = count_failed_probes(candidates.shape[1], search, number, failed.astype(candidates.dtype))
    return repair(objective.eq_tolerance, search, pending, number, values), lost
