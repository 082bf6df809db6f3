"""What every engine shares: one generation for a batch of runs, the rules that stop it, and the loop on the host.

A chunk of generations runs without the host. Between chunks the host looks: progress, callback, Ctrl-C, time. A run
that is finished (target, stall, generations) is frozen by a mask, so that each run stops at its own generation.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.core.algorithm import Algorithm, Evaluation, Population, Shape, Shared
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, Problem
from galapax.measures.indicators import hypervolume_2d
from galapax.numerics import random
from galapax.operators.dominance import first_front
from galapax.operators.selection import best_index, feasible

NEVER = 2**31 - 1
INTERLUDE = 2**31  # folded into a generation's key for what comes after it; its own draws use small numbers
RUNNING, TARGET, STALL = 0, 1, 2  # why a run is finished, besides having made all its generations


class Rules(NamedTuple):
    """When a run ends. All data, so that no rule changes the program."""

    generations: Any  # at most so many
    target: Any  # stop once the best feasible value is at most this
    stall: Any  # stop after so many generations without a better value
    reference: Any = None  # (2,) of two objectives: "better" is then a larger hypervolume up to this point

    def as_arrays(self, dtype: Any) -> Rules:
        reference = None if self.reference is None else np.asarray(self.reference, dtype)
        return Rules(np.int32(self.generations), np.asarray(self.target, dtype), np.int32(self.stall), reference)


def check_rules(rules: Rules, problem: Problem, shape: Shape) -> None:
    """Refuse a target or a stall for a front that the run does not measure."""
    asked = np.isfinite(rules.target) or rules.stall != NEVER
    if shape.objectives > 1 and rules.reference is None and asked:
        raise InputError(
            "target and stall judge a front by its hypervolume, which a run measures for two objectives and a "
            f"Problem with a reference_point; {problem.name!r} has {shape.objectives} objectives and "
            f"{'no' if problem.reference_point is None else 'a'} reference_point: leave target and stall out."
        )


class Frozen(NamedTuple):
    """What it takes to stop each run of a batch at its own generation."""

    state: Any  # as it was before the last step
    marks: Array  # (R, 5): see the columns below. One array, since every small one is a kernel of its own on a GPU


BEST, VIOLATION, SINCE_BETTER, REASON, ACCEPTED = range(5)  # the columns of `marks`


class Carry(NamedTuple):
    """A batch of runs between two generations; every leaf has the runs as its first axis.

    `proposed` is the state as the last step left it. Where runs can finish before others, the state before that step is
    kept too, and ACCEPTED tells which of the two holds. Choosing at the start of the next generation and not at the end
    of this one lets XLA write the step's results once and read them; a mask at the end made it compute the survivors
    again for each partner drawn (half the time of small ensembles on a CPU).
    """

    proposed: Any
    frozen: Frozen | None


def begin(
    shape: Shape, freeze: bool, algorithm: Algorithm, keys: Array, bounds: Bounds, initial: Array | None = None
) -> Carry:
    """The carry before the first generation, for the runs with these keys (R, 2).

    algorithm: every hyper-parameter that is data is one number, or one for each run (R,).
    initial: points (k, d) that take the place of the first candidates in every run, or (R, k, d), each run's own.
    """

    def init(algorithm: Algorithm, key: Array, initial: Array | None) -> Any:
        state = algorithm.init(random.fold(key, 0), bounds, shape)
        if initial is None:
            return state
        k = initial.shape[0]
        state = state._replace(candidates=jnp.concatenate([initial, state.candidates[k:]]))
        if "parents" not in state._fields:  # made up of other parts
            return state
        return state._replace(parents=state.parents._replace(x=jnp.concatenate([initial, state.parents.x[k:]])))

    own = 0 if initial is not None and initial.ndim == 3 else None
    one = jax.tree.map(
        lambda a: a if _is_shared(a) else jax.ShapeDtypeStruct(a.shape[1:], a.dtype), algorithm, is_leaf=_is_shared
    )
    axes = run_axes(jax.eval_shape(lambda algorithm, key: init(algorithm, key, None), one, keys[0]))
    batched = jax.vmap(init, in_axes=(setting_axes(algorithm), 0, own), out_axes=axes)
    state = batched(algorithm, keys, initial)
    if not freeze:
        return Carry(state, None)
    first = jnp.array([jnp.inf, jnp.inf, 0, RUNNING, 1], state.candidates.dtype)
    return Carry(state, Frozen(jax.tree.map(jnp.copy, state), jnp.tile(first, (keys.shape[0], 1))))


def run_axes(state: Any) -> Any:
    """Which leaves of a batch's state have the runs as their first axis: all but the box, which the runs share."""
    return jax.tree.map(lambda leaf: None if isinstance(leaf, Bounds) else 0, state, is_leaf=_is_box)


def setting_axes(algorithm: Algorithm) -> Any:
    """Which hyper-parameters differ from run to run."""
    return jax.tree.map(lambda leaf: 0 if not _is_shared(leaf) and leaf.ndim else None, algorithm, is_leaf=_is_shared)


def _is_shared(leaf: Any) -> bool:
    return isinstance(leaf, Shared)


def _is_box(leaf: Any) -> bool:
    return isinstance(leaf, Bounds)


def settle(carry: Carry) -> Any:
    """The state that holds, for each run."""
    if carry.frozen is None:
        return carry.proposed
    accepted = carry.frozen.marks[:, ACCEPTED] > 0

    def pick(new: Any, old: Any) -> Any:
        return new if _is_box(new) else jnp.where(accepted.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(pick, carry.proposed, carry.frozen.state, is_leaf=_is_box)


def prelude(algorithm: Algorithm, number: Any, state: Any, evaluation: Evaluation, shape: Shape) -> Any:
    """One run's state before the step of generation `number`: after the algorithm's prelude, if it has one and this is
    the first.
    """
    play = getattr(algorithm, "prelude", None)
    if play is None:
        return state
    # a choice of each leaf that it changes, since a branch costs a GPU more than the prelude itself
    return jax.tree.map(
        lambda new, old: old if new is old else jnp.where(number == 1, new, old), play(state, evaluation, shape), state
    )


def begun_with(
    algorithm: Algorithm,
    number: Any,
    carry: Carry,
    evaluate: Callable[[Array], Evaluation],
    shape: Shape,
    repair: Callable[[Array], Array] | None = None,
) -> Carry:
    """The carry with which a loop starts at generation `number`: preludes are played here, once, and not in the loop,
    where they are kernels of every generation. The first generation evaluates its candidates again.
    """
    state = carry.proposed  # before the first generation it holds for all runs
    axes = run_axes(state)
    seen = state if repair is None else state._replace(candidates=repair(state.candidates))

    def play(algorithm: Algorithm, state: Any, evaluation: Evaluation) -> Any:
        return prelude(algorithm, number, state, evaluation, shape)

    batched = jax.vmap(play, in_axes=(setting_axes(algorithm), axes, 0), out_axes=axes)
    begun = batched(algorithm, seen, evaluate(seen.candidates))
    return carry._replace(proposed=begun._replace(candidates=state.candidates))


def generation(
    algorithm: Algorithm,
    rules: Rules,
    keys: Array,
    number: Array,
    carry: Carry,
    evaluate: Callable[[Array], Evaluation],
    with_x: bool,
    shape: Shape,
    repair: Callable[[Array], Array] | None = None,
    interlude: bool | None = None,
    begun: bool = False,
) -> tuple[Carry, Array]:
    """Generation `number` (from 1) of every run, with their keys (R, 2) for it: the new carry and a row of history.

    repair: moves candidates (R, n, d) before they are evaluated; what it returns is what the algorithm then has.
    interlude: whether one follows this generation, if that is known when the program is made.
    begun: whether the algorithm's prelude has been played already, by `begun_with`.
    """
    state = settle(carry)
    if repair is not None:
        state = state._replace(candidates=repair(state.candidates))
    evaluation = evaluate(state.candidates)
    axes = run_axes(state)

    def step(algorithm: Algorithm, key: Array, state: Any, evaluation: Evaluation) -> Any:
        if not begun:
            state = prelude(algorithm, number, state, evaluation, shape)
        return algorithm.step(key, state, evaluation)

    batched = jax.vmap(step, in_axes=(setting_axes(algorithm), 0, axes, 0), out_axes=axes)
    proposed = batched(algorithm, keys, state, evaluation)
    period = getattr(algorithm, "period", 0)
    if period and interlude is not False:

        def between(algorithm: Any, key: Array, state: Any) -> Any:
            return algorithm.interlude(random.fold(key, INTERLUDE), state, shape)

        every = jax.vmap(between, in_axes=(setting_axes(algorithm), 0, axes), out_axes=axes)
        if interlude:
            proposed = every(algorithm, keys, proposed)
        else:
            proposed = lax.cond(number % period == 0, lambda p: every(algorithm, keys, p), lambda p: p, proposed)
    front = getattr(proposed, "front", proposed.parents)
    describe = partial(summary, with_x=with_x, reference=rules.reference)
    row = jax.vmap(describe, out_axes=1)(proposed.parents, front, evaluation)
    if carry.frozen is None:
        return Carry(proposed, None), jnp.concatenate([jnp.ones_like(row[:1]), row])
    marks = _mark(carry.frozen.marks, rules, number, row, evaluation)
    return Carry(proposed, Frozen(state, marks)), jnp.concatenate([marks[None, :, ACCEPTED], row])


ACTIVE, FAILED, FIRST = range(3)  # a row of history (columns, R): made or frozen, failures, then what `summary` gives


def summary(
    population: Population, front: Population, evaluation: Evaluation, with_x: bool, reference: Array | None
) -> Array:
    """One run's history of a generation: failed evaluations; per objective the best, mean and worst of the survivors;
    with constraints also the best one's violation and the share of feasible survivors; with a reference point the
    hypervolume of the front; with_x, the best one's x.

    front: where the answer is taken from, the survivors or an archive; what is best is looked for there. For one
    objective the best is the best individual's, feasible ones first; for several it is the least of each among the
    least infeasible. Mean and worst are over the survivors that did not fail.
    """
    values = population.objectives
    dtype = values.dtype
    failed = jnp.sum(evaluation.failed.astype(dtype))[None]
    finite = jnp.isfinite(values)
    count = jnp.sum(finite.astype(dtype), axis=0)
    mean = jnp.where(count > 0, jnp.sum(jnp.where(finite, values, 0), axis=0) / jnp.maximum(count, 1), jnp.inf)
    worst = jnp.where(count > 0, jnp.max(jnp.where(finite, values, -jnp.inf), axis=0), jnp.inf)
    last = []
    if reference is not None:
        last.append(hypervolume_2d(front.objectives, reference, feasible(front.objectives, front.violation))[None])
    if with_x:
        last.append(front.x[best_index(front)])
    if population.violation is None or front.violation is None:
        return jnp.concatenate([failed, jnp.min(front.objectives, axis=0), mean, worst, *last])
    least = jnp.min(front.violation)
    best = jnp.min(jnp.where((front.violation == least)[:, None], front.objectives, jnp.inf), axis=0)
    share = jnp.mean((population.violation <= 0).astype(dtype))
    return jnp.concatenate([failed, best, mean, worst, jnp.stack([least, share]), *last])


def columns(shape: Shape, rules: Rules, with_x: int = 0) -> int:
    """How many numbers a row of history has for each run; with_x: how many variables are in it."""
    return hypervolume_column(shape) + (rules.reference is not None) + with_x


def violation_column(shape: Shape) -> int:
    return FIRST + 3 * shape.objectives


def hypervolume_column(shape: Shape) -> int:
    return violation_column(shape) + (2 if shape.constrained else 0)


def tally(shape: Shape, rules: Rules, history: Array, made: Array, marks: Array | None) -> Array:
    """What the host must know of each run after a chunk, so that the history itself need not leave the device.

    history: (g, columns, R). made: how many of its rows were made, if all runs made the same; rows that a finished run
    did not make have ACTIVE 0. marks: of the carry, if runs can finish early.
    Returns (7, R): generations made, failures, why the run is finished, best value, its violation, the share of
    feasible survivors (1 without constraints), hypervolume (NaN without a reference point). The first three are whole
    numbers in the bits of a float, as one array is fetched faster than two and failures can exceed 2**24.
    """
    dtype = history.dtype
    at = violation_column(shape)
    columns = [FIRST, at, at + 1] if shape.constrained else [FIRST]
    columns += [hypervolume_column(shape)] * (rules.reference is not None)
    if marks is None:  # the usual case in fewer kernels: rows beyond `made` are zeros
        failed = jnp.sum(history[:, FAILED].astype(jnp.int32), axis=0, dtype=jnp.int32)
        made, reason = jnp.broadcast_to(made, failed.shape), jnp.full_like(failed, RUNNING)
        row = lax.dynamic_index_in_dim(history, made[0] - 1, keepdims=False)
        last = [row[column] for column in columns]
    else:
        active = history[:, ACTIVE] > 0
        made = jnp.sum(active, axis=0, dtype=jnp.int32)
        failed = jnp.sum(jnp.where(active, history[:, FAILED], 0).astype(jnp.int32), axis=0, dtype=jnp.int32)
        reason = marks[:, REASON].astype(jnp.int32)
        rows = jnp.maximum(made - 1, 0)[None]
        last = [jnp.take_along_axis(history[:, column], rows, axis=0)[0] for column in columns]
    if not shape.constrained:
        last[1:1] = [jnp.where(jnp.isfinite(last[0]), 0.0, jnp.inf).astype(dtype), jnp.ones_like(last[0])]
    if rules.reference is None:
        last.append(jnp.full_like(last[0], jnp.nan))
    counts = [lax.bitcast_convert_type(c.astype(f"int{8 * dtype.itemsize}"), dtype) for c in (made, failed, reason)]
    return jnp.stack([*counts, *last])


def _mark(marks: Array, rules: Rules, number: Array, row: Array, evaluation: Evaluation) -> Array:
    """The marks after a generation, from its `summary` (columns, R): runs that are finished keep theirs."""
    active = (marks[:, REASON] == RUNNING) & (number <= rules.generations)
    best = row[FIRST - 1]
    constrained = evaluation.violation is not None
    m = evaluation.objectives.shape[-1]
    violation = row[FIRST - 1 + 3 * m] if constrained else jnp.zeros_like(best)
    if rules.reference is not None:
        best = -row[FIRST - 1 + 3 * m + (2 if constrained else 0)]
    better = (violation < marks[:, VIOLATION]) | ((violation == marks[:, VIOLATION]) & (best < marks[:, BEST]))
    since = jnp.where(better, 0, marks[:, SINCE_BETTER] + 1)
    hit = (best <= rules.target) & jnp.isfinite(best) & (violation <= 0)
    reason = jnp.where(hit, TARGET, jnp.where(since >= rules.stall, STALL, RUNNING)).astype(best.dtype)
    if rules.reference is not None:  # a front may lose points, so that what was best so far is not always the last
        best, violation = (jnp.where(better, new, marks[:, i]) for new, i in ((best, BEST), (violation, VIOLATION)))
    new = (best, violation, since, reason)
    kept = [jnp.where(active, value, marks[:, i]) for i, value in enumerate(new)]
    return jnp.stack([*kept, active.astype(best.dtype)], axis=1)


@dataclass
class Track:
    """What the host knows of each run, all (R,), read off the rows of history."""

    generations: np.ndarray
    best: np.ndarray
    violation: np.ndarray
    failed: np.ndarray
    reason: np.ndarray
    skipped: np.ndarray  # points of the last generation that Ctrl-C left unevaluated
    feasible_share: np.ndarray  # of the survivors; 1 without constraints
    hypervolume: np.ndarray  # NaN without a reference point

    @staticmethod
    def start(runs: int) -> Track:
        zeros, worst = np.zeros(runs, np.int64), np.full(runs, np.inf)
        return Track(zeros, worst, worst, zeros, zeros, zeros, np.ones(runs), np.full(runs, np.nan))

    @property
    def merit(self) -> np.ndarray:
        """What the runs of a batch are compared by at equal violation, the less the better."""
        return np.where(np.isnan(self.hypervolume), self.best, -self.hypervolume)

    def add(self, tally: np.ndarray) -> Track:
        """After a chunk with this `tally`."""
        made, failed, reason = tally[:3].view(f"int{8 * tally.itemsize}").astype(np.int64)
        best, violation, share, volume = tally[3:]
        return Track(
            generations=self.generations + made,
            best=np.where(made > 0, best, self.best),
            violation=np.where(made > 0, violation, self.violation),
            failed=self.failed + failed,
            reason=reason,
            skipped=self.skipped,
            feasible_share=np.where(made > 0, share, self.feasible_share),
            hypervolume=np.where(made > 0, volume, self.hypervolume),
        )

    def rows(self, chosen: slice | np.ndarray) -> Track:
        return Track(*(getattr(self, f.name)[chosen] for f in fields(self)))

    @staticmethod
    def join(parts: list[Track]) -> Track:
        return Track(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Track)))


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
    hypervolume: float | None = None  # of two objectives with a reference point; `fun` is then the first objective's
    feasible_share: float | None = None  # of the individuals of all runs; None for a problem without constraints


@dataclass
class Outcome:
    """What a batch of runs gives, in NumPy, runs first."""

    track: Track
    history: np.ndarray | None  # (R, G, columns)
    x: np.ndarray  # (R, d), best of each run
    populations: dict[int, Survivors]  # of each cell's best run
    stopped: str  # "" when every run ended by its own rules, else "interrupt", "time", "callback", "page" or "failures"
    fronts: list[Population]  # of several objectives: of each run the feasible non-dominated individuals, (k, ...)
    opponents: np.ndarray | None  # (R, ...), what an algorithm played against in the end, if it does
    compile_seconds: float = 0.0
    device_seconds: float = 0.0  # spent waiting for chunks of generations

    def of_runs(self, chosen: slice) -> Outcome:
        """These runs alone. The history ends with the longest of them."""
        track = self.track.rows(chosen)
        history = None if self.history is None else self.history[chosen, : int(track.generations.max(initial=0))]
        opponents = None if self.opponents is None else self.opponents[chosen]
        parts: dict[str, Any] = {"x": self.x[chosen], "fronts": self.fronts[chosen], "opponents": opponents}
        return replace(self, track=track, history=history, **parts)

    @staticmethod
    def join(batches: list[Outcome]) -> Outcome:
        """One outcome of several batches of runs."""
        if len(batches) == 1:
            return batches[0]
        populations: dict[int, Survivors] = {}
        for batch in batches:
            for cell, found in batch.populations.items():
                populations[cell] = min(populations.get(cell, found), found, key=lambda survivors: survivors.rank)
        histories = [b.history for b in batches if b.history is not None]
        longest = max((h.shape[1] for h in histories), default=0)
        padded = [np.pad(h, ((0, 0), (0, longest - h.shape[1]), (0, 0)), "edge") for h in histories]
        return Outcome(
            track=Track.join([b.track for b in batches]),
            history=np.concatenate(padded) if padded else None,
            x=np.concatenate([b.x for b in batches]),
            populations=populations,
            stopped=batches[-1].stopped,
            fronts=[front for b in batches for front in b.fronts],
            opponents=None if batches[0].opponents is None else np.concatenate([b.opponents for b in batches]),
            compile_seconds=sum(b.compile_seconds for b in batches),
            device_seconds=sum(b.device_seconds for b in batches),
        )


class Survivors(NamedTuple):
    """The last population of a cell's best run."""

    rank: tuple[float, float]  # violation and merit of that run
    population: Population  # (n, ...)


def finish(
    count: int, carry: Carry, cells: Array
) -> tuple[Array, Population, tuple[Population, Array] | None, Array | None]:
    """The best x of each run (R, d), and the survivors of the best run of each of `count` cells, (count, n, ...).

    cells: (R,), numbers from 0 to count - 1. With several objectives the survivors are those of every run, (R, n, ...);
    and there are the individuals among whom each run's front is, (R, k, ...), with whether they belong to it, (R, k).
    Last, the `opponents` of a state that has some.
    """
    state = settle(carry)
    opponents = getattr(state, "opponents", None)
    parents = state.parents
    found = getattr(state, "front", parents)
    rows = jax.vmap(best_index)(found)
    best = jax.tree.map(lambda a: jax.vmap(lambda own, row: own[row])(a, rows), found)

    def best_of(cell: Array) -> Array:
        own = cells == cell
        violation = jnp.zeros_like(best.fitness) if best.violation is None else best.violation
        least = jnp.min(jnp.where(own, violation, jnp.inf))
        return jnp.argmin(jnp.where(own & (violation == least), best.fitness, jnp.inf))

    if parents.objectives.shape[-1] > 1:
        return best.x, parents, (found, jax.vmap(first_front)(found.objectives, found.violation)), opponents
    chosen = jax.vmap(best_of)(jnp.arange(count))
    return best.x, jax.tree.map(lambda a: a[chosen], parents), None, opponents


def outcome(track: Track, cells: np.ndarray, finished: tuple[Any, ...], history: list[np.ndarray]) -> Outcome:
    """The outcome of a batch from what `finish` gave, its runs belonging to these cells (R,)."""
    x, populations, found, opponents = finished
    best, fronts = {}, []
    for i, cell in enumerate(range(int(cells[0]), int(cells[-1]) + 1)):
        own = np.flatnonzero(cells == cell)
        row = own[best_run(track.rows(own))]
        rank = (float(track.violation[row]), float(track.merit[row]))
        where = i if found is None else row
        best[cell] = Survivors(rank, jax.tree.map(lambda a: a[where], populations))  # noqa: B023 (used at once)
    if found is not None:
        individuals, belongs = found
        fronts = [jax.tree.map(lambda a: a[r][belongs[r]], individuals) for r in range(len(cells))]  # noqa: B023
    rows = history_of(history, track) if history else None
    return Outcome(track, rows, x, best, stopped="", fronts=fronts, opponents=opponents)


def survivors(carry: Carry) -> Population:
    """The survivors of all runs, (R, n, ...)."""
    return settle(carry).parents


def best_run(track: Track) -> int:
    """Which run ended with the best value, feasible ones first."""
    return int(np.lexsort((track.merit, track.violation))[0])


def history_of(rows: list[np.ndarray], track: Track) -> np.ndarray:
    """History (R, G, columns) from chunks of rows (g, columns, R); a finished run's last row is repeated."""
    history = np.concatenate(rows).transpose(2, 0, 1)[:, : int(track.generations.max())]
    if int(track.generations.min()) == history.shape[1]:
        return history
    last = np.minimum(np.arange(history.shape[1])[None, :], track.generations[:, None] - 1)
    return np.take_along_axis(history, last[:, :, None], axis=1)


class Viewer(Protocol):
    """Somebody who looks at a batch of runs between its chunks, and may hold it up. Called in the run's thread."""

    most: int  # generations that the next chunk may have

    def look(self, made: int, before: Track, now: Track, history: Any, carry: Carry, last: bool) -> None:
        """After generation `made`. before, now: ahead of the chunk and after it. history: (rows, columns, R).

        history and carry are on the device, and the next chunk takes the carry's memory. last: no chunk follows.
        """

    def hold(self, interrupted: Callable[[], bool]) -> str:
        """Return once the run may go on, or Ctrl-C came; an answer other than "" stops the run."""


@dataclass
class Watch:
    """What the host looks at between chunks."""

    deadline: float | None = None  # by time.perf_counter
    notify: Callable[[int, Track], str] | None = None  # told (generation, track); an answer other than "" stops the run
    snapshots: tuple[int, ...] = ()  # generations after which whole populations are kept
    taken: dict[int, list[Population]] = field(default_factory=dict)  # those kept, (R, n, ...), one per batch
    viewer: Viewer | None = None
    held: float = 0.0  # seconds that the viewer held the run up; they do not count against the deadline


# (carry, first generation, how many) -> carry, history (rows, columns, R), its tally
Chunk = Callable[[Carry, int, int], tuple[Carry, Any, Any]]


def drive(
    chunk: Chunk,
    plan: Callable[[int, float], int],
    carry: Carry,
    *,
    cells: np.ndarray,
    limit: int,
    watch: Watch,
    keep_history: bool,
    interrupted: Callable[[], bool],
    finish: Callable[[Carry], tuple[Any, Any]],
    survivors: Callable[[Carry], Population],
) -> Outcome:
    """Run chunks until every run is finished or something asks to stop.

    plan(length of the last chunk, its seconds) says how long the next chunk is; interrupted(), whether Ctrl-C came.
    finish, survivors: the functions of that name, as the engine calls them.
    """
    kept: list[np.ndarray] = []
    track = Track.start(len(cells))
    made, length, took, waited = 0, 0, 0.0, 0.0
    while True:
        until = min((g for g in watch.snapshots if g > made), default=limit)
        most = limit if watch.viewer is None else watch.viewer.most
        length = min(plan(length, took), limit - made, until - made, most)
        start = time.perf_counter()
        carry, history, tally = chunk(carry, made + 1, length)
        before, track = track, track.add(np.asarray(tally))  # waits for the device
        took = time.perf_counter() - start
        waited += took
        made += length
        stopped = "interrupt" if interrupted() else ""
        asked = watch.notify(made, track) if watch.notify and not stopped else ""
        ended = made >= limit or bool((track.reason != RUNNING).all())
        if not stopped and not ended:
            late = watch.deadline is not None and time.perf_counter() >= watch.deadline + watch.held
            stopped = asked or ("time" if late else "")
        if watch.viewer is not None:
            watch.viewer.look(made, before, track, history, carry, bool(stopped) or ended)
            if not stopped and not ended:
                start = time.perf_counter()
                stopped = watch.viewer.hold(interrupted) or ("interrupt" if interrupted() else "")
                watch.held += time.perf_counter() - start
                if stopped:
                    watch.viewer.look(made, before, track, history, carry, True)
        # fetched together, which is faster than one by one
        last = bool(stopped) or ended
        history, finished = jax.device_get((history if keep_history else None, finish(carry) if last else None))
        if keep_history:
            kept.append(np.array(history[:length, FIRST:]))
        # a batch that ends before a snapshot shows its last survivors there, beside others that go on
        due = {g for g in watch.snapshots if g == made or (last and g > made)}
        if due:
            kept_now = jax.tree.map(np.asarray, survivors(carry))
            for g in due:
                watch.taken.setdefault(g, []).append(kept_now)
        if last:
            return replace(outcome(track, cells, finished, kept), stopped=stopped, device_seconds=waited)


@contextmanager
def interrupts(at_once: Callable[[], bool] = lambda: False) -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C instead of raising it, so that no chunk is cut in two; a second one raises as usual.

    at_once: tells whether the first, too, is to be raised where it comes. Yields a function that tells if one came.
    """
    seen = False

    def note(signum: int, frame: Any) -> None:
        nonlocal seen
        seen = True
        signal.signal(signal.SIGINT, previous)
        if at_once():
            raise KeyboardInterrupt

    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is None:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: seen
    finally:
        signal.signal(signal.SIGINT, previous)
