"""What every engine shares: one generation for a batch of runs, the rules that stop it, and the loop on the host.

A chunk of generations runs without the host. Between chunks the host looks: progress, callback, Ctrl-C, time. A run
that is finished (target, stall, generations) is frozen by a mask, so that in a batch each run stops at its own generation.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax import random
from galapax.algorithm import Algorithm, Evaluation, Population
from galapax.operators.selection import best_index

NEVER = 2**31 - 1
RUNNING, TARGET, STALL = 0, 1, 2  # why a run is finished, besides having used up its generations


class Rules(NamedTuple):
    """When a run ends. All data, so that no rule changes the program."""

    generations: Any  # at most so many
    target: Any  # stop once the best feasible value is at most this
    stall: Any  # stop after so many generations without a better value

    def as_arrays(self, dtype: Any) -> Rules:
        return Rules(np.int32(self.generations), np.asarray(self.target, dtype), np.int32(self.stall))


class Track(NamedTuple):
    """What is known of each run of the batch, all (R,)."""

    generations: Array  # made so far
    best: Array  # best value so far (one objective); for several, unused
    violation: Array  # of that best one
    since_better: Array  # generations since it improved
    failed: Array  # evaluations that failed
    reason: Array  # RUNNING, TARGET or STALL


class Carry(NamedTuple):
    """A batch of runs between two generations; every leaf has the runs as its first axis.

    The state is kept twice: as it was, and as the last step proposes it, `accepted` telling which holds. Choosing at the
    start of the next generation and not at the end of this one lets XLA write the step's results once and read them; a
    mask at the end made it compute the survivors again for each partner drawn (half the time of small ensembles).
    """

    state: Any  # None where no run can finish before the others: then there is nothing to freeze
    proposed: Any
    accepted: Array
    track: Track


def begin(algorithm: Algorithm, keys: Array, bounds: Any, shape: Any, freeze: bool) -> Carry:
    """The carry before the first generation, for the runs with these keys (R, 2)."""
    state = jax.vmap(lambda key: algorithm.init(random.fold(key, 0), bounds, shape))(keys)
    runs = keys.shape[0]
    dtype = state.candidates.dtype
    zeros = jnp.zeros(runs, jnp.int32)
    track = Track(
        generations=zeros,
        best=jnp.full(runs, jnp.inf, dtype),
        violation=jnp.full(runs, jnp.inf, dtype),
        since_better=zeros,
        failed=zeros,
        reason=zeros,
    )
    return Carry(jax.tree.map(jnp.copy, state) if freeze else None, state, jnp.ones(runs, bool), track)


def settle(carry: Carry) -> Any:
    """The state that holds, for each run."""
    if carry.state is None:
        return carry.proposed

    def pick(new: Array, old: Array) -> Array:
        return jnp.where(carry.accepted.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(pick, carry.proposed, carry.state)


def generation(
    algorithm: Algorithm,
    rules: Rules,
    keys: Array,
    number: Array,
    carry: Carry,
    evaluate: Callable[[Array], Evaluation],
) -> tuple[Carry, Array]:
    """Generation `number` (from 1) of every run: the new carry and a row of history (columns, R)."""
    state = settle(carry)
    active = (carry.track.reason == RUNNING) & (number <= rules.generations)
    evaluation = evaluate(state.candidates)
    step_keys = jax.vmap(random.fold, in_axes=(0, None))(keys, number)
    proposed = jax.vmap(algorithm.step)(step_keys, state, evaluation)
    row = jax.vmap(summary)(proposed.parents)
    track = _update(carry.track, rules, row, evaluation, active)
    return Carry(None if carry.state is None else state, proposed, active, track), row.T


def summary(population: Population) -> Array:
    """A row of history: per objective the best, mean and worst; with constraints the best's violation and feasible share.

    For one objective the best is the best individual's, feasible ones first; for several it is the least of each among
    the feasible. Mean and worst are over the individuals that did not fail.
    """
    values = population.objectives
    finite = jnp.isfinite(values)
    count = jnp.maximum(jnp.sum(finite, axis=0), 1)
    mean = jnp.sum(jnp.where(finite, values, 0), axis=0) / count.astype(values.dtype)
    worst = jnp.max(jnp.where(finite, values, -jnp.inf), axis=0)
    if population.violation is None:
        return jnp.concatenate([jnp.min(values, axis=0), mean, worst])
    least = jnp.min(population.violation)
    best = jnp.min(jnp.where((population.violation == least)[:, None], values, jnp.inf), axis=0)
    share = jnp.mean((population.violation <= 0).astype(values.dtype))
    return jnp.concatenate([best, mean, worst, jnp.stack([least, share])])


def columns(objectives: int, constrained: bool) -> int:
    """How many numbers `summary` gives."""
    return 3 * objectives + (2 if constrained else 0)


def _update(track: Track, rules: Rules, row: Array, evaluation: Evaluation, active: Array) -> Track:
    """Account for one generation in the runs that are active. `row` is (R, columns)."""
    best = row[:, 0]
    violation = jnp.zeros_like(best) if evaluation.violation is None else row[:, -2]
    better = (violation < track.violation) | ((violation == track.violation) & (best < track.best))
    since_better = jnp.where(better, 0, track.since_better + 1)
    single = evaluation.objectives.shape[-1] == 1
    hit = (best <= rules.target) & (violation <= 0) if single else jnp.zeros_like(active)
    stalled = since_better >= rules.stall
    new = Track(
        generations=track.generations + 1,
        best=best,
        violation=violation,
        since_better=since_better,
        failed=track.failed + jnp.sum(evaluation.failed, axis=1, dtype=jnp.int32),
        reason=jnp.where(hit, TARGET, jnp.where(stalled, STALL, RUNNING)).astype(jnp.int32),
    )
    return jax.tree.map(lambda a, b: jnp.where(active, a, b), new, track)


@dataclass
class Progress:
    """What a callback and the progress line are told between chunks."""

    generation: int
    generations: int | None  # the limit, if there is one
    nfev: int  # evaluations so far, all runs together
    fun: float  # best value so far, as the user means it (maximised values keep their sign)
    violation: float
    runs_done: int
    runs: int
    seconds: float
    max_seconds: float | None = None


@dataclass
class Outcome:
    """What a batch of runs gives, in NumPy, runs first."""

    track: Track
    history: np.ndarray | None  # (R, G, columns)
    x: np.ndarray  # (R, d), best of each run
    population: Population  # of the best run, (n, ...)
    stopped: str  # "" when every run ended by its own rules, else "interrupt", "time", "callback" or "failures"
    compile_seconds: float = 0.0
    skipped: int = 0  # points of the last generation that Ctrl-C left unevaluated

    def from_run(self, first: int) -> Outcome:
        """Without the runs before row `first`, which an earlier batch has already."""
        history = None if self.history is None else self.history[first:]
        return replace(self, track=Track(*(a[first:] for a in self.track)), history=history, x=self.x[first:])

    @staticmethod
    def join(batches: list[Outcome]) -> Outcome:
        """One outcome of several batches of runs."""
        if len(batches) == 1:
            return batches[0]
        track = Track(*(np.concatenate(parts) for parts in zip(*(b.track for b in batches), strict=True)))
        best = int(np.lexsort(([min(b.track.best) for b in batches], [min(b.track.violation) for b in batches]))[0])
        history = None
        if batches[0].history is not None:
            longest = max(b.history.shape[1] for b in batches if b.history is not None)
            history = np.concatenate(
                [np.pad(b.history, ((0, 0), (0, longest - b.history.shape[1]), (0, 0)), "edge") for b in batches]  # type: ignore[union-attr]
            )
        x = np.concatenate([b.x for b in batches])
        return Outcome(track, history, x, batches[best].population, batches[-1].stopped)


def finish(carry: Carry, run: Array) -> tuple[Array, Population]:
    """The best x of each run (R, d), and the survivors of one of them."""
    parents = settle(carry).parents
    x = jax.vmap(lambda population: population.x[best_index(population)])(parents)
    return x, jax.tree.map(lambda a: a[run], parents)


def best_run(track: Track) -> int:
    """Which run ended with the best value, feasible ones first."""
    return int(np.lexsort((track.best, track.violation))[0])


def history_of(rows: list[np.ndarray], track: Track) -> np.ndarray:
    """History (R, G, columns) from chunks of rows (g, columns, R); a finished run's last row is repeated."""
    history = np.concatenate(rows).transpose(2, 0, 1)[:, : int(track.generations.max())]
    last = np.minimum(np.arange(history.shape[1])[None, :], track.generations[:, None] - 1)
    return np.take_along_axis(history, last[:, :, None], axis=1)


@dataclass
class Watch:
    """What the host looks at between chunks."""

    deadline: float | None = None  # by time.perf_counter
    notify: Callable[[int, Track], str] | None = None  # told (generation, track); an answer other than "" stops the run


Chunk = Callable[[Carry, int, int], tuple[Carry, np.ndarray]]  # (carry, first generation, how many) -> carry, history


def drive(
    chunk: Chunk,
    plan: Callable[[int, float, int], int],
    carry: Carry,
    limit: int,
    watch: Watch,
    keep_history: bool,
    interrupted: Callable[[], bool] | None = None,
) -> tuple[Carry, list[np.ndarray], str]:
    """Run chunks until every run is finished or something asks to stop; return the carry, history rows and why.

    plan(length of the last chunk, its seconds, generations left) says how long the next chunk is.
    interrupted: tells whether Ctrl-C came, for an engine that sees to it itself.
    """
    rows: list[np.ndarray] = []
    made, length, took = 0, 0, 0.0
    with interrupts(interrupted) as interrupted:
        while True:
            length = min(plan(length, took, limit - made), limit - made)
            start = time.perf_counter()
            carry, history = chunk(carry, made + 1, length)
            track = Track(*(np.asarray(a) for a in carry.track))  # waits for the device
            took = time.perf_counter() - start
            made += length
            if keep_history:
                rows.append(np.array(history[:length]))
            if interrupted():
                return carry, rows, "interrupt"
            asked = watch.notify(made, track) if watch.notify else ""
            if made >= limit or bool((track.reason != RUNNING).all()):
                return carry, rows, ""
            if asked:
                return carry, rows, asked
            if watch.deadline is not None and time.perf_counter() >= watch.deadline:
                return carry, rows, "time"


@contextmanager
def interrupts(own: Callable[[], bool] | None = None) -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C instead of raising it, so that no chunk is cut in two; a second one raises as usual."""
    seen = False

    def note(signum: int, frame: Any) -> None:
        nonlocal seen
        seen = True
        signal.signal(signal.SIGINT, previous)

    previous = signal.getsignal(signal.SIGINT)
    if own is not None or threading.current_thread() is not threading.main_thread() or previous is None:
        yield own or (lambda: False)
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: seen
    finally:
        signal.signal(signal.SIGINT, previous)
