"""The result of an Optimizer from what it was told: its history, its front, and its programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax import algorithms
from galapax.api.trials import find_row, stack_answers
from galapax.core.algorithm import AcceptsImmigrants, Algorithm, TakesKnownValues, count_repairs, insert_immigrants
from galapax.core.direction import Maximize, orient
from galapax.core.errors import InputError
from galapax.core.evaluation import HISTORY_FIRST_COLUMN, Columns, Evaluation, Population, Record, Shape
from galapax.core.options import Options
from galapax.core.problem import EqTolerance, Problem
from galapax.core.user_code import warn
from galapax.execution.assemble import plain_options, versions
from galapax.execution.known_points import KnownPoints
from galapax.execution.search import Carry, Finished, Search, run_axes
from galapax.metrics.indicators import non_dominated
from galapax.numerics import compile_cache, devices, random
from galapax.objective.failures import summarise
from galapax.objective.worker import Answer
from galapax.results.evaluations import Evaluations
from galapax.results.front import build_front, knee
from galapax.results.result import History, Result


def record_generation(
    history: list[dict[str, np.ndarray]], row: np.ndarray, columns: Columns, nfev: int
) -> dict[str, np.ndarray]:
    """Return a generation's entry of the history, with the best value of all searches in the place of its own.

    row: its packed record (columns, 1). history: the entries before it.
    """
    record = Record.unpack(row[None, HISTORY_FIRST_COLUMN:, 0], columns, HISTORY_FIRST_COLUMN)
    values = {name: getattr(record, name) for name in ("best", "mean", "worst", "violation", "feasible_share")}
    entry = {name: np.asarray(v, np.float64)[0] for name, v in values.items() if v is not None}
    if history and columns.shape.objectives == 1:
        last = history[-1]
        if (last.get("violation", 0.0), last["best"][0]) < (entry.get("violation", 0.0), entry["best"][0]):
            entry |= {name: last[name] for name in ("best", "violation") if name in last}
    return entry | {"nfev": np.asarray(nfev)}


def build_history(entries: list[dict[str, np.ndarray]], maximize: Maximize) -> History | None:
    """Return the history of the complete generations; None before the first."""
    if not entries:
        return None
    columns = {name: np.array([entry[name] for entry in entries]) for name in entries[0]}
    for name in ("best", "mean", "worst"):
        values = orient(columns[name], maximize)
        columns[name] = values[:, 0] if values.shape[1] == 1 else values
    return History(generation=np.arange(1, len(entries) + 1), **columns)


def add_front(result: Result, rows: list[int], eq_tolerance: EqTolerance | None) -> None:
    """Add the front of some evaluations to a result, and its knee as the answer. rows: of these evaluations."""
    evaluations: Evaluations = result.evaluations
    result["fun"] = np.full(evaluations.fun.shape[1], np.nan)
    signs, feasible = result.signs, ~evaluations.failed
    if evaluations.violation is not None:
        feasible &= evaluations.violation <= 0
    chosen = np.array([row for row in rows if feasible[row]], int)
    if len(chosen):
        chosen = chosen[non_dominated(signs * evaluations.fun[chosen])]
    by_point = {evaluations.x[row].tobytes(): row for row in chosen}

    def constraints(x: np.ndarray) -> Evaluation | None:
        at = [by_point[point.tobytes()] for point in x]
        ineq, eq = (None if v is None else v[at] for v in (evaluations.ineq, evaluations.eq))
        return None if ineq is None and eq is None else summarise(evaluations.fun[at], ineq, eq, eq_tolerance, np)

    evaluate: Callable[[np.ndarray], Evaluation | None] | None = constraints if len(chosen) else None
    individuals = Population(evaluations.x[chosen], signs * evaluations.fun[chosen], None)
    front = build_front(individuals, signs, evaluate)
    result.update(front.as_dict())
    if len(front):
        at = knee(front.F, signs)
        result.update(x=front.X[at], fun=front.F[at], violation=0.0, feasible=True)
        result["ineq"], result["eq"] = (None if v is None else v[at] for v in (front.G, front.H))
    elif np.isfinite(result.violation):
        result["message"] += " No feasible point has been told."


def check_algorithm(algorithm: Algorithm, shape: Shape, restarts: bool, has_formulas: bool) -> None:
    """Refuse values that the algorithm is not for, and say what it cannot do with them."""
    name = type(algorithm).__name__
    if shape.objectives > 1 and not algorithm.traits.multi_objective:
        raise InputError(
            f"values has {shape.objectives} columns, and {name} minimises one objective: choose an algorithm for "
            'several objectives, such as "nsga2".'
        )
    if shape.objectives > 1 and restarts:
        raise InputError(f"restarts apply to one objective, and values has {shape.objectives} columns: remove it.")
    if shape.objectives == 1 and algorithm.traits.multi_objective:
        raise InputError(
            f"values has one number per point, and {name} is for several objectives: give one column for each, "
            'or choose an algorithm for one objective, such as "de".'
        )
    if shape.eq and count_repairs(algorithm) and not has_formulas:
        warn(
            f"{name} moves some candidates onto the equalities, which Optimizer cannot do without their formulas, "
            "so it would search differently from minimize: give it the Problem instead of bounds, if JAX can "
            "differentiate its constraints, or disable this step with repaired=0."
        )


def describe_settings(
    options: Options, problem: Problem, algorithm: Algorithm, bound: Algorithm, restarts: str | None
) -> dict[str, Any]:
    """Return what was asked for, as plain values. bound: the algorithm as it is used for the problem."""
    return plain_options(options) | {
        "problem": problem.name,
        "algorithm": algorithms.algorithm_name(algorithm),
        "hyperparameters": algorithms.plain_settings(bound),
        "restarts": restarts,
        "x0": None,
        "runs": 1,
        "first_run": 0,
        "device": devices.device_name(),
        "versions": versions(),
    }


def judge_known_answers(
    genes: list[np.ndarray], answers: list[Answer], shape: Shape, maximize: Maximize, eq_tolerance: EqTolerance | None
) -> KnownPoints:
    """Return points that were told without being asked for, as a search sees them."""
    raw = stack_answers(answers, shape)
    fun = orient(raw["fun"], maximize)
    return KnownPoints(np.array(genes), summarise(fun, raw.get("ineq"), raw.get("eq"), eq_tolerance, np))


def _evaluation(eq_tolerance: EqTolerance | None, rows: Any) -> Evaluation:
    one = summarise(rows["fun"], rows["ineq"], rows["eq"], eq_tolerance)
    return jax.tree.map(lambda a: jnp.asarray(a)[None], one)


def start_search(eq_tolerance: EqTolerance | None, search: Search, carry: Carry, candidates: Array, rows: Any) -> Carry:
    """The first state, with candidates as they were asked for, and what the algorithm takes from their values."""
    asked = carry._replace(state=carry.state._replace(candidates=candidates))
    return search.start(asked, _evaluation(eq_tolerance, rows))


def tell_generation(
    eq_tolerance: EqTolerance | None, search: Search, keys: Array, asked: Carry, number: Array, rows: Any
) -> tuple[Carry, Array, Array, Array]:
    """What is asked next; the record, the evaluations counted, and what the search says of itself."""
    generation_keys = jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)
    carry, row = search.tell(asked, generation_keys, number, _evaluation(eq_tolerance, rows))
    record = Record.unpack(row, search.columns, axis=0)
    return search.ask(carry, number + 1), row, record.evaluations[0], search.termination_codes(carry.state)


def insert_points(search: Search, asked: Carry, rows: Array, points: Array) -> Carry:
    """The carry with points from elsewhere in the place of some candidates."""
    state = jax.vmap(
        lambda algorithm, state: insert_immigrants(algorithm, state, rows, points),
        in_axes=(search.setting_axes, run_axes(asked.state)),
        out_axes=run_axes(asked.state),
    )(search.algorithm, asked.state)
    return asked._replace(state=state)


def learn_values(search: Search, asked: Carry, known: KnownPoints) -> Carry:
    """The carry of an algorithm that has learnt from values of points which it did not ask for."""

    def learn(algorithm: Algorithm, state: Any) -> Any:
        assert isinstance(algorithm, TakesKnownValues)
        return algorithm.with_known_values(state, *known)

    axes = run_axes(asked.state)
    state = jax.vmap(learn, in_axes=(search.setting_axes, axes), out_axes=axes)(search.algorithm, asked.state)
    return asked._replace(state=state)


def place_known(
    search: Search, asked: Carry, known: KnownPoints, n: int, is_first: bool
) -> tuple[Carry, dict[int, int]]:
    """Return the carry that has taken up known points, and which of them have the place of a candidate.

    n: candidates that wait for their values. is_first: in the first generation these points are among them already.
    """
    is_learner = isinstance(search.algorithm, TakesKnownValues)
    if is_learner and is_first:  # it has begun with them
        return asked, {}
    if is_learner and not isinstance(search.algorithm, AcceptsImmigrants):
        return compile_cache.call(learn_values, (), search, asked, known), {}
    genes = known.choose_first(n if is_first else max(1, n // 2))
    rows = [row for point in genes if (row := find_row(known.x, point)) is not None]
    if is_first:
        candidates = np.asarray(asked.state.candidates[0])[:n]
        places = [find_row(candidates, point) for point in genes]
        return asked, {place: row for place, row in zip(places, rows, strict=True) if place is not None}
    last = np.arange(n - len(genes), n)
    if len(genes):
        asked = compile_cache.call(insert_points, (), search, asked, last, genes)
    return asked, dict(zip(last.tolist(), rows, strict=True))


def finish_search(search: Search, asked: Carry) -> Finished:
    return search.finish(asked, jnp.zeros(1, jnp.int32), 1)
