"""The host engine: the same generations around a plain Python or NumPy objective, called in this process or others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.algorithm import count_candidate_evaluations
from galapax.core.problem import CandidateEvaluation, EqTolerance, Population, Shape
from galapax.core.stop import RUNNING, Interrupts
from galapax.execution import search as searching
from galapax.execution.candidate_repair import count_failed_probes, probe_points, repair, sample_replacements
from galapax.execution.host_loop import Slice
from galapax.execution.search import REASON, Carry, Finished, Search
from galapax.execution.state import restore_arrays, summarize_chunk
from galapax.numerics import random
from galapax.numerics.compile_cache import CompileTimer
from galapax.objective.blackbox import BlackBox
from galapax.objective.evaluation_log import summarise


class HostEngine:
    """An Engine for objectives that are called. How many numbers they give is known once they were."""

    max_generations = 1

    def __init__(
        self,
        box: BlackBox,
        clock: CompileTimer,
        interrupts: Interrupts,
        check: Callable[[Shape], None],
    ) -> None:
        self.box, self.clock, self.interrupts = box, clock, interrupts
        self.check = check  # is called with the shape, as soon as it is known
        self._waiting: list[dict[str, np.ndarray]] = []  # the first values of the slices, until they are told

    def begin(self, batches: list[Slice]) -> None:
        self.interrupts.raises = lambda: self.box.calling
        # the first candidates do not depend on how many numbers the objective gives: evaluate them, then begin for real
        first = [
            self.clock.call(Search.begin, (), batch.search, batch.keys, batch.initial, batch.known) for batch in batches
        ]
        self.box.check_workers(sum(len(batch.active_rows) for batch in batches) * first[0].state.candidates.shape[1])
        first, lost = self._repair(batches, first, np.int32(1))
        self._waiting = self._measure(batches, first, np.int32(1), lost)
        self.check(self.box.shape)
        if self.box.shape.eq and not self.box.missed.any():  # an interrupted generation is evaluated again
            self.box.settle_eq_tolerance(
                np.concatenate([raw["eq"].reshape(-1, self.box.shape.eq) for raw in self._waiting])
            )
        for batch, measured, raw in zip(batches, first, self._waiting, strict=True):
            batch.search = replace(batch.search, shape=self.box.shape)
            carry = self.clock.call(Search.begin, (), batch.search, batch.keys, batch.initial, batch.known)
            pending = self.clock.call(Search.ask, (), batch.search, carry, np.int32(1))
            if batch.search.resamples or batch.search.differences:
                pending = _with_candidates(pending, measured.state.candidates)
            batch.carry = self.clock.call(_start, (self.box.eq_tolerance,), batch.search, pending, raw)

    def memory(self) -> dict[str, object]:
        return self.box.memory()

    def restore(self, batches: list[Slice], carries: list[list[np.ndarray]]) -> None:
        self.interrupts.raises = lambda: self.box.calling
        self.check(self.box.shape)
        for batch, arrays in zip(batches, carries, strict=True):
            batch.search = replace(batch.search, shape=self.box.shape)
            batch.carry = restore_arrays(
                jax.eval_shape(batch.search.begin, batch.keys, batch.initial, batch.known), arrays
            )

    def pace(self, batches: list[Slice]) -> tuple[int, float]:
        return 0, 0.0

    def plan(self, length: int, seconds: float) -> int:
        return 1

    def advance(self, batches: list[Slice], first: int, count: int) -> Sequence[Sequence[Array | np.ndarray]]:
        assert count == 1
        number = np.int32(first)
        pending = [batch.carry for batch in batches if batch.carry is not None]
        raw_values, self._waiting = self._waiting, []
        if not raw_values:
            pending = [self.clock.call(Search.ask, (), batch.search, batch.carry, number) for batch in batches]
            pending, lost = self._repair(batches, pending, number)
            raw_values = self._measure(batches, pending, number, lost)
        summaries, tolerance = [], (self.box.eq_tolerance,)
        for batch, batch_asked, raw in zip(batches, pending, raw_values, strict=True):
            arguments = (batch.search, batch.keys, batch_asked, number, raw)
            batch.carry, row, summary = self.clock.call(_tell, tolerance, *arguments)
            batch.last_rows = [row]
            summaries.append([summary])
        if not self.box.missed.any():
            self.box.complete_generation()
        return summaries

    def finish(self, batches: list[Slice]) -> list[Finished]:
        return [
            self.clock.call(searching.finish, (batch.n_cells,), batch.search, batch.carry, batch.cell_ids)
            for batch in batches
        ]

    def survivors(self, batch: Slice) -> Population:
        return self.clock.call(searching.survivors, (), batch.carry)

    def precompile(self, batch: Slice) -> Iterator[None]:
        search, clock = batch.search, CompileTimer(waits=False)
        if not self.box.widths or search.resamples or search.differences:
            return
        search, tolerance = replace(search, shape=self.box.shape), (self.box.eq_tolerance,)
        carry = clock.program(Search.begin, (), (search, batch.keys, batch.initial, batch.known)).zeros_like_output()
        yield
        pending = clock.program(Search.ask, (), (search, carry, np.int32(1))).zeros_like_output()
        runs, n = pending.state.candidates.shape[:2]
        raw = {name: np.zeros((runs, n, width), self.box.dtype) for name, width in self.box.widths.items()}
        if self.box.log.n_known:
            raw["known"] = np.zeros((runs, n), bool)
        clock.program(_tell, tolerance, (search, batch.keys, pending, np.int32(1), raw))
        yield
        clock.program(_start, tolerance, (search, pending, raw))
        yield
        clock.program(searching.finish, (batch.n_cells,), (search, pending, batch.cell_ids))

    def _repair(
        self, batches: list[Slice], pending: list[Carry], number: Array | np.int32
    ) -> tuple[list[Carry], list[Array]]:
        """The carries with some candidates moved onto the constraints, where the search does so; and of each slice how
        many of the points tried for it failed, (S, n).
        """
        if not batches[0].search.differences:
            return pending, []
        points = [
            np.array(self.clock.call(probe_points, (), batch.search, carry, number), np.float64)
            for batch, carry in zip(batches, pending, strict=True)
        ]
        chosen = [np.zeros(batch_points.shape[:2], bool) for batch_points in points]
        for batch, carry, rows in zip(batches, pending, chosen, strict=True):
            rows[_running_rows(batch, carry)] = True
            if batch.search.splits_last:
                affords = np.asarray(self.clock.call(Search.affords_repairs, (), batch.search, carry), bool)
                rows &= affords[:, None]
        out, failed_probes, tolerance = [], [], (self.box.eq_tolerance or 0.0)
        probe_values = self._evaluate_rows(batches, points, chosen)
        for batch, carry, raw, rows in zip(batches, pending, probe_values, chosen, strict=True):
            constraints = [raw[name] for name in ("ineq", "eq") if name in raw]
            values = np.concatenate(constraints, axis=2).astype(carry.state.candidates.dtype)
            search = replace(batch.search, shape=self.box.shape)
            repaired = self.clock.call(_repair_batch, (tolerance,), search, carry, number, values)
            is_repaired = np.asarray(rows.any(axis=1))[:, None, None]
            candidates = np.where(is_repaired, repaired.state.candidates, carry.state.candidates)
            out.append(_with_candidates(carry, candidates))
            failed = self._find_failed(raw, rows).astype(values.dtype)
            failed_probes.append(
                self.clock.call(_count_failed_probes, (carry.state.candidates.shape[1],), search, number, failed)
            )
        return out, failed_probes

    def _measure(
        self, batches: list[Slice], pending: list[Carry], number: Array | np.int32, lost: list[Array]
    ) -> list[dict[str, np.ndarray]]:
        """Raw values {name: (S, n, width)} of each slice's candidates; NaN for runs that are finished or not wanted and
        for candidates that are not to be evaluated, which cost no calls. Where fresh points took the place of failed
        ones, they do so in `pending`, too, and "again" (S, n) tells how often. lost: of `_mended`, kept as "lost".
        """
        points = [np.array(carry.state.candidates, np.float64) for carry in pending]
        known = [self._find_known(batch_points) for batch_points in points]
        chosen = [
            self._rows_to_evaluate(batch, carry, number, batch_known)
            for batch, carry, batch_known in zip(batches, pending, known, strict=True)
        ]
        out = self._evaluate_rows(batches, points, chosen)
        each, budgets = (
            count_candidate_evaluations(batches[0].search.algorithm),
            [np.full(len(rows), np.inf) for rows in chosen],
        )
        if batches[0].search.resamples and batches[0].search.rules.evaluations is not None:
            budgets = [
                np.array(self.clock.call(Search.spare, (), batch.search, carry, number), np.float64)
                for batch, carry in zip(batches, pending, strict=True)
            ]
        for attempt in range(batches[0].search.resamples):
            failed = [self._find_failed(raw, rows) for raw, rows in zip(out, chosen, strict=True)]
            failed = [
                rows & (each * np.cumsum(rows, axis=1) <= budget[:, None])
                for rows, budget in zip(failed, budgets, strict=True)
            ]
            if self.box.missed.any() or not any(rows.any() for rows in failed):
                break
            for i, (batch, rows) in enumerate(zip(batches, failed, strict=True)):
                fresh_points = self.clock.call(
                    _sample_replacements, (points[i].shape[1],), batch.search, batch.keys, number, np.int32(attempt)
                )
                points[i][rows] = np.asarray(fresh_points, np.float64)[rows]
            values = self._evaluate_rows(batches, points, failed)
            for raw, now, rows, budget in zip(out, values, failed, budgets, strict=True):
                raw["again"] = raw.get("again", 0) + rows
                budget -= each * rows.sum(axis=1)
                for name in self.box.widths:
                    raw[name][rows] = now[name][rows]
        for i, (carry, raw) in enumerate(zip(pending, out, strict=True)):
            dtype = carry.state.candidates.dtype
            out[i] = {name: np.asarray(values, dtype) for name, values in raw.items()}
            if batches[0].search.resamples:
                out[i].setdefault("again", np.zeros(chosen[i].shape, dtype))
                pending[i] = _with_candidates(carry, points[i].astype(dtype))
            if lost:
                out[i]["lost"] = np.asarray(lost[i])
            if (batch_known := known[i]) is not None:
                out[i]["known"] = batch_known
        return out

    def _find_known(self, points: np.ndarray) -> np.ndarray | None:
        """Which candidates (S, n, d) have values that were known before, (S, n); None if no values were."""
        if not self.box.log.n_known:
            return None
        return self.box.is_known(points.reshape(-1, points.shape[-1])).reshape(points.shape[:-1])

    def _evaluate_rows(
        self, batches: list[Slice], points: list[np.ndarray], chosen: list[np.ndarray]
    ) -> list[dict[str, np.ndarray]]:
        """Raw values of the chosen candidates, {name: (S, n, width)} of each slice."""
        runs = [
            np.broadcast_to(batch.run_numbers[:, None], rows.shape)[rows]
            for batch, rows in zip(batches, chosen, strict=True)
        ]
        candidates = [batch_values[rows] for batch_values, rows in zip(points, chosen, strict=True)]
        raw = self.box(np.concatenate(candidates), np.concatenate(runs))
        start, out = 0, []  # in order, one run after the other
        for batch, rows in zip(batches, chosen, strict=True):
            span = slice(start, start + int(rows.sum()))
            batch_values = {name: np.full((*rows.shape, values.shape[1]), np.nan) for name, values in raw.items()}
            for name, values in raw.items():
                batch_values[name][rows] = values[span]
            missed = np.zeros(rows.shape, np.int64)
            missed[rows] = self.box.missed[span]
            batch.track.skipped = batch.track.skipped + missed.sum(axis=1)
            out.append(batch_values)
            start = span.stop
        return out

    def _find_failed(self, raw: dict[str, np.ndarray], chosen: np.ndarray) -> np.ndarray:
        """Which of the chosen candidates failed, (S, n)."""
        flat = {name: raw[name].reshape(-1, raw[name].shape[-1]).astype(self.box.dtype) for name in self.box.widths}
        tolerance = self.box.eq_tolerance or 0.0
        judged = summarise(flat["fun"], flat.get("ineq"), flat.get("eq"), tolerance, np)
        return chosen & np.asarray(judged.failed).reshape(chosen.shape)

    def _rows_to_evaluate(
        self, batch: Slice, pending: Carry, number: Array | np.int32, known: np.ndarray | None
    ) -> np.ndarray:
        """Which candidates are to be evaluated, (S, n). known: those that cost no evaluation."""
        runs, n = pending.state.candidates.shape[:2]
        rows = np.zeros((runs, n), bool)
        rows[_running_rows(batch, pending)] = True
        if not batch.search.algorithm.traits.fixed_evaluations or batch.search.splits_last:
            counts = np.asarray(self.clock.call(Search.counts, (), batch.search, pending, number, known))
            rows &= np.arange(n) < counts[:, None]
        return rows


def _running_rows(batch: Slice, pending: Carry) -> np.ndarray:
    """The places of the runs that are wanted and not finished."""
    assert pending.stop_state is not None
    running = np.asarray(pending.stop_state.stop_columns)[:, REASON] == RUNNING
    return batch.active_rows[running[batch.active_rows]]


def _evaluation(eq_tolerance: EqTolerance, raw: Mapping[str, Array]) -> CandidateEvaluation:
    evaluation = jax.vmap(lambda v: summarise(v["fun"], v.get("ineq"), v.get("eq"), eq_tolerance))(raw)
    again, lost, known = raw.get("again"), raw.get("lost"), raw.get("known")
    failed = [each for each in (again, lost) if each is not None]  # whatever was tried again had failed
    return evaluation._replace(again=again, lost=sum(failed) if failed else None, known=known)  # type: ignore[arg-type]


def _with_candidates(pending: Carry, candidates: Array | np.ndarray) -> Carry:
    return pending._replace(state=pending.state._replace(candidates=candidates))


def _sample_replacements(count: int, search: Search, keys: Array, number: Array, attempt: Array) -> Array:
    return sample_replacements(count, search, jax.vmap(random.fold_in, in_axes=(0, None))(keys, number), attempt)


def _repair_batch(eq_tolerance: EqTolerance, search: Search, pending: Carry, number: Array, values: Array) -> Carry:
    return repair(search, pending, number, values, eq_tolerance)


def _count_failed_probes(count: int, search: Search, number: Array, failed: Array) -> Array:
    return count_failed_probes(search, count, number, failed)


def _start(eq_tolerance: EqTolerance, search: Search, pending: Carry, raw: Mapping[str, Array]) -> Carry:
    return search.start(pending, _evaluation(eq_tolerance, raw))


def _tell(
    eq_tolerance: EqTolerance, search: Search, keys: Array, pending: Carry, number: Array, raw: Mapping[str, Array]
) -> tuple[Carry, Array, Array]:
    generation_keys = jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)
    carry, row = search.tell(pending, generation_keys, number, _evaluation(eq_tolerance, raw))
    return carry, *summarize_chunk(search, row[None], np.int32(1), carry)


class AsyncHostEngine(HostEngine):
    """An Engine for one run. The first generation is evaluated as a whole."""

    points: np.ndarray | None = None  # (n, d) candidates as they are or will be sent; changed in place
    n_unsent: float = math.inf  # evaluations that may still be started

    def advance(self, batches: list[Slice], first: int, count: int) -> Sequence[Sequence[Array | np.ndarray]]:
        if self._waiting:
            return super().advance(batches, first, count)
        (batch,) = batches
        box, number = self.box, np.int32(first)
        pending = self.clock.call(Search.ask, (), batch.search, batch.carry, number)
        n = int(self.clock.call(Search.counts, (), batch.search, pending, number)[0])
        if self.points is None:
            self.points = np.array(pending.state.candidates[0], np.float64)
            self.n_unsent = self._evaluations_left(batch, pending, number, n)
            n_sent = int(min(len(self.points), self.n_unsent))
            box.start_stream(self.points, n_sent, int(batch.run_numbers[0]))
            self.n_unsent -= n_sent
        points, n_evaluated, n_failed = self.points, 0, 0
        while n_evaluated < n:
            arrivals = box.poll(points, n - n_evaluated)
            if not arrivals:  # out of time, Ctrl-C, or no worker left
                break
            raw = {name: np.full((1, len(points), width), np.nan) for name, width in box.widths.items()}
            arrived = np.zeros((1, len(points)), bool)
            for row, values in arrivals.items():
                arrived[0, row] = True
                for name, value in values.items():
                    raw[name][0, row] = value
            in_flight = np.zeros(len(points), bool)
            in_flight[box.under_way] = True
            tolerance = (box.eq_tolerance,)
            dtype = pending.state.candidates.dtype
            typed_values = {name: values.astype(dtype) for name, values in raw.items()}
            arguments = (
                replace(batch.search, splits_last=False),  # any of the candidates may arrive in a partial generation
                batch.keys,
                pending,
                number,
                np.int32(n_evaluated),
                typed_values,
                arrived,
                in_flight,
            )
            pending, n_failed_now = self.clock.call(_tell_arrived, tolerance, *arguments)
            n_evaluated, n_failed = n_evaluated + len(arrivals), n_failed + int(n_failed_now)
            points[~in_flight] = np.asarray(pending.state.candidates[0], np.float64)[~in_flight]
            for row in arrivals:
                if self.n_unsent > 0:
                    box.send(row)
                    self.n_unsent -= 1
        batch.track.skipped = batch.track.skipped + (n - n_evaluated)
        n_failed_total = np.zeros((1, len(points)), pending.state.candidates.dtype)
        n_failed_total[0, 0] = n_failed + n - n_evaluated
        batch.carry, rows, packed_summary = self.clock.call(
            _end_generation, (), batch.search, batch.keys, pending, number, n_failed_total
        )
        batch.last_rows = [rows]
        box.complete_generation()
        return [[packed_summary]]

    def _evaluations_left(self, batch: Slice, pending: Carry, number: np.int32, n: int) -> float:
        """Return how many evaluations generation `number`, with n of them, and those after it may still make."""
        by_generations = (float(batch.search.rules.generations) - number + 1) * len(pending.state.candidates[0])
        spare = self.clock.call(Search.spare, (), batch.search, pending, number)
        return by_generations if spare is None else min(by_generations, n + float(spare[0]))


def _placeholder_evaluation(pending: Carry, search: Search, failed: Array) -> CandidateEvaluation:
    """Return a placeholder evaluation (+inf) for candidates still in flight."""
    shape, n = search.shape, pending.state.candidates.shape[1]
    worst = jnp.full((1, n, shape.objectives), jnp.inf, pending.state.candidates.dtype)
    return CandidateEvaluation(worst, worst[..., 0] if shape.constrained else None, failed)


def _replace_free_candidates(pending: Carry, carry: Carry, in_flight: Array) -> Carry:
    """Return the carry after a step, with the candidates that workers have unchanged and the stop state of before."""
    candidates = jnp.where(in_flight[None, :, None], pending.state.candidates, carry.state.candidates)
    return Carry(carry.state._replace(candidates=candidates), pending.stop_state)


def _tell_arrived(
    eq_tolerance: EqTolerance,
    search: Search,
    keys: Array,
    pending: Carry,
    number: Array,
    n_evaluated: Array,
    raw: Mapping[str, Array],
    arrived: Array,
    in_flight: Array,
) -> tuple[Carry, Array]:
    """Tell the candidates that arrived, (1, n), and breed others; also return how many of them failed."""
    generation_keys = jax.vmap(lambda key: random.fold_in(random.fold_in(key, number), n_evaluated))(keys)
    evaluation = jax.vmap(lambda v: summarise(v["fun"], v.get("ineq"), v.get("eq"), eq_tolerance))(raw)
    failed = jnp.sum((evaluation.failed & arrived).astype(jnp.int32))
    evaluation = evaluation._replace(failed=jnp.zeros_like(evaluation.objectives[..., 0]), ineq=None, eq=None)
    carry, _ = search.tell(pending, generation_keys, number, evaluation)
    return _replace_free_candidates(pending, carry, in_flight), failed


def _end_generation(
    search: Search, keys: Array, pending: Carry, number: Array, failed: Array
) -> tuple[Carry, Array, Array]:
    """End a generation whose candidates were told: the carry, its history row and the packed summary."""
    generation_keys = jax.vmap(lambda key: random.fold_in(key, number))(keys)
    carry, row = search.tell(pending, generation_keys, number, _placeholder_evaluation(pending, search, failed))
    carry = _replace_free_candidates(pending, carry, jnp.ones(failed.shape[1], bool))._replace(
        stop_state=carry.stop_state
    )
    return carry, *summarize_chunk(search, row[None], np.int32(1), carry)
