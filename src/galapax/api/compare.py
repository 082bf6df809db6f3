"""Several algorithms on several problems, with the statistics to tell them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from galapax import algorithms as registry
from galapax import problems as problem_registry
from galapax.api.sweep import message
from galapax.core.algorithm import Algorithm
from galapax.core.checks import check_bool, check_finite, check_integer, clean_name, items
from galapax.core.errors import InputError
from galapax.core.hints import suggest_keywords
from galapax.core.options import Compute, Options
from galapax.core.problem import MinMaxProblem, Problem
from galapax.core.stop import Stop, interrupts
from galapax.execution.observers import observers
from galapax.execution.solve import solve
from galapax.execution.task import Task, check_comparable, prepare_task, resolve_options
from galapax.numerics import random
from galapax.results.result import Result
from galapax.results.study import Study, measure_hypervolumes


@suggest_keywords
def compare(
    problems: Sequence[str | Problem],
    algorithms: Sequence[str | Algorithm[Any]] | Mapping[str, str | Algorithm[Any]],
    *,
    max_evaluations: int = 20_000,
    runs: int = 30,
    within: float | Mapping[str, float] | None = None,
    paired: bool = False,
    seed: int | None = 0,
    progress: bool | None = None,
    checkpoint: object = None,
    resume: object = None,
    compute: Compute | None = None,
) -> Study:
    """Run every algorithm on every problem with the same number of evaluations.

    problems: names or Problems. algorithms: names or instances; a mapping gives them names of your own.
    max_evaluations: limit per run, for any population; a last generation that would exceed it is skipped.
    runs: of each algorithm on each problem, computed together.
    within: a run succeeds once it is this close to the problem's best known value; or {problem: value to reach}.
        With several objectives the value of a run is the hypervolume of its front up to the problem's reference_point.
    paired: compare run r of one algorithm with run r of the other (they share their seed; algorithms with equal
        populations start from the same points), with Wilcoxon's signed-rank test instead of Mann-Whitney.
    checkpoint, resume, compute: as in `minimize`.
    """
    arguments = locals()
    chosen, seed = _problems(problems), random.resolve_seed(seed)
    solvers = _algorithms(algorithms)
    check_integer(runs, "runs", 2, "a single run does not show how much runs vary")
    if isinstance(within, Mapping):
        for name in within:
            if name not in chosen:
                raise InputError(f"within names {name!r}, which is not among the problems {', '.join(chosen)}.")
    paired = check_bool(paired, "paired")
    targets = {name: _target(problem, within) for name, problem in chosen.items()}
    watchers = observers(progress=progress, checkpoint=checkpoint, resume=resume)
    tasks: dict[tuple[str, str], Task] = {}
    for name, problem in chosen.items():
        for label, solver in solvers.items():
            options = resolve_options(problem, Options.parse(arguments | {"seed": seed, "polish": False}))
            tasks[name, label] = prepare_task(problem, (solver,), options)
    for task in tasks.values():  # refused before anything is run
        check_comparable(task)
    labels: list[dict[str, Any]] = []
    results: list[Result] = []
    stopped: Stop | None = None
    with interrupts() as interrupt_state:
        for number, ((name, label), task) in enumerate(tasks.items(), 1):
            if interrupt_state.seen:
                stopped = Stop.INTERRUPT
                break
            task_results, stopped = solve(task, watchers.about(task, f"[{number}/{len(tasks)}] "))
            labels += [{"problem": name, "algorithm": label}] * len(task_results)
            results += map(measure_hypervolumes, task_results)
            if stopped is not None:
                break
    return Study(
        kind="comparison",
        axes={"problem": list(chosen), "algorithm": list(solvers)},
        labels=labels,
        results=results,
        targets=[targets[labels_of_cell["problem"]] for labels_of_cell in labels],
        message=message(stopped, len(results), len(tasks), "pairs of problem and algorithm"),
        paired=paired,
        stop=stopped or Stop.BUDGET,
    )


def _problems(given: Sequence[str | Problem]) -> dict[str, Problem]:
    if isinstance(given, str | Problem | MinMaxProblem):
        given = [given]
    out: dict[str, Problem] = {}
    for one in items(given, "compare needs a list of problems, names or Problems"):
        problem = problem_registry.as_problem(one)
        if isinstance(problem, MinMaxProblem) or not isinstance(problem, Problem):
            raise InputError(f"compare takes names or Problem objects (no min-max problems); got {one!r}.")
        if problem.name in out:
            raise InputError(f"the problem {problem.name!r} is given twice; rename one with with_(name=).")
        out[problem.name] = problem
    if not out:
        raise InputError("compare needs at least one problem.")
    return out


def _algorithms(given: object) -> dict[str, Algorithm]:
    if isinstance(given, Mapping) and given:
        return {clean_name(str(name), "a name"): registry.resolve_algorithm(one) for name, one in given.items()}
    if isinstance(given, str | Algorithm):
        given = [given]
    listed = items(given, "compare needs a list of algorithms, names or instances")
    solvers = [registry.resolve_algorithm(one) for one in listed]
    if not solvers:
        raise InputError("compare needs at least one algorithm.")
    names = [registry.algorithm_name(s) for s in solvers]
    out: dict[str, Algorithm] = {}
    for name, solver in zip(names, solvers, strict=True):
        label = name if names.count(name) == 1 else _describe(name, solver)
        if label in out:
            raise InputError(f"{label} is given twice; label them with a mapping such as {{'a': gx.DE(), ...}}.")
        out[label] = solver
    return out


def _describe(name: str, solver: Algorithm) -> str:
    """The name with the hyper-parameters that differ from the default."""
    usual, own = registry.plain_settings(type(solver)()), registry.plain_settings(solver)
    changed = [f"{k}={v}" for k, v in own.items() if v != usual[k]]
    return f"{name} ({', '.join(changed)})" if changed else name


def _target(problem: Problem, within: float | Mapping[str, float] | None) -> float | None:
    """The value that a run on this problem has to reach."""
    if within is None:
        return None
    if isinstance(within, Mapping):
        return check_finite(within[problem.name], "within") if problem.name in within else None
    distance = check_finite(within, "within")
    if distance < 0:
        raise InputError(f"within is a distance to the best known value, at least 0; got {distance:g}.")
    known = problem.hypervolume if problem.optimum is None else problem.optimum
    if known is None:
        field = "optimum" if problem.reference_point is None else "hypervolume"
        raise InputError(
            f"{problem.name!r} has no best known value to measure a distance from: "
            f"use problem.with_({field}=...), or within={{{problem.name!r}: value}}."
        )
    return float(known) + distance if problem.optimum is not None else float(known) - distance
