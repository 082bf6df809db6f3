"""From a Search to the text of a kernel: the generation of one run, traced, with what differs between runs."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.algorithm import is_shared
from galapax.core.stop import RUNNING
from galapax.engines import stored
from galapax.engines.fused.graph import NotFusible
from galapax.engines.fused.kernel_source import KernelSource, LaunchShape, lower_generation
from galapax.engines.search import REASON, Carry, Frozen, Search
from galapax.evaluation.formulas import Formulas
from galapax.numerics import devices, disk_cache, random


@dataclass(frozen=True)
class Layout:
    """Which arrays of a search and of its carry have a row for each run, in the order of their leaves."""

    settings: tuple[bool, ...]
    carried: tuple[bool, ...]


def key_of(search: Search) -> Hashable:
    """What the text depends on: all but numbers and how many runs there are."""
    leaves, tree = jax.tree.flatten(search)
    return tree, _kinds(search, leaves)


def _kinds(search: Search, leaves: list[Any]) -> tuple[tuple[bool, tuple[int, ...], Any], ...]:
    flags = _own_settings(search)
    return tuple((own, leaf.shape[1 if own else 0 :], leaf.dtype) for leaf, own in zip(leaves, flags, strict=True))


def text_of(search: Search, runs: int, form: LaunchShape = LaunchShape()) -> KernelSource:
    """The text for the runs of a slice, or NotFusible. Either is kept in the disk cache, as tracing takes a second.

    An error of the compiler itself is a NotFusible too, so that XLA makes the run; but the user is asked to report it,
    and it is not kept: the next version may have mended it, and nobody would know.
    """
    leaves, tree = jax.tree.flatten(search)
    structure = jax.tree.unflatten(tree, [0] * len(leaves))
    name = stored.name_of(_written, form, structure, _kinds(search, leaves))
    text = None if name is None else disk_cache.load_value(name, "kernel")
    if not isinstance(text, KernelSource | str):
        try:
            text = _written(search, _shapes_of(search, runs), form)
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


def _shapes_of(search: Search, runs: int) -> Carry:
    """The shapes of the carry of so many runs."""
    return settled(jax.eval_shape(Search.begun, search, jax.ShapeDtypeStruct((runs, 2), np.uint32)))


def _written(search: Search, carry: Carry, form: LaunchShape) -> KernelSource:
    settings, parts = _own_settings(search), _own_parts(carry)
    one_search = _of_one(replace(search, leaves=True, objective=_plain(search.objective)), settings)
    one_carry = _of_one(carry, parts)
    key = jax.ShapeDtypeStruct((1, 2), np.uint32)

    def generation(search: Search, carry: Carry, keys: Array, number: Array) -> Any:
        own = jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)
        return search.generation(carry, own, number)

    with devices.tracing_for("gpu"):
        closed = jax.make_jaxpr(generation)(one_search, one_carry, key, jax.ShapeDtypeStruct((), jnp.int32))
    marks = None if carry.frozen is None else len(parts) - 1
    return lower_generation(closed, settings, parts, marks, REASON, form)


def _plain(objective: Any) -> Any:
    """The objective with the C library's own sines: what trigonometry.py does is for XLA on a CPU."""
    return replace(objective, own_trigonometry=False) if isinstance(objective, Formulas) else objective


def layout_of(search: Search, carry: Carry) -> Layout:
    return Layout(tuple(_own_settings(search)), tuple(_own_parts(carry)))


def _own_settings(search: Search) -> list[bool]:
    if np.ndim(search.rules.evaluations) == 0 and not any(map(np.ndim, jax.tree.leaves(search.algorithm))):
        return [False] * len(jax.tree.leaves(search))  # as in most calls, many of which take a few milliseconds

    def own(leaf: Any) -> Any:
        return jax.tree.map(lambda _: False, leaf) if is_shared(leaf) else np.ndim(leaf) > 0

    algorithm = jax.tree.map(own, search.algorithm, is_leaf=is_shared)
    rules = jax.tree.map(lambda _: False, search.rules)
    if search.rules.evaluations is not None:
        rules = rules._replace(evaluations=np.ndim(search.rules.evaluations) > 0)
    marked = replace(
        search,
        algorithm=algorithm,
        bounds=jax.tree.map(lambda _: False, search.bounds),
        rules=rules,
        consts=jax.tree.map(lambda _: False, search.consts),
    )
    return jax.tree.leaves(marked)


def _own_parts(carry: Carry) -> list[bool]:
    def own(leaf: Any) -> Any:
        return jax.tree.map(lambda _: False, leaf) if is_shared(leaf) else True

    return jax.tree.leaves(jax.tree.map(own, carry, is_leaf=is_shared))


def _of_one(tree: Any, own: list[bool]) -> Any:
    """The shapes of a tree with one run."""
    leaves, structure = jax.tree.flatten(tree)
    made = [
        jax.ShapeDtypeStruct((1, *np.shape(leaf)[1:]) if each else np.shape(leaf), leaf.dtype)
        for leaf, each in zip(leaves, own, strict=True)
    ]
    return jax.tree.unflatten(structure, made)


def settled(carry: Carry) -> Carry:
    """A carry without the state from before the last step: here every run stops by itself, at its own generation."""
    return carry if carry.frozen is None else carry._replace(frozen=Frozen(None, carry.frozen.marks))


assert RUNNING == 0  # what a kernel compares with
