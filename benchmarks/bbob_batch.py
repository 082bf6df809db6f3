"""All instances of a BBOB function as one computation on the device: one run each, every run with arrays of its own.

`gx.minimize` makes many runs of one problem. Instances of a function are one program with other arrays, so an ensemble
whose run r reads row r of the stacked arrays solves them side by side; everything else is what `minimize` does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from bbob_runs import FINAL, record

import galapax as gx
from galapax import algorithms
from galapax.core.options import Options
from galapax.core.problem import CandidateEvaluation
from galapax.execution.arguments import check_memory, slice_width
from galapax.execution.solve import solve
from galapax.execution.task import Task, default_algorithm, prepare_task, resolve_options
from galapax.objective.traced import Formulas


@dataclass(frozen=True)
class Each:
    """The objective of runs whose arrays are stacked, the runs in front."""

    formulas: Formulas

    def evaluate(self, consts: Any, state: Any) -> CandidateEvaluation:
        return jax.vmap(self.formulas)(consts, state.candidates)

    def repair(self, consts: Any, x: Any, bounds: Any) -> Any:
        raise NotImplementedError("the BBOB functions have no constraints")


def solve_together(function: int, dim: int, instances: list[int], plan: dict[str, Any]) -> list[dict[str, Any]]:
    """One record for each instance, as bbob_runs.solve gives them; their seconds are shares of the whole."""
    records = []
    for task, some in _tasks(function, dim, instances, plan):
        began = time.perf_counter()
        (result,), _ = solve(task)
        spent = (time.perf_counter() - began) / len(some)
        runs, rows = result.runs, result.runs.history
        for i, instance in enumerate(some):
            counts = rows.nfev if rows.nfev.ndim == 1 else rows.nfev[i]
            made = record(function, dim, instance, counts, rows.best[i], int(runs.nfev[i]), spent)
            made["trace"].insert(0, [1, float(rows.worst[i][0])])
            records.append(made)
    return records


def _tasks(function: int, dim: int, instances: list[int], plan: dict[str, Any]) -> Iterator[tuple[Task, list[int]]]:
    """Ensembles of as many instances as one slice has runs: on a GPU all of them, on a CPU what its cache holds."""
    options = Options(
        max_evaluations=plan["budget"] * dim, target=FINAL, runs=len(instances), seed=plan["seed"], polish=False,
        compute=gx.Compute(dtype=plan["dtype"]),
    )  # fmt: skip
    problems = [gx.problems.bbob(function, dim, instance) for instance in instances]
    name = plan["algorithm"]
    resolved = resolve_options(problems[0], options)
    solver = default_algorithm(problems[0], resolved) if name == "default" else algorithms.get(name, **plan["settings"])
    tasks = [prepare_task(problem, (solver,), resolved) for problem in problems]
    count = slice_width(tasks[0].bound[0], dim, len(instances), check_memory(tasks[0]))
    for start in range(0, len(instances), count):
        some = tasks[start : start + count]
        padded = some + some[-1:] * (count - len(some))  # a slice on a CPU is never smaller
        stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *(task.consts for task in padded))
        objective: Any = Each(some[0].objective)  # type: ignore[arg-type]
        first = replace(some[0], objective=objective, consts=stacked)
        first = first.with_options(runs=range(start, start + len(some)))
        yield first, instances[start : start + count]
