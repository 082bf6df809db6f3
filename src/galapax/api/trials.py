"""What a user asks for and tells: trials, values in their many forms, and the result of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax import algorithms
from galapax.core.algorithm import (
    AcceptsImmigrants,
    Algorithm,
    HasSurrogate,
    State,
    TakesKnownValues,
    count_repairs,
    insert_immigrants,
)
from galapax.core.checks import abbreviate, as_float_array, check_integer, check_number
from galapax.core.errors import InputError, describe_traceback, warn
from galapax.core.hints import TRIAL_ATTRIBUTES, attribute_error
from galapax.core.options import Options
from galapax.core.problem import (
    HISTORY_FIRST_COLUMN,
    OUTPUT_NAMES,
    CandidateEvaluation,
    Columns,
    EqTolerance,
    Evaluation,
    Maximize,
    Population,
    Problem,
    Record,
    Shape,
    objective_signs,
    orient,
)
from galapax.core.variables import Label
from galapax.execution.arguments import KnownPoints
from galapax.execution.assemble import plain_options, versions
from galapax.execution.search import Carry, Search, run_axes
from galapax.metrics.indicators import non_dominated
from galapax.numerics import compile_cache, devices, random
from galapax.objective.evaluation_log import summarise
from galapax.objective.pool import Answer, Failure
from galapax.results.evaluations import Evaluations, check_known_points
from galapax.results.front import build_front, knee
from galapax.results.result import History, Result

MATCH_DISTANCE = 1e-6  # share of the box within which a point counts as one that was asked for: text and float32 round


MIN_COMPLETE_TRIALS = 5  # with a value at the same step, before any trial is pruned
NO_VALUE = "None in place of a value"


@dataclass(frozen=True)
class Trial:
    """A point that waits for its value. number: counts the trials of an Optimizer, from 0.

    An evaluation in steps, such as a training by epochs, may `report` its value after each step and end early where
    `should_prune` says so; it is then told as None. reports: these values, by step.
    """

    number: int
    x: np.ndarray  # (d,) of declared variables their numbers
    params: dict[str, Label]  # x by name
    reports: dict[int, float] = field(default_factory=dict, repr=False)
    median_rule: MedianRule | None = field(default=None, repr=False, compare=False)

    def report(self, value: float, step: int) -> None:
        """Note the value after this step of the evaluation."""
        if self.median_rule is None or np.size(self.median_rule.maximize) > 1:
            raise InputError("only trials of a gx.Optimizer with one objective report the values of steps.")
        self.reports[check_integer(step, "step", 0)] = check_number(value, "the value of a step", allow_nan=True)

    def should_prune(self) -> bool:
        """Whether this trial is behind the median of the complete ones after the last step that it reported."""
        return self.median_rule is not None and self.median_rule.prunes(self.reports)

    def __getattr__(self, name: str) -> NoReturn:
        raise attribute_error(self, "a", name, TRIAL_ATTRIBUTES)


@dataclass
class MedianRule:
    """Prunes a trial whose best value so far is worse than the median of the complete trials at the same step.

    Golovin et al. (2017), Google Vizier, KDD 2017, section 3.2, in the form of Optuna's MedianPruner.
    complete: the reports of each trial that was told with a value.
    """

    maximize: Maximize
    complete: list[dict[int, float]] = field(default_factory=list)

    def prunes(self, reports: Mapping[int, float]) -> bool:
        """Whether a trial with these reports is pruned."""
        step = max(reports, default=-1)
        others = [values[step] for values in self.complete if not math.isnan(values.get(step, math.nan))]
        if len(others) < MIN_COMPLETE_TRIALS:
            return False
        sign = float(objective_signs(self.maximize)[0])
        values = np.array(list(reports.values()))
        best = np.min(sign * values, where=~np.isnan(values), initial=np.inf)
        return bool(best > np.median(sign * np.array(others)))

    def learn(self, trial: Trial, answer: Answer) -> Answer:
        """Take up the reports of a trial that has its value, and return it; of a pruned one, say so."""
        if trial.reports and isinstance(answer, Failure) and answer.error == NO_VALUE:
            return Failure(f"pruned after step {max(trial.reports)}")
        if trial.reports and isinstance(answer, dict):
            self.complete.append(dict(trial.reports))
        return answer


def find_trials(points: object, finished: Mapping[int, bytes]) -> dict[int, Trial]:
    """Return the trials among points, by row; refuse one that is told twice. finished: points of earlier ones."""
    entries = [points] if isinstance(points, Trial) else points if isinstance(points, list | tuple) else []
    trials = {row: entry for row, entry in enumerate(entries) if isinstance(entry, Trial)}
    numbers = [trial.number for trial in trials.values()]
    for trial in trials.values():
        if finished.get(trial.number) == trial.x.tobytes() or numbers.count(trial.number) > 1:
            raise InputError(
                f"trial {trial.number} is told twice, and a trial has one value. To give its point another value, tell "
                "trial.x: it counts as a point that was evaluated elsewhere."
            )
    return trials


def parse_values(values: object, ineq: object, eq: object, n: int, is_one: bool) -> list[Answer]:
    """Return what came of each of n points: their numbers by name, or why they failed."""
    if values is None and not is_one:
        raise InputError("values is missing: give one value per point.")
    constraints = {
        name: _rows(name, rows, n, is_one) for name, rows in (("ineq", ineq), ("eq", eq)) if rows is not None
    }
    per_point = _entries(values, n, is_one)
    if isinstance(per_point, np.ndarray):
        columns = {"fun": per_point, **constraints}
        return [{name: rows[i] for name, rows in columns.items()} for i in range(n)]
    answers: list[Answer] = []
    for i, value in enumerate(per_point):
        if value is None or isinstance(value, BaseException):
            answers.append(_failure(value))
            continue
        named = value._asdict() if isinstance(value, Evaluation) else value
        named = dict(named) if isinstance(named, Mapping) else {"fun": named}
        if "fun" not in named or set(named) - set(OUTPUT_NAMES):
            raise InputError(f'a dict of values has "fun", "ineq" and "eq"; got {abbreviate(named)}.')
        named |= {name: rows[i] for name, rows in constraints.items()}
        answers.append({name: _numbers(name, named[name]) for name in OUTPUT_NAMES if named.get(name) is not None})
    return answers


def evaluated_elsewhere(x: object) -> NoReturn:
    """Stand for the objective of an Optimizer; it is never called."""
    raise NotImplementedError("the values come from tell().")


def shape_of(answer: Mapping[str, np.ndarray]) -> Shape:
    return Shape(*(answer[name].size if name in answer else 0 for name in OUTPUT_NAMES))


def _failure(error: BaseException | None) -> Failure:
    """Return why a point failed that was told with None or an exception."""
    if error is None:
        return Failure(NO_VALUE)
    traceback, location = describe_traceback(error)
    return Failure(f"{type(error).__name__}: {error}", traceback=traceback, location=location)


def _entries(values: Any, n: int, is_one: bool) -> list[Any] | np.ndarray:
    """Return what was told of each of n points: an array (n, m) of numbers, or a list with anything else among them."""
    if is_one and (values is None or isinstance(values, BaseException | Mapping | Evaluation)):
        return [values]
    is_list = isinstance(values, list | tuple) and not isinstance(values, Evaluation) and not is_one
    if is_list and any(value is None or isinstance(value, BaseException | Mapping | Evaluation) for value in values):
        if len(values) != n:
            raise InputError(f"values must have one entry for each of the {n} points; got {len(values)}.")
        return list(values)
    return _rows("values", values, n, is_one)


def _rows(name: str, values: object, n: int, is_one: bool) -> np.ndarray:
    """Return numbers as (n, k), from one number or several for each point."""
    try:
        rows = as_float_array(values)
    except ValueError:
        raise InputError(f"{name} must be numbers, one row per point; got {abbreviate(values)}.") from None
    if is_one or (n == 1 and rows.ndim == 0):
        rows = rows.reshape(1, -1)
    if rows.ndim not in (1, 2) or len(rows) != n or rows.size == 0:
        raise InputError(f"{name} must have one row for each of the {n} points; got shape {rows.shape}.")
    return rows.reshape(n, -1)


def _numbers(name: str, value: object) -> np.ndarray:
    """Return one point's numbers as (k,)."""
    return _rows(name, value, 1, True)[0]


def find_row(rows: np.ndarray, point: np.ndarray) -> int | None:
    """Return which row (n, d) is this point, if one is."""
    equal = np.flatnonzero((rows == point).all(axis=1))
    return int(equal[0]) if len(equal) else None


def parse_points(points: Any, problem: Problem, out: Iterable[Trial]) -> tuple[np.ndarray, bool]:
    """Return points as (n, d), and whether there is one. out: the trials that were handed out."""
    d = problem.dim
    is_one = isinstance(points, Trial | Mapping)
    entries = [points] if is_one else points
    if isinstance(entries, list | tuple) and entries and all(isinstance(p, Trial | Mapping) for p in entries):
        x = np.array([p.x if isinstance(p, Trial) else _parse_named(p, problem, out) for p in entries], np.float64)
        return check_known_points(x, problem, "points", MATCH_DISTANCE), is_one
    try:
        x = as_float_array(points) if problem.space is None else problem.space.parse_points(points)
    except InputError:
        raise
    except (ValueError, TypeError):
        x = np.zeros(0)
    is_one = x.ndim == 1 and x.shape == (d,) and d > 0
    x = x[None] if is_one else x
    if x.ndim != 2 or x.shape[1] != d or not len(x):
        raise InputError(
            f"tell takes a trial, a dict of named values, a point of {d} numbers, or a list of these; "
            f"got {abbreviate(points)}."
        )
    return check_known_points(x, problem, "points", MATCH_DISTANCE), is_one


def _parse_named(point: Mapping[str, Any], problem: Problem, out: Iterable[Trial]) -> np.ndarray:
    for trial in out:
        if trial.params == point:
            return np.asarray(trial.x, np.float64)
    if problem.space is not None:
        return problem.space.parse_points(point)[0]
    names = problem.variable_names()
    if set(point) != set(names):
        raise InputError(f"a point needs a value for each of {', '.join(names)}; got {', '.join(map(str, point))}.")
    return np.array([float(point[name]) for name in names])


def match_points(x: np.ndarray, candidates: np.ndarray, waiting: list[int], span: np.ndarray) -> list[int | None]:
    """Return which of the waiting points each of the points (n, d) is; None for one that was not asked for.

    candidates: (k, d) the points of the generation. waiting: the places of those without a value.
    """
    waiting = list(waiting)
    if len(waiting) == len(x) and np.array_equal(candidates[waiting], x.astype(candidates.dtype)):
        return list(waiting)
    places: list[int | None] = []
    for point in x:
        place = None
        if waiting:
            away = np.max(np.abs(candidates[waiting] - point) / span, axis=1)
            nearest = int(np.argmin(away))
            if away[nearest] <= MATCH_DISTANCE:
                place = waiting.pop(nearest)
        places.append(place)
    return places


def _count_values(shape: Shape) -> str:
    """Say how many numbers of each kind an evaluation has."""
    kinds = (("objective", "objectives"), ("inequality", "inequalities"), ("equality", "equalities"))
    return " and ".join(f"{n} {names[n > 1]}" for n, names in zip(shape, kinds, strict=True) if n)


def judge_answers(
    answers: list[Answer], shape: Shape, maximize: Maximize, eq_tolerance: EqTolerance | None
) -> list[tuple[float, float]]:
    """Return violation and (first) value of each answer, to be minimised; refuse answers of other shapes, and turn
    those that are not finite into failures.
    """
    for answer in answers:
        if isinstance(answer, dict) and (answer_shape := shape_of(answer)) != shape:
            raise InputError(
                f"a point was told {_count_values(answer_shape)}, and the first one had {_count_values(shape)}: tell "
                "all points the same."
            )
    raw = stack_answers(answers, shape)
    fun = orient(raw["fun"], maximize)
    judged = summarise(fun, raw.get("ineq"), raw.get("eq"), eq_tolerance, np)
    violation = np.zeros(len(answers)) if judged.violation is None else np.asarray(judged.violation)
    for i in np.flatnonzero(judged.failed):
        answer = answers[i]
        if isinstance(answer, dict):
            answers[i] = Failure(f"{', '.join(f'{name} = {v}' for name, v in answer.items())}")
    return list(zip(violation.tolist(), np.asarray(judged.objectives)[:, 0].tolist(), strict=True))


def stack_answers(answers: Sequence[Answer | None], shape: Shape) -> dict[str, np.ndarray]:
    """Return the numbers of answers by name, (n, width); NaN for failures."""
    raw = {}
    for name, width in widths_of(shape).items():
        missing = np.full(width, np.nan)
        rows = [answer[name] if isinstance(answer, dict) else missing for answer in answers]
        raw[name] = np.array(rows, np.float64).reshape(len(answers), width)
    return raw


def widths_of(shape: Shape) -> dict[str, int]:
    """Return how many numbers a point gives, by name."""
    return {name: width for name, width in zip(OUTPUT_NAMES, shape, strict=True) if width}


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

    def constraints(x: np.ndarray) -> CandidateEvaluation | None:
        at = [by_point[point.tobytes()] for point in x]
        ineq, eq = (None if v is None else v[at] for v in (evaluations.ineq, evaluations.eq))
        return None if ineq is None and eq is None else summarise(evaluations.fun[at], ineq, eq, eq_tolerance, np)

    evaluate: Callable[[np.ndarray], CandidateEvaluation | None] | None = constraints if len(chosen) else None
    individuals = Population(evaluations.x[chosen], signs * evaluations.fun[chosen], None)
    front = build_front(individuals, signs, evaluate)
    result.update(front.as_dict())
    if len(front):
        at = knee(front.F, signs)
        result.update(x=front.X[at], fun=front.F[at], violation=0.0, feasible=True)
        result["ineq"], result["eq"] = (None if v is None else v[at] for v in (front.G, front.H))
    elif np.isfinite(result.violation):
        result["message"] += " No feasible point so far."


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
) -> dict[str, object]:
    """Return what was asked for, as plain values. bound: the algorithm as it is used for the problem."""
    return plain_options(options) | {
        "problem": problem.name,
        "algorithm": algorithms.algorithm_name(algorithm),
        "population": bound.population,
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


def _evaluation(eq_tolerance: EqTolerance | None, rows: Mapping[str, Array]) -> CandidateEvaluation:
    one = summarise(rows["fun"], rows["ineq"], rows["eq"], eq_tolerance)
    return jax.tree.map(lambda a: jnp.asarray(a)[None], one)


def start_search(
    eq_tolerance: EqTolerance | None, search: Search, carry: Carry, candidates: Array, rows: Mapping[str, Array]
) -> Carry:
    """Start the search with candidates as they were asked for; the algorithm learns from their values."""
    pending = carry._replace(state=carry.state._replace(candidates=candidates))
    return search.start(pending, _evaluation(eq_tolerance, rows))


def tell_generation(
    eq_tolerance: EqTolerance | None,
    search: Search,
    keys: Array,
    pending: Carry,
    number: Array,
    rows: Mapping[str, Array],
) -> tuple[Carry, Array, Array, Array]:
    """Tell a generation; return the next candidates, the record, the evaluations counted, and the algorithm's stop
    code.
    """
    generation_keys = jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)
    carry, row = search.tell(pending, generation_keys, number, _evaluation(eq_tolerance, rows))
    record = Record.unpack(row, search.columns, axis=0)
    return search.ask(carry, number + 1), row, record.evaluations[0], search.termination_codes(carry.state)


def insert_points(search: Search, pending: Carry, rows: Array, points: Array) -> Carry:
    """Return the carry with points from elsewhere in the place of some candidates."""
    return change_states(search, pending, lambda algorithm, state: insert_immigrants(algorithm, state, rows, points))


def change_states(search: Search, pending: Carry, change: Callable[[Algorithm, State], State]) -> Carry:
    """Return the carry with the state of each run changed."""
    axes = run_axes(pending.state)
    state = jax.vmap(change, in_axes=(search.setting_axes, axes), out_axes=axes)(search.algorithm, pending.state)
    return pending._replace(state=state)


def offer_more(search: Search, pending: Carry, n: Array) -> Carry:
    """Return the carry with at least n candidates that are evaluated next, if so many wait."""

    def offer(algorithm: Algorithm, state: State) -> State:
        assert isinstance(algorithm, HasSurrogate)
        return algorithm.with_more_candidates(state, n)

    return change_states(search, pending, offer)


def learn_values(search: Search, pending: Carry, known: KnownPoints) -> Carry:
    """Return the carry of an algorithm that has learnt from values of points which it did not ask for."""

    def learn(algorithm: Algorithm, state: State) -> State:
        assert isinstance(algorithm, TakesKnownValues)
        return algorithm.with_known_values(state, *known)

    return change_states(search, pending, learn)


def archive_values(search: Search, pending: Carry, known: KnownPoints) -> Carry:
    """Return the carry of an algorithm that remembers these values."""

    def remember(algorithm: Algorithm, state: State) -> State:
        assert isinstance(algorithm, HasSurrogate)
        return algorithm.with_archived_values(state, *known)

    return change_states(search, pending, remember)


def place_known(
    search: Search, pending: Carry, known: KnownPoints, n: int, is_first: bool
) -> tuple[Carry, dict[int, int]]:
    """Return the carry that has taken up known points, and which of them have the place of a candidate.

    n: candidates that wait for their values. is_first: in the first generation these points are among them already.
    """
    is_learner = isinstance(search.algorithm, TakesKnownValues)
    if is_learner and is_first:  # it has begun with them
        return pending, {}
    if is_learner and not isinstance(search.algorithm, AcceptsImmigrants):
        return compile_cache.call(learn_values, (), search, pending, known), {}
    genes = known.choose_first(n if is_first else max(1, n // 2))
    rows = [row for point in genes if (row := find_row(known.x, point)) is not None]
    if is_first:
        candidates = np.asarray(pending.state.candidates[0])[:n]
        places = [find_row(candidates, point) for point in genes]
        return pending, {place: row for place, row in zip(places, rows, strict=True) if place is not None}
    last = np.arange(n - len(genes), n)
    others = np.setdiff1d(np.arange(len(known.x)), rows)
    if isinstance(search.algorithm, HasSurrogate) and len(others):
        pending = compile_cache.call(archive_values, (), search, pending, jax.tree.map(lambda a: a[others], known))
    if len(genes):
        pending = compile_cache.call(insert_points, (), search, pending, last, genes)
    return pending, dict(zip(last.tolist(), rows, strict=True))
