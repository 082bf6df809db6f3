"""Every evaluation of a black box, as arrays and as a table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from galapax.core.problem import ProblemDescription
from galapax.core.space import Space
from galapax.objective.evaluation_log import CallTable, summarise
from galapax.objective.worker import Failure

if TYPE_CHECKING:
    from pandas import DataFrame


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
        shown = [f.name for f in fields(self)[:11] if getattr(self, f.name) is not None]
        return f"Evaluations({len(self)} calls, {int(self.failed.sum())} failed: {', '.join(shown)})"


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
