"""The fingerprint of a task: everything that decides its results. A checkpoint resumes a task with an equal one."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax import Array

from galapax import algorithms
from galapax.algorithms.archive import Archived
from galapax.algorithms.minmax_cde import Payoff
from galapax.core.algorithm import Algorithm, Shared
from galapax.core.options import LEAVES, read
from galapax.core.problem import MinMaxProblem
from galapax.core.space import VectorFunction
from galapax.execution.task import Task
from galapax.numerics import devices
from galapax.version import __version__


def fingerprint(task: Task) -> dict[str, str]:
    """Return {name: value} of all that decides the results of a task.

    The rest may change when it is resumed: max_seconds, the observers, and for runs that do not restart and whose
    algorithm does not plan ahead, the limit of generations.
    """
    solver, problem, rules, options = task.solvers[0], task.problem, task.rules, task.options
    facts = {
        "version of galapax": __version__,
        "version of jax": jax.__version__,
        "device": devices.platform(),
        "precision": task.dtype,
        "problem": problem.name,
        "box": _digest([problem.bounds.lower, problem.bounds.upper]),
        "variables": "" if problem.space is None else repr(problem.space.variables),
        "functions": _functions(task),
        "algorithm": algorithms.algorithm_name(solver),
        "hyper-parameters": str([_settings(one) for one in task.bound]),
        "archive": str(solver.size if isinstance(solver, Archived) else None),
        "runs": f"{task.runs} from number {task.first_run}",
        "x0": "none" if task.initial is None else _digest([task.initial]),
        "initial": "none" if task.known is None else _digest(jax.tree.leaves(task.known)),
        "target": str(rules.target),
        "patience": str(rules.stall),
        "tolerance": str(rules.tolerance),
        "reference point": _digest([] if rules.reference is None else [rules.reference]),
    }
    facts |= {name: str(read(options, name)) for name, leaf in LEAVES.items() if leaf.spec.identifies}
    if options.islands is not None:
        facts["islands"] = str(options.islands)
    if task.engine in ("fused", "native"):  # where it was left to us, the file may go to another machine
        facts["engine"] = task.engine
    if task.restarts is not None:
        facts["restarts"] = task.restarts.name
        facts["limits"] = f"{rules.generations} generations, {rules.evaluations} evaluations"
    return facts


def _settings(bound: Algorithm) -> str:
    values = {f.name: getattr(bound, f.name) for f in dataclasses.fields(bound)}  # type: ignore[arg-type]
    return f"{type(bound).__name__}({', '.join(f'{name}={_setting(value)}' for name, value in values.items())})"


def _setting(value: Any) -> str:
    if isinstance(value, Algorithm):
        return _settings(value)
    if isinstance(value, Shared) or hasattr(value, "dtype"):
        return _digest(jax.tree.leaves(value))
    if isinstance(value, Payoff):
        return "fun"  # which is among the functions
    return value.__qualname__ if callable(value) else repr(value)


def _functions(task: Task) -> str:
    if task.objective is not None:
        return hashlib.sha256(task.objective.text.encode()).hexdigest()[:16] + _digest(jax.tree.leaves(task.consts))
    if isinstance(task.problem, MinMaxProblem):
        return ""
    # of a black box only its name is known: what it computes may have changed, and that is the user's business
    functions = [getattr(task.problem, name) for name in ("fun", "ineq", "eq")]
    functions = [f.function if isinstance(f, VectorFunction) else f for f in functions]
    return " ".join(getattr(f, "__qualname__", type(f).__name__) for f in functions if f is not None)


def _digest(arrays: Iterable[Array | np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        values = np.asarray(array)
        digest.update(f"{values.dtype.str}{values.shape}".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]
