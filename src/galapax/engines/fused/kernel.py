"""From a Search to the text of a kernel: the generation of one run, traced, with what differs between runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.algorithm import is_shared
from galapax.core.stop import RUNNING
from galapax.engines.fused.graph import NotFusible
from galapax.engines.fused.program import Form, Text, of_generation
from galapax.engines.search import REASON, Carry, Frozen, Search
from galapax.evaluation.formulas import Formulas
from galapax.numerics import devices, random

KEPT = 32  # texts that are remembered
_texts: OrderedDict[Hashable, Text | str] = OrderedDict()
_seen: OrderedDict[Hashable, Hashable] = OrderedDict()  # what those of so many runs are known by, for a quick look
_shapes: OrderedDict[Hashable, Carry] = OrderedDict()


@dataclass(frozen=True)
class Layout:
    """Which arrays of a search and of its carry have a row for each run, in the order of their leaves."""

    settings: tuple[bool, ...]
    carried: tuple[bool, ...]


def text_of(search: Search, carry: Carry, form: Form = Form()) -> Text:
    """The text for the runs of a slice, or NotFusible. Remembered, as making it takes a second."""
    leaves, tree = jax.tree.flatten((search, carry))
    exact = (tree, tuple((np.shape(leaf), leaf.dtype) for leaf in leaves), form, devices.settings())
    key = _seen.get(exact)
    if key is None:
        flags = [*_own_settings(search), *_own_parts(carry)]
        kinds = ((own, np.shape(leaf)[int(own) :], leaf.dtype) for leaf, own in zip(leaves, flags, strict=True))
        key = _seen[exact] = (tree, tuple(kinds), form, devices.settings())
        while len(_seen) > KEPT:
            _seen.popitem(last=False)
    if key not in _texts:
        try:
            _texts[key] = _written(search, carry, form)
        except NotFusible as error:
            _texts[key] = str(error)
        except (AssertionError, KeyError, IndexError, RecursionError, TypeError, ValueError) as error:
            # a program of a kind that nobody has tried: the other engine makes the run
            _texts[key] = f"the kernel's text could not be written ({type(error).__name__}: {error})"
        while len(_texts) > KEPT:
            _texts.popitem(last=False)
    _texts.move_to_end(key)
    found = _texts[key]
    if isinstance(found, str):
        raise NotFusible(found)
    return found


def shapes_of(search: Search, runs: int) -> Carry:
    """The shapes of the carry of so many runs. Remembered, as finding them takes longer than a short run."""
    leaves, tree = jax.tree.flatten(search)
    key = (tree, tuple((np.shape(leaf), leaf.dtype) for leaf in leaves), runs, devices.settings())
    if key not in _shapes:
        keys = jax.ShapeDtypeStruct((runs, 2), np.uint32)
        _shapes[key] = settled(jax.eval_shape(Search.begun, search, keys))
        while len(_shapes) > KEPT:
            _shapes.popitem(last=False)
    return _shapes[key]


def _written(search: Search, carry: Carry, form: Form) -> Text:
    settings, parts = _own_settings(search), _own_parts(carry)
    one_search = _of_one(replace(search, leaves=True, objective=_plain(search.objective)), settings)
    one_carry = _of_one(carry, parts)
    key = jax.ShapeDtypeStruct((1, 2), np.uint32)

    def generation(search: Search, carry: Carry, keys: Array, number: Array) -> Any:
        own = jax.vmap(random.fold, in_axes=(0, None))(keys, number)
        return search.generation(carry, own, number)

    with devices.written_for("gpu"):
        closed = jax.make_jaxpr(generation)(one_search, one_carry, key, jax.ShapeDtypeStruct((), jnp.int32))
    marks = None if carry.frozen is None else len(parts) - 1
    return of_generation(closed, settings, parts, marks, REASON, form)


def _plain(objective: Any) -> Any:
    """The objective with the C library's own sines: what trigonometry.py does is for XLA on a CPU."""
    return replace(objective, own_trigonometry=False) if isinstance(objective, Formulas) else objective


def layout_of(search: Search, carry: Carry) -> Layout:
    return Layout(tuple(_own_settings(search)), tuple(_own_parts(carry)))


def _own_settings(search: Search) -> list[bool]:
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
