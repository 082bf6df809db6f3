"""Results as pandas DataFrames, for notebooks; pandas is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from galapax.core.checks import unique_headings
from galapax.core.errors import InputError
from galapax.core.variables import Space
from galapax.results.evaluations import N_CALL_COLUMNS, Evaluations
from galapax.results.result import History, Result, Runs, all_runs
from galapax.results.study import Study
from galapax.storage.tables import front_table, history_table, runs_table, value_names


def frame(source: Result | Runs | History | Study | Evaluations, table: str | None = None) -> Any:
    """The table of a result, its runs, a history or a study."""
    if isinstance(source, Study):
        return _study_frame(source, table)
    if isinstance(source, Evaluations):
        return _evaluations_frame(source)
    if isinstance(source, History):
        is_multi_objective = source.best.ndim - (source.runs is not None) > 1
        return _history_frame(
            source, _numbered_names("x", source.x), _numbered_names("f", source.best) if is_multi_objective else ["fun"]
        )
    if isinstance(source, Runs):
        return _runs_frame(
            source, _numbered_names("x", source.x), _numbered_names("f", source.fun) if source.fun.ndim > 1 else ["fun"]
        )
    return _result_frame(source, table)


def _result_frame(result: Result, table: str | None) -> Any:
    is_multi_objective = "F" in result
    table = table or ("front" if is_multi_objective else "population" if result.runs is None else "runs")
    variables, values = result.problem.variable_names(), value_names(result)
    if table == "front" and is_multi_objective:
        return _decode_variables(_build_frame(*front_table(result)), result, 0)
    if table == "runs":
        runs = _runs_frame(all_runs(result), variables, values)
        return _decode_variables(runs, result, runs.shape[1] - len(variables))
    if table == "population":
        rows = np.column_stack([result.population, result.population_fitness])
        return _decode_variables(_build_frame([*variables, *values], rows), result, 0)
    if table == "evaluations":
        if "evaluations" not in result:
            raise InputError("only a black box has a table of its evaluations: call minimize with blackbox=True.")
        return _evaluations_frame(result.evaluations)
    if table == "history":
        history = result.history if result.runs is None else result.runs.history
        if history is None:
            raise InputError("this result has no history: run it again with keep=gx.Keep(history=True).")
        return _history_frame(history, variables, values)
    tables = ["front"] * is_multi_objective + ["runs", "history", "population"]
    tables += ["evaluations"] * ("evaluations" in result)
    raise InputError(f"table must be one of {', '.join(tables)}; got {table!r}.")


def _evaluations_frame(evaluations: Evaluations) -> Any:
    table = _build_frame(*evaluations.table(), integer_columns=(0, 1), boolean_columns=(3,))
    table["error"] = evaluations.error
    return _decode_space(table, evaluations.space, N_CALL_COLUMNS)


def _decode_variables(table: Any, result: Result, first: int) -> Any:
    """Decode the discrete variables of a table, whose first variable is that column: integers, labels, flags."""
    return _decode_space(table, result.problem.space, first)


def _decode_space(table: Any, space: Space | None, first: int) -> Any:
    for i, variable in enumerate(() if space is None else space.variables):
        if variable.discrete:
            name = table.columns[first + i]
            table[name] = [variable.value(number) for number in table[name]]
    return table


def _runs_frame(runs: Runs, variables: list[str], values: list[str]) -> Any:
    m = len(values)  # run, the values, violation, nit, nfev, n_failed, success
    return _build_frame(
        *runs_table(runs, variables, values), integer_columns=(0, m + 2, m + 3, m + 4), boolean_columns=(m + 5,)
    )


def _history_frame(history: History, variables: list[str], values: list[str]) -> Any:
    if history.runs is None:
        return _build_frame(*history_table(history, variables, values), integer_columns=(0, 1))
    tables = []
    for run in range(history.runs):
        names, rows = history_table(history.of_run(run), variables, values)
        tables.append(np.column_stack([np.full(len(rows), run), rows]))
    return _build_frame(["run", *names], np.concatenate(tables), integer_columns=(0, 1, 2))


def _study_frame(study: Study, table: str | None) -> Any:
    if table not in (None, "runs", "summary"):
        raise InputError(f'table must be "runs" or "summary"; got {table!r}.')
    return _import_pandas().DataFrame(study.summary() if table == "summary" else study.rows())


def _build_frame(
    names: list[str], rows: np.ndarray, integer_columns: Sequence[int] = (), boolean_columns: Sequence[int] = ()
) -> Any:
    """Build a DataFrame, with some columns converted to int64 or bool."""
    columns = unique_headings(names)
    dtypes = {columns[i]: np.int64 for i in integer_columns} | {columns[i]: bool for i in boolean_columns}
    return _import_pandas().DataFrame(np.asarray(rows, np.float64), columns=columns).astype(dtypes)


def _numbered_names(letter: str, values: Any) -> list[str]:
    """Name the columns of an array x1, x2, ...; none without an array."""
    return [] if values is None else [f"{letter}{i + 1}" for i in range(np.shape(values)[-1])]


def _import_pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError:
        raise InputError('tables need the package pandas: pip install "galapax[notebook]".') from None
    return pandas
