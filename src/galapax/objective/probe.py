"""A problem at a few points: for a look before the run, and for what a Result tells about its solutions."""

from __future__ import annotations

import weakref
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax import Array

from galapax.core.errors import InputError
from galapax.core.evaluation import Evaluation
from galapax.core.problem import Bounds
from galapax.numerics import compile_cache
from galapax.objective.traced import Formulas, Traced, append_keys

PROBE_ROWS = 8  # points at which an objective is tried before the run is compiled
MAX_PROBES = 512  # points at which one is tried that has no value at the first ones: most of the box may be a penalty


def evaluate_rows(formulas: Formulas, consts: Any, x: Array, key: Array) -> Evaluation:
    return formulas(consts, append_keys(x, key) if formulas.is_random else x)


def evaluate_points(
    traced: Traced, points: np.ndarray, dtype: Any, rows: int = PROBE_ROWS, key: np.ndarray | None = None
) -> Evaluation:
    """The Evaluation of some points, in NumPy; always so many rows at once, so that it compiles once.

    key: (2,), from which each row of a random objective gets its key.
    """
    key = np.zeros(2, np.uint32) if key is None else key
    formulas, consts = traced
    rows = formulas.together or rows
    evaluations = []
    for i in range(0, len(points), rows):
        rows_now = points[i : i + rows]
        block_key = np.array([key[0], np.uint32((int(key[1]) + i) % 2**32)], np.uint32)
        padded = np.concatenate([rows_now, np.repeat(rows_now[:1], rows - len(rows_now), axis=0)])
        out = jax.device_get(compile_cache.call(evaluate_rows, (formulas,), consts, padded.astype(dtype), block_key))
        evaluations.append(jax.tree.map(lambda a: a[: len(rows_now)], out))  # noqa: B023 (used at once)
    return jax.tree.map(lambda *a: np.concatenate(a), *evaluations)


MAX_REMEMBERED = 256
MAX_COMPARED_BYTES = 2**16  # bytes of arrays that are too many to be compared
# formulas with their numbers, arrays and points at which they gave a value; arrays on a device are known by identity
_passed: dict[Any, list[weakref.ref[Any]]] = {}


def _dead_reference() -> None:
    """As a reference to what is no more."""


@lru_cache(maxsize=16)
def _probe_shares(dim: int, count: int = PROBE_ROWS) -> np.ndarray:
    """The points tried, in shares of the box."""
    share = np.random.default_rng(0).random((count, dim))
    share[0] = 0.5
    return share


TOLERANCE_POINTS = 64  # at which equalities are evaluated to choose their tolerance


def sample_equalities(traced: Traced, bounds: Bounds, dtype: Any) -> np.ndarray:
    """Return the values of the equalities at points spread over the box, (n, q)."""
    shares = np.random.default_rng(0).random((TOLERANCE_POINTS, bounds.dim))
    points = np.asarray(bounds.lower) + shares * np.asarray(bounds.span)
    return np.asarray(evaluate_points(traced, points, dtype).eq, np.float64)


def probe(traced: Traced, bounds: Bounds, dtype: Any) -> None:
    """Refuse a problem that fails at each of a few points: the middle of the box and some spread over it."""
    points = np.asarray(bounds.lower) + _probe_shares(bounds.dim) * np.asarray(bounds.span)
    numbers = tuple(values.tobytes() for values in traced.consts.numbers.values())
    arrays = traced.consts.arrays
    is_small = sum(array.nbytes for array in arrays) <= MAX_COMPARED_BYTES
    array_keys = tuple(a.tobytes() if isinstance(a, np.ndarray) else id(a) for a in arrays) if is_small else ()
    key = (traced.formulas.digest, numbers, array_keys, points.tobytes(), str(dtype))
    if is_small and all(reference() is not None for reference in _passed.get(key, [_dead_reference])):
        return
    out = evaluate_points(traced, points, dtype)
    if not out.failed.all():
        if len(_passed) >= MAX_REMEMBERED:
            _passed.clear()
        if is_small:
            _passed[key] = [weakref.ref(a) for a in arrays if not isinstance(a, np.ndarray)]
        return
    points = np.asarray(bounds.lower) + _probe_shares(bounds.dim, MAX_PROBES) * np.asarray(bounds.span)
    for start in range(PROBE_ROWS, MAX_PROBES, PROBE_ROWS):
        more = evaluate_points(traced, points[start : start + PROBE_ROWS], dtype)
        if not more.failed.all():
            return
    raw = {name: getattr(out, name) for name in ("ineq", "eq") if getattr(out, name) is not None}
    broken = next((name for name, values in raw.items() if not np.isfinite(values).all(axis=1).any()), "fun")
    raise InputError(
        f"{broken} returned NaN or inf at all {MAX_PROBES} points tried in the box, for example at x = "
        f"{np.array2string(points[0], precision=4, threshold=6)}: check the formula there. If only a small part of the "
        'box is defined, pass on_failure="worst" to search for it.'
    )
