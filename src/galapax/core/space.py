"""Declared variables as genes and back: the space in which a search moves, see `core/variables.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.box import Bounds, DiscreteGrid, as_bounds
from galapax.core.checks import abbreviate, as_float_array
from galapax.core.errors import InputError
from galapax.core.labels import check_label_comparisons
from galapax.core.names import clean_name
from galapax.core.variables import Variable, integer, real


@dataclass(frozen=True)
class Space:
    """Some variables, and how they become genes and back.

    named: they came as a dict, so that functions get a mapping of named values; else a vector.
    """

    variables: tuple[Variable, ...]
    named: bool = False

    @property
    def dim(self) -> int:
        return len(self.variables)

    @cached_property
    def discrete(self) -> np.ndarray:
        return np.array([v.discrete for v in self.variables])

    @property
    def combinations(self) -> float:
        """How many points there are; inf with a real variable."""
        first, last = self._codes
        return float(np.prod(last - first + 1.0)) if self.discrete.all() else math.inf

    @property
    def plain(self) -> bool:
        """Whether genes, x and what functions get are all the same."""
        return not self.named and not any(v.discrete or v.log for v in self.variables)

    @cached_property
    def bounds(self) -> Bounds:
        """Of x."""
        limits = [(v.lower, v.upper) for v in self.variables]
        return as_bounds(limits)

    @cached_property
    def genes(self) -> Bounds:
        """The box of the genes, with the grid that some of them stand on."""
        lower, upper = self.bounds.lower.copy(), self.bounds.upper.copy()
        lower[self._log], upper[self._log] = np.log(lower[self._log]), np.log(upper[self._log])
        for i in np.flatnonzero(self.discrete):
            lower[i], upper[i] = self._codes[0][i] - 0.5, self._codes[1][i] + 0.5
        if not self.discrete.any():
            return Bounds(lower, upper)
        unordered = np.array([not v.ordered for v in self.variables])
        return Bounds(lower, upper, DiscreteGrid(self.discrete, unordered, *self._codes))

    def check(self, dtype: str) -> None:
        """Refuse codes that this precision does not hold."""
        if dtype != "float32":
            return
        for variable, low, high in zip(self.variables, *self._codes, strict=True):
            if max(abs(low), abs(high)) > 2**22:
                raise InputError(
                    f'{variable!r} has whole numbers that float32 does not hold: run it with dtype="float64".'
                )

    def decode(self, genes: Any) -> Any:
        """x (..., d) of genes (..., d), in NumPy or JAX as they came: each code a whole number within its limits."""
        xp, x = _array_module(genes), genes
        if self._log.any():
            raised = xp.exp(xp.where(self._log, genes, 0))
            walls, ends = self.genes.round_inwards(genes.dtype), self.bounds.round_inwards(genes.dtype)
            raised = xp.where(genes <= walls.lower, ends.lower, xp.where(genes >= walls.upper, ends.upper, raised))
            x = xp.where(self._log, xp.clip(raised, ends.lower, ends.upper), x)
        if not self.discrete.any():
            return x
        first, last = (np.asarray(side, genes.dtype) for side in self._codes)
        codes = xp.clip(xp.round(genes), first, last)
        x = xp.where(self.discrete, codes, x)
        if self._numeric.any():
            places = xp.where(self._numeric, codes, 0).astype(np.int32)
            numbers = xp.asarray(self._table.astype(genes.dtype))[np.arange(self.dim), places]
            x = xp.where(self._numeric, numbers, x)
        return x

    def encode(self, x: Any) -> Any:
        """Genes of x; of discrete variables those of the nearest value."""
        xp, genes = _array_module(x), x
        if self._log.any():
            genes = xp.where(self._log, xp.log(xp.where(self._log, x, 1)), genes)
        if not self.discrete.any():
            return genes
        if self._numeric.any():
            apart = xp.abs(xp.asarray(self._table.astype(x.dtype)) - x[..., None])
            places = xp.argmin(xp.where(xp.isnan(apart), np.inf, apart), axis=-1).astype(x.dtype)
            genes = xp.where(self._numeric, places, genes)
        first, last = (np.asarray(side, x.dtype) for side in self._codes)
        return xp.where(self.discrete, xp.clip(xp.round(genes), first, last), genes)

    def canonical(self, genes: np.ndarray) -> np.ndarray:
        """Genes with their codes rounded: the same for all that mean the same."""
        first, last = self._codes
        return np.where(self.discrete, np.clip(np.round(genes), first, last), genes).astype(genes.dtype)

    def given(self, x: Any) -> Any:
        """What functions get for x (d,), or of many (n, d) at once: x itself, or by name. Of a NumPy array Python's own
        values and labels, for black boxes; else JAX arrays, text as its place among the choices.
        """
        if not self.named:
            return x
        names = self.names()
        if isinstance(x, np.ndarray) and x.ndim == 1:
            return {name: v.value(float(number)) for name, v, number in zip(names, self.variables, x, strict=True)}
        return {
            name: _column_values(v, x[..., i]) for i, (name, v) in enumerate(zip(names, self.variables, strict=True))
        }

    def names(self) -> list[str]:
        return [v.name if v.name is not None else f"x{i + 1}" for i, v in enumerate(self.variables)]

    def values(self, x: Any) -> dict[str, Any]:
        """{name: value} of one solution: floats, ints, bools and labels."""
        return {n: v.value(float(k)) for n, v, k in zip(self.names(), self.variables, x, strict=True)}

    def points(self, given: Any) -> np.ndarray:
        """x of a user's points: numbers, or mappings of named values, or rows with labels in them."""
        if isinstance(given, Mapping):
            given = [given]
        if isinstance(given, list | tuple) and given and all(isinstance(point, Mapping) for point in given):
            return np.array([self._of_names(point) for point in given])
        try:
            return as_float_array(given)
        except ValueError:
            rows = [given] if isinstance(given, list | tuple) and not isinstance(given[0], list | tuple) else given
            if not isinstance(rows, list | tuple) or any(len(row) != self.dim for row in rows):
                raise
            return np.array([[v.number(c) for v, c in zip(self.variables, row, strict=True)] for row in rows])

    def _of_names(self, point: Mapping[str, Any]) -> list[float]:
        names = self.names()
        for name in names:
            if name not in point:
                raise InputError(f"a point needs a value for each of {', '.join(names)}; {name!r} is missing.")
        for name in point:
            if name not in names:
                raise InputError(f"a point has {name!r}, which is none of the variables {', '.join(names)}.")
        return [v.number(point[name]) for name, v in zip(names, self.variables, strict=True)]

    @cached_property
    def _log(self) -> np.ndarray:
        return np.array([v.log for v in self.variables])

    @cached_property
    def _codes(self) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last code of each variable; 0 of real ones."""
        limits = [(v.lower, v.upper) if v.kind == "integer" else (0.0, _last_code(v)) for v in self.variables]
        return np.array([low for low, _ in limits]), np.array([high for _, high in limits])

    @cached_property
    def _numeric(self) -> np.ndarray:
        return np.array([v.numeric for v in self.variables])

    @cached_property
    def _table(self) -> np.ndarray:
        """The numbers of choices among numbers, a row for each variable; NaN beyond the last."""
        rows = [v.labels if v.numeric else () for v in self.variables]
        table = np.full((self.dim, max(map(len, rows))), np.nan)
        for row, numbers in zip(table, rows, strict=True):
            row[: len(numbers)] = numbers
        return table


def _last_code(variable: Variable) -> float:
    """The last code of a choice or switch."""
    return {"real": 0.0, "flag": 1.0}.get(variable.kind, len(variable.labels) - 1.0)


def _column_values(variable: Variable, numbers: Any) -> Any:
    """Values of one variable for a function that JAX traces, or for one that takes many points."""
    xp, kind = _array_module(numbers), variable.kind
    if kind == "flag":
        return numbers > 0.5
    whole_labels = variable.numeric and all(isinstance(label, int) for label in variable.labels)
    if kind == "integer" or whole_labels or (kind == "choice" and not variable.numeric):
        numbers = numbers.astype(int)
    if kind == "choice" and not variable.numeric and xp is np:
        return np.array(variable.labels, object)[numbers]
    return numbers


def _array_module(x: Any) -> Any:
    return np if isinstance(x, np.ndarray | np.generic) else jnp


@dataclass(frozen=True, eq=False)
class VectorFunction:
    """A user's function as one of x, a vector. What lies between two values of a discrete variable is rounded."""

    function: Callable[..., Any]
    space: Space

    def __call__(self, x: Any) -> Any:
        if isinstance(x, Mapping):
            return self.function(x)
        x = x if isinstance(x, np.ndarray) else jnp.asarray(x)
        return self.function(self.space.given(self.space.decode(self.space.encode(x))))

    @property
    def __wrapped__(self) -> Callable[..., Any]:  # whose signature is checked
        return self.function

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


@dataclass(frozen=True, eq=False)
class GeneFunction(VectorFunction):
    """A user's function as one of genes."""

    def __call__(self, x: Any) -> Any:
        given = self.space.given(self.space.decode(x))
        if isinstance(given, Mapping) and isinstance(x, jax.core.Tracer):
            texts = {str(v.name): v.labels for v in self.space.variables if v.kind == "choice" and not v.numeric}
            check_label_comparisons(self.function, given, texts)
        return self.function(given)


def is_variables(bounds: Any) -> bool:
    """Whether these are variables, in a dict or a list, and not (lower, upper) pairs alone."""
    if isinstance(bounds, Mapping):
        return all(isinstance(name, str) for name in bounds)
    return isinstance(bounds, list | tuple) and any(isinstance(v, Variable) for v in bounds)


def as_space(given: Any, argument: str = "bounds") -> Space:
    """Variables by name, or in a list; a (lower, upper) pair among them is a real one."""
    named = isinstance(given, Mapping)
    pairs = given.items() if isinstance(given, Mapping) else ((None, v) for v in given)
    made = []
    for i, (name, variable) in enumerate(pairs):
        if not isinstance(variable, Variable):
            if not isinstance(variable, list | tuple | np.ndarray) or len(variable) != 2:
                raise InputError(
                    f"{argument} has {abbreviate(variable)} for variable {i if name is None else repr(name)}; give "
                    "gx.real(lower, upper), gx.integer(lower, upper), gx.choice(...) or gx.flag()."
                )
            variable = real(*variable)
        if name is not None:
            variable = replace(variable, name=clean_name(name, "the name of a variable"))
        made.append(variable)
    if not made:
        raise InputError(f"{argument} has no variable: give at least one.")
    space = Space(tuple(made), named)
    names = space.names()
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{argument} has two variables called {twice!r}; names tell them apart.")
    return space


def variables_from_integrality(bounds: Any, integrality: Any) -> list[Variable]:
    """scipy's `integrality`: variables from pairs and a mask of those that are integers."""
    box = as_bounds(bounds)
    try:
        mask = np.broadcast_to(as_float_array(integrality), (box.dim,))
    except ValueError:
        raise InputError(
            f"integrality must be one True or False for each of the {box.dim} variables; got {abbreviate(integrality)}."
        ) from None
    out = []
    for low, high, is_whole in zip(box.lower.tolist(), box.upper.tolist(), mask.tolist(), strict=True):
        if is_whole and math.ceil(low) >= math.floor(high):
            raise InputError(f"integrality asks for whole numbers between {low:g} and {high:g}, and there are not two.")
        out.append(integer(math.ceil(low), math.floor(high)) if is_whole else real(low, high))
    return out
