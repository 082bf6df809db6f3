"""Results as pandas DataFrames, for notebooks; pandas is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from galapax.core.checks import unique_headings
from galapax.core.errors import InputError
from galapax.results.result import History, Result, Runs, all_runs
from galapax.results.study import Study
from galapax.storage.tables import front_table, history_table, runs_table, value_names


def frame(shown: Result | Runs | History | Study, table: str | None = None) -> Any:
    """The table of a result, its runs, a history or a study."""
    if isinstance(shown, Study):
        return _study_frame(shown, table)
    if isinstance(shown, History):
        several = shown.best.ndim - (shown.runs is not None) > 1
        return _history_frame(shown, _numbered("x", shown.x), _numbered("f", shown.best) if several else ["fun"])
    if isinstance(shown, Runs):
        return _runs_frame(shown, _numbered("x", shown.x), _numbered("f", shown.fun) if shown.fun.ndim > 1 else ["fun"])
    return _result_frame(shown, table)


def _result_frame(result: Result, table: str | None) -> Any:
    several = "F" in result
    table = table or ("front" if several else "population" if result.runs is None else "runs")
    variables, values = result.problem.variable_names(), value_names(result)
    if table == "front" and several:
        return _declared(_made(*front_table(result)), result, 0)
    if table == "runs":
        made = _runs_frame(all_runs(result), variables, values)
        return _declared(made, result, made.shape[1] - len(variables))
    if table == "population":
        rows = np.column_stack([result.population, result.population_fitness])
        return _declared(_made([*variables, *values], rows), result, 0)
    if table == "history":
        history = result.history if result.runs is None else result.runs.history
        if history is None:
            raise InputError("this result has no history: run it again with keep=gx.Keep(history=True).")
        return _history_frame(history, variables, values)
    known = ["front"] * several + ["runs", "history", "population"]
    raise InputError(f"table must be one of {', '.join(known)}; got {table!r}.")


def _declared(table: Any, result: Result, first: int) -> Any:
    """The table with its variables, from that column on, as they were declared: whole numbers, labels, flags."""
    space = result.problem.space
    for i, variable in enumerate(() if space is None else space.variables):
        if variable.discrete:
            name = table.columns[first + i]
            table[name] = [variable.value(number) for number in table[name]]
    return table


def _runs_frame(runs: Runs, variables: list[str], values: list[str]) -> Any:
    m = len(values)  # run, the values, violation, nit, nfev, n_failed, success
    return _made(*runs_table(runs, variables, values), whole=(0, m + 2, m + 3, m + 4), flags=(m + 5,))


def _history_frame(history: History, variables: list[str], values: list[str]) -> Any:
    if history.runs is None:
        return _made(*history_table(history, variables, values), whole=(0, 1))
    tables = []
    for run in range(history.runs):
        names, rows = history_table(history.of_run(run), variables, values)
        tables.append(np.column_stack([np.full(len(rows), run), rows]))
    return _made(["run", *names], np.concatenate(tables), whole=(0, 1, 2))


def _study_frame(study: Study, table: str | None) -> Any:
    if table not in (None, "runs", "summary"):
        raise InputError(f'table must be "runs" or "summary"; got {table!r}.')
    return _pandas().DataFrame(study.summary() if table == "summary" else study.rows())


def _made(names: list[str], rows: np.ndarray, whole: Sequence[int] = (), flags: Sequence[int] = ()) -> Any:
    """A DataFrame of these columns, some of them whole numbers or true and false."""
    heads = unique_headings(names)
    kinds = {heads[i]: np.int64 for i in whole} | {heads[i]: bool for i in flags}
    return _pandas().DataFrame(np.asarray(rows, np.float64), columns=heads).astype(kinds)


def _numbered(letter: str, values: Any) -> list[str]:
    """x1, x2, ... for the columns of an array, if there is one."""
    return [] if values is None else [f"{letter}{i + 1}" for i in range(np.shape(values)[-1])]


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError:
        raise InputError('tables need the package pandas: pip install "galapax[notebook]".') from None
    return pandas
