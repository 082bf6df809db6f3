"""Asynchronous differential evolution: a candidate is bred whenever an evaluation completes, so no worker idles.

A candidate competes with its own parent alone, so its value can be told by itself; all candidates that no worker has
yet are bred again from the current population. A generation is as many evaluations as the population has individuals.
Which candidate is bred from what depends on the order in which workers answer: such a run cannot be repeated.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.evaluation import Evaluation
from galapax.engines.chunk_summary import summarize_chunk
from galapax.engines.host import HostEngine
from galapax.engines.host_loop import Slice
from galapax.engines.search import Carry, Search
from galapax.evaluation.failures import summarise
from galapax.numerics import random


class AsyncHostEngine(HostEngine):
    """An Engine for one run. The first generation is evaluated as a whole."""

    points: np.ndarray | None = None  # (n, d) candidates as they are or will be sent; changed in place

    def advance(self, batches: list[Slice], first: int, count: int) -> list[list[Any]]:
        if self._waiting:
            return super().advance(batches, first, count)
        (batch,) = batches
        box, number = self.box, np.int32(first)
        asked = self.clock.call(Search.ask, (), batch.search, batch.carry, number)
        if self.points is None:
            self.points = np.array(asked.state.candidates[0], np.float64)
            box.start_stream(self.points)
        points, n, n_evaluated, n_failed = self.points, len(self.points), 0, 0
        while n_evaluated < n:
            arrivals = box.poll(points, n - n_evaluated)
            if not arrivals:  # out of time, Ctrl-C, or no worker left
                break
            raw = {name: np.full((1, n, width), np.nan) for name, width in box.widths.items()}
            arrived = np.zeros((1, n), bool)
            for row, values in arrivals.items():
                arrived[0, row] = True
                for name, value in values.items():
                    raw[name][0, row] = value
            in_flight = np.zeros(n, bool)
            in_flight[box.under_way] = True
            tolerance = (box.problem.eq_tolerance,)
            dtype = asked.state.candidates.dtype
            typed_values = {name: values.astype(dtype) for name, values in raw.items()}
            arguments = (
                batch.search,
                batch.keys,
                asked,
                number,
                np.int32(n_evaluated),
                typed_values,
                arrived,
                in_flight,
            )
            asked, n_failed_now = self.clock.call(_tell_arrived, tolerance, *arguments)
            n_evaluated, n_failed = n_evaluated + len(arrivals), n_failed + int(n_failed_now)
            points[~in_flight] = np.asarray(asked.state.candidates[0], np.float64)[~in_flight]
            for row in arrivals:
                box.send(row)
        batch.track.skipped = batch.track.skipped + (n - n_evaluated)
        n_failed_total = np.zeros((1, n), asked.state.candidates.dtype)
        n_failed_total[0, 0] = n_failed + n - n_evaluated
        batch.carry, row, packed_summary = self.clock.call(
            _end_generation, (), batch.search, batch.keys, asked, number, n_failed_total
        )
        batch.latest = [row]
        return [[packed_summary]]


def _placeholder_evaluation(asked: Carry, search: Search, failed: Array) -> Evaluation:
    """Return a placeholder evaluation (+inf) for candidates still in flight."""
    shape, n = search.shape, asked.state.candidates.shape[1]
    worst = jnp.full((1, n, shape.objectives), jnp.inf, asked.state.candidates.dtype)
    return Evaluation(worst, worst[..., 0] if shape.constrained else None, failed)


def _replace_free_candidates(asked: Carry, carry: Carry, in_flight: Array) -> Carry:
    """Return the carry after a step, with the candidates that workers have unchanged and the stop state of before."""
    candidates = jnp.where(in_flight[None, :, None], asked.state.candidates, carry.state.candidates)
    return Carry(carry.state._replace(candidates=candidates), asked.frozen)


def _tell_arrived(
    eq_tolerance: float,
    search: Search,
    keys: Array,
    asked: Carry,
    number: Array,
    n_evaluated: Array,
    raw: Any,
    arrived: Array,
    in_flight: Array,
) -> tuple[Carry, Array]:
    """Tell the candidates that arrived, (1, n), and breed others; also return how many of them failed."""
    generation_keys = jax.vmap(lambda key: random.fold_in(random.fold_in(key, number), n_evaluated))(keys)
    evaluation = jax.vmap(lambda v: summarise(v["fun"], v.get("ineq"), v.get("eq"), eq_tolerance))(raw)
    failed = jnp.sum((evaluation.failed & arrived).astype(jnp.int32))
    evaluation = evaluation._replace(failed=jnp.zeros_like(evaluation.objectives[..., 0]), ineq=None, eq=None)
    carry, _ = search.tell(asked, generation_keys, number, evaluation)
    return _replace_free_candidates(asked, carry, in_flight), failed


def _end_generation(
    search: Search, keys: Array, asked: Carry, number: Array, failed: Array
) -> tuple[Carry, Array, Array]:
    """End a generation whose candidates were told: the carry, its history row and the packed summary."""
    generation_keys = jax.vmap(lambda key: random.fold_in(key, number))(keys)
    carry, row = search.tell(asked, generation_keys, number, _placeholder_evaluation(asked, search, failed))
    carry = _replace_free_candidates(asked, carry, jnp.ones(failed.shape[1], bool))._replace(frozen=carry.frozen)
    return carry, *summarize_chunk(search, row[None], np.int32(1), carry)
