"""Assemble a Result from the outcome of a batch."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax import algorithms
from galapax.core.algorithm import name_methods, orient_forecast
from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.core.options import LEAVES, Options, read
from galapax.core.problem import (
    HISTORY_FIRST_COLUMN,
    CandidateEvaluation,
    Population,
    Problem,
    ProblemDescription,
    Record,
    Shape,
    orient,
)
from galapax.core.restarts import SUCCESS_CONFIDENCE
from galapax.core.stop import RUNNING, STOP_CODES, UNLIMITED, Stop, stop_from_code
from galapax.execution.state import Outcome, Polish, Track, first_best, of_run, to_host
from galapax.execution.task import Task
from galapax.numerics import devices
from galapax.objective.blackbox import BlackBox
from galapax.objective.evaluation_log import summarise
from galapax.objective.traced import PROBE_ROWS, Traced, evaluate_points, trace
from galapax.results.evaluations import Evaluations, tabulate_evaluations
from galapax.results.front import Front, build_front, knee, merge_fronts
from galapax.results.result import History, Result, Runs, attach_replay
from galapax.version import __version__

MIN_CONSTANT_POINTS = 20  # evaluations from which on equal values are reported as a constant objective


class SolutionEvaluator:
    """Evaluates constraints, in float64, and derived quantities at the solutions of a task after its runs.

    A run in float32 calls points feasible whose constraints are violated in the eighth digit; what a Result says of
    feasibility is what float64 says.
    """

    def __init__(self, task: Task, box: BlackBox | None) -> None:
        self.task, self.box = task, box
        self._exact: Traced | None = None

    def evaluate(self, x: np.ndarray) -> CandidateEvaluation | None:
        """Constraints and violation at points (k, d); None for a problem without constraints."""
        problem = self.task.problem
        if not problem.constrained:
            return None
        shape = self.task.shape if self.box is None else self.box.shape
        if not len(x):
            constraints = [np.zeros((0, n)) if n else None for n in (shape.ineq, shape.eq)]
            return CandidateEvaluation(np.zeros((0, shape.objectives)), np.zeros(0), np.zeros(0, bool), *constraints)  # type: ignore[arg-type]
        if self.box is not None:
            answers = [self.box.at(point) for point in x]
            raw = {name: np.stack([values[name] for values in answers]) for name in answers[0] if name != "fun"}
            objectives = np.zeros((len(x), 1))
            return summarise(objectives, raw.get("ineq"), raw.get("eq"), self.box.eq_tolerance, np)
        if self._exact is None and self.task.dtype == "float64":
            self._exact = Traced(self.task.objective, self.task.consts)  # type: ignore[arg-type]
        if self._exact is None:
            assert isinstance(problem, Problem)
            with jax.enable_x64(True):
                n_vectorized = self.task.population if self.task.options.vectorized else 0
                self._exact = trace(
                    problem,
                    "float64",
                    maximize=self.task.options.maximize,
                    vectorized=n_vectorized,
                    is_random=bool(self.task.options.noisy),
                )
        with jax.enable_x64(True):
            rows = PROBE_ROWS if len(x) <= PROBE_ROWS else 256  # few sizes, as each is a program
            return evaluate_points(self._exact, np.asarray(x, np.float64), "float64", rows)

    def violation(self, x: np.ndarray, track: Track) -> np.ndarray:
        """Compute how far each run's answer x (R, d) violates the constraints, in float64."""
        reported = np.asarray(track.violation, np.float64)
        if self.task.dtype == "float64":  # the run has said so itself
            return reported.copy()
        exact = self.evaluate(x)
        if exact is None or exact.violation is None:
            return reported.copy()
        return np.where(np.isfinite(track.best), np.asarray(exact.violation, np.float64), reported)

    def evaluate_front(self, x: np.ndarray) -> CandidateEvaluation | None:
        """Constraints and violation at points that the runs took for feasible."""
        exact = self.evaluate(x)
        if exact is None or self.task.dtype == "float32":
            return exact
        return exact._replace(violation=np.zeros(len(x)))  # type: ignore[arg-type]

    def evaluate_derived(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Evaluate the problem's derived quantities at points (k, d), {name: (k,)}; NaN where a black box raised."""
        out = {}
        for name, function in (self.task.problem.derived or {}).items():
            if self.task.options.blackbox:
                values = np.array([_evaluate_derived(name, function, point.copy()) for point in x.astype(np.float64)])
            else:
                values = np.asarray(jax.vmap(function)(jnp.asarray(x, self.task.dtype))) if len(x) else np.zeros(0)
            out[name] = values.astype(np.float64)
        return out


def _evaluate_derived(name: str, function: Callable[..., object], x: np.ndarray) -> float:
    try:
        value = np.asarray(function(x))
    except Exception:
        return math.nan
    _check_derived(name, value)
    return float(value)


def _check_derived(name: str, value: np.ndarray | jax.ShapeDtypeStruct) -> None:
    """Refuse a derived quantity that is not one real number."""
    if value.shape != () or value.dtype.kind not in "biuf":
        what = f"shape {value.shape}" if value.shape else f"type {value.dtype}"
        raise InputError(f"derived quantity {name!r} must be one number of a solution; it returned {what}.")


def validate_derived(task: Task) -> None:
    """Refuse derived quantities that cannot be evaluated, before a run is computed and lost."""
    box = task.problem.bounds
    for name, function in (task.problem.derived or {}).items():
        if task.options.blackbox:
            _evaluate_derived(name, function, np.asarray((box.lower + box.upper) / 2, np.float64))
            continue
        try:
            shape = jax.eval_shape(function, jax.ShapeDtypeStruct((box.dim,), task.dtype))
        except Exception as error:
            raise InputError(
                f"derived quantity {name!r} raised {type(error).__name__} when called with one solution x of shape "
                f"({box.dim},): {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
            ) from error
        _check_derived(name, shape)


def result_of(
    task: Task,
    total: Outcome,
    population: Population,
    evaluator: SolutionEvaluator,
    replay: Callable[[int], Result],
) -> Result:
    """Assemble the Result of the runs of one solver. population: the survivors of the best run."""
    total = _round_discrete(task, total)
    track = total.track
    is_finite = np.isfinite(track.best)
    x, fun = total.x.astype(np.float64), np.where(is_finite, task.sign * track.best, np.nan)
    fronts = [build_front(front, task.signs, None) for front in total.fronts] or None
    if fronts is not None:
        x, fun = _knee_points(x, fronts, task.signs)
    violation = evaluator.violation(x, track)
    best = first_best(violation, total.merit)
    solution = (
        _best_solution(task, evaluator, x[best], fun[best])
        if fronts is None
        else _knee_solution(task, total, evaluator)
    )
    if solution is None:
        empty_front = build_front(merge_fronts(total.fronts), task.signs, evaluator.evaluate_front)
        solution = _best_solution(task, evaluator, x[best], fun[best], empty_front)
    violation[best] = violation[best] if solution.violation is None else solution.violation
    feasible = is_finite & (violation <= 0)
    success = _find_successes(task, total, feasible)
    stop = total.stopped or stop_from_code(int(track.reason[best]))
    history = None if total.history is None else _history(task, total, of_run(total.history, best)).of_run(0)
    confidence = _read_confidence(total, feasible)
    runs = Runs(
        number=task.first_run + np.arange(len(x)),
        x=task.decode(x),
        fun=fun,
        violation=violation,
        nit=track.generations,
        nfev=track.evaluations - track.skipped,
        n_failed=track.failed - track.skipped,
        success=success,
        history=None if total.history is None else lambda: _history(task, total, to_host(total.history)),
        fronts=None if fronts is None else [replace(front, X=task.decode(front.X)) for front in fronts],
        hypervolume=track.hypervolume.astype(np.float64) if task.rules.reference is not None else None,
        confidence=confidence,
        fun_interval=None if total.estimate is None else np.sort(task.sign * total.estimate.interval, axis=1),
    )
    if fronts is not None and runs.hypervolume is not None:
        solution.extra["hypervolume"] = float(runs.hypervolume[best])
        if history is not None and history.hypervolume_error is not None:
            solution.extra["hypervolume_error"] = float(history.hypervolume_error[-1])
    last_generation = int(track.generations.max())
    constant_note = _constant_objective_note(history, runs, evaluator.box, len(population.x))
    if constant_note and task.rules.target == -math.inf:
        success[:] = False  # nothing was chosen, whatever converged
    message = _message(task, total, best, stop, float(violation[best]), solution.front, population)
    if constant_note and stop is Stop.TOLERANCE:
        message = f"Ended in generation {int(track.generations[best]):,}: there is nothing to search for."
    result = Result(
        problem=_with_eq_tolerance(task.declared, evaluator.box),
        x=task.decode(solution.x),
        fun=solution.fun,
        success=bool(success[best] and len(x) == task.runs),
        message=message + constant_note,
        stop=stop,
        nit=int(track.generations[best]),
        nfev=int(runs.nfev.sum()),
        n_failed=int(runs.n_failed.sum()),
        seed=task.options.seed,
        feasible=bool(feasible[best]),
        violation=float(violation[best]),
        ineq=solution.constraints.get("ineq"),
        eq=solution.constraints.get("eq"),
        population=task.decode(np.asarray(population.x)),
        population_fitness=task.sign * population.fitness
        if fronts is None
        else np.where(task.signs > 0, population.objectives, -population.objectives),  # of the same dtype
        history=history,
        runs=runs if task.runs > 1 else None,
        timings={},
        confidence=None if confidence is None or not feasible[best] else float(confidence[best]),
        settings=settings_of(task),
        snapshots={g: _snapshot(task, total.snapshots[g]) for g in sorted(total.snapshots) if g <= last_generation},
        **solution.extra,
    )
    if runs.fun_interval is not None:
        result["fun_interval"] = runs.fun_interval[best].copy()
    if total.polish is not None:
        result["polish"] = str(total.polish)
    if total.refinements[best]:
        result["refinements"] = [row + 1 for row in total.refinements[best]]
    if total.further_searches and total.further_searches[best]:
        result["restarted"] = [row + 1 for row in total.further_searches[best]]
    if total.forecast is not None:
        result["forecast"] = orient_forecast(jax.tree.map(lambda a: a[best], total.forecast), task.signs, task.decode)
    attach_replay(result, replay, total.opponents)
    result["failures"] = ()
    if evaluator.box is not None:
        _add_blackbox_info(task, result, evaluator.box, len(evaluator.task.solvers) == 1)
        result["failures"] = tuple(failed._replace(x=task.decode(failed.x)) for failed in result.failures)
    return result


def _decode_population(task: Task, population: Population) -> Population:
    """Return the population with x in place of genes."""
    return population._replace(x=task.decode(np.asarray(population.x)))  # type: ignore[arg-type]


def _snapshot(task: Task, population: Population) -> Population:
    """Return the user's view of a snapshot (R, n, ...): with their sign; (n, ...) for a single run."""
    population = population._replace(objectives=orient(population.objectives, task.options.maximize))
    if task.runs == 1:
        population = jax.tree.map(lambda a: a[0], population)
    return _decode_population(task, population)


def _with_eq_tolerance(problem: ProblemDescription, box: BlackBox | None) -> ProblemDescription:
    """Return the problem with the equality tolerance that a black box derived from its first values."""
    if box is None or box.eq_tolerance is None or not isinstance(problem, Problem):
        return problem
    return problem.with_(eq_tolerance=box.eq_tolerance)


def _round_discrete(task: Task, total: Outcome) -> Outcome:
    """Round the codes of integers and choices, so that equal solutions have equal codes."""
    space = task.problem.space
    if space is None:
        return total
    fronts = [f._replace(x=space.round_codes(np.asarray(f.x))) for f in total.fronts]  # type: ignore[arg-type]
    return replace(total, x=space.round_codes(total.x), fronts=fronts)


def _add_blackbox_info(task: Task, result: Result, box: BlackBox, is_only_result: bool) -> None:
    """Add failures, lost workers and cache hits of a black box. is_only_result: all of them belong to this result."""
    if box.first_error and result.n_failed:
        result.message += f" First failure: {box.first_error.rstrip('.')}."
        result["failures"] = tuple(box.failures) if is_only_result else ()
    if is_only_result:
        result["evaluations"] = tabulate_calls(task, box)
    if box.halt_reason:
        result.message += f" The workers were lost: {box.halt_reason}."
    if box.workers.memoize and is_only_result:
        result["n_cached"] = box.log.n_cached


def tabulate_calls(task: Task, box: BlackBox) -> Evaluations:
    """Return every call of a black box, with x in place of genes."""
    table = box.log.table(box.widths)
    problem = _with_eq_tolerance(task.declared, box)
    return tabulate_evaluations(problem, table, task.decode(table.points))


@dataclass
class _Solution:
    """The solution that a Result reports."""

    x: np.ndarray  # (d,)
    fun: float | np.ndarray  # a float; of several objectives (m,)
    constraints: dict[str, np.ndarray]  # at x
    extra: dict[str, object]  # front and derived quantities
    front: Front | None = None
    violation: float | None = None  # if it is known better than from the run


def _best_solution(
    task: Task, evaluator: SolutionEvaluator, x: np.ndarray, fun: float | np.ndarray, front: Front | None = None
) -> _Solution:
    """Return the best solution for one objective, or for several whose front is empty."""
    extra: dict[str, Any] = {} if front is None else _decode_front(task, front)
    if task.problem.derived:
        points = x[None] if front is None else front.X
        extra["derived"] = evaluator.evaluate_derived(points)
        if front is None:
            extra["derived"] = {name: float(values[0]) for name, values in extra["derived"].items()}
    return _Solution(
        x, fun if np.ndim(fun) else float(fun), _constraints_of_one(evaluator.evaluate(x[None])), extra, front
    )


def _knee_solution(task: Task, total: Outcome, evaluator: SolutionEvaluator) -> _Solution | None:
    """Return the knee of the merged front of all runs; None if it is empty."""
    front = build_front(merge_fronts(total.fronts), task.signs, evaluator.evaluate_front)
    if not len(front):
        return None
    extra = _decode_front(task, front)
    if task.problem.derived:
        extra["derived"] = evaluator.evaluate_derived(front.X)
    row = knee(front.F, task.signs)
    constraints = {n: v[row] for n, v in (("ineq", front.G), ("eq", front.H)) if v is not None}
    return _Solution(front.X[row], front.F[row], constraints, extra, front, float(front.CV[row]))


def _decode_front(task: Task, front: Front) -> dict[str, object]:
    """Return the arrays of a front by name, with x in place of genes."""
    return front.as_dict() | {"X": task.decode(front.X)}


def _constraints_of_one(exact: CandidateEvaluation | None) -> dict[str, np.ndarray]:
    """Return the constraint values of the only point by name."""
    constraints = () if exact is None else (("ineq", exact.ineq), ("eq", exact.eq))
    return {name: np.asarray(values[0], np.float64) for name, values in constraints if values is not None}


def _find_successes(task: Task, total: Outcome, feasible: np.ndarray) -> np.ndarray:
    """Return which runs succeeded, (R,): they reached the target, or without one are sure; and are feasible."""
    reason = total.track.reason
    if task.rules.target > -math.inf:
        return (reason == STOP_CODES[Stop.TARGET]) & feasible
    converged = reason == STOP_CODES[Stop.TOLERANCE]
    if total.agreement:  # a run that its limits have ended may be sure, too
        confidence = np.array([agreement.confidence for agreement in total.agreement])
        converged |= (reason != RUNNING) & (confidence >= SUCCESS_CONFIDENCE)
    return converged & feasible


def _read_confidence(total: Outcome, feasible: np.ndarray) -> np.ndarray | None:
    """Return how sure each run is of its answer, (R,); NaN without a feasible one, None without restarts."""
    if not total.agreement:
        return None
    return np.where(feasible, [agreement.confidence for agreement in total.agreement], np.nan)


def _knee_points(x: np.ndarray, fronts: list[Front], signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x (R, d) and objectives (R, m) at the knee of each run's front; of an empty one the least bad x and NaN."""
    x, fun = x.copy(), np.full((len(x), fronts[0].F.shape[1]), np.nan)
    for r, front in enumerate(fronts):
        if len(front):
            row = knee(front.F, signs)
            x[r], fun[r] = front.X[row], front.F[row]
    return x, fun


def _history(task: Task, total: Outcome, rows: np.ndarray | None) -> History:
    """History (R, G) from the engine's rows (R, G, columns)."""
    assert rows is not None
    rows = rows if rows.flags.writeable else rows.copy()  # what is fetched from a device is not the user's to change
    record = Record.unpack(rows, task.columns._replace(shape=_known_shape(task, total)), HISTORY_FIRST_COLUMN)
    best, mean, worst = (task.signs * values for values in (record.best, record.mean, record.worst))
    if best.shape[-1] == 1:
        best, mean, worst = best[..., 0], mean[..., 0], worst[..., 0]
    evaluations = record.evaluations  # by generation; the same in all runs, unless their populations change size
    is_uniform = bool((evaluations == evaluations[:1]).all())
    nfev = np.cumsum(np.asarray(evaluations[:1] if is_uniform else evaluations, np.int64), axis=1)
    return History(
        generation=np.arange(1, rows.shape[1] + 1),
        nfev=nfev[0] if is_uniform else nfev,
        best=best,
        mean=mean,
        worst=worst,
        violation=record.violation,
        feasible_share=record.feasible_share,
        x=None if record.x is None else task.decode(np.asarray(record.x)),
        hypervolume=record.hypervolume,
        hypervolume_error=record.hypervolume_error,
    )


def _known_shape(task: Task, total: Outcome) -> Shape:
    """Return the shape with the number of objectives, which for a black box is known only after the run."""
    objectives = next(iter(total.populations.values())).population.objectives.shape[-1]
    return task.shape._replace(objectives=objectives)


def _message(
    task: Task, total: Outcome, best: int, stop: Stop, violation: float, front: Front | None, population: Population
) -> str:
    """Return the message of a Result: why it ended. population: the survivors of the best run."""
    track, signs = total.track, task.signs
    limits = (task.budget.generations, task.evaluation_limit)
    evaluations = int(track.evaluations[best] - track.skipped[best])
    why = stop.sentence(int(track.generations[best]), task.rules, task.options.max_seconds, limits, evaluations)
    if stop is Stop.TARGET and isinstance(total.polish, Polish) and total.polish.evaluations[best]:
        why = f"Target reached by the polish after generation {int(track.generations[best]):,}."
    if stop is Stop.FAILURES:
        return why
    if total.agreement:
        agreeing, n_searches, confidence = total.agreement[best]
        evidence = f"{agreeing} of {n_searches} searches found the same best value"
        if stop is Stop.TOLERANCE:
            why = f"Converged: {evidence} (generation {int(track.generations[best]):,})."
        elif stop in (Stop.BUDGET, Stop.STALL) and math.isinf(task.rules.target) and confidence >= SUCCESS_CONFIDENCE:
            why += f" {evidence[0].upper()}{evidence[1:]}."
    if total.by_method:
        why += f" {_methods_sentence(name_methods(task.solvers[0]), total.by_method[best])}"
    if stop is Stop.ELSEWHERE:
        why = _elsewhere_sentence(task, total, best, population)
    elif stop is Stop.TOLERANCE and isinstance(total.polish, Polish) and total.polish.converged[best]:
        why = f"{why.rstrip('.')}, and the polish of its best point converged, too."
    if len(track.best) < task.runs:
        why += f" Only {len(track.best)} of {task.runs} runs were started."
    if not np.isfinite(track.best[best]):
        return why + " No point has a finite value."
    if not violation <= 0:
        if track.violation[best] <= 0:
            return why + (
                f" x is feasible in {task.dtype}, but in float64 its total constraint violation is {violation:.3g}: "
                'use dtype="float64".'
            )
        return why + f" No feasible point was found; the total constraint violation of x is {violation:.3g}."
    if total.estimate is not None and total.estimate.values_at_x is not None:
        first, second = task.sign * total.estimate.values_at_x[best]
        if np.isfinite(first):
            return why + (
                f" fun is random: at x it returned {first:.6g}, and {second:.6g} when it was called there again. The "
                "best of many random values is a lucky one: give noisy=True for a point of low mean."
            )
        return why
    if total.estimate is not None and np.isfinite(total.estimate.interval[best]).all():
        return why + " fun is the mean at x, estimated from evaluations after the search."
    if total.estimate is not None:
        return why + " x was not evaluated again, so that fun is no estimate of its mean."
    if task.rules.reference is not None and front is not None and len(front):
        n_outside = int((signs * front.F >= task.rules.reference).any(axis=1).sum())
        if n_outside:
            why += (
                f" {n_outside} of the {len(front)} points on the front lie beyond the reference point "
                f"({', '.join(f'{r:g}' for r in signs * task.rules.reference)}) and contribute nothing to the "
                "hypervolume."
            )
    return why


def _methods_sentence(names: tuple[str, ...], evaluations: list[int]) -> str:
    """Return which methods ran, the one with the most evaluations first."""
    used = sorted(zip(evaluations, names, strict=True), reverse=True)
    return f"Evaluations: {', '.join(f'{count:,} for {name}' for count, name in used if count)}."


def _elsewhere_sentence(task: Task, total: Outcome, best: int, population: Population) -> str:
    """Return the message of a search that converged to a worse point than the best it had sampled."""
    values = np.asarray(population.fitness)[1:]  # in the first place is the best ever
    value, generation = task.sign * float(np.median(values[np.isfinite(values)])), int(total.track.generations[best])
    return (
        f"Converged to {value:.8g} at another point in generation {generation:,}. x is the best "
        f"point evaluated{_best_sampled_in(task, total, best)}, and not known to be a minimum: refine or search again "
        "from it (x0=result.x), or use restarts."
    )


def _best_sampled_in(task: Task, total: Outcome, best: int) -> str:
    """Return in which generation the best point was sampled, as part of a sentence; "" without history."""
    if total.history is None:
        return ""
    rows = of_run(total.history, best)[:, : int(total.track.generations[best])]
    values = Record.unpack(rows, task.columns, HISTORY_FIRST_COLUMN).best[0, :, 0]
    return f" (sampled in generation {int(np.argmax(values == values[-1])) + 1})"


def _constant_objective_note(history: History | None, runs: Runs, box: BlackBox | None, n_survivors: int) -> str:
    """Return the remark that all values are equal, or "". history: of the best run, whose values are those of the
    survivors: a single one says nothing of the others.
    """
    if history is None or history.best.ndim > 1 or int(np.max(history.nfev)) < MIN_CONSTANT_POINTS:
        return ""
    is_finite = np.isfinite(history.worst)
    values = np.concatenate([history.best[is_finite], history.worst[is_finite], runs.fun[np.isfinite(runs.fun)]])
    if not len(values) or (values != values[0]).any():
        return ""
    if box is not None:
        calls = box.log.table(box.widths).values["fun"]
        if (calls[np.isfinite(calls)] != values[0]).any():
            return ""
    elif n_survivors == 1:
        return ""
    return f" Every evaluation returned {values[0]:g}: check that the objective depends on x."


def settings_of(task: Task) -> dict[str, object]:
    """Return everything needed to repeat a call, as plain values: every option by name, and what was chosen."""
    limit, solver = int(task.rules.generations), task.solvers[0]
    return plain_options(task.options) | {
        "problem": task.problem.name,
        "algorithm": algorithms.algorithm_name(solver),
        "population": task.population,
        "hyperparameters": algorithms.plain_settings(solver),
        "generations": None if limit == UNLIMITED else limit,
        "tolerance": float(task.rules.tolerance),
        "restarts": None if task.restarts is None else task.restarts.name,
        "x0": None if task.initial is None else task.decode(task.initial).tolist(),
        "initial": None if task.known is None else f"{len(task.known.x)} known values",
        "runs": task.runs,
        "first_run": task.first_run,
        "device": devices.device_name(),
        "versions": versions(),
    }


def plain_options(options: Options) -> dict[str, object]:
    """Return every option by name, as plain values."""
    return {name: _to_json_value(read(options, name)) for name in LEAVES}


JSON_TYPES = (bool, int, float, str, list)


def _to_json_value(value: object) -> Any:
    """Return a value that JSON can represent."""
    if value is None or isinstance(value, JSON_TYPES):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.generic):
        return value.item()
    return abbreviate(value)


def versions() -> dict[str, str]:
    return {
        "galapax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
