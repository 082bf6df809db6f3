"""Variables that are more than a range: integers, choices, switches, logarithmic scales, each with a name and a unit.

A search moves in genes, one float per variable, so that every algorithm works on every kind of variable:

- a real number is its own gene; on a logarithmic scale the gene is its logarithm;
- an integer, a switch and a choice have a whole number as gene, the code: the integer itself, or the place among the
  choices. The box of such a gene goes half a step beyond its codes, so that rounding gives each code the same share.

`Space.decode` is the one way from genes to x, the numbers that a user sees: codes are rounded there, whatever an
algorithm did to them, so a function is never called between two codes and no answer lies there. `Space.to_arguments`
turns x into what the functions are called with. `operators/discrete.py` rounds candidates to codes.

A choice among texts is an index in a function that JAX traces;
comparing it with a text would never be true and give a wrong answer silently, which `LabelIndex` refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.box import Bounds, DiscreteGrid, as_bounds
from galapax.core.checks import abbreviate, as_float_array, check_finite, clean_name
from galapax.core.errors import InputError

MAX_INTEGER = 2**53  # whole numbers up to it are exact in float64


@dataclass(frozen=True)
class Variable:
    """One variable; made by `real`, `integer`, `choice` and `boolean`.

    lower, upper: of the number that stands for it in x: of labels their places, from 0 on.
    """

    kind: str  # "real", "integer", "choice" or "boolean"
    lower: float
    upper: float
    log: bool = False
    labels: tuple[Any, ...] = ()
    name: str | None = None
    unit: str | None = None

    @property
    def discrete(self) -> bool:
        return self.kind != "real"

    @property
    def numeric(self) -> bool:
        """Whether it is a choice among numbers: x then has the number, not its place."""
        return self.kind == "choice" and all(_is_number(label) for label in self.labels)

    @property
    def ordered(self) -> bool:
        """Whether neighbours have something in common: integers, and choices among ascending numbers."""
        if self.kind == "choice":
            return self.numeric and all(a < b for a, b in zip(self.labels, self.labels[1:], strict=False))
        return True

    def value(self, number: float) -> Any:
        """What the number in x stands for: a float, an int, a bool or the label."""
        if self.kind == "real" or math.isnan(number):
            return float(number)
        if self.kind == "integer":
            return round(number)
        if self.kind == "boolean":
            return number > 0.5
        return self.labels[int(np.argmin(np.abs(self._numbers - number)))]

    def number(self, value: Any) -> float:
        """The number in x that stands for a value of the user's."""
        index_by_label = {_key(label): i for i, label in enumerate(self.labels)}
        if self.kind == "choice" and not (self.numeric and _is_number(value)):
            if _key(value) not in index_by_label:
                raise InputError(f"{value!r} is none of the choices {', '.join(map(repr, self.labels))}.")
            return float(self._numbers[index_by_label[_key(value)]])
        if not _is_number(value) and not isinstance(value, bool | np.bool_):
            raise InputError(f"{abbreviate(value)} is no number, and {self.name or 'the variable'} needs one.")
        return float(value)

    def show(self, number: float) -> str:
        """The value as text."""
        value = self.value(number)
        if self.kind == "boolean":
            return "yes" if value else "no"
        return f"{value:.8g}" if isinstance(value, float) else str(value)

    def range(self) -> tuple[str, str]:
        """Its limits as text; of labels the first and the last."""
        if self.kind in ("choice", "boolean"):
            return self.show(self.lower), self.show(self.upper)
        return f"{self.lower:g}", f"{self.upper:g}"

    @property
    def _numbers(self) -> np.ndarray:
        return np.array(self.labels, np.float64) if self.numeric else np.arange(len(self.labels), dtype=np.float64)

    def __repr__(self) -> str:
        arguments = [repr(v) for v in self.labels] if self.kind == "choice" else []
        arguments += [f"{self.lower:g}", f"{self.upper:g}"] if self.kind in ("real", "integer") else []
        arguments += ["log=True"] * self.log
        arguments += [
            f"{field}={getattr(self, field)!r}" for field in ("name", "unit") if getattr(self, field) is not None
        ]
        return f"{self.kind}({', '.join(arguments)})"


def real(
    lower: float, upper: float, *, log: bool = False, name: str | None = None, unit: str | None = None
) -> Variable:
    """A real number between two limits.

    log: search its logarithm, so that each order of magnitude gets the same share; both limits must be above 0.
    """
    low, high = _limits("real", lower, upper)
    if log and low <= 0:
        raise InputError(f"real(..., log=True) needs limits above 0, got {low:g} and {high:g}.")
    return _with_name(Variable("real", low, high, log=bool(log)), name, unit)


def integer(lower: int, upper: int, *, name: str | None = None, unit: str | None = None) -> Variable:
    """A whole number between two limits, both included."""
    low, high = _limits("integer", lower, upper)
    if low != round(low) or high != round(high):
        raise InputError(f"integer needs whole numbers as limits, got {low:g} and {high:g}.")
    if max(abs(low), abs(high)) > MAX_INTEGER:
        raise InputError(f"integer takes limits of up to 2**53, which floats hold exactly; got {low:g} and {high:g}.")
    return _with_name(Variable("integer", low, high), name, unit)


def choice(*labels: Any, name: str | None = None, unit: str | None = None) -> Variable:
    """One of some labels: text, or numbers such as the sizes that a shop has.

    Numbers in ascending order are searched as steps of a ladder, everything else as values that have no order.
    """
    if len(labels) == 1 and isinstance(labels[0], Sequence | np.ndarray) and not isinstance(labels[0], str):
        labels = tuple(labels[0])
    values = tuple(label.item() if isinstance(label, np.generic) else label for label in labels)
    if len(values) < 2:
        raise InputError(f"choice needs at least two labels, got {len(values)}.")
    for i, label in enumerate(values):
        if not isinstance(label, str) and not _is_number(label):
            raise InputError(f"choice takes text or finite numbers as labels, got {abbreviate(label)}.")
        if label in values[:i]:
            raise InputError(f"choice has {label!r} twice; give each label once.")
    texts = tuple(clean_name(label, "a label") if isinstance(label, str) else label for label in values)
    for i, label in enumerate(texts):
        if label in texts[:i]:
            raise InputError(
                f"choice has {values[texts.index(label)]!r} and {values[i]!r}, which are the same on one line of text: "
                f"{label!r}; give each label once."
            )
    values = texts
    variable = Variable("choice", 0.0, len(values) - 1.0, labels=values)
    if variable.numeric:
        variable = replace(variable, lower=float(min(values)), upper=float(max(values)))
    return _with_name(variable, name, unit)


def boolean(*, name: str | None = None) -> Variable:
    """True or False."""
    return _with_name(Variable("boolean", 0.0, 1.0), name, None)


def _limits(kind: str, lower: Any, upper: Any) -> tuple[float, float]:
    low, high = check_finite(lower, f"the lower limit of {kind}"), check_finite(upper, f"the upper limit of {kind}")
    if low > high:
        raise InputError(f"the limits of {kind} are reversed: lower {low:g} > upper {high:g}; swap them.")
    if low == high:
        raise InputError(
            f"the limits of {kind} are equal ({low:g}): a fixed value is no variable; use it as a constant."
        )
    return low, high


def _with_name(variable: Variable, name: Any, unit: Any) -> Variable:
    clean = None if name is None else clean_name(name, "name")
    return replace(variable, name=clean, unit=None if unit is None else clean_name(unit, "unit"))


def _is_number(value: Any) -> bool:
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return plain and math.isfinite(value)


def _key(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


class LabelIndex(int):
    """The first of some labels, which refuses to be compared with a text."""

    name: str
    labels: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            places = ", ".join(f"{i} for {label!r}" for i, label in enumerate(self.labels[:3]))
            raise InputError(
                f"a function compares {self.name} with {other!r}, but one that JAX traces gets the place of a choice "
                f"({places}): compare with that number, index an array with it, or give blackbox=True."
            )
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__


def check_label_comparisons(
    function: Callable[..., Any], arguments: Mapping[str, Any], texts: Mapping[str, tuple[Any, ...]]
) -> None:
    """Try a function with such places instead of traced ones. texts: the labels of each choice by its name."""
    places = {}
    for name, labels in texts.items():
        places[name] = LabelIndex(0)
        places[name].name, places[name].labels = name, labels
    if not places:
        return
    try:
        function({**arguments, **places})
    except InputError:
        raise
    except Exception:  # whatever a plain number cannot do that a traced one can
        return


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
            distance = xp.abs(xp.asarray(self._table.astype(x.dtype)) - x[..., None])
            places = xp.argmin(xp.where(xp.isnan(distance), np.inf, distance), axis=-1).astype(x.dtype)
            genes = xp.where(self._numeric, places, genes)
        first, last = (np.asarray(side, x.dtype) for side in self._codes)
        return xp.where(self.discrete, xp.clip(xp.round(genes), first, last), genes)

    def round_codes(self, genes: np.ndarray) -> np.ndarray:
        """Genes with their codes rounded: the same for all that mean the same."""
        first, last = self._codes
        return np.where(self.discrete, np.clip(np.round(genes), first, last), genes).astype(genes.dtype)

    def to_arguments(self, x: Any) -> Any:
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

    def parse_points(self, points: Any) -> np.ndarray:
        """x of a user's points: numbers, or mappings of named values, or rows with labels in them."""
        if isinstance(points, Mapping):
            points = [points]
        if isinstance(points, list | tuple) and points and all(isinstance(point, Mapping) for point in points):
            return np.array([self._of_names(point) for point in points])
        try:
            return as_float_array(points)
        except ValueError:
            rows = [points] if isinstance(points, list | tuple) and not isinstance(points[0], list | tuple) else points
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
    return {"real": 0.0, "boolean": 1.0}.get(variable.kind, len(variable.labels) - 1.0)


def _column_values(variable: Variable, numbers: Any) -> Any:
    """Values of one variable for a function that JAX traces, or for one that takes many points."""
    xp, kind = _array_module(numbers), variable.kind
    if kind == "boolean":
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
        return self.function(self.space.to_arguments(self.space.decode(self.space.encode(x))))

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
        arguments = self.space.to_arguments(self.space.decode(x))
        if isinstance(arguments, Mapping) and isinstance(x, jax.core.Tracer):
            texts = {str(v.name): v.labels for v in self.space.variables if v.kind == "choice" and not v.numeric}
            check_label_comparisons(self.function, arguments, texts)
        return self.function(arguments)


def is_variables(bounds: Any) -> bool:
    """Whether these are variables, in a dict or a list, and not (lower, upper) pairs alone."""
    if isinstance(bounds, Mapping):
        return all(isinstance(name, str) for name in bounds)
    return isinstance(bounds, list | tuple) and any(isinstance(v, Variable) for v in bounds)


def as_space(bounds: Any, argument: str = "bounds") -> Space:
    """Variables by name, or in a list; a (lower, upper) pair among them is a real one."""
    named = isinstance(bounds, Mapping)
    pairs = bounds.items() if isinstance(bounds, Mapping) else ((None, v) for v in bounds)
    variables = []
    for i, (name, variable) in enumerate(pairs):
        if not isinstance(variable, Variable):
            if not isinstance(variable, list | tuple | np.ndarray) or len(variable) != 2:
                raise InputError(
                    f"{argument} has {abbreviate(variable)} for variable {i if name is None else repr(name)}; give "
                    "gx.real(lower, upper), gx.integer(lower, upper), gx.choice(...) or gx.boolean()."
                )
            variable = real(*variable)
        if name is not None:
            variable = replace(variable, name=clean_name(name, "the name of a variable"))
        variables.append(variable)
    if not variables:
        raise InputError(f"{argument} has no variable: give at least one.")
    space = Space(tuple(variables), named)
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
