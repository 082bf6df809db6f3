"""The box of the variables, and the grid on which discrete ones lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from galapax.core.checks import abbreviate, as_float_array
from galapax.core.errors import InputError

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
                f"one pair per variable, such as [({low:g}, {high:g})] * 10, or gx.box({low:g}, {high:g}, dim=10)."
            )
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.shape[0] == 0:
            raise InputError(f"{argument} must be {example}; got an array of shape {pairs.shape}{_rows(pairs)}.")
        lower, upper = pairs[:, 0], pairs[:, 1]
    if lower.ndim != 1 or lower.shape != upper.shape or lower.size == 0:
        raise InputError(
            f"{argument} need a lower and an upper limit per variable; got shapes {lower.shape} and {upper.shape}."
        )
    for i, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        if np.isnan(low) or np.isnan(high):
            raise InputError(
                f"{argument} of variable {i} need a finite lower and upper limit; None or NaN is not one: give the "
                "widest range that makes sense."
            )
        if np.isinf(low) or np.isinf(high):
            raise InputError(
                f"{argument} of variable {i} are ({low}, {high}): the search starts from points spread over the box, "
                "so both limits must be finite; give the widest range that makes sense."
            )
        if low > high:
            raise InputError(f"{argument} of variable {i} are reversed: lower {low:g} > upper {high:g}; swap them.")
        if low == high and not allow_fixed:
            raise InputError(
                f"{argument} of variable {i} are equal ({low:g}): a fixed value is not a variable; "
                f"put it into the objective as a constant{_rows(np.column_stack([lower, upper]))}."
            )
    return Bounds(lower, upper, grid)


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
        raise InputError(
            f"{argument} must be numbers, one (lower, upper) pair per variable; got {abbreviate(values)}."
        ) from None
