"""The arguments by which black boxes are called, checked."""

from __future__ import annotations

from typing import Any

from galapax import algorithms
from galapax.algorithms.de import DE
from galapax.core.algorithm import Algorithm
from galapax.core.checks import flag, positive, short, whole
from galapax.core.errors import InputError
from galapax.evaluation.executors import Calls


def is_called(blackbox: Any, executor: Any = None, workers: Any = None) -> bool:
    """Whether the functions are called as plain Python: workers can do no other."""
    return flag(blackbox, "blackbox") or executor is not None or workers is not None


def checked_calls(
    blackbox: bool,
    executor: Any,
    workers: Any,
    timeout: Any,
    retries: Any,
    cache: Any,
    asynchronous: Any = False,
    workers_timeout: Any = "auto",
) -> Calls:
    """The arguments by which black boxes are called, or what is wrong with them."""
    if isinstance(executor, int) and not isinstance(executor, bool):
        executor, workers = None, executor
    if executor is not None and workers is not None:
        raise InputError("give executor or workers, not both: workers=N creates an executor with N processes.")
    if executor is not None and not (callable(executor) or hasattr(executor, "submit")):
        raise InputError(
            "executor must be a concurrent.futures executor (with a submit method) or a function that returns one; "
            f"got {short(executor)}."
        )
    if workers is not None and not (isinstance(workers, int) and workers == -1):
        whole(workers, "workers", 1, "-1 for all cores")
    elsewhere = executor is not None or workers is not None
    if timeout is not None:
        timeout = positive(timeout, "timeout")
        if not elsewhere:
            raise InputError(
                "timeout needs worker processes, because only those can be stopped: also give workers=1 or more; "
                "to limit the whole run write max_seconds."
            )
    workers_timeout = _check_workers_timeout(workers_timeout, elsewhere)
    if not isinstance(cache, bool) or not isinstance(asynchronous, bool):
        raise InputError(f"cache and asynchronous must be True or False, got {short(cache)}, {short(asynchronous)}.")
    if (whole(retries, "retries", 0) or cache) and not blackbox:
        raise InputError("retries and cache apply to black boxes only: give blackbox=True or workers.")
    if asynchronous and not elsewhere:
        raise InputError("asynchronous=True needs workers: also give workers or executor.")
    return Calls(executor, workers, timeout, int(retries), cache, asynchronous, workers_timeout)


def _check_workers_timeout(value: Any, elsewhere: bool) -> float | str | None:
    """Seconds to wait for workers, "auto" or None. elsewhere: there are workers to wait for."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    try:
        seconds = positive(value, "workers_timeout")
    except InputError:
        raise InputError(
            f"workers_timeout must be a positive number of seconds, 'auto' or None, got {short(value)}."
        ) from None
    if not elsewhere:
        raise InputError("workers_timeout is how long to wait for workers: also give workers or executor.")
    return seconds


def check_asynchronous(
    solvers: tuple[Algorithm, ...], on_failure: Any, vectorized: Any, cache: Any, options: dict[str, Any]
) -> None:
    """Refuse what cannot go on while some candidates are still being evaluated."""
    if len(solvers) > 1 or not isinstance(solvers[0], DE) or options.get("restarts") is not None:
        raise InputError(
            "asynchronous=True is for DE, whose candidates each compete with their own parent, and without restarts; "
            f'got {algorithms.name_of(solvers[0])}: give algorithm="de".'
        )
    others = {"runs": options.get("runs", 1) != 1, "vectorized": vectorized, "cache": cache}
    others |= {"on_failure": on_failure == "resample", "first_run": options.get("first_run") is not None}
    for name, asked in others.items():
        if asked:
            raise InputError(f"asynchronous=True makes a single run, one point at a time: remove {name} out.")
