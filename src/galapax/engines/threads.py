"""The threads that the slices of an ensemble run on.

XLA's own threads gain little on programs as small as a slice, and several programs side by side scale with the cores.
One program serves all slices, and no slice knows of another, so the number of threads changes no result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from galapax.numerics import devices

Item = TypeVar("Item")
Made = TypeVar("Made")
_lock = threading.Lock()
_pools: dict[tuple[str, int], ThreadPoolExecutor] = {}


def on_threads(count: int, work: Callable[[Item], Made], items: Iterable[Item], name: str = "galapax") -> list[Made]:
    """[work(item) for item in items], by at most `count` threads; the first error ends it. name: of the threads; work
    that calls this function, too, needs threads of another name, or all could wait for one that is free.
    """
    every = list(items)
    if count == 1 or len(every) < 2:
        return [work(item) for item in every]
    settings = devices.capture_jax_config()
    queue = iter(enumerate(every))
    made: dict[int, Made] = {}
    taking, failed = threading.Lock(), threading.Event()

    def take_turns() -> None:
        with settings():
            while not failed.is_set():
                with taking:
                    found = next(queue, None)
                if found is None:
                    return
                try:
                    made[found[0]] = work(found[1])
                except BaseException:
                    failed.set()
                    raise

    pool = _pool(name, count)
    turns = [pool.submit(take_turns) for _ in range(min(count, len(every)))]
    try:
        wait(turns)
    finally:
        failed.set()  # if Ctrl-C ended the wait
    for turn in turns:
        turn.result()
    return [made[at] for at in range(len(every))]


def _pool(name: str, count: int) -> ThreadPoolExecutor:
    """Kept, since starting threads takes longer than a short chunk does."""
    with _lock:
        if (name, count) not in _pools:
            _pools[name, count] = ThreadPoolExecutor(count, name)
        return _pools[name, count]
