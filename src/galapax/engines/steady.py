"""Asynchronous differential evolution: a new candidate is bred whenever one was evaluated, so that no worker waits.

A candidate competes with its own parent alone, so that it may be told by itself; all candidates that no worker has yet
are bred anew from what is known then. A generation is as many evaluations as the population has individuals. Which
candidate is bred from what depends on the order in which workers answer: such a run cannot be repeated.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.evaluation import Evaluation
from galapax.engines.drive import Slice
from galapax.engines.host import Host
from galapax.engines.search import Carry, Search
from galapax.engines.tally import told
from galapax.evaluation.failures import summarise
from galapax.numerics import random


class Steady(Host):
    """An Engine for one run. The first generation is evaluated as a whole."""

    points: np.ndarray | None = None  # (n, d) candidates as they are or will be sent; changed in place

    def advance(self, parts: list[Slice], first: int, count: int) -> list[list[Any]]:
        if self._waiting:
            return super().advance(parts, first, count)
        (part,) = parts
        box, number = self.box, np.int32(first)
        asked = self.clock.call(Search.ask, (), part.search, part.carry, number)
        if self.points is None:
            self.points = np.array(asked.state.candidates[0], np.float64)
            box.flow(self.points)
        points, n, made, failed = self.points, len(self.points), 0, 0
        while made < n:
            came = box.arrivals(points, n - made)
            if not came:  # out of time, Ctrl-C, or no worker left
                break
            raw = {name: np.full((1, n, width), np.nan) for name, width in box.widths.items()}
            here = np.zeros((1, n), bool)
            for row, values in came.items():
                here[0, row] = True
                for name, own in values.items():
                    raw[name][0, row] = own
            kept = np.zeros(n, bool)
            kept[box.under_way] = True
            tolerance = (box.problem.eq_tolerance,)
            kind = asked.state.candidates.dtype
            known = {name: values.astype(kind) for name, values in raw.items()}
            arguments = (part.search, part.keys, asked, number, np.int32(made), known, here, kept)
            asked, bad = self.clock.call(_absorb, tolerance, *arguments)
            made, failed = made + len(came), failed + int(bad)
            points[~kept] = np.asarray(asked.state.candidates[0], np.float64)[~kept]
            for row in came:
                box.send(row)
        part.track.skipped = part.track.skipped + (n - made)
        told = np.zeros((1, n), asked.state.candidates.dtype)
        told[0, 0] = failed + n - made
        part.carry, row, tally = self.clock.call(_close, (), part.search, part.keys, asked, number, told)
        part.latest = [row]
        return [[tally]]


def _nothing_new(asked: Carry, search: Search, failed: Array) -> Evaluation:
    """What is said of candidates of which nothing is known yet."""
    shape, n = search.shape, asked.state.candidates.shape[1]
    worst = jnp.full((1, n, shape.objectives), jnp.inf, asked.state.candidates.dtype)
    return Evaluation(worst, worst[..., 0] if shape.constrained else None, failed)


def _bred(asked: Carry, carry: Carry, kept: Array) -> Carry:
    """The carry after a step, with candidates as they were where workers have them; its marks are as before."""
    candidates = jnp.where(kept[None, :, None], asked.state.candidates, carry.state.candidates)
    return Carry(carry.state._replace(candidates=candidates), asked.frozen)


def _absorb(
    eq_tolerance: float,
    search: Search,
    keys: Array,
    asked: Carry,
    number: Array,
    made: Array,
    raw: Any,
    here: Array,
    kept: Array,
) -> tuple[Carry, Array]:
    """Tell the candidates that are here, (1, n), and breed others; how many of them failed."""
    own = jax.vmap(lambda key: random.fold_in(random.fold_in(key, number), made))(keys)
    told = jax.vmap(lambda v: summarise(v["fun"], v.get("ineq"), v.get("eq"), eq_tolerance))(raw)
    failed = jnp.sum((told.failed & here).astype(jnp.int32))
    told = told._replace(failed=jnp.zeros_like(told.objectives[..., 0]), ineq=None, eq=None)
    carry, _ = search.tell(asked, own, number, told)
    return _bred(asked, carry, kept), failed


def _close(search: Search, keys: Array, asked: Carry, number: Array, failed: Array) -> tuple[Carry, Array, Array]:
    """End a generation, whose candidates were told: its record, and whether the run is finished."""
    own = jax.vmap(lambda key: random.fold_in(key, number))(keys)
    carry, row = search.tell(asked, own, number, _nothing_new(asked, search, failed))
    carry = _bred(asked, carry, jnp.ones(failed.shape[1], bool))._replace(frozen=carry.frozen)
    return carry, *told(search, row[None], np.int32(1), carry)
