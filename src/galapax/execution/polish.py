"""The polish: refine the best point of each run by its gradient after the evolution, where there is one and it pays."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError, OutOfMemory
from galapax.core.problem import HISTORY_FIRST_COLUMN, Columns, Problem, Record
from galapax.core.restarts import SAME_VALUE_RESOLUTIONS, Agreement, value_resolution
from galapax.core.stop import STOP_CODES, UNLIMITED, Stop
from galapax.execution.memory import CACHED, MOST, is_out_of_memory
from galapax.execution.state import Outcome, Polish, to_host
from galapax.execution.task import Task
from galapax.local.lbfgs import MAX_STORED_PAIRS_LBFGS
from galapax.local.refine import RefinedRuns, min_evaluations, refine
from galapax.numerics import devices
from galapax.numerics.compile_cache import PROGRAMS, CompileTimer
from galapax.objective.traced import Formulas

# evaluations that the polish of a run may take without max_evaluations: the larger of both
MIN_POLISH_EVALUATIONS, POLISH_EVALUATIONS_PER_VARIABLE = 1000, 100
EXHAUSTED_MARGIN = 10  # a polish with no more evaluations left than these ran out of them
MAX_SLICE_RUNS = 1024  # on an accelerator


class PolishedRuns(NamedTuple):
    """The best points of R runs after the polish, never worse than before."""

    x: np.ndarray  # (R, d)
    best: np.ndarray  # (R,)
    violation: np.ndarray  # (R,)
    expected_gain: np.ndarray  # (R,), what another step would gain; 0 where none was made
    about: Polish


def run_polish(
    task: Task,
    clock: CompileTimer,
    x: np.ndarray,
    best: np.ndarray,
    violation: np.ndarray,
    max_evaluations: np.ndarray,
    may_continue: Callable[[], bool] = lambda: True,
) -> PolishedRuns:
    """Refine x (R, d) of values best (R,) and violation (R,), each with at most max_evaluations (R,).

    They are computed in slices of one size, whatever R is, so that each is the same to the last bit whichever runs are
    beside it. may_continue: called before every slice; once it returns False, the other runs stay as they are.
    """
    runs = len(x)
    about = Polish(np.zeros(runs, np.int64), np.zeros(runs, bool), np.ones(runs, bool), np.zeros(runs, bool))
    runs_out = PolishedRuns(x.copy(), best.copy(), violation.copy(), np.zeros(runs), about)
    is_usable = np.isfinite(best) & (max_evaluations >= min_evaluations(task.shape))
    rows, size = np.flatnonzero(is_usable), _slice_width(task)
    for batch in (rows[i : i + size] for i in range(0, len(rows), size)):
        if not may_continue():
            break
        padded = np.concatenate([batch, np.repeat(batch[:1], size - len(batch))])
        try:
            refined: RefinedRuns = clock.call(
                refine, (task.objective,), *_refine_arguments(task, x[padded], max_evaluations[padded])
            )
        except (jax.errors.JaxRuntimeError, OutOfMemory) as error:
            if not is_out_of_memory(error):
                raise
            warnings.warn("Not enough memory to refine the best points by their gradients.", stacklevel=2)
            break
        new = jax.tree.map(lambda a: np.asarray(a)[: len(batch)], refined)  # noqa: B023 (used at once)
        is_preferred = new.value < best[batch]
        if _projects_equalities(task):  # onto h = 0, which `refine` prefers to a point at the edge of the tolerance
            is_preferred |= (new.x != x[batch].astype(new.x.dtype)).any(axis=1)
        better = (new.violation < violation[batch]) | ((new.violation == violation[batch]) & is_preferred)
        runs_out.x[batch] = np.where(better[:, None], new.x, x[batch])
        runs_out.best[batch] = np.where(better, new.value, best[batch])
        runs_out.violation[batch] = np.where(better, new.violation, violation[batch])
        runs_out.expected_gain[batch] = np.where(better, new.expected_gain, 0)
        about.evaluations[batch], about.better[batch], about.smooth[batch] = new.evaluations, better, new.smooth
        about.converged[batch] = new.smooth & (new.evaluations < max_evaluations[batch] - EXHAUSTED_MARGIN)
    return runs_out


def _refine_arguments(task: Task, x: np.ndarray, max_evaluations: np.ndarray) -> tuple[Any, ...]:
    """Return the arguments of `refine`."""
    dtype = np.dtype(task.dtype)
    bounds, limit = task.problem.bounds.round_inwards(dtype), np.minimum(max_evaluations, 2**31 - 1).astype(np.int32)
    return task.consts, bounds, x.astype(dtype), limit, np.asarray(task.rules.target, dtype)


def precompile_if_expected(task: Task) -> None:
    """Compile the polish in the background, beside the generations, where it is likely to be needed.

    That is where generations are limited, so that the run may not converge, and no target would end it. Elsewhere the
    background thread would only delay what is needed first.
    """
    if task.rules.generations != UNLIMITED and task.rules.target == -math.inf and not task.problem.constrained:
        PROGRAMS.precompile(lambda: precompile_polish(task), when_compiling=True)


def precompile_polish(task: Task) -> Iterator[None]:
    """Compile the polish, unless it is off, impossible, or being compiled by another thread."""
    if task.options.polish is False or why_not_polishable(task) is not None:
        return
    size = _slice_width(task)
    arguments = _refine_arguments(task, np.zeros((size, task.problem.dim)), np.zeros(size, np.int64))
    CompileTimer(waits=False).program(refine, (task.objective,), arguments)
    yield


def polish(task: Task, clock: CompileTimer, total: Outcome, may_continue: Callable[[], bool] = lambda: True) -> Outcome:
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
    polished_runs = run_polish(task, clock, total.x, track.best, track.violation, budget, may_continue)
    return apply_polish(task, total, polished_runs)


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


def apply_polish(task: Task, total: Outcome, polished_runs: PolishedRuns) -> Outcome:
    """Return the outcome with the polished x, value, violation and evaluations, and one more row of history."""
    track, about = total.track, polished_runs.about
    if not about.evaluations.any():
        return replace(total, polish="not tried, because the runs were stopped, or memory was not enough")
    reached_target = about.better & (polished_runs.best <= task.rules.target) & (polished_runs.violation <= 0)
    # the search had converged, to another point, and now the answer has, too
    converged = about.converged & (track.reason == STOP_CODES[Stop.ELSEWHERE])
    reason = np.where(converged, STOP_CODES[Stop.TOLERANCE], track.reason)
    new_track = replace(
        track,
        best=polished_runs.best,
        violation=polished_runs.violation,
        evaluations=track.evaluations + about.evaluations,
        reason=np.where(reached_target, STOP_CODES[Stop.TARGET], reason),
    )
    rows = to_host(total.history)
    history = None
    if rows is not None:
        changes = (about.evaluations, about.better, polished_runs.best, polished_runs.x, polished_runs.violation)
        history = append_history_row(rows, task.columns, track.generations, *changes)
    earlier_rows = total.refinements or [[] for _ in total.x]
    refinements = [
        [*rows, int(n)] if n_evaluations else rows
        for rows, n, n_evaluations in zip(earlier_rows, track.generations, about.evaluations, strict=True)
    ]
    agreement = total.agreement
    if agreement:  # of a point that was no minimum yet, no search has found what follows from it
        eps = float(np.finfo(task.dtype).eps)
        columns = zip(agreement, track.best, track.mean, polished_runs.best, strict=True)
        agreement = [
            before
            if best - polished_best <= SAME_VALUE_RESOLUTIONS * value_resolution(best, mean, eps)
            else Agreement(0, before.searches, 0.0)
            for before, best, mean, polished_best in columns
        ]
    return replace(
        total, track=new_track, x=polished_runs.x, history=history, polish=about, refinements=refinements,
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
        return 2 ** int(math.log2(max(1, min(MOST, CACHED // (MAX_STORED_PAIRS_LBFGS * task.problem.dim)))))
    return min(task.total, MAX_SLICE_RUNS)


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
