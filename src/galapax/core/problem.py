"""What is to be solved: a box, an objective of one solution, and its constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from galapax.core.box import Bounds as Bounds
from galapax.core.box import as_bounds as as_bounds
from galapax.core.box import box as box
from galapax.core.checks import RESERVED_COLUMNS, HTMLRepr, abbreviate, check_number, clean_name
from galapax.core.errors import InputError
from galapax.core.evaluation import returned_by_fun
from galapax.core.variables import GeneFunction, Space, VectorFunction, as_space, is_variables

Function = Callable[..., Any]

EQ_TOLERANCE = 1e-4  # |h(x)| at most this counts as h(x) = 0, the CEC 2006 convention


def check_tolerance(value: Any) -> None:
    if check_number(value, "eq_tolerance") < 0:
        raise InputError(f"eq_tolerance must be at least 0, got {value!r}.")


def missing_function(x: Any) -> Any:
    """Stands for the functions of a problem that came out of a file."""
    raise InputError("This problem was loaded or copied without its functions; define it again to evaluate it.")


class ProblemDescription(HTMLRepr):
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
    space: Space | None = None

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

    def params(self, x: Any) -> dict[str, Any]:
        """One solution x (d,) by the names of its variables: floats, and of declared variables ints, bools, labels."""
        if self.space is not None:
            return self.space.values(x)
        return dict(zip(self.variable_names(), (float(v) for v in x), strict=True))

    def show(self, i: int, number: float) -> str:
        """The value of variable i as text."""
        return f"{number:.8g}" if self.space is None else self.space.variables[i].show(number)

    def limits(self, i: int) -> tuple[str, str]:
        """The bounds of variable i as text."""
        if self.space is not None:
            return self.space.variables[i].range()
        return f"{self.bounds.lower[i]:g}", f"{self.bounds.upper[i]:g}"

    def choices(self, i: int) -> list[str]:
        """The choices of variable i as text, where they have no order, so that no bounds make sense; else none."""
        variable = None if self.space is None else self.space.variables[i]
        return [] if variable is None or variable.ordered else [str(label) for label in variable.labels]

    def without_functions(self) -> Self:
        """A copy that describes the problem but cannot evaluate it; unlike most functions it can be pickled."""
        raise NotImplementedError

    def _take_names(self) -> None:
        """Check `name`, `title` and `source`; a problem without a name has its function's."""
        for argument in ("name", "title", "source"):
            object.__setattr__(self, argument, clean_name(getattr(self, argument), argument))
        if not self.name:
            fun = getattr(self, "fun", None)
            object.__setattr__(self, "name", str(getattr(fun, "__name__", type(fun).__name__)))

    def __repr__(self) -> str:
        """In a line: what was given, without functions and long lists."""
        fields = [repr(self.name), f"{self.dim} variable{'s' if self.dim != 1 else ''}"]
        for name in ("ineq", "eq", "optimum", "reference_point", "objectives"):
            value = getattr(self, name, None)
            if value is not None:
                fields.append(name if callable(value) else f"{name}={abbreviate(value)}")
        return f"{type(self).__name__}({', '.join(fields)})"

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False, repr=False)
class Problem(ProblemDescription):
    """An objective of ONE solution, always minimised, on a box, with optional constraints.

    fun: maps x of shape (d,) to a scalar, or to (m,) for m objectives.
    bounds: the box, anything `as_bounds` takes; or variables (gx.real, gx.integer, gx.choice, gx.boolean) in a dict or
        list: the functions then get a mapping of named values, or a vector.
    ineq, eq: constraints; x is feasible when every ineq(x) <= 0 and every |eq(x)| <= eq_tolerance.
    name, title, source: a short name, a description, and where it was published.
    optimum: the best known feasible value; `solutions` (k, d) lists points that reach it.
    front: `front(n)` gives about n points of the true Pareto front, (n, m).
    reference_point, hypervolume: the true front's exact hypervolume against that point.
    variables, objectives, constraint_names: names for tables and plots (inequalities first, then equalities).
    units: {name of a variable, objective or derived quantity: its unit}.
    derived: {name: function of one solution}, further quantities shown in tables.
    space: the declared variables, if any; `fun` and the other functions then also take x as a vector.
    blackbox, vectorized: how the functions are called, if not as functions of jax.numpy of one solution; see
        `minimize`.
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
    space: Space | None = None
    blackbox: bool = False
    vectorized: bool = False

    def __post_init__(self) -> None:
        for argument in ("fun", "ineq", "eq"):
            value = getattr(self, argument)
            if not callable(value) and not (value is None and argument != "fun"):
                raise InputError(
                    f"{argument} must be a function of one solution x of shape (d,); got {abbreviate(value)} "
                    f"of type {type(value).__name__}."
                )
        self._take_variables()
        self._take_names()
        for argument in ("variables", "objectives", "constraint_names"):
            names = getattr(self, argument)
            if names is None:
                continue
            if isinstance(names, str) or not isinstance(names, Sequence):
                raise InputError(f"{argument} must be a list of names, got {abbreviate(names)}.")
            clean = [clean_name(name, f"each of {argument}") for name in names]
            if clean != list(names):
                object.__setattr__(self, argument, tuple(clean))
        if self.variables is not None and len(self.variables) != self.dim:
            raise InputError(
                f"variables has {len(self.variables)} names for {self.dim} variables; give one name per variable."
            )
        check_tolerance(self.eq_tolerance)
        for argument in ("units", "derived"):
            mapping = getattr(self, argument)
            if mapping is None:
                continue
            if not isinstance(mapping, Mapping):
                raise InputError(f"{argument} must be a dictionary by name, got {abbreviate(mapping)}.")
            named = {clean_name(name, f"each name in {argument}"): value for name, value in mapping.items()}
            if argument == "units":
                named = {name: clean_name(unit, f"the unit of {name}") for name, unit in named.items()}
            object.__setattr__(self, argument, named)
        for name in self.units or {}:
            if name not in (valid := {*self.variable_names(), *(self.objectives or ()), *(self.derived or ())}):
                raise InputError(f"units names {name!r}, which is not one of {', '.join(sorted(valid))}.")
        if self.fun is not missing_function:  # what was saved when these names were taken is still to be read
            for argument in ("variables", "objectives", "derived"):
                for name in set(RESERVED_COLUMNS).intersection(getattr(self, argument) or ()):
                    raise InputError(
                        f"{argument} has {name!r}, which is a reserved column name in saved tables: choose "
                        "another name."
                    )

    def _take_variables(self) -> None:
        """Take the bounds, or the variables in their place, and make the functions those of a vector x."""
        if not isinstance(self.space, Space | None):
            raise InputError(f"space comes from bounds= with gx.real and its like: give those; got {self.space!r}.")
        if is_variables(self.bounds):
            space = as_space(self.bounds)
            named = any(v.name is not None for v in space.variables)
            if named and self.variables is None:
                object.__setattr__(self, "variables", tuple(space.names()))
            units = {n: v.unit for n, v in zip(space.names(), space.variables, strict=True) if v.unit is not None}
            if units:
                object.__setattr__(self, "units", {**units, **(self.units or {})})
            object.__setattr__(self, "space", None if space.plain else space)
            object.__setattr__(self, "bounds", space.bounds)
        elif self.space is not None and self.bounds is not self.space.bounds and not isinstance(self.fun, GeneFunction):
            object.__setattr__(self, "space", None)  # other bounds in the place of variables
        object.__setattr__(self, "bounds", self.bounds if self.space is not None else as_bounds(self.bounds))
        if isinstance(self.fun, GeneFunction):
            return
        for argument in ("fun", "ineq", "eq"):
            object.__setattr__(self, argument, _as_vector_function(getattr(self, argument), self.space))
        if isinstance(self.derived, Mapping):
            derived = {name: _as_vector_function(function, self.space) for name, function in self.derived.items()}
            object.__setattr__(self, "derived", derived)

    def coded(self) -> Problem:
        """The same problem as one of genes, see core/variables.py; itself where those are x."""
        space = self.space
        if space is None or isinstance(self.fun, GeneFunction):
            return self

        def of_genes(function: Any) -> Any:
            return GeneFunction(function.function, space) if isinstance(function, VectorFunction) else function

        functions: dict[str, Any] = {name: of_genes(getattr(self, name)) for name in ("fun", "ineq", "eq")}
        derived = None if self.derived is None else {name: of_genes(f) for name, f in self.derived.items()}
        return replace(self, **functions, derived=derived, bounds=space.genes)

    @property
    def constrained(self) -> bool:
        return self.ineq is not None or self.eq is not None

    def without_functions(self) -> Problem:
        functions: dict[str, Any] = dict.fromkeys(
            (n for n in ("fun", "ineq", "eq") if getattr(self, n)), missing_function
        )
        derived = None if self.derived is None else dict.fromkeys(self.derived, missing_function)
        return replace(self, **functions, front=None, derived=derived)


def _as_vector_function(function: Any, space: Space | None) -> Any:
    """A user's function as one of a vector x."""
    if isinstance(function, VectorFunction):
        function = function.function
    if space is None or function in (None, missing_function, returned_by_fun):
        return function
    return VectorFunction(function, space)


@dataclass(frozen=True, eq=False, repr=False)
class MinMaxProblem(ProblemDescription):
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
        for argument in ("x_bounds", "y_bounds"):
            if is_variables(getattr(self, argument)):
                object.__setattr__(self, argument, _only_real(getattr(self, argument), argument))
        object.__setattr__(self, "x_bounds", as_bounds(self.x_bounds, "x_bounds"))
        object.__setattr__(self, "y_bounds", as_bounds(self.y_bounds, "y_bounds"))
        self._take_names()

    @property
    def bounds(self) -> Bounds:
        return self.x_bounds

    def without_functions(self) -> MinMaxProblem:
        return replace(self, fun=missing_function)


def _only_real(variables: Any, argument: str) -> Bounds:
    """The box of variables that are nothing but real numbers in a list."""
    space = as_space(variables, argument)
    if not space.plain:
        raise InputError(
            f"{argument} of a min-max problem must be real variables in a list, on a plain scale: a game of x against "
            "y takes no integers, choices, dicts or logarithmic scales yet."
        )
    return space.bounds
