"""What is to be solved: a box, an objective of one solution, and its constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from galapax.core.checks import number, reals, short
from galapax.core.errors import InputError
from galapax.core.hooks import Shown
from galapax.core.names import RESERVED, one_line

Function = Callable[..., Any]

EQ_TOLERANCE = 1e-4  # |h(x)| at most this counts as h(x) = 0, the CEC 2006 convention


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Bounds:
    """The box of d variables: `lower` and `upper`, both (d,)."""

    lower: Any
    upper: Any

    @property
    def dim(self) -> int:
        return int(self.lower.shape[-1])

    @property
    def span(self) -> Any:
        return self.upper - self.lower

    def rounded(self, dtype: Any) -> Bounds:
        """The same box in another precision, rounded inwards so that no point of it lies outside this one."""
        with np.errstate(over="ignore"):
            box = self._rounded(dtype)
            # XLA takes numbers below `tiny` for 0, and a box of no width has no points
            sound = np.isfinite(box.span) & (box.span >= np.finfo(dtype).tiny)
        if not sound.all():
            i = int(np.argmin(sound))
            raise InputError(
                f"bounds are too wide or too narrow for {np.dtype(dtype).name}: those of variable {i} are "
                f"({self.lower[i]!r}, {self.upper[i]!r}); rescale the variable, or use float64 if it is float32."
            )
        return box

    def _rounded(self, dtype: Any) -> Bounds:
        lower, upper = (np.asarray(side).astype(dtype) for side in (self.lower, self.upper))
        lower = np.where(lower < self.lower, np.nextafter(lower, lower.dtype.type(np.inf)), lower)
        upper = np.where(upper > self.upper, np.nextafter(upper, upper.dtype.type(-np.inf)), upper)
        return Bounds(lower, upper)

    def __repr__(self) -> str:
        return f"Bounds(lower={np.asarray(self.lower).tolist()}, upper={np.asarray(self.upper).tolist()})"


def box(lower: float, upper: float, dim: int) -> Bounds:
    """The same interval for each of `dim` variables."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise InputError(f"dim must be a whole number of at least 1, got {dim!r}.")
    return as_bounds([(lower, upper)] * int(dim))


def as_bounds(bounds: Any, argument: str = "bounds") -> Bounds:
    """Check `bounds` and return them as float64 NumPy arrays.

    Accepted: a `Bounds`, scipy's `Bounds`, or one (lower, upper) pair per variable.
    """
    example = "one (lower, upper) pair per variable, such as [(-5, 5)] * 10"
    if bounds is None:
        raise InputError(f"{argument} is missing: give {example}, or a Problem that carries its own.")
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):  # scipy.optimize.Bounds
        lower, upper = _as_floats(bounds.lb, argument), _as_floats(bounds.ub, argument)
    elif isinstance(bounds, Bounds):
        lower, upper = _as_floats(bounds.lower, argument), _as_floats(bounds.upper, argument)
    else:
        pairs = _as_floats(bounds, argument)
        if pairs.shape == (2,):
            low, high = pairs.tolist()
            raise InputError(
                f"{argument} is a single pair ({low:g}, {high:g}), so the number of variables is unknown: give "
                f"one pair per variable, such as [({low:g}, {high:g})] * 10, or gx.box({low:g}, {high:g}, dim=10)."
            )
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.shape[0] == 0:
            raise InputError(f"{argument} must be {example}; got an array of shape {pairs.shape}.")
        lower, upper = pairs[:, 0], pairs[:, 1]
    if lower.ndim != 1 or lower.shape != upper.shape or lower.size == 0:
        raise InputError(
            f"{argument} need a lower and an upper limit per variable; got shapes {lower.shape} and {upper.shape}."
        )
    for i, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        if np.isnan(low) or np.isnan(high):
            raise InputError(
                f"{argument} of variable {i} are ({low}, {high}): NaN is not a valid limit; give finite numbers."
            )
        if np.isinf(low) or np.isinf(high):
            raise InputError(
                f"{argument} of variable {i} are ({low}, {high}): the search starts from points spread over the box, "
                "so both limits must be finite; give the widest range that makes sense."
            )
        if low > high:
            raise InputError(f"{argument} of variable {i} are reversed: lower {low:g} > upper {high:g}; swap them.")
        if low == high:
            raise InputError(
                f"{argument} of variable {i} are equal ({low:g}): a fixed value is not a variable; "
                "put it into the objective as a constant."
            )
    return Bounds(lower, upper)


def _as_floats(values: Any, argument: str) -> np.ndarray:
    try:
        if isinstance(values, list | tuple):  # None stands for "no limit" elsewhere; as NaN it is refused by name
            given = [[np.nan if v is None else v for v in p] if isinstance(p, list | tuple) else p for p in values]
            return reals(given)
        return reals(values)
    except ValueError:
        raise InputError(
            f"{argument} must be numbers, one (lower, upper) pair per variable; got {short(values)}."
        ) from None


def check_tolerance(value: Any) -> None:
    if value != value or number(value, "eq_tolerance") < 0:
        raise InputError(f"eq_tolerance must be at least 0, got {value!r}.")


def unavailable(x: Any) -> Any:
    """Stands for the functions of a problem that came out of a file."""
    raise InputError("This problem was loaded or copied without its functions; define it again to evaluate it.")


class Described(Shown):
    """How a problem is called and what its parts are called; shared by all kinds."""

    name: str
    title: str
    source: str
    optimum: float | None
    front: Callable[[int], np.ndarray] | None = None
    reference_point: Sequence[float] | None = None
    hypervolume: float | None = None
    variables: Sequence[str] | None = None
    objectives: Sequence[str] | None = None
    constraint_names: Sequence[str] | None = None
    eq_tolerance: float = EQ_TOLERANCE
    units: Mapping[str, str] | None = None
    derived: Mapping[str, Function] | None = None

    if TYPE_CHECKING:  # at run time it would be taken for the default of a field

        @property
        def bounds(self) -> Bounds:
            """The box of x."""

    @property
    def dim(self) -> int:
        return self.bounds.dim

    @property
    def constrained(self) -> bool:
        return False

    def variable_names(self) -> list[str]:
        return list(self.variables) if self.variables is not None else [f"x{i + 1}" for i in range(self.dim)]

    def objective_names(self, count: int) -> list[str]:
        return list(self.objectives) if self.objectives is not None else [f"f{i + 1}" for i in range(count)]

    def with_unit(self, name: str) -> str:
        """The name with its unit, if it has one."""
        unit = (self.units or {}).get(name)
        return f"{name} [{unit}]" if unit else name

    def without_functions(self) -> Self:
        """A copy that describes the problem but cannot evaluate it; unlike most functions it can be pickled."""
        raise NotImplementedError

    def _take_names(self) -> None:
        """Check `name`, `title` and `source`; a problem without a name has its function's."""
        for argument in ("name", "title", "source"):
            object.__setattr__(self, argument, one_line(getattr(self, argument), argument))
        if not self.name:
            fun = getattr(self, "fun", None)
            object.__setattr__(self, "name", str(getattr(fun, "__name__", type(fun).__name__)))

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Problem(Described):
    """An objective of ONE solution, always minimised, on a box, with optional constraints.

    fun: maps x of shape (d,) to a scalar, or to (m,) for m objectives.
    bounds: the box; anything `as_bounds` takes.
    ineq, eq: constraints; x is feasible when every ineq(x) <= 0 and every |eq(x)| <= eq_tolerance.
    name, title, source: a short name, a description, and where it was published.
    optimum: the best known feasible value; `solutions` (k, d) lists points that reach it.
    front: `front(n)` gives about n points of the true Pareto front, (n, m).
    reference_point, hypervolume: the true front's exact hypervolume against that point.
    variables, objectives, constraint_names: names for tables and plots (inequalities first, then equalities).
    units: {name of a variable, objective or derived quantity: its unit}.
    derived: {name: function of one solution}, further quantities shown in tables.
    """

    fun: Function
    bounds: Bounds
    ineq: Function | None = None
    eq: Function | None = None
    name: str = ""
    title: str = ""
    source: str = ""
    optimum: float | None = None
    solutions: Any = None
    front: Callable[[int], np.ndarray] | None = None
    reference_point: Sequence[float] | None = None
    hypervolume: float | None = None
    variables: Sequence[str] | None = None
    objectives: Sequence[str] | None = None
    constraint_names: Sequence[str] | None = None
    eq_tolerance: float = EQ_TOLERANCE
    units: Mapping[str, str] | None = None
    derived: Mapping[str, Function] | None = None

    def __post_init__(self) -> None:
        for argument in ("fun", "ineq", "eq"):
            value = getattr(self, argument)
            if not callable(value) and not (value is None and argument != "fun"):
                raise InputError(
                    f"{argument} must be a function of one solution x of shape (d,); got {short(value)} "
                    f"of type {type(value).__name__}."
                )
        object.__setattr__(self, "bounds", as_bounds(self.bounds))
        self._take_names()
        for argument in ("variables", "objectives", "constraint_names"):
            names = getattr(self, argument)
            if names is None:
                continue
            if isinstance(names, str) or not isinstance(names, Sequence):
                raise InputError(f"{argument} must be a list of names, got {short(names)}.")
            clean = [one_line(name, f"each of {argument}") for name in names]
            if clean != list(names):
                object.__setattr__(self, argument, tuple(clean))
        if self.variables is not None and len(self.variables) != self.dim:
            raise InputError(
                f"variables has {len(self.variables)} names for {self.dim} variables; give one name per variable."
            )
        check_tolerance(self.eq_tolerance)
        for argument in ("units", "derived"):
            given = getattr(self, argument)
            if given is None:
                continue
            if not isinstance(given, Mapping):
                raise InputError(f"{argument} must be a dictionary by name, got {short(given)}.")
            named = {one_line(name, f"each name in {argument}"): value for name, value in given.items()}
            if argument == "units":
                named = {name: one_line(unit, f"the unit of {name}") for name, unit in named.items()}
            object.__setattr__(self, argument, named)
        for name in self.units or {}:
            if name not in (known := {*self.variable_names(), *(self.objectives or ()), *(self.derived or ())}):
                raise InputError(f"units names {name!r}, which is not one of {', '.join(sorted(known))}.")
        if self.fun is not unavailable:  # what was saved when these names were taken is still to be read
            for argument in ("variables", "objectives", "derived"):
                for name in set(RESERVED).intersection(getattr(self, argument) or ()):
                    raise InputError(
                        f"{argument} has {name!r}, which is a reserved column name in saved tables: choose "
                        "another name."
                    )

    @property
    def constrained(self) -> bool:
        return self.ineq is not None or self.eq is not None

    def without_functions(self) -> Problem:
        here: dict[str, Any] = dict.fromkeys((n for n in ("fun", "ineq", "eq") if getattr(self, n)), unavailable)
        derived = None if self.derived is None else dict.fromkeys(self.derived, unavailable)
        return replace(self, **here, front=None, derived=derived)


@dataclass(frozen=True, eq=False)
class MinMaxProblem(Described):
    """min over x of max over y of fun(x, y), each in a box of its own.

    optimum: the min-max value; `solutions` (k, dx + dy) lists saddle points.
    """

    fun: Function
    x_bounds: Bounds
    y_bounds: Bounds
    name: str = ""
    title: str = ""
    source: str = ""
    optimum: float | None = None
    solutions: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "x_bounds", as_bounds(self.x_bounds, "x_bounds"))
        object.__setattr__(self, "y_bounds", as_bounds(self.y_bounds, "y_bounds"))
        self._take_names()

    @property
    def bounds(self) -> Bounds:
        return self.x_bounds

    def without_functions(self) -> MinMaxProblem:
        return replace(self, fun=unavailable)
