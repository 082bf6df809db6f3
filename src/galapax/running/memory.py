"""What a task needs of memory: refused before the run where it is not to be had, halved where it was not enough."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from galapax.core.errors import InputError, OutOfMemory, format_bytes
from galapax.core.stop import UNLIMITED
from galapax.engines.slices import runs_that_fit
from galapax.numerics import devices

if TYPE_CHECKING:
    from galapax.running.task import Task

# bytes that a black box takes for each point: of a generation, for each of its variables, and in the cache. Resident
# memory grew by 1000 bytes a point of 2 variables and 2050 of 20, and by 490 a point in the cache.
POINT, GENE, CACHED = 900, 60, 480

AMPLE = 0.05  # of the free memory is nothing to be counted exactly
ARRAYS, SQUARES = 32, 16  # at most so many arrays of a population, and matrices of the variables, are a state


def check_population(population: int | None, dim: int) -> None:
    """Refuse a population that cannot be in memory, before anything is made for it. None: one that is chosen later."""
    if population is not None:
        runs_that_fit(8 * int(population) * dim, 0, population)  # candidates and parents, at the least


def check_memory(task: Task) -> int:
    """How many runs fit into memory at once. Refuse a run, an ensemble's history, or snapshots, that do not."""
    item = np.dtype(task.dtype).itemsize
    row = task.columns.width * item
    fit = int(AMPLE * devices.free_memory()) // (at_most(task) + 1024 * row)
    if fit < task.total:
        fit = runs_that_fit(_state_size(task), 1024 * row, task.population)
    if task.options.blackbox:
        fit = min(fit, _check_calls(task))
    # a single run is often ended by hand
    if (
        task.options.keep.history
        and task.rules.generations != UNLIMITED
        and task.total > 1
        and task.options.max_seconds is None
    ):
        what = f"the history of {task.total} runs over {task.rules.generations} generations takes"
        _check_host(
            what,
            task.total * int(task.rules.generations) * row,
            "keep=gx.Keep(history=False), or fewer runs or generations",
        )
    taken = sum(g <= task.rules.generations for g in task.options.keep.snapshots)
    each = task.total * task.population * (task.problem.dim + task.shape.objectives + 1) * item
    _check_host(
        f"{taken} snapshots of {task.total} x {task.population} individuals take", taken * each, "fewer of them"
    )
    return fit


def _check_calls(task: Task) -> int:
    """How many runs of a black box fit into memory at once: each point of a generation is an object of its own."""
    each = task.population * (POINT + GENE * task.problem.dim)
    _check_host(f"the calls of one generation of {task.population} points take", each, "a smaller population")
    if task.options.workers.memoize and task.rules.generations != UNLIMITED and task.options.max_seconds is None:
        points = task.total * task.population * int(task.rules.generations)
        if task.problem.space is not None:
            points = int(min(points, task.problem.space.combinations))
        needed = points * (CACHED + 8 * task.problem.dim)
        _check_host(
            f"a cache of {points} points takes",
            needed,
            "workers=gx.Workers(memoize=False), or fewer runs or generations",
        )
    return max(1, devices.host_memory() // (2 * each))


def _check_host(what: str, needed: int, instead: str) -> None:
    free = devices.host_memory()
    if needed > free:
        raise InputError(f"{what} {format_bytes(needed)} and {format_bytes(free)} of memory are free: use {instead}.")


def at_most(task: Task) -> int:
    """Bytes that a run's state does not exceed, whatever the algorithm: known without tracing it."""
    values = task.problem.dim + task.shape.objectives + task.shape.ineq + task.shape.eq + 8
    return 8 * (ARRAYS * int(task.population) * values + SQUARES * task.problem.dim**2)


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
    """Whether the device had not enough memory, or would not have had: the objective's own needs are only known when
    it is compiled, and those of other processes never.
    """
    return isinstance(error, OutOfMemory) or "RESOURCE_EXHAUSTED" in str(error)


def too_large(width: int, population: int, error: Exception, begun: bool = False) -> str:
    """What to say when slices of so many runs do not fit. begun: they go on from a checkpoint, as they were."""
    what = "one run" if width == 1 else f"a slice of {width} runs"
    why, free = f" ({str(error).splitlines()[0][:200]})", devices.free_memory()
    if isinstance(error, OutOfMemory):
        why, free = f" It needs {format_bytes(error.needed)}.", error.free
    instead = "use a smaller population, or an objective that needs less memory"
    if width > 1:
        instead = f"use fewer runs than {width} at a time (runs=, or runs=range(0, 100)), or a smaller population"
    if begun:  # in other slices its last bits would be others
        instead = "a checkpoint continues in slices as large as they were, so end other programs, or start again"
    return (
        f"{what} with a population of {population} does not fit into the {format_bytes(free)} that are free on the "
        f"{devices.default_device().device_kind}: {instead}.{why}"
    )
