"""Fresh points in place of candidates that failed: on_failure="resample"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.core.algorithm import count_candidate_evaluations
from galapax.core.evaluation import Evaluation
from galapax.numerics import random
from galapax.operators.discrete import round_codes
from galapax.operators.sampling import sample_uniform

if TYPE_CHECKING:
    from galapax.engines.search import Carry, Search


def sample_replacements(count: int, search: Search, keys: Array, attempt: Any) -> Array:
    """Points (R, count, d) spread over the box. keys: (R, 2), of the generation."""

    def one(key: Array) -> Array:
        points = sample_uniform(
            random.fold_in(random.fold_in(key, random.Stream.RESAMPLE), attempt), search.bounds, count
        )
        return round_codes(points, search.bounds)

    return jax.vmap(one)(keys)


def resample_failed(
    search: Search, asked: Carry, keys: Array, number: Any, evaluation: Evaluation
) -> tuple[Carry, Evaluation]:
    """For a traced objective: the candidates with others in place of those that failed, and what it says of them.

    All are evaluated again, as often as the one that fails most asks for: it is one program. What counts as an
    evaluation is the fresh points alone; where the run has no evaluations left for one, its candidate stays failed.
    """
    dtype = asked.state.candidates.dtype
    zeros = jnp.zeros(evaluation.failed.shape, dtype)
    evaluation = evaluation._replace(failed=evaluation.failed.astype(dtype), again=zeros, lost=zeros)

    spare = search.spare(asked, number)

    def rows_to_retry(evaluation: Evaluation) -> Array:
        failed = search.masked(asked, number, evaluation).failed > 0
        if spare is None or evaluation.again is None:
            return failed
        budget = spare - jnp.sum(evaluation.again, axis=1)
        return failed & (count_candidate_evaluations(search.algorithm) * jnp.cumsum(failed, axis=1) <= budget[:, None])

    def should_retry(loop_state: Any) -> Array:
        attempt, _, evaluation = loop_state
        return (attempt < search.resamples) & jnp.any(rows_to_retry(evaluation))

    def retry(loop_state: Any) -> Any:
        attempt, candidates, before = loop_state
        rows = rows_to_retry(before)
        candidates = jnp.where(rows[..., None], sample_replacements(rows.shape[1], search, keys, attempt), candidates)
        now = search.evaluate(asked._replace(state=asked.state._replace(candidates=candidates)))
        again, lost = before.again + count_candidate_evaluations(search.algorithm) * rows, before.lost + before.failed
        now = now._replace(failed=now.failed.astype(dtype), again=again, lost=lost)

        def pick(new: Array, old: Array) -> Array:
            return jnp.where(rows.reshape(rows.shape + (1,) * (new.ndim - 2)), new, old)

        return attempt + 1, candidates, jax.tree.map(pick, now, before)

    start = (jnp.int32(0), asked.state.candidates, evaluation)
    _, candidates, evaluation = lax.while_loop(should_retry, retry, start)
    return asked._replace(state=asked.state._replace(candidates=candidates)), evaluation
