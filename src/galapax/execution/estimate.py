"""The estimate: choose and evaluate the answer of each run of a random objective, after its search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from galapax.core.problem import HISTORY_FIRST_COLUMN, Record
from galapax.core.stop import STOP_CODES, Stop
from galapax.execution.arguments import rechecks_answer
from galapax.execution.polish import append_history_row
from galapax.execution.search import LastSamples
from galapax.execution.state import Estimate, Outcome, to_host
from galapax.execution.task import NOISY_SEARCH_SHARE, Task
from galapax.numerics import random
from galapax.objective.blackbox import BlackBox
from galapax.objective.traced import Formulas, Traced, evaluate_points

if TYPE_CHECKING:
    from galapax.local.noise import Answer, Evaluations

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
    assert total.last is not None
    track, n_runs = total.track, len(total.x)
    budget = _estimate_budget(task, track.evaluations)
    means, intervals = np.full(n_runs, math.nan), np.full((n_runs, 2), math.nan)
    x, evaluations, failed = total.x.copy(), np.zeros(n_runs, np.int64), np.zeros(n_runs, np.int64)
    for row in range(n_runs):
        if total.stopped not in (None, Stop.TIME) or not may_continue() or budget[row] < 1:
            continue
        evaluator = _Evaluator(task, box, int(numbers[row]), may_continue)
        last = LastSamples(*(np.asarray(part)[row] for part in total.last))
        converged = track.reason[row] == STOP_CODES[Stop.TOLERANCE]
        answer = evaluator.drive(_plan(task, last, total.x[row], int(budget[row]), converged, evaluator.rng))
        evaluations[row], failed[row] = evaluator.n_evaluations, evaluator.n_failed
        if answer is not None and math.isfinite(answer.mean):
            x[row], means[row], intervals[row] = _from_unit(task, answer.x), answer.mean, answer.interval
    is_estimated = np.isfinite(means)
    best = np.where(is_estimated, means, track.best)
    # the search stops by its generations' means; what counts is the estimate
    codes = [STOP_CODES[Stop.TARGET], STOP_CODES[Stop.ELSEWHERE]]
    reason = np.where(track.reason == codes[0], STOP_CODES[Stop.BUDGET], track.reason)
    reason = np.where(reason == codes[1], STOP_CODES[Stop.TOLERANCE], reason)
    reason = np.where(is_estimated & (best <= task.rules.target), codes[0], reason)
    rows = to_host(total.history)
    new_track = replace(
        track, best=best, evaluations=track.evaluations + evaluations, failed=track.failed + failed, reason=reason
    )
    history, refinements = None, total.refinements or [[] for _ in total.x]
    if rows is not None:
        history = append_history_row(rows, task.columns, track.generations, evaluations, is_estimated, best, x)
        refinements = [[*earlier, int(n)] for earlier, n in zip(refinements, track.generations, strict=True)]
    return replace(
        total, track=new_track, x=x, history=history, refinements=refinements, estimate=Estimate(intervals, evaluations)
    )


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
    if not len(rows) or box.interrupted or box.halted:
        return total
    again, reached = _call(box, total.x[rows], numbers[rows])
    first = track.best[rows]
    is_random = np.abs(again - first) > RECHECK_TOLERANCE * np.maximum(np.abs(again), np.abs(first))  # not for NaN
    evaluations, failed = track.evaluations.copy(), track.failed.copy()
    evaluations[rows] += reached
    failed[rows] += reached & np.isnan(again)
    best, reason = track.best.copy(), track.reason.copy()
    found, intervals = np.full((len(best), 2), math.nan), np.full((len(best), 2), math.nan)
    for i in np.flatnonzero(is_random):
        row = rows[i]
        found[row], values = (first[i], again[i]), again[i : i + 1]
        count = min(MAX_REPEATS_AT_ANSWER, limit - int(evaluations[row]))
        if count >= MIN_REPEATS:
            more, reached = _call(box, np.repeat(total.x[row : row + 1], count, axis=0), np.full(count, numbers[row]))
            evaluations[row] += int(reached.sum())
            values = np.concatenate([values, more])
        best[row], intervals[row] = _estimate_value(task, box, total.x[row], values)
        reason[row] = STOP_CODES[Stop.BUDGET]
    history = to_host(total.history)
    if history is not None:
        history = history.copy()
        evaluation_counts = Record.unpack(history, task.columns, HISTORY_FIRST_COLUMN).evaluations
        evaluation_counts[np.arange(len(best)), track.generations - 1] += evaluations - track.evaluations
    new_track = replace(track, best=best, evaluations=evaluations, failed=failed, reason=reason)
    if not is_random.any():
        return replace(total, track=new_track, history=history)
    estimate = Estimate(intervals, evaluations - track.evaluations, found)
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
    return find_answer(np.asarray(last.centre, np.float64), root, finalists, budget, rng)


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
        """Return the values, to be minimised, at points (n, d) of the unit cube; NaN where one failed."""
        points, task = _from_unit(self.task, unit), self.task
        if self.box is not None:
            values = self.box(points, np.full(len(points), self.number)).get("fun", np.full((len(points), 1), np.nan))[
                :, 0
            ]
            self.n_evaluations += int((~self.box.missed).sum())
            self.n_failed += int((~np.isfinite(values) & ~self.box.missed).sum())
            self.box.complete_generation()
        else:
            assert isinstance(task.objective, Formulas) and task.consts is not None
            traced = Traced(task.objective, task.consts)
            # numbered by evaluations, so that none shares its key with another
            key = np.array([self.key[0] + np.uint32(self.n_evaluations), self.key[1]], np.uint32)
            out = evaluate_points(traced, points, task.dtype, BLOCK_ROWS, key)
            values = np.where(out.failed, np.nan, np.asarray(out.objectives)[:, 0])
            self.n_evaluations, self.n_failed = self.n_evaluations + len(points), self.n_failed + int(out.failed.sum())
        return np.where(np.isfinite(values), values, np.nan).astype(np.float64)
