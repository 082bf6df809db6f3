"""The polish: after the evolution the best of each run is refined by its gradient, where it has one and it pays."""

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
from galapax.core.problem import Problem
from galapax.core.record import HISTORY_FIRST_COLUMN, Record
from galapax.core.stop import STOP_CODES, UNLIMITED, Stop
from galapax.engines.histories import fetched
from galapax.engines.outcome import Outcome, Polish
from galapax.engines.programs import PROGRAMS, Clock
from galapax.engines.refine import Refined, least_evaluations, refine
from galapax.engines.slices import CACHED, MOST
from galapax.evaluation.formulas import Formulas
from galapax.numerics import devices
from galapax.operators.quasi_newton import MAX_STORED_PAIRS_LBFGS
from galapax.running.memory import exhausted
from galapax.running.task import Task

FEWEST, EACH = 1000, 100  # evaluations, in all and for each variable, that a run may take without max_evaluations
SLACK = 10  # evaluations: a polish that leaves no more than these ended for want of them
TOGETHER = 1024  # runs of a slice on an accelerator, at most


class Polished(NamedTuple):
    """What the polish made of R runs: never worse than they were."""

    x: np.ndarray  # (R, d)
    best: np.ndarray  # (R,)
    violation: np.ndarray  # (R,)
    about: Polish


def polished(
    task: Task,
    clock: Clock,
    x: np.ndarray,
    best: np.ndarray,
    violation: np.ndarray,
    left: np.ndarray,
    goes_on: Callable[[], bool] = lambda: True,
) -> Polished:
    """Refine x (R, d) of values best (R,) and violation (R,), each with at most `left` (R,) evaluations.

    They are computed in slices of one size, whatever R is, so that each comes out the same to the last bit in any
    company. goes_on: asked before every slice; once it says no, what is left stays as it is.
    """
    runs = len(x)
    about = Polish(np.zeros(runs, np.int64), np.zeros(runs, bool), np.ones(runs, bool), np.zeros(runs, bool))
    out = Polished(x.copy(), best.copy(), violation.copy(), about)
    usable = np.isfinite(best) & (left >= least_evaluations(task.shape))
    rows, size = np.flatnonzero(usable), _width(task)
    for some in (rows[i : i + size] for i in range(0, len(rows), size)):
        if not goes_on():
            break
        filled = np.concatenate([some, np.repeat(some[:1], size - len(some))])
        try:
            found: Refined = clock.call(refine, (task.objective,), *_arguments(task, x[filled], left[filled]))
        except (jax.errors.JaxRuntimeError, OutOfMemory) as error:
            if not exhausted(error):
                raise
            warnings.warn("Not enough memory to refine the best points by their gradients.", stacklevel=2)
            break
        new = jax.tree.map(lambda a: np.asarray(a)[: len(some)], found)  # noqa: B023 (used at once)
        better = (new.violation < violation[some]) | ((new.violation == violation[some]) & (new.value < best[some]))
        out.x[some] = np.where(better[:, None], new.x, x[some])
        out.best[some] = np.where(better, new.value, best[some])
        out.violation[some] = np.where(better, new.violation, violation[some])
        about.evaluations[some], about.better[some], about.smooth[some] = new.evaluations, better, new.smooth
        about.converged[some] = new.smooth & (new.evaluations < left[some] - SLACK)
    return out


def _arguments(task: Task, x: np.ndarray, left: np.ndarray) -> tuple[Any, ...]:
    """What `refine` is called with."""
    kind = np.dtype(task.dtype)
    box, limit = task.problem.bounds.round_inwards(kind), np.minimum(left, 2**31 - 1).astype(np.int32)
    return task.consts, box, x.astype(kind), limit, np.asarray(task.rules.target, kind)


def compile_ahead(task: Task) -> None:
    """Have the polish compiled while the generations are, where it is to be expected: generations are limited, so that
    the run may not converge, and no target is given, with which it would end. Elsewhere a helper would only be in the
    way of compiling what is needed first.
    """
    if task.rules.generations != UNLIMITED and task.rules.target == -math.inf and not task.problem.constrained:
        PROGRAMS.ahead(lambda: ahead(task), with_another=True)


def ahead(task: Task) -> Iterator[None]:
    """Compile the polish, if there is to be one and no other thread does."""
    if task.options.polish is False or cannot(task) is not None:
        return
    size = _width(task)
    arguments = _arguments(task, np.zeros((size, task.problem.dim)), np.zeros(size, np.int64))
    Clock(waits=False).program(refine, (task.objective,), arguments)
    yield


def polish(task: Task, clock: Clock, total: Outcome, goes_on: Callable[[], bool] = lambda: True) -> Outcome:
    """The outcome of a task with the best of its runs refined, where that was asked for and can be done."""
    if task.options.polish is False:
        return total
    why = cannot(task)
    if why is None and total.stopped is not None:
        why = "the runs were stopped"
    if why is not None:
        return replace(total, polish=f"not tried, because {why}")
    track = total.track
    left = allowed(task, track.evaluations, track.reason)
    if not (left >= least_evaluations(task.shape)).any():
        spent = task.options.polish is True or not np.isin(track.reason, _DONE).all()
        reason = "no evaluations were left" if spent else "the runs had reached the target or converged"
        return replace(total, polish=f"not tried, because {reason}")
    found = polished(task, clock, total.x, track.best, track.violation, left, goes_on)
    return with_polished(task, total, found)


_DONE = [STOP_CODES[Stop.TARGET], STOP_CODES[Stop.TOLERANCE]]


def allowed(task: Task, evaluations: np.ndarray, reason: np.ndarray) -> np.ndarray:
    """How many evaluations the polish of each run (R,) may take: what max_evaluations leaves, or without it as many as
    the run took, at least 100 for each variable. None for a run that reached its target; and under "auto" none for one
    that has converged.
    """
    most = task.budget.evaluations
    least = max(FEWEST, EACH * task.problem.dim)
    left = np.maximum(evaluations, least) if most is None else most - evaluations
    done = _DONE if task.options.polish == "auto" else _DONE[:1]
    return np.where(np.isin(reason, done), 0, left)


def with_polished(task: Task, total: Outcome, found: Polished) -> Outcome:
    """The outcome with what the polish found: x, value, violation and evaluations, and a last row of history."""
    track, about = total.track, found.about
    if not about.evaluations.any():
        return replace(total, polish="not tried, because the runs were stopped, or memory was not enough")
    hit = about.better & (found.best <= task.rules.target) & (found.violation <= 0)
    # the search had converged, to another point, and now the answer has, too
    converged = about.converged & (track.reason == STOP_CODES[Stop.ELSEWHERE])
    reason = np.where(converged, STOP_CODES[Stop.TOLERANCE], track.reason)
    after = replace(
        track,
        best=found.best,
        violation=found.violation,
        evaluations=track.evaluations + about.evaluations,
        reason=np.where(hit, STOP_CODES[Stop.TARGET], reason),
    )
    rows = fetched(total.history)
    history = None if rows is None else _with_row(task, rows, track.generations, found)
    return replace(total, track=after, x=found.x, history=history, polish=about)


def _with_row(task: Task, history: np.ndarray, made: np.ndarray, found: Polished) -> np.ndarray:
    """The history (R, G + 1, columns) with the polish after each run's own last row, of which it made `made` (R,)."""
    wide = np.concatenate([history, history[:, -1:]], axis=1)
    last = wide[np.arange(len(made)), made - 1]  # (R, columns)
    record = Record.unpack(last, task.columns, HISTORY_FIRST_COLUMN)  # views
    better = found.about.better
    record.evaluations[:] = found.about.evaluations
    record.best[:, 0] = np.where(better, found.best, record.best[:, 0])
    if record.violation is not None:
        record.violation[:] = np.where(better, found.violation, record.violation)
    if record.x is not None:
        record.x[:] = np.where(better[:, None], found.x, record.x)
    number = np.arange(wide.shape[1])[None, :]
    wide = np.where((number >= made[:, None])[:, :, None], last[:, None, :], wide)
    Record.unpack(wide, task.columns, HISTORY_FIRST_COLUMN).evaluations[number > made[:, None]] = (
        0  # a run that is over takes no more
    )
    return wide


def _width(task: Task) -> int:
    """How many runs a slice has; on a CPU that depends on the size of the problem alone."""
    formulas = task.objective
    assert isinstance(formulas, Formulas)
    if formulas.together:
        return formulas.together
    if task.is_single_run:
        return 1
    if devices.on_cpu():
        return 2 ** int(math.log2(max(1, min(MOST, CACHED // (MAX_STORED_PAIRS_LBFGS * task.problem.dim)))))
    return min(task.total, TOGETHER)


def check_polish(task: Task) -> None:
    """Refuse polish=True where it cannot be done."""
    why = cannot(task) if task.options.polish is True else None
    if why is not None:
        raise InputError(f'polish=True needs gradients of one objective, and {why}: use "auto".')


def cannot(task: Task) -> str | None:
    """Why the best of a task's runs cannot be refined by its gradient; None if it can."""
    if task.options.blackbox:
        return "a black box has no gradient"
    if task.shape.objectives > 1:
        return "there are several objectives"
    if not isinstance(task.problem, Problem) or not isinstance(task.objective, Formulas):
        return "it is a min-max problem"
    if task.problem.space is not None and task.problem.space.discrete.all():
        return "no variable is real"
    if task.shape.constrained and task.dtype == "float32":
        return "constraints need float64"
    if not _differentiable(task):
        return "JAX cannot differentiate the functions in reverse"
    return None


# what nearly all formulas are made of, each with a gradient in reverse; finding that out by tracing takes a while
SMOOTH = frozenset({
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "broadcast_in_dim", "ceil", "clamp",
    "concatenate", "convert_element_type", "copy", "cos", "cosh", "cumprod", "cumsum", "div", "dot_general",
    "dynamic_slice", "eq", "erf", "exp", "exp2", "expm1", "floor", "gather", "ge", "gt", "integer_pow", "iota",
    "jit", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "pad", "pjit", "pow",
    "reduce_max", "reduce_min", "reduce_prod", "reduce_sum", "reshape", "rev", "round", "rsqrt", "select_n", "sign",
    "sin", "sinh", "slice", "split", "sqrt", "square", "squeeze", "sub", "tan", "tanh", "transpose",
})  # fmt: skip


def _differentiable(task: Task) -> bool:
    """Whether JAX has a gradient for the functions: not of a callback, or of a loop whose end only running it shows."""
    formulas = task.objective
    assert isinstance(formulas, Formulas)
    if formulas.primitives <= SMOOTH:
        return True
    rows = formulas.together or 1
    try:
        with jax.enable_x64(task.dtype == "float64"):
            given = jax.ShapeDtypeStruct((rows, task.problem.dim), task.dtype)
            jax.eval_shape(jax.grad(lambda x: jnp.sum(formulas.facts(task.consts, x))), given)
    except Exception:  # what a user's own derivative raises, too
        return False
    return True
