"""From a Search to kernel source: traces one generation of one run, and finds which arrays have a row per run."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.algorithm import Algorithm, is_shared
from galapax.core.options import Compute, Options
from galapax.core.problem import Problem
from galapax.core.stop import RUNNING
from galapax.execution.search import REASON, Carry, Search, StopState, TracedObjective
from galapax.execution.task import prepare_task, resolve_options
from galapax.fused.array_ir import NotFusible
from galapax.fused.kernel_source import KernelSource, LaunchShape, lower_generation
from galapax.numerics import compile_cache, devices, disk_cache, random
from galapax.objective.traced import Formulas


@dataclass(frozen=True)
class Layout:
    """Which arrays of a search and of its carry have a row per run, in the order of their leaves."""

    settings: tuple[bool, ...]
    carried: tuple[bool, ...]


def kernel_key(search: Search) -> Hashable:
    """Return what the source depends on: everything but values and the number of runs."""
    leaves, tree = jax.tree.flatten(search)
    return tree, _leaf_types(search, leaves)


def _leaf_types(search: Search, leaves: list[Array]) -> tuple[tuple[bool, tuple[int, ...], np.dtype], ...]:
    flags = _per_run_settings(search)
    return tuple((flag, leaf.shape[1 if flag else 0 :], leaf.dtype) for leaf, flag in zip(leaves, flags, strict=True))


def generate_source(search: Search, runs: int, shape: LaunchShape = LaunchShape()) -> KernelSource:
    """Return the kernel source for the runs of a batch, or raise NotFusible; the disk cache keeps either.

    Tracing takes a second. An error of the compiler itself is a NotFusible too, so that XLA computes the run; but the
    user is asked to report it, and it is not cached: the next version may have fixed it, and nobody would notice.
    """
    leaves, tree = jax.tree.flatten(search)
    structure = jax.tree.unflatten(tree, [0] * len(leaves))
    name = compile_cache.program_name(_trace_and_lower, shape, structure, _leaf_types(search, leaves))
    text = None if name is None else disk_cache.load_value(name, "kernel")
    if not isinstance(text, KernelSource | str):
        try:
            text = _trace_and_lower(search, _carry_shapes(search, runs), shape)
        except NotFusible as error:
            text = str(error)
        except (AssertionError, KeyError, IndexError, RecursionError, TypeError, ValueError) as error:
            reason = f"the compiler of fused kernels failed ({type(error).__name__}: {error})"
            warnings.warn(
                f"{reason[0].upper()}{reason[1:]}. This is a bug in galapax: please report it, with the call that led "
                "to it. The answer is not affected: without a fused kernel XLA makes the run.",
                stacklevel=2,
            )
            raise NotFusible(reason) from error
        if name is not None:
            disk_cache.save_value(name, "kernel", text)
    if isinstance(text, str):
        raise NotFusible(text)
    return text


def _carry_shapes(search: Search, runs: int) -> Carry:
    """Return the shapes of the carry of so many runs."""
    return drop_previous_state(
        jax.eval_shape(Search.init_and_start, search, jax.ShapeDtypeStruct((runs, 2), np.uint32))
    )


def explain_kernel(
    problem: Problem, algorithm: Algorithm, shape: LaunchShape = LaunchShape(), dtype: str = "float32"
) -> list[tuple[str, list[str]]]:
    """Return what each step of the compiler makes of one generation: a title and the lines of a listing each.

    The steps: array IR, schedule, loop IR, loop IR without dead stores and with buffered history, shared memory, and C.
    Needs no GPU.
    """
    options = Options(compute=Compute(dtype=dtype), generations=1)
    task = prepare_task(problem, (algorithm,), resolve_options(problem, options))
    listings: list[tuple[str, list[str]]] = []
    with jax.enable_x64(dtype == "float64"):
        search = task.search()
        _trace_and_lower(search, _carry_shapes(search, 1), shape, listings)
    return listings


def run_generation(search: Search, carry: Carry, keys: Array, number: Array) -> tuple[Carry, Array]:
    """Compute a generation: what a kernel does, as a function that JAX traces. keys: (R, 2), of the runs."""
    generation_keys = jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)
    return search.generation(carry, generation_keys, number)


def select_first_run(search: Search) -> Search:
    """Return the search of the first run of a batch, which stops at its own generation."""
    leaves, structure = jax.tree.flatten(search)
    flags = _per_run_settings(search)
    first = [leaf[:1] if is_per_run else leaf for leaf, is_per_run in zip(leaves, flags, strict=True)]
    return replace(jax.tree.unflatten(structure, first), stop_when_all_done=True)


def _trace_and_lower(
    search: Search, carry: Carry, shape: LaunchShape, listings: list[tuple[str, list[str]]] | None = None
) -> KernelSource:
    """Trace the generation of a single run, and generate the source of its kernel."""
    settings, carried = _per_run_settings(search), _per_run_carry(carry)
    objective = _with_library_trigonometry(search.objective)
    one_search = _single_run_shapes(replace(search, stop_when_all_done=True, objective=objective), settings)
    one_carry = _single_run_shapes(carry, carried)
    key = jax.ShapeDtypeStruct((1, 2), np.uint32)
    with devices.tracing_for("gpu"):
        closed = jax.make_jaxpr(run_generation)(one_search, one_carry, key, jax.ShapeDtypeStruct((), jnp.int32))
    stop_part = None if carry.stop_state is None else len(carried) - 1
    return lower_generation(closed, settings, carried, stop_part, REASON, shape, listings)


def _with_library_trigonometry(objective: TracedObjective | None) -> TracedObjective | None:
    """Return the objective with the C library's sine and cosine: those of trigonometry.py are for XLA on a CPU."""
    return replace(objective, own_trigonometry=False) if isinstance(objective, Formulas) else objective


def find_layout(search: Search, carry: Carry) -> Layout:
    """Return which arrays of the search and of its carry have a row per run."""
    return Layout(tuple(_per_run_settings(search)), tuple(_per_run_carry(carry)))


def _per_run_settings(search: Search) -> list[bool]:
    rules_by_row = search.rules.by_row()
    if not rules_by_row and not any(map(np.ndim, jax.tree.leaves(search.algorithm))):
        return [False] * len(jax.tree.leaves(search))  # the common case, quickly: many calls take a few milliseconds

    def is_per_run(leaf: Any) -> object:
        return jax.tree.map(lambda _: False, leaf) if is_shared(leaf) else np.ndim(leaf) > 0

    algorithm = jax.tree.map(is_per_run, search.algorithm, is_leaf=is_shared)
    rules = jax.tree.map(lambda _: False, search.rules)
    rules = rules._replace(**dict.fromkeys(rules_by_row, True))
    marked = replace(
        search,
        algorithm=algorithm,
        bounds=jax.tree.map(lambda _: False, search.bounds),
        rules=rules,
        consts=jax.tree.map(lambda _: False, search.consts),
    )
    return jax.tree.leaves(marked)


def _per_run_carry(carry: Carry) -> list[bool]:
    def is_per_run(leaf: object) -> object:
        return jax.tree.map(lambda _: False, leaf) if is_shared(leaf) else True

    return jax.tree.leaves(jax.tree.map(is_per_run, carry, is_leaf=is_shared))


def _single_run_shapes(tree: object, is_per_run: list[bool]) -> Any:
    """Return the shapes of a tree of arrays for a single run."""
    leaves, structure = jax.tree.flatten(tree)
    shapes = [
        jax.ShapeDtypeStruct((1, *np.shape(leaf)[1:]) if varies else np.shape(leaf), leaf.dtype)
        for leaf, varies in zip(leaves, is_per_run, strict=True)
    ]
    return jax.tree.unflatten(structure, shapes)


def drop_previous_state(carry: Carry) -> Carry:
    """Return a carry without the state before the last step: in a kernel every run stops at its own generation."""
    return (
        carry if carry.stop_state is None else carry._replace(stop_state=StopState(None, carry.stop_state.stop_columns))
    )


assert RUNNING == 0  # kernels compare the termination code with 0
