"""Problems, and what comes of them: evaluations of candidates, populations, and records of generations.

A problem is a box or declared variables, an objective of one solution, and its constraints. Inside, every objective is
minimised: a value as the user means it is the minimised value times the sign of its objective, and the other way round.
The functions on directions here are the only ones that change signs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, Self, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from galapax.core.checks import RESERVED_COLUMNS, HTMLRepr, abbreviate, check_number, clean_name
from galapax.core.errors import InputError, ObjectiveCountError
from galapax.core.space import Bounds as Bounds
from galapax.core.space import GeneFunction, NumberArray, Space, VectorFunction, as_space, is_variables
from galapax.core.space import as_bounds as as_bounds
from galapax.core.space import box as box

Maximize = bool | tuple[bool, ...]  # of all objectives, or of each
Values = TypeVar("Values", bound=Any)  # an array of NumPy or JAX


def check_maximize(value: Any, name: str = "maximize") -> Maximize:
    """Return a valid `maximize`: a bool for all objectives, or a tuple with one for each."""
    is_list = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)
    entries = list(value) if is_list else [False if value is None else value]
    if not entries or not all(isinstance(v, bool | np.bool_) or (type(v) is int and v in (0, 1)) for v in entries):
        raise InputError(
            f"{name} must be True, False, or a list with one of them for each objective, such as [True, False]; "
            f"got {abbreviate(value)}."
        )
    return tuple(map(bool, entries)) if is_list else bool(entries[0])


def check_direction_count(maximize: Maximize, n_objectives: int, problem_name: str) -> None:
    """Raise an InputError unless there is one direction for all objectives, or one for each."""
    if not isinstance(maximize, bool) and len(maximize) != n_objectives:
        count = "1 objective" if n_objectives == 1 else f"{n_objectives} objectives"
        entries = "1 entry" if len(maximize) == 1 else f"{len(maximize)} entries"
        raise ObjectiveCountError(
            f"maximize has {entries}, and {problem_name!r} has {count}: give one entry for each objective, or True or "
            "False for all of them.",
            n_objectives,
        )


def count_directions(maximize: Maximize) -> int | None:
    """Return the number of objectives that `maximize` names one by one; None if it is for all of them."""
    return None if isinstance(maximize, bool) else len(maximize)


def objective_signs(maximize: bool | Sequence[bool]) -> np.ndarray:
    """Return the signs of the objectives, (m,), or (1,) for all of them: -1 where one is maximised, else 1."""
    return np.where(np.atleast_1d(np.asarray(maximize, bool)), -1.0, 1.0)


def orient(objectives: Values, maximize: Maximize) -> Values:
    """Convert objectives (..., m) that the user means to those that are minimised, or back, in their own dtype."""
    if isinstance(maximize, bool):
        return -objectives if maximize else objectives
    return objectives * objective_signs(maximize).astype(objectives.dtype)


OBJECTIVE_METHODS = ("evaluate", "_evaluate", "objective", "fitness", "fun", "f")  # of classes that describe problems


class Shape(NamedTuple):
    """The number of objectives and constraints of one evaluation."""

    objectives: int = 1
    ineq: int = 0
    eq: int = 0

    @property
    def constrained(self) -> bool:
        return self.ineq + self.eq > 0


class CandidateEvaluation(NamedTuple):
    """The evaluation of n candidates. A failed one has objectives and violation +inf: it loses to any other."""

    objectives: Array  # (n, m), to be minimised
    violation: Array | None  # (n,), 0 when feasible; None for a problem without constraints
    failed: Array  # (n,), number of evaluations with NaN, inf or an exception: a bool with one per candidate
    ineq: Array | None = None  # (n, p)
    eq: Array | None = None  # (n, q)
    n_resampled: Array | None = None  # (n,), evaluations of failed points that this candidate replaced
    n_lost: Array | None = None  # (n,), failures among those and other evaluations for this candidate
    known: Array | None = None  # (n,) bool, whether the values were known before and cost no evaluation

    @property
    def fitness(self) -> Array:
        return self.objectives[..., 0]


class Population(NamedTuple):
    """n individuals with their evaluations."""

    x: Array  # (n, d)
    objectives: Array  # (n, m), +inf before the first evaluation
    violation: Array | None  # (n,), or None for a problem without constraints

    @property
    def fitness(self) -> Array:
        return self.objectives[..., 0]


def empty_population(x: Array, shape: Shape) -> Population:
    """Create individuals that lose to any evaluated one, so that the first generation is no special case."""
    worst = jnp.full((x.shape[0], shape.objectives), jnp.inf, x.dtype)
    return Population(x, worst, worst[:, 0] if shape.constrained else None)


def as_population(candidates: Array, evaluation: CandidateEvaluation) -> Population:
    """Combine candidates and their evaluation into a population."""
    return Population(candidates, evaluation.objectives, evaluation.violation)


OUTPUT_NAMES = ("fun", "ineq", "eq")


class Evaluation(NamedTuple):
    """Return value of a black box that computes objective and constraints at once; a dict with these keys also works.

    fun: a number, or one for each objective. ineq, eq: constraints, a number or several each; feasible when every ineq
        <= 0 and every eq = 0 (to 1e-4).
    """

    fun: Any
    ineq: Any = None
    eq: Any = None


def returned_by_fun(x: object) -> NoReturn:
    """Placeholder for constraints that a black box returns together with its objective; it is never called."""
    raise NotImplementedError("these constraints are returned by fun, together with its value.")


class Columns(NamedTuple):
    """The columns of a packed record."""

    shape: Shape
    hypervolume: bool  # whether there are several objectives and a reference point
    x: int = 0  # number of variables of the best individual

    @property
    def width(self) -> int:
        """The number of columns."""
        constraints = 2 if self.shape.constrained else 0
        return 3 + 3 * self.shape.objectives + constraints + self.hypervolume + self.is_estimated + self.x

    @property
    def is_estimated(self) -> bool:
        """Whether the hypervolume is an estimate with a standard error."""
        return self.hypervolume and self.shape.objectives > MAX_EXACT_HYPERVOLUME_OBJECTIVES


MAX_EXACT_HYPERVOLUME_OBJECTIVES = 3  # objectives whose hypervolume is not estimated, see metrics/indicators.py
FAILED_COLUMN = 1  # failed evaluations; the next column counts all evaluations
HISTORY_FIRST_COLUMN = 2  # the columns before it only serve to count


class Record(NamedTuple, Generic[NumberArray]):
    """The values of one generation of one run; several records have their axes in front."""

    active: NumberArray | float  # 1, or 0 after the run has ended
    failed: NumberArray  # number of failed evaluations
    evaluations: NumberArray  # number of evaluations
    best: NumberArray  # (m,) see execution/search.py
    mean: NumberArray  # (m,)
    worst: NumberArray  # (m,)
    violation: NumberArray | None = None  # with constraints: of the best
    feasible_share: NumberArray | None = None  # with constraints
    hypervolume: NumberArray | None = None
    hypervolume_error: NumberArray | None = None  # standard error, where it is an estimate
    x: NumberArray | None = None  # (d,) of the best

    def pack(self, dtype: DTypeLike) -> Array:
        """Pack the record of one run into a row of numbers."""
        columns = [jnp.asarray(field, dtype).reshape(-1) for field in self if field is not None]
        return jnp.concatenate(columns)

    @staticmethod
    def unpack(rows: NumberArray, columns: Columns, first: int = 0, axis: int = -1) -> Record[NumberArray]:
        """Unpack rows that were packed along an axis. first: number of columns that are missing at the left.

        Fields that are single numbers lose the axis.
        """
        m, position = columns.shape.objectives, -first
        leading = (slice(None),) * (rows.ndim + axis if axis < 0 else axis)

        def take(width: int | None) -> NumberArray | None:
            nonlocal position
            start = position
            position += width or 1
            if start < 0:
                return None
            return rows[(*leading, start if width is None else slice(start, start + width))]  # type: ignore[return-value]

        counts = [take(None) for _ in range(3)]
        values = [take(m) for _ in range(3)]
        constraints = [take(None) if columns.shape.constrained else None for _ in range(2)]
        hypervolume = take(None) if columns.hypervolume else None
        error = take(None) if columns.is_estimated else None
        x = take(columns.x) if columns.x else None
        return Record._make([*counts, *values, *constraints, hypervolume, error, x])


Function = Callable[..., Any]

EqTolerance = float | tuple[float, ...]  # |h(x)| at most this counts as h(x) = 0; one number, or one for each equality
RELATIVE_EQ_TOLERANCE = 1e-8  # the default, as a fraction of the spread of h over the box
BLACK_BOX_EQ_TOLERANCE = 1e-6  # the same for functions without gradients
FALLBACK_EQ_TOLERANCE = 1e-8  # where that spread cannot be measured


def check_tolerance(value: Any) -> EqTolerance | None:
    """Return a valid equality tolerance; None for the default, which follows from the spread of h."""
    if value is None:
        return None
    is_list = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)
    tolerances = tuple(float(check_number(number, "eq_tolerance")) for number in (value if is_list else [value]))
    if not tolerances or min(tolerances) < 0:
        raise InputError(f"eq_tolerance must be at least 0, one number or one for each equality, got {value!r}.")
    return tolerances if is_list else tolerances[0]


def derive_eq_tolerance(eq: np.ndarray, relative: float = RELATIVE_EQ_TOLERANCE) -> tuple[float, ...]:
    """Return the default tolerance of each equality from its values at a sample of points, (n, q).

    A power of ten, about `relative` times the range between the quartiles, so that it does not depend on the unit of h.
    """
    finite = np.where(np.isfinite(eq), eq, np.nan)
    tolerances = []
    for column in finite.T:
        values = column[~np.isnan(column)]
        spread = float(np.subtract(*np.quantile(values, (0.75, 0.25)))) if len(values) else 0.0
        scale = spread if spread > 0 else float(np.max(np.abs(values), initial=0.0))
        power = 10.0 ** round(np.log10(scale)) if scale > 0 else 1.0
        tolerances.append(float(f"{relative * power:.0e}") if scale > 0 else FALLBACK_EQ_TOLERANCE)
    return tuple(tolerances)


def missing_function(x: object) -> NoReturn:
    """Placeholder for the functions of a problem that was loaded or copied; calling it raises."""
    raise InputError("This problem was loaded or copied without its functions; define it again to evaluate it.")


class ProblemDescription(HTMLRepr):
    """Names, units and known optima of a problem; the base of all kinds of problems."""

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
    eq_tolerance: EqTolerance | None = None
    units: Mapping[str, str] | None = None
    derived: Mapping[str, Function] | None = None
    space: Space | None = None

    if TYPE_CHECKING:  # at run time a dataclass would take it for the default of the field

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
        """Return a name with its unit, if it has one."""
        unit = (self.units or {}).get(name)
        return f"{name} [{unit}]" if unit else name

    def params(self, x: Any) -> dict[str, Any]:
        """Return one solution x (d,) by name: floats, and of declared variables ints, bools and labels."""
        if self.space is not None:
            return self.space.values(x)
        return dict(zip(self.variable_names(), (float(v) for v in x), strict=True))

    def show(self, i: int, number: float) -> str:
        """Return the value of variable i as text."""
        return f"{number:.8g}" if self.space is None else self.space.variables[i].show(number)

    def limits(self, i: int) -> tuple[str, str]:
        """Return the bounds of variable i as text."""
        if self.space is not None:
            return self.space.variables[i].range()
        return f"{self.bounds.lower[i]:g}", f"{self.bounds.upper[i]:g}"

    def choices(self, i: int) -> list[str]:
        """Return the choices of variable i as text if they have no order, and so no bounds; else an empty list."""
        variable = None if self.space is None else self.space.variables[i]
        return [] if variable is None or variable.is_ordered else [str(label) for label in variable.labels]

    def without_functions(self) -> Self:
        """Return a copy without its functions, which can be pickled but not evaluated."""
        raise NotImplementedError

    def _take_names(self) -> None:
        """Check `name`, `title` and `source`; the default name is that of the function."""
        for argument in ("name", "title", "source"):
            object.__setattr__(self, argument, clean_name(getattr(self, argument), argument))
        if not self.name:
            fun = getattr(self, "fun", None)
            object.__setattr__(self, "name", str(getattr(fun, "__name__", type(fun).__name__)))

    def __repr__(self) -> str:
        """Write the problem in one line, without functions and long lists."""
        fields = [repr(self.name), f"{self.dim} variable{'s' if self.dim != 1 else ''}"]
        for name in ("ineq", "eq", "optimum", "reference_point", "objectives"):
            value = getattr(self, name, None)
            if value is not None:
                fields.append(name if callable(value) else f"{name}={abbreviate(value)}")
        return f"{type(self).__name__}({', '.join(fields)})"

    def with_(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False, repr=False)
class Problem(ProblemDescription):
    """An objective of ONE solution, always minimised, on a box, with optional constraints.

    fun: maps x of shape (d,) to a scalar, or to (m,) for m objectives.
    bounds: the box, anything `as_bounds` takes; or variables (gx.real, gx.integer, gx.choice, gx.boolean) in a dict or
        list: the functions then get a mapping of named values, or a vector.
    ineq, eq: constraints; x is feasible when every ineq(x) <= 0 and every |eq(x)| <= eq_tolerance.
    eq_tolerance: one number, or one for each equality; by default 1e-8 (of a black box 1e-6) of the spread of
        each over the box, and the gradient refinement then aims at eq(x) = 0 itself.
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
    bounds: Any  # Bounds once constructed; whatever `as_bounds` and `as_space` take before
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
    eq_tolerance: EqTolerance | None = None
    units: Mapping[str, str] | None = None
    derived: Mapping[str, Function] | None = None
    space: Space | None = None
    blackbox: bool = False
    vectorized: bool = False

    def __post_init__(self) -> None:
        for argument in ("fun", "ineq", "eq"):
            value = getattr(self, argument)
            if not callable(value) and not (value is None and argument != "fun"):
                is_scipy = (isinstance(value, Mapping) and "fun" in value) or hasattr(value, "lb")
                hint = "; galapax.compat.scipy.minimize takes scipy's constraints" if is_scipy else ""
                methods = [name for name in OBJECTIVE_METHODS if callable(getattr(value, name, None))]
                if methods:
                    hint = f"; give its method, .{methods[0]}"
                raise InputError(
                    f"{argument} must be a function of one solution x of shape (d,); got {abbreviate(value)} "
                    f"of type {type(value).__name__}{hint}."
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
        object.__setattr__(self, "eq_tolerance", check_tolerance(self.eq_tolerance))
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
            if name not in (valid := self._nameable()):
                raise InputError(f"units names {name!r}, which is not one of {', '.join(sorted(valid))}.")
        if self.fun is not missing_function:  # runs saved before these names were reserved must load
            for argument in ("variables", "objectives", "derived"):
                for name in set(RESERVED_COLUMNS).intersection(getattr(self, argument) or ()):
                    raise InputError(
                        f"{argument} has {name!r}, which is a reserved column name in saved tables: choose "
                        "another name."
                    )

    def _nameable(self) -> set[str]:
        """Return the names that may have a unit."""
        declared = [] if self.space is None else self.space.names()
        return {*self.variable_names(), *declared, *(self.objectives or ()), *(self.derived or ())}

    def _take_variables(self) -> None:
        """Take the bounds, or the variables in their place, and wrap the functions as functions of a vector x."""
        if not isinstance(self.space, Space | None):
            raise InputError(f"space comes from bounds= with gx.real and its like: give those; got {self.space!r}.")
        has_space = self.space is not None and self.bounds is self.space.bounds
        if not has_space and is_variables(self.bounds):
            space = as_space(self.bounds)
            has_names = any(v.name is not None for v in space.variables)
            if has_names and self.variables is None:
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

    def in_genes(self) -> Problem:
        """Return the problem as a function of genes, see core/space.py; itself if those are x."""
        space = self.space
        if space is None or isinstance(self.fun, GeneFunction):
            return self

        def of_genes(function: object) -> Any:
            return GeneFunction(function.function, space) if isinstance(function, VectorFunction) else function

        functions: dict[str, Any] = {name: of_genes(getattr(self, name)) for name in ("fun", "ineq", "eq")}
        derived = None if self.derived is None else {name: of_genes(f) for name, f in self.derived.items()}
        names = self.variables
        if names is not None:  # fixed variables have no gene
            names = [name for name, v in zip(names, space.variables, strict=True) if not v.is_fixed]
        return replace(self, **functions, derived=derived, bounds=space.genes, variables=names)

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
    """Wrap a user's function as a function of a vector x."""
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
    x_bounds: Any  # Bounds once constructed, as in Problem
    y_bounds: Any
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


def _only_real(variables: object, argument: str) -> Bounds:
    """Return the box of variables that are only real numbers in a list."""
    space = as_space(variables, argument)
    if not space.plain:
        raise InputError(
            f"{argument} of a min-max problem must be real variables in a list, on a plain scale: a game of x against "
            "y takes no integers, choices, dicts or logarithmic scales yet."
        )
    return space.bounds


@dataclass(frozen=True)
class Stacked:
    """Several constraint functions as one. A class and not a closure, so that a problem can be sent to processes."""

    functions: tuple[Function, ...]

    def __call__(self, x: Any) -> Any:
        values = [function(x) for function in self.functions]
        xp = jnp if any(not isinstance(v, int | float | np.ndarray | np.generic | list | tuple) for v in values) else np
        return xp.concatenate([xp.ravel(xp.asarray(value)) for value in values])


def stack_constraints(name: str, functions: Any) -> Any:
    """Return one constraint function for a list of them; a single one unchanged. name: for messages."""
    if not isinstance(functions, list | tuple):
        return functions
    for function in functions:
        if not callable(function):
            raise InputError(
                f"{name} must be a function of one solution, or a list of them; it has {abbreviate(function)} "
                "(galapax.compat.scipy.minimize takes scipy's constraints)."
            )
    return Stacked(tuple(functions)) if functions else None
