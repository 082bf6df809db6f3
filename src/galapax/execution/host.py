"""The host engine: the same generations around a plain Python or NumPy objective, called in this process or others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.algorithm import count_candidate_evaluations
from galapax.core.problem import CandidateEvaluation, EqTolerance, Population
from galapax.core.stop import RUNNING
from galapax.execution import search as searching
from galapax.execution.candidate_repair import count_failed_probes, probe_points, repair, sample_replacements
from galapax.execution.host_loop import Slice
from galapax.execution.search import REASON, Carry, Finished, Search
from galapax.execution.state import restore_arrays, summarize_chunk
from galapax.numerics import random
from galapax.numerics.compile_cache import CompileTimer, ProgramCall
from galapax.objective.blackbox import BlackBox
from galapax.objective.evaluation_log import summarise


class HostEngine:
    """An Engine for objectives that are called. The box knows how many numbers they give, see `learn_shape`."""

    max_generations = 1

    def __init__(self, box: BlackBox, clock: CompileTimer) -> None:
        self.box, self.clock = box, clock

    def begin(self, slices: list[Slice]) -> None:
        for slice_ in slices:
            slice_.search = replace(slice_.search, shape=self.box.shape)
            slice_.carry = self.clock.call(Search.begin, (), slice_.search, slice_.keys, slice_.initial, slice_.known)

    def memory(self) -> dict[str, object]:
        return self.box.memory()

    def restore(self, slices: list[Slice], carries: list[list[np.ndarray]]) -> None:
        for slice_, arrays in zip(slices, carries, strict=True):
            slice_.search = replace(slice_.search, shape=self.box.shape)
            slice_.carry = restore_arrays(
                jax.eval_shape(slice_.search.begin, slice_.keys, slice_.initial, slice_.known), arrays
            )

    def pace(self, slices: list[Slice]) -> tuple[int, float]:
        return 0, 0.0

    def plan(self, length: int, seconds: float) -> int:
        return 1

    def advance(self, slices: list[Slice], first: int, count: int) -> Sequence[Sequence[Array | np.ndarray]]:
        assert count == 1
        number = np.int32(first)
        pending = [self.clock.call(Search.ask, (), slice_.search, slice_.carry, number) for slice_ in slices]
        pending, lost = self._repair(slices, pending, number)
        raw_values = self._measure(slices, pending, number, lost)
        n_eq = self.box.shape.eq
        if first == 1 and n_eq and not self.box.missed.any():  # an interrupted generation is evaluated again
            self.box.settle_eq_tolerance(np.concatenate([raw["eq"].reshape(-1, n_eq) for raw in raw_values]))
        summaries, tolerance = [], (self.box.eq_tolerance,)
        for slice_, slice_asked, raw in zip(slices, pending, raw_values, strict=True):
            if first == 1:
                slice_asked = self.clock.call(_start, tolerance, slice_.search, slice_asked, raw)
            arguments = (slice_.search, slice_.keys, slice_asked, number, raw)
            slice_.carry, row, summary = self.clock.call(_tell, tolerance, *arguments)
            slice_.last_rows = [row]
            summaries.append([summary])
        if not self.box.missed.any():
            self.box.complete_generation()
        return summaries

    def finish(self, slices: list[Slice]) -> list[Finished]:
        return [
            self.clock.call(searching.finish, (slice_.n_cells,), slice_.search, slice_.carry, slice_.cell_ids)
            for slice_ in slices
        ]

    def survivors(self, slice_: Slice) -> Population:
        return self.clock.call(searching.survivors, (), slice_.carry)

    def precompile(self, slice_: Slice) -> Iterator[None]:
        search, clock = slice_.search, CompileTimer(waits=False)
        if not self.box.widths or search.resamples or search.differences:
            return
        search, tolerance = replace(search, shape=self.box.shape), (self.box.eq_tolerance,)
        begin = ProgramCall(Search.begin, (), (search, slice_.keys, slice_.initial, slice_.known))
        carry = clock.program(begin).zeros_like_output()
        yield
        pending = clock.program(ProgramCall(Search.ask, (), (search, carry, np.int32(1)))).zeros_like_output()
        runs, n = pending.state.candidates.shape[:2]
        raw = {name: np.zeros((runs, n, width), self.box.dtype) for name, width in self.box.widths.items()}
        if self.box.log.n_known:
            raw["known"] = np.zeros((runs, n), bool)
        clock.program(ProgramCall(_tell, tolerance, (search, slice_.keys, pending, np.int32(1), raw)))
        yield
        clock.program(ProgramCall(_start, tolerance, (search, pending, raw)))
        yield
        clock.program(ProgramCall(searching.finish, (slice_.n_cells,), (search, pending, slice_.cell_ids)))

    def _repair(
        self, slices: list[Slice], pending: list[Carry], number: Array | np.int32
    ) -> tuple[list[Carry], list[Array]]:
        """Move some candidates onto the constraints, where the search does so; return the carries, and of each slice
        how many of the points tried for it failed, (S, n).
        """
        if not slices[0].search.differences:
            return pending, []
        points = [
            np.array(self.clock.call(probe_points, (), slice_.search, carry, number), np.float64)
            for slice_, carry in zip(slices, pending, strict=True)
        ]
        chosen = [np.zeros(slice_points.shape[:2], bool) for slice_points in points]
        for slice_, carry, rows in zip(slices, pending, chosen, strict=True):
            rows[_running_rows(slice_, carry)] = True
            if slice_.search.splits_last:
                affords = np.asarray(self.clock.call(Search.affords_repairs, (), slice_.search, carry), bool)
                rows &= affords[:, None]
        out, failed_probes, tolerance = [], [], (self.box.eq_tolerance or 0.0)
        probe_values = self._evaluate_rows(slices, points, chosen)
        for slice_, carry, raw, rows in zip(slices, pending, probe_values, chosen, strict=True):
            constraints = [raw[name] for name in ("ineq", "eq") if name in raw]
            values = np.concatenate(constraints, axis=2).astype(carry.state.candidates.dtype)
            search = replace(slice_.search, shape=self.box.shape)
            repaired = self.clock.call(repair, (tolerance,), search, carry, number, values)
            is_repaired = np.asarray(rows.any(axis=1))[:, None, None]
            candidates = np.where(is_repaired, repaired.state.candidates, carry.state.candidates)
            out.append(_with_candidates(carry, candidates))
            failed = self._find_failed(raw, rows).astype(values.dtype)
            failed_probes.append(
                self.clock.call(count_failed_probes, (carry.state.candidates.shape[1],), search, number, failed)
            )
        return out, failed_probes

    def _measure(
        self, slices: list[Slice], pending: list[Carry], number: Array | np.int32, lost: list[Array]
    ) -> list[dict[str, np.ndarray]]:
        """Evaluate each slice's candidates; return raw values {name: (S, n, width)}.

        They are NaN for runs that are finished or not active and for candidates that are not to be evaluated, which
        cost no calls. Where fresh points took the place of failed ones, they do so in `pending`, too, and "n_resampled"
        (S, n) counts them. lost: the failures that `_repair` returned, passed on as "n_lost".
        """
        points = [np.array(carry.state.candidates, np.float64) for carry in pending]
        known = [self._find_known(slice_points) for slice_points in points]
        chosen = [
            self._rows_to_evaluate(slice_, carry, number, slice_known)
            for slice_, carry, slice_known in zip(slices, pending, known, strict=True)
        ]
        out = self._evaluate_rows(slices, points, chosen)
        if slices[0].search.resamples:
            self._resample(slices, pending, number, points, chosen, out)
        for i, (carry, raw) in enumerate(zip(pending, out, strict=True)):
            dtype = carry.state.candidates.dtype
            out[i] = {name: np.asarray(values, dtype) for name, values in raw.items()}
            if slices[0].search.resamples:
                out[i].setdefault("n_resampled", np.zeros(chosen[i].shape, dtype))
                pending[i] = _with_candidates(carry, points[i].astype(dtype))
            if lost:
                out[i]["n_lost"] = np.asarray(lost[i])
            if (slice_known := known[i]) is not None:
                out[i]["known"] = slice_known
        return out

    def _resample(
        self,
        slices: list[Slice],
        pending: list[Carry],
        number: Array | np.int32,
        points: list[np.ndarray],
        chosen: list[np.ndarray],
        raw_values: list[dict[str, np.ndarray]],
    ) -> None:
        """Put fresh points in the place of those that failed, and their values in `raw_values`, within the budgets."""
        each = count_candidate_evaluations(slices[0].search.algorithm)
        budgets = [np.full(len(rows), np.inf) for rows in chosen]
        if slices[0].search.rules.evaluations is not None:
            budgets = [
                np.array(self.clock.call(Search.spare, (), slice_.search, carry, number), np.float64)
                for slice_, carry in zip(slices, pending, strict=True)
            ]
        for attempt in range(slices[0].search.resamples):
            failed = [self._find_failed(raw, rows) for raw, rows in zip(raw_values, chosen, strict=True)]
            failed = [
                rows & (each * np.cumsum(rows, axis=1) <= budget[:, None])
                for rows, budget in zip(failed, budgets, strict=True)
            ]
            if self.box.missed.any() or not any(rows.any() for rows in failed):
                break
            for i, (slice_, rows) in enumerate(zip(slices, failed, strict=True)):
                fresh_points = self.clock.call(
                    _sample_replacements, (points[i].shape[1],), slice_.search, slice_.keys, number, np.int32(attempt)
                )
                points[i][rows] = np.asarray(fresh_points, np.float64)[rows]
            values = self._evaluate_rows(slices, points, failed)
            for raw, now, rows, budget in zip(raw_values, values, failed, budgets, strict=True):
                raw["n_resampled"] = raw.get("n_resampled", 0) + rows
                budget -= each * rows.sum(axis=1)
                for name in self.box.widths:
                    raw[name][rows] = now[name][rows]

    def _find_known(self, points: np.ndarray) -> np.ndarray | None:
        """Return which candidates (S, n, d) have values that were known before, (S, n); None if no values were."""
        if not self.box.log.n_known:
            return None
        return self.box.is_known(points.reshape(-1, points.shape[-1])).reshape(points.shape[:-1])

    def _evaluate_rows(
        self, slices: list[Slice], points: list[np.ndarray], chosen: list[np.ndarray]
    ) -> list[dict[str, np.ndarray]]:
        """Raw values of the chosen candidates, {name: (S, n, width)} of each slice."""
        runs = [
            np.broadcast_to(slice_.run_numbers[:, None], rows.shape)[rows]
            for slice_, rows in zip(slices, chosen, strict=True)
        ]
        candidates = [slice_values[rows] for slice_values, rows in zip(points, chosen, strict=True)]
        raw = self.box(np.concatenate(candidates), np.concatenate(runs))
        start, out = 0, []  # in order, one run after the other
        for slice_, rows in zip(slices, chosen, strict=True):
            span = slice(start, start + int(rows.sum()))
            slice_values = {name: np.full((*rows.shape, values.shape[1]), np.nan) for name, values in raw.items()}
            for name, values in raw.items():
                slice_values[name][rows] = values[span]
            missed = np.zeros(rows.shape, np.int64)
            missed[rows] = self.box.missed[span]
            slice_.track = slice_.track._replace(skipped=slice_.track.skipped + missed.sum(axis=1))
            out.append(slice_values)
            start = span.stop
        return out

    def _find_failed(self, raw: dict[str, np.ndarray], chosen: np.ndarray) -> np.ndarray:
        """Return which of the chosen candidates failed, (S, n)."""
        flat = {name: raw[name].reshape(-1, raw[name].shape[-1]).astype(self.box.dtype) for name in self.box.widths}
        tolerance = self.box.eq_tolerance or 0.0
        judged = summarise(flat["fun"], flat.get("ineq"), flat.get("eq"), tolerance, np)
        return chosen & np.asarray(judged.failed).reshape(chosen.shape)

    def _rows_to_evaluate(
        self, slice_: Slice, pending: Carry, number: Array | np.int32, known: np.ndarray | None
    ) -> np.ndarray:
        """Return which candidates are to be evaluated, (S, n). known: those that cost no evaluation."""
        runs, n = pending.state.candidates.shape[:2]
        rows = np.zeros((runs, n), bool)
        rows[_running_rows(slice_, pending)] = True
        if not slice_.search.algorithm.traits.fixed_evaluations or slice_.search.splits_last:
            counts = np.asarray(self.clock.call(Search.counts, (), slice_.search, pending, number, known))
            rows &= np.arange(n) < counts[:, None]
        return rows


def _running_rows(slice_: Slice, pending: Carry) -> np.ndarray:
    """Return the rows of the active runs that have not finished."""
    assert pending.stop_state is not None
    running = np.asarray(pending.stop_state.stop_columns)[:, REASON] == RUNNING
    return slice_.active_rows[running[slice_.active_rows]]


def _evaluation(eq_tolerance: EqTolerance, raw: Mapping[str, Array]) -> CandidateEvaluation:
    evaluation = jax.vmap(lambda v: summarise(v["fun"], v.get("ineq"), v.get("eq"), eq_tolerance))(raw)
    n_resampled, n_lost, known = raw.get("n_resampled"), raw.get("n_lost"), raw.get("known")
    failed = [each for each in (n_resampled, n_lost) if each is not None]  # whatever was tried again had failed
    return evaluation._replace(n_resampled=n_resampled, n_lost=sum(failed) if failed else None, known=known)  # type: ignore[arg-type]


def _with_candidates(pending: Carry, candidates: Array | np.ndarray) -> Carry:
    return pending._replace(state=pending.state._replace(candidates=candidates))


def _sample_replacements(count: int, search: Search, keys: Array, number: Array, attempt: Array) -> Array:
    return sample_replacements(count, search, jax.vmap(random.fold_in, in_axes=(0, None))(keys, number), attempt)


def _start(eq_tolerance: EqTolerance, search: Search, pending: Carry, raw: Mapping[str, Array]) -> Carry:
    return search.start(pending, _evaluation(eq_tolerance, raw))


def _tell(
    eq_tolerance: EqTolerance, search: Search, keys: Array, pending: Carry, number: Array, raw: Mapping[str, Array]
) -> tuple[Carry, Array, Array]:
    generation_keys = jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)
    carry, row = search.tell(pending, generation_keys, number, _evaluation(eq_tolerance, raw))
    return carry, *summarize_chunk(search.columns, row[None], np.int32(1), carry.stop_state)


class AsyncHostEngine(HostEngine):
    """An Engine for one run. The first generation is evaluated as a whole."""

    points: np.ndarray | None = None  # (n, d) candidates as they are or will be sent; changed in place
    n_unsent: float = math.inf  # evaluations that may still be started

    def advance(self, slices: list[Slice], first: int, count: int) -> Sequence[Sequence[Array | np.ndarray]]:
        if first == 1:
            return super().advance(slices, first, count)
        (slice_,) = slices
        box, number = self.box, np.int32(first)
        pending = self.clock.call(Search.ask, (), slice_.search, slice_.carry, number)
        n = int(self.clock.call(Search.counts, (), slice_.search, pending, number)[0])
        if self.points is None:
            self.points = np.array(pending.state.candidates[0], np.float64)
            self.n_unsent = self._evaluations_left(slice_, pending, number, n)
            n_sent = int(min(len(self.points), self.n_unsent))
            box.start_stream(self.points, n_sent, int(slice_.run_numbers[0]))
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
                replace(slice_.search, splits_last=False),  # any of the candidates may arrive in a partial generation
                slice_.keys,
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
        slice_.track = slice_.track._replace(skipped=slice_.track.skipped + (n - n_evaluated))
        n_failed_total = np.zeros((1, len(points)), pending.state.candidates.dtype)
        n_failed_total[0, 0] = n_failed + n - n_evaluated
        slice_.carry, rows, packed_summary = self.clock.call(
            _end_generation, (), slice_.search, slice_.keys, pending, number, n_failed_total
        )
        slice_.last_rows = [rows]
        box.complete_generation()
        return [[packed_summary]]

    def _evaluations_left(self, slice_: Slice, pending: Carry, number: np.int32, n: int) -> float:
        """Return how many evaluations generation `number`, with n of them, and those after it may still make."""
        by_generations = (float(slice_.search.rules.generations) - number + 1) * len(pending.state.candidates[0])
        spare = self.clock.call(Search.spare, (), slice_.search, pending, number)
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
    return carry, *summarize_chunk(search.columns, row[None], np.int32(1), carry.stop_state)
