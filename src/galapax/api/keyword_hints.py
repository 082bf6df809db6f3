"""Keywords of other libraries and of earlier versions, each answered with the word for it here."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from galapax.core.errors import EvaluationError, InputError, UnknownArgument, unknown_name_error
from galapax.core.user_code import shows_all_frames

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_LIMIT = "generations, max_evaluations, max_seconds, target, patience or tolerance, several at once if you like"
_PROGRESS = "a progress line appears by itself on a terminal; progress=True or False decides it"
KEYWORD_HINTS = {
    "maxiter": "write generations",
    "max_iter": "write generations",
    "niter": "write generations",
    "n_gen": "write generations",
    "ngen": "write generations",
    "gen": "write generations",
    "n_iter": "write generations",
    "iterations": "write generations",
    "epochs": "write generations",
    "gens": "write generations",
    "max_generations": "write generations",
    "maxfun": "write max_evaluations",
    "maxfev": "write max_evaluations",
    "maxfevals": "write max_evaluations",
    "max_nfev": "write max_evaluations",
    "n_evals": "write max_evaluations",
    "n_eval": "write max_evaluations",
    "n_trials": "write max_evaluations",
    "budget": "write max_evaluations",
    "termination": f"write {_LIMIT}",
    "popsize": "write population, the number of individuals (scipy multiplies its popsize by the number of variables)",
    "pop_size": "write population",
    "pop": "write population",
    "npop": "write population",
    "n_pop": "write population",
    "NP": "write population",
    "F": "write algorithm=gx.DE(weight=0.5)",
    "CR": "write algorithm=gx.DE(crossover_rate=0.9)",
    "cxpb": "write algorithm=gx.ThreeParentGA() or another with the rates that it has; galapax list shows them",
    "mutpb": "write algorithm=gx.ThreeParentGA() or another with the rates that it has; galapax list shows them",
    "sigma0": "write algorithm=gx.CMAES(sigma0=0.2), a share of the box",
    "stop_fitness": "write target",
    "ftarget": "write target",
    "tol": "write tolerance, a share of the box within which a population counts as converged",
    "atol": "write tolerance, a share of the box within which a population counts as converged",
    "ftol": "write patience, generations without a better value, or tolerance, a share of the box",
    "xtol": "write tolerance, a share of the box",
    "tolfun": "write patience, generations without a better value, or tolerance, a share of the box",
    "tolx": "write tolerance, a share of the box",
    "method": 'write algorithm, such as algorithm="de", or use galapax.compat.scipy.minimize',
    "solver": 'write algorithm, such as algorithm="de"',
    "sampler": 'write algorithm, such as algorithm="cmaes"',
    "strategy": "write algorithm=gx.DE(mutation=rand_1) for rand1bin, or best_1 for best1bin; both are in "
    "galapax.operators.differential",
    "mutation": "write algorithm=gx.DE(weight=0.5)",
    "recombination": "write algorithm=gx.DE(crossover_rate=0.9)",
    "updating": "leave it out: a generation is always evaluated together (scipy's 'deferred'), and "
    "workers=gx.Workers(8, asynchronous=True) does without generations",
    "disp": f"leave it out: {_PROGRESS}",
    "verbose": f"leave it out: {_PROGRESS}",
    "show_progress_bar": f"leave it out: {_PROGRESS}",
    "n_jobs": "write workers, -1 for all cores; functions of jax.numpy need none",
    "parallel": "write workers, -1 for all cores; functions of jax.numpy need none",
    "device": "leave it out: JAX chooses the device, a GPU if it has one; JAX_PLATFORMS=cpu keeps it from that",
    "gpu": "leave it out: JAX chooses the device, a GPU if it has one; JAX_PLATFORMS=cpu keeps it from that",
    "repeats": "write runs",
    "repetitions": "write runs",
    "rng": "write seed, a whole number, or None to have one drawn",
    "random_state": "write seed, a whole number, or None to have one drawn",
    "random_seed": "write seed, a whole number, or None to have one drawn",
    "direction": "write maximize=True, or leave it out",
    "directions": "write maximize=True for all objectives; turn single ones by returning them with a minus sign",
    "maximise": "write maximize=True",
    "minimise": "leave it out: values are minimised unless maximize=True",
    "minimize": "leave it out: values are minimised unless maximize=True",
    "init": "write x0, points to start from",
    "sampling": "write x0, points to start from",
    "lb": "write bounds, one (lower, upper) pair per variable",
    "ub": "write bounds, one (lower, upper) pair per variable",
    "lower": "write bounds, one (lower, upper) pair per variable",
    "upper": "write bounds, one (lower, upper) pair per variable",
    "dim": "leave it out: bounds has one (lower, upper) pair per variable, such as [(-5, 5)] * 10",
    "objective": "write fun, or give the function first, without a name",
    "name": "write gx.Problem(fun, bounds, name=...) in place of fun and bounds",
    "names": "give the names in bounds: {'width': gx.real(0, 1), ...}",
    "log": "write gx.real(1e-3, 10, log=True) in bounds, for each variable that is to have a logarithmic scale",
    "out": "leave it out and save the result: result.save('runs/first')",
    "save": "leave it out and save the result: result.save('runs/first')",
    "jac": "leave it out: gradients come from JAX, where the polish needs them",
    "hess": "leave it out: gradients come from JAX, where the polish needs them",
    "options": f"give its entries as arguments: {_LIMIT}; or use galapax.compat.scipy.minimize",
    "save_history": "leave it out: history is kept; keep=gx.Keep(history='x') keeps the best x of each generation too",
    "return_all": "write keep=gx.Keep(history='x')",
    "initial": "write x0, points to start from",
    "stall": "write patience",
    "no_improvement": "write patience",
    "first_run": "write runs=range(17, 20) for the runs 17, 18 and 19",
    "executor": "write workers=executor",
    "timeout": "write workers=gx.Workers(8, timeout=30)",
    "retries": "write workers=gx.Workers(8, retries=1)",
    "cache": "write workers=gx.Workers(memoize=True)",
    "memoize": "write workers=gx.Workers(memoize=True)",
    "asynchronous": "write workers=gx.Workers(8, asynchronous=True)",
    "workers_timeout": "write workers=gx.Workers(8, workers_timeout=300)",
    "history": "write keep=gx.Keep(history=...)",
    "snapshots": "write keep=gx.Keep(snapshots=[1, 10, 100])",
    "archive": "write keep=gx.Keep(archive=300)",
    "dtype": 'write compute=gx.Compute(dtype="float32")',
    "engine": 'write compute=gx.Compute(engine="fused")',
    "threads": "write compute=gx.Compute(threads=4)",
    "spread": 'write compute=gx.Compute(devices="all")',
    "devices": 'write compute=gx.Compute(devices="all")',
    "args": "use galapax.compat.scipy.minimize, or close over them: lambda x: fun(x, *args)",
    "constraints": "write ineq and eq, or use galapax.compat.scipy.minimize, which takes scipy's constraints",
    "integrality": "write gx.integer(0, 10) in bounds, or use galapax.compat.scipy.minimize",
    "callbacks": "write callback, a function of a Progress; returning True stops the run",
}

MAX_LISTED_ARGUMENTS = 12  # arguments that a sentence names


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """A verb that answers words of other libraries, and takes scipy's `minimize(f, x0, bounds=B)`."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def verb(*given: Any, **named: Any) -> R:
        positional = list(given)
        if len(positional) == 2 and "bounds" in named and "x0" in known:
            named.setdefault("x0", positional.pop())
        for name in named:
            if name not in known:
                raise unknown_keyword_error(name, known, function.__name__, named[name])
        try:
            return function(*positional, **named)
        except (InputError, EvaluationError) as error:
            if shows_all_frames():
                raise
            raise error.with_traceback(None)  # noqa: B904  # the sentence says it all; our own frames would bury it

    return verb


def suggest_arguments(kind: type[T]) -> type[T]:
    """A class whose constructor answers words of other libraries."""
    init = kind.__init__
    known = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def checked_init(self: T, *positional: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                raise unknown_keyword_error(name, known, kind.__name__, named[name])
        init(self, *positional, **named)

    setattr(kind, "__init__", checked_init)  # noqa: B010  # mypy takes an assignment for a mistake
    return kind


def unknown_keyword_error(name: str, known: Iterable[str], verb: str, value: Any = None) -> InputError:
    """The sentence about a keyword that is not one here."""
    if name in KEYWORD_HINTS:
        same = re.fullmatch(r"write \w+", KEYWORD_HINTS[name]) and isinstance(value, int | float)
        return UnknownArgument(f"{verb} has no {name!r}: {KEYWORD_HINTS[name]}{f'={value}' if same else ''}.")
    known = list(known)
    listed = f"help(gx.{verb}) lists all {len(known)}." if len(known) > MAX_LISTED_ARGUMENTS else None
    return UnknownArgument(str(unknown_name_error(f"argument of {verb}", name, known, listed)))
