"""The space of declared variables: maps between the genes of a search, x, and the values that functions get.

An algorithm searches in genes, one float per variable, so that every algorithm works with every kind of variable:

- a real number is its own gene; on a logarithmic scale the gene is its logarithm;
- integers, booleans, choices and reals with a step have a whole number as gene, the code: the integer itself, the
  number of steps, or the index among the choices. The box of such a gene extends half a code beyond the first and the
  last one, so that rounding gives each code the same share;
- a fixed variable, whose limits are equal, has no gene.

`Space.decode` is the only way from genes to x, the numbers that a user sees. It rounds codes and gives an inactive
conditional variable its lower limit, so that no function is called between two codes and an inactive gene changes
nothing. `Space.to_arguments` turns x into the arguments of the user's functions. `operators/variation.py` rounds
candidates to codes.

A choice among labels is an index in a function that JAX traces; comparing it with a label would never be true and give
a wrong answer silently, which `LabelIndex` refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from galapax.core.checks import abbreviate, as_float_array, clean_name
from galapax.core.errors import InputError
from galapax.core.variables import Label, Variable, integer, real

NumberArray = TypeVar("NumberArray", bound=Array | np.ndarray)  # on the device, or on the host


class DiscreteGrid(NamedTuple):
    """Which genes are codes, whole numbers from `first` to `last`; all (d,). See `core/space.py`."""

    discrete: np.ndarray  # bool: the gene is a code
    unordered: np.ndarray  # bool: neighbouring codes are not alike
    first: np.ndarray  # 0 for a real gene
    last: np.ndarray


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Bounds:
    """The box of d variables: `lower` and `upper`, both (d,).

    grid: of genes, if some of them are codes of integers or choices.
    """

    lower: Array | np.ndarray
    upper: Array | np.ndarray
    grid: DiscreteGrid | None = None

    @property
    def dim(self) -> int:
        return int(self.lower.shape[-1])

    @property
    def span(self) -> Array | np.ndarray:
        return self.upper - self.lower

    def round_inwards(self, dtype: DTypeLike) -> Bounds:
        """Return the box in another precision, rounded inwards so that no point of it lies outside this one."""
        with np.errstate(over="ignore"):
            box = self._cast(dtype)
            # XLA takes numbers below `tiny` for 0, and a box of no width has no points
            sound = np.isfinite(box.span) & (box.span >= np.finfo(dtype).tiny)
        if not sound.all():
            i = int(np.argmin(sound))
            raise InputError(
                f"bounds are too wide or too narrow for {np.dtype(dtype).name}: those of variable {i} are "
                f"({self.lower[i]!r}, {self.upper[i]!r}); rescale the variable, or use float64 if it is float32."
            )
        return box

    def _cast(self, dtype: DTypeLike) -> Bounds:
        lower, upper = (np.asarray(side).astype(dtype) for side in (self.lower, self.upper))
        lower = np.where(lower < self.lower, np.nextafter(lower, lower.dtype.type(np.inf)), lower)
        upper = np.where(upper > self.upper, np.nextafter(upper, upper.dtype.type(-np.inf)), upper)
        grid = self.grid
        if grid is not None:
            grid = grid._replace(first=np.asarray(grid.first).astype(dtype), last=np.asarray(grid.last).astype(dtype))
        return Bounds(lower, upper, grid)

    def __repr__(self) -> str:
        return f"Bounds(lower={np.asarray(self.lower).tolist()}, upper={np.asarray(self.upper).tolist()})"


def box(lower: float, upper: float, dim: int) -> Bounds:
    """Build the box with the same interval for each of `dim` variables."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise InputError(f"dim must be a whole number of at least 1, got {dim!r}.")
    return as_bounds([(lower, upper)] * int(dim))


def as_bounds(bounds: object, argument: str = "bounds", allow_fixed: bool = False) -> Bounds:
    """Check `bounds` and return them as float64 NumPy arrays.

    Accepted: a `Bounds`, scipy's `Bounds`, or one (lower, upper) pair per variable. allow_fixed: limits may be equal.
    """
    example = "one (lower, upper) pair per variable, such as [(-5, 5)] * 10"
    grid = None
    if bounds is None:
        raise InputError(f"{argument} is missing: give {example}, or a Problem that carries its own.")
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):  # scipy.optimize.Bounds
        lower, upper = _as_floats(bounds.lb, argument), _as_floats(bounds.ub, argument)
    elif isinstance(bounds, Bounds):
        grid = bounds.grid
        lower, upper = _as_floats(bounds.lower, argument), _as_floats(bounds.upper, argument)
    else:
        pairs = _as_floats(bounds, argument)
        if pairs.shape == (2,):
            low, high = pairs.tolist()
            if not low < high:
                raise InputError(
                    f"{argument} must be {example}; got the numbers {low:g} and {high:g}, which do not form a "
                    "valid pair (for a starting point write x0, and also give the bounds)."
                )
            raise InputError(
                f"{argument} is a single pair ({low:g}, {high:g}), so the number of variables is unknown: give "
                f"one pair per variable, such as [({low:g}, {high:g})] * 10, or gx.box({low:g}, {high:g}, dim=10); a "
                "starting point is x0=, beside the bounds."
            )
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.shape[0] == 0:
            is_point = pairs.ndim == 1 and pairs.size
            hint = " (a starting point is x0=, beside the bounds)" if is_point else _rows(pairs)
            raise InputError(f"{argument} must be {example}; got an array of shape {pairs.shape}{hint}.")
        lower, upper = pairs[:, 0], pairs[:, 1]
    if lower.ndim != 1 or lower.shape != upper.shape or lower.size == 0:
        raise InputError(
            f"{argument} need a lower and an upper limit per variable; got shapes {lower.shape} and {upper.shape}."
        )
    if (lower == upper).all() and not allow_fixed:
        raise InputError(
            "every variable is fixed, so there is nothing to search: give one different limits"
            f"{_rows(np.column_stack([lower, upper]))}."
        )
    is_sound = np.isfinite(lower) & np.isfinite(upper) & ((lower < upper) | (allow_fixed & (lower == upper)))
    if is_sound.all():
        return Bounds(lower, upper, grid)
    i = int(np.argmin(is_sound))
    low, high = float(lower[i]), float(upper[i])
    if math.isnan(low) or math.isnan(high):
        raise InputError(
            f"{argument} of variable {i} need a finite lower and upper limit; None or NaN is not one: give the "
            "widest range that makes sense."
        )
    if math.isinf(low) or math.isinf(high):
        raise InputError(
            f"{argument} of variable {i} are ({low}, {high}): the search starts from points spread over the box, "
            "so both limits must be finite; give the widest range that makes sense."
        )
    if low > high:
        raise InputError(f"{argument} of variable {i} are reversed: lower {low:g} > upper {high:g}; swap them.")
    raise InputError(
        f"{argument} of variable {i} are equal ({low:g}): a fixed value is not a variable; "
        f"put it into the objective as a constant{_rows(np.column_stack([lower, upper]))}."
    )


def _rows(pairs: np.ndarray) -> str:
    """Return advice for bounds that seem to be all lower, then all upper limits."""
    if pairs.ndim != 2 or len(pairs) != 2 or not np.all(pairs[0] < pairs[1]):
        return ""
    return " (two rows, all lower and all upper limits? Then write list(zip(lower, upper)))"


def _as_floats(values: object, argument: str) -> np.ndarray:
    try:
        if isinstance(values, list | tuple):  # None stands for "no limit" elsewhere; as NaN it is refused by name
            pairs = [[np.nan if v is None else v for v in p] if isinstance(p, list | tuple) else p for p in values]
            return as_float_array(pairs)
        return as_float_array(values)
    except ValueError:
        order = " (the algorithm comes after the bounds)" if isinstance(values, str) else ""
        raise InputError(
            f"{argument} must be numbers, one (lower, upper) pair per variable; got {abbreviate(values)}{order}."
        ) from None


class LabelIndex(int):
    """Index of the first label of a choice, which refuses to be compared with a label."""

    name: str
    labels: tuple[Label, ...]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str | tuple | bool):
            indices = ", ".join(f"{i} for {label!r}" for i, label in enumerate(self.labels[:3]))
            raise InputError(
                f"a function compares {self.name} with {other!r}, but in a compiled function a choice is its index "
                f"({indices}): compare with that number, index an array with it, or give blackbox=True."
            )
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__


def check_label_comparisons(
    function: Callable[..., object], arguments: Mapping[str, object], labels: Mapping[str, tuple[Label, ...]]
) -> None:
    """Call a function with `LabelIndex` in place of traced indices. labels: of each choice, by its name."""
    indices = {}
    for name, choice_labels in labels.items():
        indices[name] = LabelIndex(0)
        indices[name].name, indices[name].labels = name, choice_labels
    if not indices:
        return
    try:
        function({**arguments, **indices})
    except InputError:
        raise
    except Exception:  # a Python number lacks what a traced array can do
        return


@dataclass(frozen=True)
class Space:
    """The variables of a problem: the maps from genes to x and back.

    x has a number for every variable, genes only for those that are searched: not for fixed ones.
    is_mapping: they came as a dict, so that functions get a mapping of named values; else a vector.
    """

    variables: tuple[Variable, ...]
    is_mapping: bool = False

    def __post_init__(self) -> None:
        if not self.free_variables:
            raise InputError("every variable is fixed, so there is nothing to search: give one different limits.")
        _ = self._conditions  # checks them

    @property
    def dim(self) -> int:
        """Number of variables, the length of x."""
        return len(self.variables)

    @cached_property
    def free_variables(self) -> tuple[Variable, ...]:
        """The variables that have a gene."""
        return tuple(v for v in self.variables if not v.is_fixed)

    @cached_property
    def discrete(self) -> np.ndarray:
        """Which genes are codes."""
        return np.array([v.discrete for v in self.free_variables])

    @property
    def combinations(self) -> float:
        """The number of points; inf with a real variable."""
        first, last = self._codes
        return float(np.prod(last - first + 1.0)) if self.discrete.all() else math.inf

    @property
    def plain(self) -> bool:
        """Whether genes, x and the arguments of functions are all the same."""
        return not self.is_mapping and not any(v.discrete or v.log or v.is_fixed or v.when for v in self.variables)

    @cached_property
    def bounds(self) -> Bounds:
        """The box of x."""
        return as_bounds([(v.lower, v.upper) for v in self.variables], allow_fixed=True)

    @cached_property
    def _searched_bounds(self) -> Bounds:
        return as_bounds([(v.lower, v.upper) for v in self.free_variables])

    @cached_property
    def genes(self) -> Bounds:
        """The box of the genes, with the grid of the codes."""
        lower, upper = self._searched_bounds.lower.copy(), self._searched_bounds.upper.copy()
        lower[self._log], upper[self._log] = np.log(lower[self._log]), np.log(upper[self._log])
        for i in np.flatnonzero(self.discrete):
            lower[i], upper[i] = self._codes[0][i] - 0.5, self._codes[1][i] + 0.5
        if not self.discrete.any():
            return Bounds(lower, upper)
        unordered = np.array([not v.is_ordered for v in self.free_variables])
        return Bounds(lower, upper, DiscreteGrid(self.discrete, unordered, *self._codes))

    def check(self, dtype: str) -> None:
        """Refuse codes that this precision cannot represent."""
        if dtype != "float32":
            return
        for variable, low, high in zip(self.free_variables, *self._codes, strict=True):
            if max(abs(low), abs(high)) > 2**22:
                raise InputError(
                    f'{variable!r} has whole numbers that float32 does not hold: run it with dtype="float64".'
                )

    def decode(self, genes: NumberArray) -> NumberArray:
        """Compute x (..., d) from genes, in NumPy or JAX as they came; codes are rounded to their limits."""
        xp, x = _array_module(genes), genes
        if self._log.any():
            exponential = xp.exp(xp.where(self._log, genes, 0))
            gene_box, box = (b.round_inwards(genes.dtype) for b in (self.genes, self._searched_bounds))
            exponential = xp.where(genes >= gene_box.upper, box.upper, exponential)
            exponential = xp.where(genes <= gene_box.lower, box.lower, exponential)
            x = xp.where(self._log, xp.clip(exponential, box.lower, box.upper), x)
        if self.discrete.any():
            first, last = (np.asarray(side, genes.dtype) for side in self._codes)
            codes = xp.clip(xp.round(genes), first, last)
            x = xp.where(self.discrete, codes, x)
            if self._has_step.any():
                origin, step = (values.astype(genes.dtype) for values in self._grids)
                box = self._searched_bounds.round_inwards(genes.dtype)
                x = xp.where(self._has_step, xp.clip(origin + step * codes, box.lower, box.upper), x)
            if self._numeric.any():
                places = xp.where(self._numeric, codes, 0).astype(np.int32)
                numbers = xp.asarray(self._table.astype(genes.dtype))[np.arange(len(self.free_variables)), places]
                x = xp.where(self._numeric, numbers, x)
        if len(self.free_variables) < self.dim:
            x = xp.where(self._is_fixed, self.bounds.lower.astype(genes.dtype), x[..., self._gene_index])
        return x if not self._conditions else xp.where(self.is_active(x), x, self._inactive_x(genes.dtype))

    def encode(self, x: NumberArray) -> NumberArray:
        """Compute the genes of x; of discrete variables those of the nearest value."""
        x = x[..., ~self._is_fixed] if len(self.free_variables) < self.dim else x  # type: ignore[assignment]
        xp, genes = _array_module(x), x
        if self._log.any():
            genes = xp.where(self._log, xp.log(xp.where(self._log, x, 1)), genes)
        if not self.discrete.any():
            return genes
        if self._has_step.any():
            origin, step = (values.astype(x.dtype) for values in self._grids)
            genes = xp.where(self._has_step, (x - origin) / step, genes)
        if self._numeric.any():
            distance = xp.abs(xp.asarray(self._table.astype(x.dtype)) - x[..., None])
            places = xp.argmin(xp.where(xp.isnan(distance), np.inf, distance), axis=-1).astype(x.dtype)
            genes = xp.where(self._numeric, places, genes)
        first, last = (np.asarray(side, x.dtype) for side in self._codes)
        return xp.where(self.discrete, xp.clip(xp.round(genes), first, last), genes)

    def is_active(self, x: NumberArray) -> NumberArray:
        """Return whether each variable of x (..., d) exists, by its conditions and those of the variables that they
        name.
        """
        xp = _array_module(x)
        columns: list[NumberArray] = []
        for i in range(self.dim):
            active = xp.ones(x.shape[:-1], bool)
            for parent, numbers in self._conditions.get(i, ()):
                is_met = xp.any(x[..., parent, None] == numbers.astype(x.dtype), axis=-1)
                active = active & columns[parent] & is_met
            columns.append(active)
        return xp.stack(columns, axis=-1)

    def round_codes(self, genes: np.ndarray) -> np.ndarray:
        """Round the codes of genes, and reset inactive ones: genes of the same solution become equal."""
        first, last = self._codes
        rounded = np.where(self.discrete, np.clip(np.round(genes), first, last), genes).astype(genes.dtype)
        if not self._conditions:
            return rounded
        active = self.is_active(self.decode(rounded))[..., ~self._is_fixed]
        return np.where(active, rounded, self.encode(self._inactive_x(genes.dtype)))

    def to_arguments(self, x: Any) -> Any:
        """Return the argument of the user's functions for x (d,), or for many (n, d): x itself, or values by name.

        A NumPy array (d,), for black boxes, gives Python's own values and labels, without inactive variables. Else the
        values are arrays, labels as indices, and inactive variables have their lower limit.
        """
        if not self.is_mapping:
            return x
        names = self.names()
        if isinstance(x, np.ndarray) and x.ndim == 1:
            return self.values(x)
        return {
            name: _column_values(v, x[..., i]) for i, (name, v) in enumerate(zip(names, self.variables, strict=True))
        }

    def names(self) -> list[str]:
        """Return the names of the variables."""
        return variable_names(self.variables)

    def values(self, x: object) -> dict[str, Label]:
        """Return {name: value} of one solution: floats, ints, bools and labels, without inactive variables."""
        numbers = np.asarray(x)
        active = self.is_active(numbers) if self._conditions else np.ones(self.dim, bool)
        rows = zip(self.names(), self.variables, numbers.tolist(), active.tolist(), strict=True)
        return {name: v.value(float(number)) for name, v, number, is_active in rows if is_active}

    def parse_points(self, points: Any) -> np.ndarray:
        """Return x of a user's points: numbers, mappings of named values, or rows with labels in them."""
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

    def _of_names(self, point: Mapping[str, object]) -> list[float]:
        names = self.names()
        for name in names:
            variable = self.variables[names.index(name)]
            if name not in point and not variable.when and not variable.is_fixed:
                raise InputError(f"a point needs a value for each of {', '.join(names)}; {name!r} is missing.")
        for name in point:
            if name not in names:
                raise InputError(f"unknown variable {name!r} in a point; expected {', '.join(names)}.")
        return [
            v.number(point[name]) if name in point else v.lower for name, v in zip(names, self.variables, strict=True)
        ]

    @cached_property
    def _log(self) -> np.ndarray:
        return np.array([v.log for v in self.free_variables])

    @cached_property
    def _codes(self) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last code of each gene; 0 of real ones."""
        first, last = np.array([v.code_range for v in self.free_variables]).T
        return first, last

    @cached_property
    def _has_step(self) -> np.ndarray:
        return np.array([v.step is not None for v in self.free_variables])

    @cached_property
    def _grids(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower limit and the step of each gene, 1 where there is none."""
        return np.asarray(self._searched_bounds.lower), np.array(
            [1.0 if v.step is None else v.step for v in self.free_variables]
        )

    @cached_property
    def _is_fixed(self) -> np.ndarray:
        return np.array([v.is_fixed for v in self.variables])

    @cached_property
    def _gene_index(self) -> np.ndarray:
        """The gene of each variable; any of a fixed one."""
        return np.maximum(np.cumsum(~self._is_fixed) - 1, 0)

    def _inactive_x(self, dtype: DTypeLike) -> np.ndarray:
        """Return the number in x that each variable has while it is inactive."""
        x = np.array(self.bounds.lower, dtype)
        x[~self._is_fixed] = self._searched_bounds.round_inwards(dtype).lower
        return x

    @cached_property
    def _conditions(self) -> dict[int, list[tuple[int, np.ndarray]]]:
        """The conditions of each conditional variable: the other variable, and its numbers in x that meet them."""
        names, conditions = self.names(), {}
        for i, variable in enumerate(self.variables):
            if variable.when:
                conditions[i] = [self._condition(names[i], names[:i], other, values) for other, values in variable.when]
        return conditions

    def _condition(
        self, name: str, earlier: list[str], other: str, values: tuple[Label, ...]
    ) -> tuple[int, np.ndarray]:
        if other not in earlier:
            raise InputError(
                f"when= of {name} names {other!r}, and no variable of that name is declared before it; "
                f"{'it is the first' if not earlier else 'those before it are ' + ', '.join(earlier)}."
            )
        parent = self.variables[earlier.index(other)]
        if not parent.discrete or parent.step is not None:
            raise InputError(f"when of {name} needs a choice, an integer or a boolean, and {other} is {parent!r}.")
        numbers = np.array([parent.number(value) for value in values])
        if parent.kind != "choice" and ((numbers < parent.lower) | (numbers > parent.upper)).any():
            raise InputError(f"when of {name} has values that {other}, {parent!r}, does not take: {list(values)}.")
        return earlier.index(other), numbers

    @cached_property
    def _numeric(self) -> np.ndarray:
        return np.array([v.numeric for v in self.free_variables])

    @cached_property
    def _table(self) -> np.ndarray:
        """The numbers of choices among numbers, a row for each gene; NaN beyond the last."""
        rows = [np.array(v.labels, np.float64) if v.numeric else np.zeros(0) for v in self.free_variables]
        table = np.full((len(rows), max(map(len, rows))), np.nan)
        for row, numbers in zip(table, rows, strict=True):
            row[: len(numbers)] = numbers
        return table


def _column_values(variable: Variable, numbers: Array | np.ndarray) -> Array | np.ndarray:
    """Convert numbers in x to the values of one variable for a traced function, or for one that takes many points."""
    xp, kind = _array_module(numbers), variable.kind
    if kind == "boolean":
        return numbers > 0.5
    whole_labels = variable.numeric and all(isinstance(label, int) for label in variable.labels)
    if kind == "integer" or whole_labels or (kind == "choice" and not variable.numeric):
        numbers = numbers.astype(int)
    if kind == "choice" and not variable.numeric and xp is np:
        table = np.empty(len(variable.labels), object)
        table[:] = variable.labels  # a tuple is one label
        return table[numbers]
    return numbers


def _array_module(x: object) -> ModuleType:
    return np if isinstance(x, np.ndarray | np.generic) else jnp


@dataclass(frozen=True, eq=False)
class VectorFunction:
    """A user's function of named values as a function of the vector x; numbers between two values are rounded."""

    function: Callable[..., Any]
    space: Space

    def __call__(self, x: Any, *key: Any) -> Any:
        if isinstance(x, Mapping):
            return self.function(x, *key)
        x = x if isinstance(x, np.ndarray) else jnp.asarray(x)
        return self.function(self.space.to_arguments(self.space.decode(self.space.encode(x))), *key)

    @property
    def __wrapped__(self) -> Callable[..., Any]:  # whose signature is checked
        return self.function

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


@dataclass(frozen=True, eq=False)
class GeneFunction(VectorFunction):
    """A user's function as a function of genes."""

    def __call__(self, x: Any, *key: Any) -> Any:
        arguments = self.space.to_arguments(self.space.decode(x))
        if isinstance(arguments, Mapping) and isinstance(x, jax.core.Tracer):
            labels = {str(v.name): v.labels for v in self.space.variables if v.kind == "choice" and not v.numeric}
            check_label_comparisons(self.function, arguments, labels)
        return self.function(arguments, *key)


def is_variables(bounds: object) -> bool:
    """Return whether these are variables in a dict or list, or pairs some of which are fixed, and not only a box."""
    if isinstance(bounds, Mapping):
        return all(isinstance(name, str) for name in bounds)
    if isinstance(bounds, list | tuple) and any(isinstance(v, Variable) for v in bounds):
        return True
    try:
        box = as_bounds(bounds, allow_fixed=True)
    except InputError:
        return False  # `as_bounds` says what is wrong
    is_fixed = box.lower == box.upper
    return bool(is_fixed.any() and not is_fixed.all())


def _suggest_variable(value: object) -> str:
    if isinstance(value, range) and len(value) > 1:
        step = f", step={value.step}" if value.step > 1 else ""
        return f"gx.integer({min(value)}, {max(value)}{step})"
    if isinstance(value, list | tuple) and (len(value) > 2 or (value and all(isinstance(v, str) for v in value))):
        return f"gx.choice(*{abbreviate(value)}) for one of these values"
    return "gx.real(lower, upper), gx.integer(lower, upper), gx.choice(...) or gx.boolean()"


def as_space(bounds: object, argument: str = "bounds") -> Space:
    """Build the space of variables in a dict or list; a (lower, upper) pair among them is a real number."""
    if not isinstance(bounds, Mapping | list | tuple):
        box = as_bounds(bounds, argument, allow_fixed=True)
        bounds = list(zip(box.lower.tolist(), box.upper.tolist(), strict=True))
    is_mapping = isinstance(bounds, Mapping)
    pairs = bounds.items() if isinstance(bounds, Mapping) else ((None, v) for v in bounds)
    variables = []
    for i, (name, variable) in enumerate(pairs):
        if not isinstance(variable, Variable):
            is_pair = isinstance(variable, list | tuple | np.ndarray) and len(variable) == 2
            if not is_pair or any(isinstance(limit, str) for limit in variable):
                raise InputError(
                    f"{argument} has {abbreviate(variable)} for variable {i if name is None else repr(name)}; give "
                    f"{_suggest_variable(variable)}."
                )
            variable = real(*variable)
        if name is not None:
            variable = replace(variable, name=clean_name(name, "the name of a variable"))
        variables.append(variable)
    if not variables:
        raise InputError(f"{argument} has no variable: give at least one.")
    names = variable_names(variables)
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{argument} has two variables called {repeated!r}; names tell them apart.")
    return Space(tuple(variables), is_mapping)


def variable_names(variables: Sequence[Variable]) -> list[str]:
    """Return the names of variables, x1, x2 and so on for those without one."""
    return [v.name if v.name is not None else f"x{i + 1}" for i, v in enumerate(variables)]


def variables_from_integrality(bounds: object, integrality: object) -> list[Variable]:
    """Build variables from scipy's `integrality`: pairs, and a mask of those that are integers."""
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
            raise InputError(
                f"integrality marks [{low:g}, {high:g}] as integer, but it contains fewer than two integers."
            )
        out.append(integer(math.ceil(low), math.floor(high)) if is_whole else real(low, high))
    return out
