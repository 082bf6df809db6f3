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


def fresh(count: int, search: Search, keys: Array, attempt: Any) -> Array:
    """Points (R, count, d) spread over the box. keys: (R, 2), of the generation."""

    def one(key: Array) -> Array:
        drawn = sample_uniform(
            random.fold_in(random.fold_in(key, random.Stream.RESAMPLE), attempt), search.bounds, count
        )
        return round_codes(drawn, search.bounds)

    return jax.vmap(one)(keys)


def resampled(
    search: Search, asked: Carry, keys: Array, number: Any, evaluation: Evaluation
) -> tuple[Carry, Evaluation]:
    """For a traced objective: the candidates with others in place of those that failed, and what it says of them.

    All are evaluated again, as often as the one that fails most asks for: it is one program. What counts as an
    evaluation is the fresh points alone; where the run has no evaluations left for one, its candidate stays failed.
    """
    kind = asked.state.candidates.dtype
    none = jnp.zeros(evaluation.failed.shape, kind)
    evaluation = evaluation._replace(failed=evaluation.failed.astype(kind), again=none, lost=none)

    room = search.spare(asked, number)

    def bad(evaluation: Evaluation) -> Array:
        failed = search.masked(asked, number, evaluation).failed > 0
        if room is None or evaluation.again is None:
            return failed
        left = room - jnp.sum(evaluation.again, axis=1)
        return failed & (count_candidate_evaluations(search.algorithm) * jnp.cumsum(failed, axis=1) <= left[:, None])

    def goes_on(at: Any) -> Array:
        attempt, _, evaluation = at
        return (attempt < search.resamples) & jnp.any(bad(evaluation))

    def once(at: Any) -> Any:
        attempt, candidates, before = at
        rows = bad(before)
        candidates = jnp.where(rows[..., None], fresh(rows.shape[1], search, keys, attempt), candidates)
        now = search.evaluate(asked._replace(state=asked.state._replace(candidates=candidates)))
        again, lost = before.again + count_candidate_evaluations(search.algorithm) * rows, before.lost + before.failed
        now = now._replace(failed=now.failed.astype(kind), again=again, lost=lost)

        def pick(new: Array, old: Array) -> Array:
            return jnp.where(rows.reshape(rows.shape + (1,) * (new.ndim - 2)), new, old)

        return attempt + 1, candidates, jax.tree.map(pick, now, before)

    start = (jnp.int32(0), asked.state.candidates, evaluation)
    _, candidates, evaluation = lax.while_loop(goes_on, once, start)
    return asked._replace(state=asked.state._replace(candidates=candidates)), evaluation
