"""What a task needs of memory: refused before the run where it is not to be had, halved where it was not enough."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from galapax.core.errors import InputError
from galapax.core.stop import NEVER
from galapax.engines.slices import runs_that_fit
from galapax.numerics import devices

if TYPE_CHECKING:
    from galapax.running.task import Task


def check_memory(task: Task) -> int:
    """How many runs fit into memory at once. Refuse a run, an ensemble's history, or snapshots, that do not."""
    size, item = _state_size(task), np.dtype(task.dtype).itemsize
    row = task.columns.width * item
    fit = runs_that_fit(size, 1024 * row, task.population)
    # a single run is often ended by hand
    if task.history and task.rules.generations != NEVER and task.total > 1 and task.max_seconds is None:
        what = f"the history of {task.total} runs over {task.rules.generations} generations takes"
        _check_host(what, task.total * int(task.rules.generations) * row, "history=False, or fewer runs or generations")
    taken = sum(g <= task.rules.generations for g in task.snapshots)
    each = task.total * task.population * (task.problem.dim + task.shape.objectives + 1) * item
    _check_host(
        f"{taken} snapshots of {task.total} x {task.population} individuals take", taken * each, "fewer of them"
    )
    return fit


def _check_host(what: str, needed: int, instead: str) -> None:
    free = devices.host_memory()
    if needed > free:
        raise InputError(
            f"{what} {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB of memory are free: use {instead}."
        )


_sizes: dict[Any, int] = {}


def _state_size(task: Task) -> int:
    """Bytes of a run's state. Remembered, since finding it out takes longer than a short run."""
    known = (jax.tree.structure(task.bound[0]), task.problem.dim, task.dtype, task.shape)
    if known not in _sizes:
        search = replace(task.of_cell(0).search(), freeze=True)
        one = jax.eval_shape(search.begin, jax.ShapeDtypeStruct((1, 2), np.uint32))
        _sizes[known] = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one))
    return _sizes[known]


def exhausted(error: Exception) -> bool:
    """Whether the device had not enough memory: the objective's own needs are only known when it runs."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
