"""After the search: the polish of each run's best point, and the estimate of its value where the objective is random.

The polish refines by the gradient, where there is one and it pays. The estimate chooses the answer of a run of a random
objective and evaluates it again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError, OutOfMemory
from galapax.core.problem import HISTORY_FIRST_COLUMN, Columns, Population, Problem, Record
from galapax.core.restarts import SAME_VALUE_RESOLUTIONS, Agreement, value_resolution
from galapax.core.stop import STOP_CODES, UNLIMITED, Stop
from galapax.execution.arguments import (
    MAX_CPU_SLICE_RUNS,
    MAX_CPU_SLICE_VALUES,
    is_out_of_memory,
    pad_slice_width,
    rechecks_answer,
)
from galapax.execution.search import LastSamples
from galapax.execution.state import Estimate, Outcome, Polish, to_host
from galapax.execution.task import NOISY_SEARCH_SHARE, Task
from galapax.local.lbfgs import MAX_STORED_PAIRS_LBFGS
from galapax.local.refine import (
    BoxDescents,
    RefinedRuns,
    begin_in_box,
    evaluate_gradients,
    min_evaluations,
    refine_in_box,
    refine_under_constraints,
    step_in_box,
)
from galapax.metrics import indicators
from galapax.numerics import devices, random
from galapax.numerics.compile_cache import PROGRAMS, STEPS, CompileTimer, Program, ProgramCall
from galapax.objective.blackbox import BlackBox
from galapax.objective.traced import PROBE_ROWS, Formulas, Traced, evaluate_points

if TYPE_CHECKING:
    from galapax.local.noise import Answer, Evaluations


# evaluations that the polish of a run may take without max_evaluations: the larger of both
MIN_POLISH_EVALUATIONS, POLISH_EVALUATIONS_PER_VARIABLE = 1000, 100
EXHAUSTED_MARGIN = 10  # a polish with no more evaluations left than these ran out of them
MAX_SLICE_RUNS = 1024  # on an accelerator


def refine_best_points(
    task: Task,
    clock: CompileTimer,
    outcome: Outcome,
    max_evaluations: np.ndarray,
    may_continue: Callable[[], bool],
) -> Polish:
    """Refine the best point of each run, with at most max_evaluations (R,).

    They are computed in slices of one size, whatever R is, so that each is the same to the last bit whichever runs are
    beside it. may_continue: called before every slice; once it returns False, the other runs stay as they are.
    """
    x, best, violation = outcome.x, outcome.track.best, outcome.track.violation
    runs = len(x)
    flags = np.zeros(runs, bool), np.ones(runs, bool), np.zeros(runs, bool)
    polish = Polish(x.copy(), best.copy(), violation.copy(), np.zeros(runs), np.zeros(runs, np.int64), *flags)
    is_usable = np.isfinite(best) & (max_evaluations >= min_evaluations(task.shape))
    rows, size = np.flatnonzero(is_usable), _slice_width(task)
    for batch in (rows[i : i + size] for i in range(0, len(rows), size)):
        if not may_continue():
            break
        padded = np.concatenate([batch, np.repeat(batch[:1], size - len(batch))])
        try:
            refined = refine_slice(task, clock, x[padded], max_evaluations[padded])
        except (jax.errors.JaxRuntimeError, OutOfMemory) as error:
            if not is_out_of_memory(error):
                raise
            warnings.warn("Not enough memory to refine the best points by their gradients.", stacklevel=2)
            break
        new = jax.tree.map(lambda a: a[: len(batch)], refined)  # noqa: B023 (used at once)
        is_preferred = new.value < best[batch]
        if _projects_equalities(task):  # onto h = 0, which `refine` prefers to a point at the edge of the tolerance
            is_preferred |= (new.x != x[batch].astype(new.x.dtype)).any(axis=1)
        better = (new.violation < violation[batch]) | ((new.violation == violation[batch]) & is_preferred)
        polish.x[batch] = np.where(better[:, None], new.x, x[batch])
        polish.best[batch] = np.where(better, new.value, best[batch])
        polish.violation[batch] = np.where(better, new.violation, violation[batch])
        polish.expected_gain[batch] = np.where(better, new.expected_gain, 0)
        polish.evaluations[batch], polish.better[batch], polish.smooth[batch] = new.evaluations, better, new.smooth
        polish.converged[batch] = new.smooth & (new.evaluations < max_evaluations[batch] - EXHAUSTED_MARGIN)
    return polish


def refine_slice(task: Task, clock: CompileTimer, x: np.ndarray, max_evaluations: np.ndarray) -> RefinedRuns:
    """Refine x (R, d), as many points as always, each with at most max_evaluations (R,)."""
    whole = _refinement_program(task, x, max_evaluations)
    if task.shape.constrained:
        return cast(RefinedRuns, jax.device_get(clock.program(whole)(*whole.arguments)))
    steps = devices.on_cpu() and STEPS.program(whole, clock, lambda: whole) is None
    state = _refine_by_steps(clock, whole) if steps else clock.program(whole)(*whole.arguments)
    state = cast(BoxDescents, jax.device_get(state))
    formulas, descent = task.objective, state.descent
    assert isinstance(formulas, Formulas) and task.consts is not None
    x_end = np.asarray(descent.x)
    end = evaluate_points(Traced(formulas, task.consts), x_end, task.dtype, max(len(x), PROBE_ROWS))
    violation, expected_gain = np.where(end.failed, np.inf, 0), -np.sum(descent.path * descent.slope, axis=1)
    return RefinedRuns(x_end, end.fitness, violation, state.spent, state.smooth, expected_gain)


def _refinement_program(task: Task, x: np.ndarray, max_evaluations: np.ndarray) -> ProgramCall:
    dtype = np.dtype(task.dtype)
    bounds, limit = task.problem.bounds.round_inwards(dtype), np.minimum(max_evaluations, 2**31 - 1).astype(np.int32)
    arguments = task.consts, bounds, x.astype(dtype), limit
    if task.shape.constrained:
        return ProgramCall(refine_under_constraints, (task.objective,), arguments)
    return ProgramCall(refine_in_box, (task.objective,), (*arguments, np.asarray(task.rules.target, dtype)))


def _refine_by_steps(clock: CompileTimer, whole: ProgramCall) -> BoxDescents:
    """Compute `refine_in_box` by one program for an evaluation and one for the step after it, with the same bits."""
    consts, bounds, x, limit, target = whole.arguments
    begin, evaluate, step = _step_programs(clock, whole)
    state: BoxDescents = begin(x, limit)
    with STEPS.timing(whole, clock):
        while np.asarray(state.is_active).any():
            state = step(state, evaluate(consts, state.descent.trial, limit), bounds, limit, target, np.int32(1))
    return state


def _step_programs(clock: CompileTimer, whole: ProgramCall) -> Iterator[Program]:
    """Yield the programs that begin descents, evaluate their trials, and continue; the second alone is the user's."""
    consts, bounds, x, limit, target = whole.arguments
    begin = clock.program(ProgramCall(begin_in_box, (), (x, limit)))
    yield begin
    state = begin.zeros_like_output()
    evaluate = clock.program(ProgramCall(evaluate_gradients, whole.static, (consts, state.descent.trial, limit)))
    yield evaluate
    arguments = (state, evaluate.zeros_like_output(), bounds, limit, target, np.int32(1))
    yield clock.program(ProgramCall(step_in_box, (), arguments, donate=(0,)))


def precompile_if_expected(task: Task) -> None:
    """Compile the polish in the background, beside the generations, where it is likely to be needed.

    That is where generations are limited, so that the run may not converge, and no target would end it. Elsewhere the
    background thread would only delay what is needed first.
    """
    if task.rules.generations != UNLIMITED and task.rules.target == -math.inf and not task.problem.constrained:
        PROGRAMS.precompile(lambda: precompile_polish(task), when_compiling=True)


def precompile_polish(task: Task) -> Iterator[object]:
    """Compile the polish, unless it is off, impossible, or being compiled by another thread."""
    if task.options.polish is False or why_not_polishable(task) is not None:
        return
    size, clock = _slice_width(task), CompileTimer(waits=False)
    whole = _refinement_program(task, np.zeros((size, task.problem.dim)), np.zeros(size, np.int64))
    if task.shape.constrained or not devices.on_cpu():
        yield clock.program(whole)
    elif PROGRAMS.find(whole) is None:
        yield from _step_programs(clock, whole)


def polish_answers(
    task: Task, clock: CompileTimer, total: Outcome, may_continue: Callable[[], bool] = lambda: True
) -> Outcome:
    """Refine the best points of a task's runs, where that is requested and possible, and return the new outcome."""
    if task.options.polish is False:
        return total
    why = why_not_polishable(task)
    if why is None and total.stopped is not None:
        why = "the runs were stopped"
    if why is not None:
        return replace(total, polish=f"not tried, because {why}")
    track = total.track
    budget = polish_budget(task, track.evaluations, track.reason)
    if not (budget >= min_evaluations(task.shape)).any():
        is_exhausted = task.options.polish is True or not np.isin(track.reason, _CONVERGED).all()
        reason = "no evaluations were left" if is_exhausted else "the runs had already converged or reached the target"
        return replace(total, polish=f"not tried, because {reason}")
    return apply_polish(task, total, refine_best_points(task, clock, total, budget, may_continue))


_CONVERGED = [STOP_CODES[Stop.TARGET], STOP_CODES[Stop.TOLERANCE]]


def polish_budget(task: Task, evaluations: np.ndarray, reason: np.ndarray) -> np.ndarray:
    """Return how many evaluations the polish of each run may take, (R,).

    What max_evaluations leaves, or without it as many as the run took, at least 100 for each variable. 0 for a run that
    reached its target; and under "auto" 0 for one that has converged.
    """
    max_evaluations = task.budget.evaluations
    least = max(MIN_POLISH_EVALUATIONS, POLISH_EVALUATIONS_PER_VARIABLE * task.problem.dim)
    remaining = np.maximum(evaluations, least) if max_evaluations is None else max_evaluations - evaluations
    is_done_when_converged = task.options.polish == "auto" and not _projects_equalities(task)
    finished_codes = _CONVERGED if is_done_when_converged else _CONVERGED[:1]
    return np.where(np.isin(reason, finished_codes), 0, remaining)


def _projects_equalities(task: Task) -> bool:
    """Return whether the polish moves points onto the equalities, whose tolerance is the default."""
    return isinstance(task.objective, Formulas) and task.objective.aims_at_zero and task.shape.eq > 0


def apply_polish(task: Task, total: Outcome, polish: Polish) -> Outcome:
    """Return the outcome with the polished x, value, violation and evaluations, and one more row of history."""
    track = total.track
    if not polish.evaluations.any():
        return replace(total, polish="not tried, because the runs were stopped, or memory was not enough")
    reached_target = polish.better & (polish.best <= task.rules.target) & (polish.violation <= 0)
    # the search had converged, to another point, and now the answer has, too
    converged = polish.converged & (track.reason == STOP_CODES[Stop.ELSEWHERE])
    reason = np.where(converged, STOP_CODES[Stop.TOLERANCE], track.reason)
    new_track = track._replace(
        best=polish.best,
        violation=polish.violation,
        evaluations=track.evaluations + polish.evaluations,
        reason=np.where(reached_target, STOP_CODES[Stop.TARGET], reason),
    )
    rows = to_host(total.history)
    history = None
    if rows is not None:
        changes = (polish.evaluations, polish.better, polish.best, polish.x, polish.violation)
        history = append_history_row(rows, task.columns, track.generations, *changes)
        refinements = [
            [*rows, int(n)] if n_evaluations else rows
            for rows, n, n_evaluations in zip(total.refinements, track.generations, polish.evaluations, strict=True)
        ]
    agreement = total.agreement
    if agreement:  # of a point that was no minimum yet, no search has found what follows from it
        eps = float(np.finfo(task.dtype).eps)
        columns = zip(agreement, track.best, track.mean, polish.best, strict=True)
        agreement = [
            before
            if best - polished_best <= SAME_VALUE_RESOLUTIONS * value_resolution(best, mean, eps)
            else Agreement(0, before.searches, 0.0)
            for before, best, mean, polished_best in columns
        ]
    return replace(
        total, track=new_track, x=polish.x, history=history, polish=polish, refinements=refinements,
        agreement=agreement,
    )  # fmt: skip


def append_history_row(
    history: np.ndarray,
    columns: Columns,
    n_generations: np.ndarray,
    evaluations: np.ndarray,
    is_changed: np.ndarray,
    best: np.ndarray,
    x: np.ndarray,
    violation: np.ndarray | None = None,
) -> np.ndarray:
    """Append what followed the search to the history: (R, G + 1, columns), after each run's n_generations (R,) rows.

    evaluations: that it took. best, x, violation: of the answers that `is_changed` (R,).
    """
    extended = np.concatenate([history, history[:, -1:]], axis=1)
    last = extended[np.arange(len(n_generations)), n_generations - 1]  # (R, columns)
    record = Record.unpack(last, columns, HISTORY_FIRST_COLUMN)  # views
    record.evaluations[:] = evaluations
    record.best[:, 0] = np.where(is_changed, best, record.best[:, 0])
    if record.violation is not None and violation is not None:
        record.violation[:] = np.where(is_changed, violation, record.violation)
    if record.x is not None:
        record.x[:] = np.where(is_changed[:, None], x, record.x)
    number = np.arange(extended.shape[1])[None, :]
    extended = np.where((number >= n_generations[:, None])[:, :, None], last[:, None, :], extended)
    Record.unpack(extended, columns, HISTORY_FIRST_COLUMN).evaluations[number > n_generations[:, None]] = (
        0  # a run that is over takes no more
    )
    return extended


def _slice_width(task: Task) -> int:
    """Return how many runs a slice has; on a CPU that depends on the size of the problem alone."""
    formulas = task.objective
    assert isinstance(formulas, Formulas)
    if formulas.together:
        return formulas.together
    if task.is_single_run:
        return 1
    if devices.on_cpu():
        return 2 ** int(
            math.log2(
                max(1, min(MAX_CPU_SLICE_RUNS, MAX_CPU_SLICE_VALUES // (MAX_STORED_PAIRS_LBFGS * task.problem.dim)))
            )
        )
    return min(task.total if task.restarts is None else pad_slice_width(task.total), MAX_SLICE_RUNS)


def check_polish(task: Task) -> None:
    """Refuse polish=True where it cannot be done."""
    why = why_not_polishable(task) if task.options.polish is True else None
    if why is not None:
        raise InputError(f'polish=True needs gradients of one objective, and {why}: use "auto".')


def why_not_polishable(task: Task) -> str | None:
    """Return why the best points of a task cannot be refined by their gradients; None if they can."""
    if task.options.blackbox:
        return "a black box has no gradient"
    if task.options.noisy:
        return "the objective is random"
    if task.shape.objectives > 1:
        return "there are several objectives"
    if not isinstance(task.problem, Problem) or not isinstance(task.objective, Formulas):
        return "it is a min-max problem"
    if task.problem.space is not None and task.problem.space.discrete.all():
        return "no variable is real"
    if task.shape.constrained and task.dtype == "float32":
        return "constraints need float64"
    if not _is_differentiable(task):
        return "JAX cannot differentiate the functions in reverse"
    return None


# the primitives of nearly all objectives, each with a reverse-mode gradient; finding that out by tracing takes a while
DIFFERENTIABLE_PRIMITIVES = frozenset({
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "broadcast_in_dim", "ceil", "clamp",
    "concatenate", "convert_element_type", "copy", "cos", "cosh", "cumprod", "cumsum", "div", "dot_general",
    "dynamic_slice", "eq", "erf", "exp", "exp2", "expm1", "floor", "gather", "ge", "gt", "integer_pow", "iota",
    "jit", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "pad", "pjit", "pow",
    "reduce_max", "reduce_min", "reduce_prod", "reduce_sum", "reshape", "rev", "round", "rsqrt", "select_n", "sign",
    "sin", "sinh", "slice", "split", "sqrt", "square", "squeeze", "sub", "tan", "tanh", "transpose",
})  # fmt: skip


def _is_differentiable(task: Task) -> bool:
    """Return whether JAX can differentiate the functions: not a callback, nor a loop with a dynamic trip count."""
    formulas, consts = task.objective, task.consts
    assert isinstance(formulas, Formulas) and consts is not None
    if formulas.primitives <= DIFFERENTIABLE_PRIMITIVES:
        return True
    rows = formulas.together or 1
    try:
        with jax.enable_x64(task.dtype == "float64"):
            x_spec = jax.ShapeDtypeStruct((rows, task.problem.dim), task.dtype)
            jax.eval_shape(jax.grad(lambda x: jnp.sum(formulas.facts(consts, x))), x_spec)
    except Exception:  # what a user's own derivative raises, too
        return False
    return True


# --- the estimate of a random objective -------------------------------------------------------------------------------


MIN_ESTIMATE_EVALUATIONS = 100  # of the estimate, where nothing limits a run's evaluations
BLOCK_ROWS = 128  # points that a compiled objective evaluates at once
RECHECK_TOLERANCE = 1e-8  # relative difference of two values at one point up to which it may be rounding
MIN_REPEATS, MAX_REPEATS_AT_ANSWER = 10, 100  # evaluations at an answer whose values were found to be random
MODEL_POINTS_PER_TERM = 4  # of a diagonal quadratic, whose residuals are the noise
MAX_REPEATS = 2000  # evaluations at the answer of a run that had converged, which has no noise there


def estimate_answers(
    task: Task,
    total: Outcome,
    numbers: np.ndarray,
    box: BlackBox | None,
    may_continue: Callable[[], bool] = lambda: True,
) -> Outcome:
    """Return the outcome with x, value, interval and evaluations of the estimates, if the objective is random.

    numbers: (R,) of the runs, on which their random draws depend. Runs that may not continue keep their best point,
    whose value is a lucky one, and have no interval.
    """
    if not task.options.noisy:
        return total
    if total.fronts:
        return _estimate_fronts(task, total, numbers, box, may_continue)
    assert total.last is not None
    track, n_runs = total.track, len(total.x)
    budget = _estimate_budget(task, track.evaluations)
    means, intervals = np.full(n_runs, math.nan), np.full((n_runs, 2), math.nan)
    merit = np.full(n_runs, math.nan)
    x, evaluations, failed = total.x.copy(), np.zeros(n_runs, np.int64), np.zeros(n_runs, np.int64)
    for row in range(n_runs):
        if total.stopped not in (None, Stop.TIME) or not may_continue() or budget[row] < 1:
            continue
        evaluator = _Evaluator(task, box, int(numbers[row]), may_continue)
        last: LastSamples = jax.tree.map(lambda a: np.asarray(a)[row], total.last)  # noqa: B023 (used at once)
        converged = track.reason[row] == STOP_CODES[Stop.TOLERANCE]
        answer = evaluator.drive(_plan(task, last, total.x[row], int(budget[row]), converged, evaluator.rng))
        evaluations[row], failed[row] = evaluator.n_evaluations, evaluator.n_failed
        if answer is not None and math.isfinite(answer.mean):
            x[row], means[row], intervals[row] = _from_unit(task, answer.x), answer.mean, answer.interval
            # the least of several means is a lucky one, unless they have no noise: other values choose the best run
            is_exact = answer.interval[0] == answer.interval[1]
            merit[row] = answer.mean if is_exact else answer.compared_mean
    is_estimated = np.isfinite(means)
    best = np.where(is_estimated, means, track.best)
    # the search stops by its generations' means; what counts is the estimate
    codes = [STOP_CODES[Stop.TARGET], STOP_CODES[Stop.ELSEWHERE]]
    reason = np.where(track.reason == codes[0], STOP_CODES[Stop.BUDGET], track.reason)
    reason = np.where(reason == codes[1], STOP_CODES[Stop.TOLERANCE], reason)
    reason = np.where(is_estimated & (best <= task.rules.target), codes[0], reason)
    rows = to_host(total.history)
    new_track = track._replace(
        best=best, evaluations=track.evaluations + evaluations, failed=track.failed + failed, reason=reason
    )
    history, refinements = None, total.refinements
    if rows is not None:
        history = append_history_row(rows, task.columns, track.generations, evaluations, is_estimated, best, x)
        refinements = [[*earlier, int(n)] for earlier, n in zip(refinements, track.generations, strict=True)]
    merit = np.where(np.isfinite(merit), merit, track.best)
    merit[~is_estimated & is_estimated.any()] = math.inf  # a run for whose estimate no time was left
    estimate = Estimate(intervals, evaluations, merit)
    return replace(total, track=new_track, x=x, history=history, refinements=refinements, estimate=estimate)


def _estimate_fronts(
    task: Task, total: Outcome, numbers: np.ndarray, box: BlackBox | None, may_continue: Callable[[], bool]
) -> Outcome:
    """Evaluate the points of each run's front again and again: their objectives are the means of these values alone,
    and what they show to be dominated is left out.
    """
    budget = _estimate_budget(task, total.track.evaluations)
    fronts, hypervolume = list(total.fronts), total.track.hypervolume.copy()
    evaluations, failed = np.zeros(len(fronts), np.int64), np.zeros(len(fronts), np.int64)
    for row, front in enumerate(fronts):
        n_points = len(front.x)
        repeats = min(int(budget[row]) // max(1, n_points), MAX_REPEATS)
        if repeats < 1 or not n_points or total.stopped not in (None, Stop.TIME) or not may_continue():
            continue
        evaluator = _Evaluator(task, box, int(numbers[row]), may_continue)
        values = evaluator.evaluate_all(np.repeat(_to_unit(task, np.asarray(front.x)), repeats, axis=0))
        evaluations[row], failed[row] = evaluator.n_evaluations, evaluator.n_failed
        by_point = values.reshape(n_points, repeats, -1)
        n_valid = np.isfinite(by_point).all(axis=2).sum(axis=1)
        if not n_valid.all():
            continue
        means = np.nanmean(by_point, axis=1)
        rows = np.flatnonzero(indicators.non_dominated(means))
        fronts[row] = Population(*(None if column is None else np.asarray(column)[rows] for column in front))  # type: ignore[arg-type]
        fronts[row] = fronts[row]._replace(objectives=means[rows])
        if task.rules.reference is not None:
            hypervolume[row] = indicators.hypervolume(means[rows], task.rules.reference)
    track = total.track._replace(
        evaluations=total.track.evaluations + evaluations,
        failed=total.track.failed + failed,
        hypervolume=hypervolume,
    )
    return replace(total, track=track, fronts=fronts, history=_add_to_last_row(task, total, evaluations))


def _add_to_last_row(task: Task, total: Outcome, evaluations: np.ndarray) -> np.ndarray | None:
    """Return the history with further evaluations (R,) in the last row of each run."""
    history = to_host(total.history)
    if history is None:
        return None
    history = history.copy()
    counts = Record.unpack(history, task.columns, HISTORY_FIRST_COLUMN).evaluations
    counts[np.arange(len(evaluations)), total.track.generations - 1] += evaluations
    return history


def recheck_answers(task: Task, total: Outcome, numbers: np.ndarray, box: BlackBox | None) -> Outcome:
    """Evaluate the answers of a black box once more, where there are evaluations for it; if the values differ by more
    than rounding, the objective is random, and the value is one that was not selected, with an interval.

    numbers: (R,) of the runs.
    """
    limit, track = task.evaluation_limit, total.track
    if box is None or limit is None or total.stopped is not None or total.fronts:
        return total
    if not rechecks_answer(task.solvers[0], task.options, limit):
        return total
    rows = np.flatnonzero(np.isfinite(track.best) & (track.evaluations < limit))
    if not len(rows) or box.interrupted or box.halt_reason:
        return total
    second, reached = _call(box, total.x[rows], numbers[rows])
    first, rounded = track.best[rows], second.astype(task.dtype)  # the run rounded the first one, too
    is_random = np.abs(rounded - first) > RECHECK_TOLERANCE * np.maximum(np.abs(second), np.abs(first))  # not for NaN
    evaluations, failed = track.evaluations.copy(), track.failed.copy()
    evaluations[rows] += reached
    failed[rows] += reached & np.isnan(second)
    best, reason = track.best.copy(), track.reason.copy()
    values_at_x, intervals = np.full((len(best), 2), math.nan), np.full((len(best), 2), math.nan)
    for i in np.flatnonzero(is_random):
        row = rows[i]
        values_at_x[row], values = (first[i], second[i]), second[i : i + 1]
        count = min(MAX_REPEATS_AT_ANSWER, limit - int(evaluations[row]))
        if count >= MIN_REPEATS:
            more, reached = _call(box, np.repeat(total.x[row : row + 1], count, axis=0), np.full(count, numbers[row]))
            evaluations[row] += int(reached.sum())
            values = np.concatenate([values, more])
        best[row], intervals[row] = _estimate_value(task, box, total.x[row], values)
        reason[row] = STOP_CODES[Stop.BUDGET]
    history = _add_to_last_row(task, total, evaluations - track.evaluations)
    new_track = track._replace(best=best, evaluations=evaluations, failed=failed, reason=reason)
    if not is_random.any():
        return replace(total, track=new_track, history=history)
    estimate = Estimate(intervals, evaluations - track.evaluations, track.best, values_at_x)
    return replace(total, track=new_track, history=history, estimate=estimate)


def _call(box: BlackBox, x: np.ndarray, runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a black box at x (n, d), NaN where it failed, and which were reached, as 0 or 1.

    runs: (n,) the numbers of the runs that ask.
    """
    values = box(np.asarray(x, np.float64), runs).get("fun", np.full((len(x), 1), np.nan))[:, 0]
    box.complete_generation()
    return np.where(np.isfinite(values), values, np.nan), (~box.missed).astype(np.int64)


def _estimate_value(task: Task, box: BlackBox, x: np.ndarray, values: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Return the mean at x with its interval, from fresh values there and, if they are few, the noise around."""
    from galapax.local.noise import fit_quadratic, half_width, mean_and_interval

    mean, interval = mean_and_interval(values)
    table, dim = box.log.table(box.widths), len(x)
    unit = (table.points - x) / task.problem.bounds.span
    count = MODEL_POINTS_PER_TERM * (2 * dim + 1)
    if len(values) >= MIN_REPEATS or len(unit) < count:
        return mean, interval
    nearest = np.argsort(np.sum(unit**2, axis=1), kind="stable")[:count]
    z, near = unit[nearest], table.values["fun"][nearest, 0]
    is_usable = np.isfinite(near)
    scale = z.std(axis=0)
    if is_usable.sum() < count / 2 or not (scale > 0).all():
        return mean, interval
    noise = fit_quadratic(z[is_usable] / scale, near[is_usable]).noise
    half = half_width(noise / math.sqrt(len(values)), int(is_usable.sum()) - 2 * dim - 1)
    return mean, (mean - half, mean + half)


def _estimate_budget(task: Task, evaluations: np.ndarray) -> np.ndarray:
    """Return how many evaluations the estimate of each run may take: what max_evaluations leaves, or without it the
    share that it would leave.
    """
    if task.budget.evaluations is not None:
        return np.maximum(0, task.budget.evaluations - evaluations)
    share = (1 - NOISY_SEARCH_SHARE) / NOISY_SEARCH_SHARE
    return np.maximum(MIN_ESTIMATE_EVALUATIONS, (share * evaluations).astype(np.int64))


def _plan(
    task: Task, last: LastSamples, x: np.ndarray, budget: int, converged: bool, rng: np.random.Generator
) -> Evaluations:
    """Return the evaluations that find and estimate the answer of a run. x: its best point."""
    from galapax.local.noise import find_answer  # with scipy, which few runs need

    space = task.problem.space
    feasible = np.asarray(last.points)[np.asarray(last.violation) <= 0]
    finalists = _to_unit(task, feasible if len(feasible) else x[None])
    if converged:  # where all samples are one point, there is nothing to choose
        return find_answer(finalists[0], None, finalists[:1], min(budget, MAX_REPEATS), rng)
    is_continuous = not task.shape.constrained and (space is None or not space.discrete.any())
    root = np.asarray(last.root, np.float64) if is_continuous else None
    if space is not None:
        finalists = np.unique(_to_unit(task, space.round_codes(_from_unit(task, finalists))), axis=0)
    rivals = np.zeros((0, len(x))) if last.rivals is None else np.unique(np.asarray(last.rivals, np.float64), axis=0)
    return find_answer(np.asarray(last.centre, np.float64), root, finalists, budget, rng, rivals)


def _to_unit(task: Task, x: np.ndarray) -> np.ndarray:
    bounds = task.problem.bounds
    return (np.asarray(x, np.float64) - bounds.lower) / bounds.span


def _from_unit(task: Task, unit: np.ndarray) -> np.ndarray:
    bounds = task.problem.bounds.round_inwards(np.dtype(task.dtype))
    x = np.asarray(bounds.lower + bounds.span * unit, task.dtype)
    return np.asarray(np.clip(x, bounds.lower, bounds.upper), np.float64)


class _Evaluator:
    """Evaluates points of the unit cube for one run, with fresh noise each time."""

    def __init__(self, task: Task, box: BlackBox | None, number: int, may_continue: Callable[[], bool]) -> None:
        self.task, self.box, self.may_continue = task, box, may_continue
        self.number = number
        self.rng = np.random.default_rng([task.seed, number, int(random.Stream.ESTIMATE)])
        (key,) = random.run_keys(task.seed, number, 1)
        self.key = key ^ np.uint32(random.Stream.ESTIMATE)
        self.n_evaluations = self.n_failed = 0

    def drive(self, plan: Evaluations) -> Answer | None:
        """Evaluate what a plan asks for; None where the run was stopped before its end."""
        try:
            points = next(plan)
            while self.may_continue():
                points = plan.send(self.evaluate(points))
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        return None

    def evaluate(self, unit: np.ndarray) -> np.ndarray:
        """Return the values of one objective, to be minimised, at points (n, d) of the unit cube; NaN where one
        failed.
        """
        return self.evaluate_all(unit)[:, 0]

    def evaluate_all(self, unit: np.ndarray) -> np.ndarray:
        """Return the objectives (n, m) in the same way."""
        points, task = _from_unit(self.task, unit), self.task
        if self.box is not None:
            missing = np.full((len(points), 1), np.nan)
            values = self.box(points, np.full(len(points), self.number)).get("fun", missing)
            self.n_evaluations += int((~self.box.missed).sum())
            self.n_failed += int((~np.isfinite(values).all(axis=1) & ~self.box.missed).sum())
            self.box.complete_generation()
        else:
            assert isinstance(task.objective, Formulas) and task.consts is not None
            traced = Traced(task.objective, task.consts)
            # numbered by evaluations, so that none shares its key with another
            key = np.array([self.key[0] + np.uint32(self.n_evaluations), self.key[1]], np.uint32)
            out = evaluate_points(traced, points, task.dtype, BLOCK_ROWS, key)
            values = np.where(np.asarray(out.failed)[:, None], np.nan, np.asarray(out.objectives))
            self.n_evaluations, self.n_failed = self.n_evaluations + len(points), self.n_failed + int(out.failed.sum())
        return np.where(np.isfinite(values), values, np.nan).astype(np.float64)
