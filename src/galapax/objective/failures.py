"""Failed evaluations: the policies for them, and the one place where a failure becomes +inf."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError
from galapax.core.evaluation import Evaluation
from galapax.core.problem import EqTolerance

POLICIES = ("worst", "raise", "resample")
RESAMPLES = 3  # fresh points that may take the place of one that failed


class Failed(NamedTuple):
    """A point that could not be evaluated, and why. traceback: the user's lines, where a function raised."""

    x: np.ndarray  # (d,)
    error: str
    traceback: str = ""


class WorkerTraceback(Exception):
    """The traceback of an exception in a worker process, as text: the cause of an EvaluationError."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def check_policy(on_failure: Any) -> None:
    if not (on_failure is None or (isinstance(on_failure, str) and on_failure in POLICIES)):
        raise InputError(f'on_failure must be "worst", "raise" or "resample", got {on_failure!r}.')


def summarise(objectives: Any, ineq: Any, eq: Any, eq_tolerance: EqTolerance | None, xp: Any = jnp) -> Evaluation:
    """Return the Evaluation of raw values (n, m), (n, p), (n, q): violations added up, failures marked and made worst.

    eq_tolerance: None where it is not known yet, which counts as 0. xp: the array library, jax.numpy or numpy.
    """
    failed = ~xp.all(xp.isfinite(objectives), axis=1)
    violation = None
    if ineq is not None or eq is not None:
        violation = xp.zeros(objectives.shape[0], objectives.dtype)
        if ineq is not None:
            violation = violation + xp.sum(xp.maximum(ineq, 0), axis=1)
        if eq is not None:
            violation = violation + xp.sum(
                xp.maximum(xp.abs(eq) - xp.asarray(eq_tolerance or 0.0, eq.dtype), 0), axis=1
            )
        failed = failed | ~xp.isfinite(violation)
        violation = xp.where(failed, xp.inf, violation)
    return Evaluation(xp.where(failed[:, None], xp.inf, objectives), violation, failed, ineq, eq)
