"""Evaluations of a black box as arrays and as a table: those of a run, and those that were known before it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from galapax.core.problem import ProblemDescription
from galapax.core.space import Space
from galapax.objective.evaluation_log import CallTable, summarise
from galapax.objective.pool import Failure

if TYPE_CHECKING:
    from pandas import DataFrame


import csv
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from numpy.typing import ArrayLike

from galapax.core.checks import abbreviate, as_float_array, escape_csv
from galapax.core.errors import InputError
from galapax.core.problem import OUTPUT_NAMES, Shape
from galapax.core.variables import Variable
from galapax.objective.pool import Answer
from galapax.results.result import Result


@dataclass(frozen=True, repr=False)
class Evaluations:
    """Every call of a black box, one entry each, in the order of the generations that asked for them.

    x: of declared variables their numbers (for text, the index of the choice). params: x by name.
    fun, ineq, eq: the values as the function returned them, NaN for a failure. violation: 0 when feasible; None without
        constraints.
    failed, error: whether the call gave no usable value, and why ("" for the others).
    seconds: that the function took; NaN where nobody knows. worker: the number of the process that made the call, from
        0; -1 where it was lost. run: the number of the run that asked for the point, and generation: counted over all
        searches of that run; -1 and 0 for values that were known before.
    """

    x: np.ndarray  # (n, d)
    fun: np.ndarray  # (n,); of m objectives (n, m)
    failed: np.ndarray  # (n,) bool
    error: np.ndarray  # (n,) text
    seconds: np.ndarray  # (n,)
    worker: np.ndarray  # (n,) int
    run: np.ndarray  # (n,) int
    generation: np.ndarray  # (n,) int
    ineq: np.ndarray | None = None  # (n, p)
    eq: np.ndarray | None = None  # (n, q)
    violation: np.ndarray | None = None  # (n,)
    names: tuple[str, ...] = ()  # of the variables
    value_names: tuple[str, ...] = ()  # of the values, ineq and eq
    space: Space | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def known(self) -> np.ndarray:
        """Which values were known before and not called for, (n,) bool."""
        return self.generation == 0

    @property
    def params(self) -> list[dict[str, Any]]:
        """The points by the names of their variables: of declared ones ints, bools and labels."""
        if self.space is not None:
            return [self.space.values(row) for row in self.x]
        return [dict(zip(self.names, row.tolist(), strict=True)) for row in self.x]

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame with one row per evaluation."""
        from galapax.storage.export import to_dataframe

        return to_dataframe(self)

    def table(self) -> tuple[list[str], np.ndarray]:
        """Return headings and rows of numbers: run, generation, worker, seconds, failed, variables, values."""
        columns = [self.run, self.generation, self.worker, self.seconds, self.failed, self.x, self.fun]
        columns += [array for array in (self.ineq, self.eq, self.violation) if array is not None]
        headings = ["run", "generation", "worker", "seconds", "failed", *self.names, *self.value_names]
        headings += ["violation"] if self.violation is not None else []
        return headings, np.column_stack([np.asarray(column, np.float64) for column in columns])

    def __repr__(self) -> str:
        columns = [f.name for f in fields(self)[:11] if getattr(self, f.name) is not None]
        return f"Evaluations({len(self)} calls, {int(self.failed.sum())} failed: {', '.join(columns)})"


N_CALL_COLUMNS = 5  # columns of the table before the variables


def tabulate_evaluations(problem: ProblemDescription, calls: CallTable, x: np.ndarray) -> Evaluations:
    """Build the evaluations of a problem from the log of its calls. x: (n, d), the points as the user knows them."""
    n, values = len(calls.points), calls.values
    failed = np.zeros(n, bool)
    failed[list(calls.failures)] = True
    error = np.array([calls.failures[row].error if row in calls.failures else "" for row in range(n)], str)
    fun, ineq, eq = values.get("fun", np.full((n, 1), np.nan)), values.get("ineq"), values.get("eq")
    violation = None
    if ineq is not None or eq is not None:
        violation = np.asarray(summarise(fun, ineq, eq, problem.eq_tolerance, np).violation)
    return Evaluations(
        x=x.reshape(n, problem.dim),
        fun=fun[:, 0] if fun.shape[1] == 1 else fun,
        failed=failed,
        error=error,
        seconds=calls.seconds,
        worker=calls.worker,
        run=calls.run,
        generation=calls.generation,
        ineq=ineq,
        eq=eq,
        violation=violation,
        names=tuple(problem.variable_names()),
        value_names=(*_value_names(problem, fun.shape[1]), *_constraint_names(problem, ineq, eq)),
        space=problem.space,
    )


def evaluations_from_table(
    problem: ProblemDescription, table: np.ndarray, widths: tuple[int, int, int], errors: dict[int, str]
) -> Evaluations:
    """Build the evaluations of a problem from the rows of `Evaluations.table`.

    widths: how many objectives, inequalities and equalities there are. errors: why calls failed, by row.
    """
    run, generation, worker, seconds, failed = table[:, :N_CALL_COLUMNS].T
    x, fun, ineq, eq, _ = np.split(table[:, N_CALL_COLUMNS:], np.cumsum([problem.dim, *widths]), axis=1)
    values = {name: array for name, array in (("fun", fun), ("ineq", ineq), ("eq", eq)) if array.shape[1]}
    failures = {int(row): Failure(errors.get(int(row), "")) for row in np.flatnonzero(failed)}
    calls = CallTable(x, values, failures, seconds, *(c.astype(int) for c in (worker, run, generation)))
    return tabulate_evaluations(problem, calls, x)


def _value_names(problem: ProblemDescription, n_objectives: int) -> list[str]:
    return ["fun"] if n_objectives == 1 else problem.objective_names(n_objectives)


def _constraint_names(problem: ProblemDescription, ineq: np.ndarray | None, eq: np.ndarray | None) -> list[str]:
    if problem.constraint_names is not None:
        return list(problem.constraint_names)
    groups = (("ineq", ineq), ("eq", eq))
    return [f"{kind} {i + 1}" for kind, values in groups if values is not None for i in range(values.shape[1])]


# --- values that were known before a run, in the many forms in which people have them ---------------------------------


KNOWN_FAILURE = "known to have failed"
BOUNDS_SLACK = 1e-9  # share of the box by which a point may lie outside: text rounds
GRID_SLACK = 1e-6  # share of the box by which a value may differ from that of a discrete variable: float32 rounds, too
FORMS = (
    "gx.Evaluated(X, F), a pandas DataFrame with a column for each variable and one for the objective, a Result, its "
    "evaluations, or the path of a saved run or of its evaluations.csv"
)


@dataclass(frozen=True)
class Evaluated:
    """Points with their values, for `minimize(..., initial=...)`.

    X: points (n, d), or a list of dicts of named values. F: their values (n,), of several objectives (n, m), as `fun`
        returns them; NaN or None where the evaluation failed.
    ineq, eq: values of the constraints, (n,) or (n, p), if there are some.
    """

    X: Any
    F: ArrayLike
    ineq: ArrayLike | None = None
    eq: ArrayLike | None = None

    def __len__(self) -> int:
        return len(self.X)


class KnownValues(NamedTuple):
    """Evaluated points of a problem as arrays. The values are as its functions return them, NaN where one failed."""

    x: np.ndarray  # (k, d)
    fun: np.ndarray  # (k, m)
    ineq: np.ndarray | None  # (k, p)
    eq: np.ndarray | None  # (k, q)

    @property
    def shape(self) -> Shape:
        return Shape(*(0 if values is None else values.shape[1] for values in self[1:]))

    @property
    def widths(self) -> dict[str, int]:
        """Return how many numbers a point has, by name."""
        return {name: width for name, width in zip(OUTPUT_NAMES, self.shape, strict=True) if width}

    def answers(self) -> list[Answer]:
        """Return what the functions returned at each point."""
        columns = {name: getattr(self, name) for name in self.widths}
        sound = np.all([np.isfinite(values).all(axis=1) for values in columns.values()], axis=0)
        return [
            {name: values[row] for name, values in columns.items()} if sound[row] else Failure(KNOWN_FAILURE)
            for row in range(len(self.x))
        ]


def parse_known_values(initial: Any, problem: ProblemDescription) -> KnownValues:
    """Return the points and values of `initial`, checked against the problem."""
    if isinstance(initial, str | os.PathLike):
        try:
            initial = _read_file(Path(initial))
        except OSError as error:  # a name that is too long, a file that may not be read
            raise InputError(f"initial={abbreviate(initial)} cannot be read: {error.strerror}.") from None
    if isinstance(initial, Result):
        initial = _evaluations_of(initial)
    if isinstance(initial, Evaluations):
        initial = Evaluated(initial.x, initial.fun, initial.ineq, initial.eq)
    if hasattr(initial, "columns") and hasattr(initial, "to_dict"):
        initial = {str(name): list(initial[name]) for name in initial.columns}
    if isinstance(initial, Mapping):
        initial = _from_columns(initial, problem)
    if not isinstance(initial, Evaluated):
        raise InputError(
            f"initial takes points with their values: {FORMS}; got {abbreviate(initial)}. Points without values are x0."
        )
    x = _parse_points(initial.X, problem)
    fun = _parse_rows("F", initial.F, len(x))
    ineq, eq = (
        None if values is None else _parse_rows(name, values, len(x))
        for name, values in (("ineq", initial.ineq), ("eq", initial.eq))
    )
    values = KnownValues(x, fun, ineq, eq)
    _check_shape(values.shape, problem)
    return values


def _parse_points(points: Any, problem: ProblemDescription) -> np.ndarray:
    """Return points (k, d) inside the bounds."""
    d = problem.dim
    try:
        x = as_float_array(points) if problem.space is None else problem.space.parse_points(points)
    except InputError as error:
        raise InputError(f"X of initial: {error}") from None
    except ValueError:
        raise InputError(f"X of initial must be numbers, one point per row; got {abbreviate(points)}.") from None
    if x.ndim != 2 or x.shape[1] != d or not len(x):
        raise InputError(f"X of initial must have one row of {d} numbers for each point; got shape {x.shape}.")
    return check_known_points(x, problem, "X of initial", BOUNDS_SLACK)


def check_known_points(x: np.ndarray, problem: ProblemDescription, argument: str, slack: float) -> np.ndarray:
    """Return points (k, d) whose values are known, moved onto the bounds; refuse those that no search may ask for.

    slack: share of the box by which a point may lie outside.
    """
    bounds, space = problem.bounds, problem.space
    outside = ~((x >= bounds.lower - slack * bounds.span) & (x <= bounds.upper + slack * bounds.span))  # NaN, too
    if outside.any():
        row, column = (int(i) for i in np.argwhere(outside)[0])
        raise InputError(
            f"{argument} must lie inside the bounds, and {int(outside.any(axis=1).sum())} of {len(x)} points do not: "
            f"{problem.variable_names()[column]} of point {row} is {x[row, column]:g}, and its bounds are "
            f"{bounds.lower[column]:g} and {bounds.upper[column]:g}. Leave these points out, or widen the bounds."
        )
    x = np.clip(x, bounds.lower, bounds.upper)
    if space is None or not space.discrete.any():
        return x
    nearest = space.decode(space.encode(x))
    between = space.is_active(nearest) & (np.abs(x - nearest) > GRID_SLACK * bounds.span)
    if between.any():
        row, column = (int(i) for i in np.argwhere(between)[0])
        raise InputError(
            f"{argument} must have values that the variables can take, and {int(between.any(axis=1).sum())} of "
            f"{len(x)} points do not: {problem.variable_names()[column]} of point {row} is {x[row, column]:g}, and its "
            f"nearest value is {nearest[row, column]:g}. Leave these points out, or declare this variable by gx.real."
        )
    return x


def _parse_rows(name: str, values: Any, count: int) -> np.ndarray:
    """Return values (k, m) of these many points; None is NaN."""
    try:
        rows = as_float_array(values)
    except ValueError:
        try:
            rows = np.array(values, dtype=np.float64)  # None becomes NaN
        except (TypeError, ValueError):
            raise InputError(
                f"{name} of initial must be numbers, one row for each point; got {abbreviate(values)}."
            ) from None
    if rows.ndim not in (1, 2) or len(rows) != count or not rows.size:
        raise InputError(
            f"{name} of initial must have one row for each of the {count} points of X; got shape {rows.shape}."
        )
    return rows.reshape(count, -1)


def _check_shape(shape: Shape, problem: ProblemDescription) -> None:
    """Refuse values that cannot be those of the problem's functions."""
    if problem.objectives is not None and len(problem.objectives) != shape.objectives:
        raise InputError(
            f"F of initial has {shape.objectives} columns, and {problem.name!r} has {len(problem.objectives)} "
            f"objectives: {', '.join(problem.objectives)}."
        )
    for name, count in (("ineq", shape.ineq), ("eq", shape.eq)):
        if getattr(problem, name, None) is not None and not count:
            raise InputError(
                f"{problem.name!r} has constraints {name}, and initial does not: give their values too, as in "
                f"gx.Evaluated(X, F, {name}=...), or leave initial out."
            )


def _read_file(file: Path) -> Result | dict[str, list[Any]]:
    """Read a saved run, or the columns of a CSV file."""
    if file.is_dir():
        from galapax.storage.result_folder import load

        source = load(file)
        if not isinstance(source, Result):
            raise InputError(f"initial={str(file)!r} is a saved study: name the folder of one run.")
        return source
    if not file.is_file():
        raise InputError(f"initial={str(file)!r}: there is no such file or folder.")
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.reader(lines))
    except (UnicodeDecodeError, csv.Error):
        rows = []
    if len(rows) < 2 or any(len(row) != len(rows[0]) for row in rows):
        raise InputError(
            f"initial={str(file)!r} must be a CSV file with a line of headings and as many cells in every other line, "
            "such as the evaluations.csv of a saved run."
        )
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}


def _evaluations_of(result: Result) -> Evaluations | Evaluated:
    """Return the points of a result with their values: all of a black box, else the last population."""
    if "evaluations" in result:
        evaluations: Evaluations = result["evaluations"]
        return evaluations
    if result.problem.constrained:
        raise InputError(
            "this result has no evaluations, which only a black box has: give its points and values by "
            "gx.Evaluated(X, F, ineq=..., eq=...)."
        )
    return Evaluated(result.population, result.population_fitness)


def _from_columns(columns: Mapping[str, Sequence[Any]], problem: ProblemDescription) -> Evaluated:
    """Build points and values from columns by name; columns that mean nothing here are left alone."""
    names = problem.variable_names()
    missing = [name for name in names if name not in columns]
    if missing:
        raise InputError(
            f"initial has no column for {', '.join(missing)}: it needs one for each variable ({', '.join(names)}); "
            f"its columns are {', '.join(map(str, columns))}."
        )
    objectives = _objective_columns(columns, problem)
    space = problem.space
    variables = [None] * len(names) if space is None else list(space.variables)
    X = np.column_stack(
        [
            [_parse_cell(name, cell, variable) for cell in columns[name]]
            for name, variable in zip(names, variables, strict=True)
        ]
    )
    F = _numeric_columns(columns, objectives)
    groups: dict[str, np.ndarray | None] = {}
    for kind in ("ineq", "eq"):
        chosen = [name for name in columns if re.fullmatch(rf"{kind}( \d+)?", name)]
        groups[kind] = _numeric_columns(columns, chosen) if chosen else None
    named = [name for name in problem.constraint_names or () if name in columns]
    if named and groups == {"ineq": None, "eq": None}:
        kind = _only_kind(problem, named)
        groups[kind] = _numeric_columns(columns, named)
    return Evaluated(X, F, groups["ineq"], groups["eq"])


def _objective_columns(columns: Mapping[str, Any], problem: ProblemDescription) -> list[str]:
    """Return the columns of the objectives."""
    if problem.objectives is not None and all(name in columns for name in problem.objectives):
        return list(problem.objectives)
    if "fun" in columns:
        return ["fun"]
    numbered = sorted(
        (name for name in map(str, columns) if re.fullmatch(r"f\d+", name)), key=lambda name: int(name[1:])
    )
    numbered = [name for name in numbered if name not in problem.variable_names()]
    if numbered and problem.objectives is None:
        return numbered
    expected = '"fun"' if problem.objectives is None else ", ".join(map(repr, problem.objectives))
    raise InputError(
        f"initial has no column for the objective, {expected}; its columns are {', '.join(map(str, columns))}."
    )


def _only_kind(problem: ProblemDescription, names: list[str]) -> str:
    """Return whether named constraints are inequalities or equalities; refuse both, which their names do not tell."""
    kinds = [kind for kind in ("ineq", "eq") if getattr(problem, kind, None) is not None]
    if len(kinds) == 2:
        raise InputError(
            f"which of the columns {', '.join(names)} are equalities, their names do not say: give "
            "gx.Evaluated(X, F, ineq=..., eq=...)."
        )
    return kinds[0] if kinds else "ineq"


def _numeric_columns(columns: Mapping[str, Sequence[Any]], names: list[str]) -> np.ndarray:
    """Return columns of numbers (k, m); an empty cell is NaN."""
    return np.column_stack([[_parse_cell(name, cell, None) for cell in columns[name]] for name in names])


def _parse_cell(name: str, cell: Any, variable: Variable | None) -> float:
    """Return the number in x, or the value, of a cell."""
    is_text = isinstance(cell, str)
    if variable is not None and not (is_text and (variable.kind != "choice" or variable.numeric)):
        labels = {str(escape_csv(label)): label for label in variable.labels} if is_text else {}
        return variable.number(labels.get(cell, cell) if is_text else cell)
    if cell is None or (is_text and not cell.strip()):
        return float("nan")
    try:
        return float({"true": 1.0, "false": 0.0}.get(cell.strip().lower(), cell) if is_text else cell)
    except (TypeError, ValueError):
        raise InputError(f"column {name} of initial must have numbers; it has {abbreviate(cell)}.") from None
