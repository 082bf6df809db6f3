"""What somebody who watches a run is given between its chunks: little, thinned where the data lie."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.algorithm import Population, Shape
from galapax.engines.loop import FIRST, Carry, settle, violation_column
from galapax.operators.selection import best_index

INDIVIDUALS = 4096  # of a population, at most
VARIABLES = 64  # of an individual, at most
ROWS = 32  # generations of a chunk
RUNS = 4096  # of an ensemble, at most
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class Survivors(NamedTuple):
    """Some of one run's survivors, its best among them."""

    x: Array  # (n, v) in float32, the first variables
    objectives: Array  # (n, m)
    violation: Array | None  # (n,)
    best: Array  # (d,), the best one's variables, all of them


class Rows(NamedTuple):
    """A few generations of history, of one run and over all runs."""

    history: Array  # (ROWS, columns): as `loop.summary` orders them, without the failures
    median: Array  # (m,), over the survivors of that run after the chunk
    spread: Array | None  # (ROWS, 5): QUANTILES of the runs' best values; +inf for runs without a feasible point


@jax.jit
def survivors(carry: Carry, run: Array) -> Survivors:
    """Some of this run's survivors."""
    parents = _of_run(carry, run)
    best = best_index(parents)
    some, x = _some(parents, best), parents.x[:, :VARIABLES]
    if some is not None:
        parents = jax.tree.map(lambda a: a[some], parents)
        x = x[some]
    return Survivors(x.astype(jnp.float32), parents.objectives, parents.violation, _of_run(carry, run).x[best])


@partial(jax.jit, static_argnums=0)
def rows(
    shape: Shape, carry: Carry, history: Array, chosen: Array, run: Array, made: Array, best: Array, violation: Array
) -> Rows:
    """These rows (ROWS,) of a chunk's history (rows, columns, R).

    made: (R,), how many rows each run made. best, violation: (R,), before the chunk, for runs that made none.
    """
    parents = _of_run(carry, run)
    some = _some(parents, best_index(parents))
    values = parents.objectives if some is None else parents.objectives[some]
    width = 3 * shape.objectives + (2 if shape.constrained else 0)
    own = history[jnp.minimum(chosen, made[run] - 1), FIRST : FIRST + width, run]
    runs = made.shape[0]
    if runs == 1 or shape.objectives > 1:
        return Rows(own, jnp.median(values, axis=0), None)
    some_runs = np.linspace(0, runs - 1, min(runs, RUNS)).astype(int)
    made = made[some_runs]
    last = jnp.clip(jnp.minimum(chosen[:, None], made - 1), 0)  # a finished run's last row is repeated

    def held(column: int, before: Array) -> Array:
        return jnp.where(made > 0, jnp.take_along_axis(history[:, column][:, some_runs], last, axis=0), before)

    found = held(FIRST, best[some_runs])
    if shape.constrained:
        found = jnp.where(held(violation_column(shape), violation[some_runs]) > 0, jnp.inf, found)
    ordered = jnp.sort(found, axis=1)
    at = np.rint(np.array(QUANTILES) * (len(some_runs) - 1)).astype(int)
    return Rows(own, jnp.median(values, axis=0), ordered[:, at])


def _of_run(carry: Carry, run: Array) -> Population:
    return jax.tree.map(lambda a: a[run], settle(carry).parents)


def _some(parents: Population, best: Any) -> Array | None:
    """Rows of some individuals, evenly spread, the best among them; None for all."""
    n = parents.x.shape[0]
    if n <= INDIVIDUALS:
        return None
    return jnp.asarray(np.linspace(0, n - 1, INDIVIDUALS).astype(np.int32)).at[0].set(best.astype(jnp.int32))
