"""The host engine: the same generations around a plain Python or NumPy objective, called in this process or others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array

from galapax.core.algorithm import count_candidate_evaluations
from galapax.core.evaluation import Evaluation, Population, Shape
from galapax.core.stop import RUNNING
from galapax.engines import search as searching
from galapax.engines.batch_checkpoint import with_arrays
from galapax.engines.chunk_summary import summarize_chunk
from galapax.engines.host_loop import Slice
from galapax.engines.interrupts import Interrupts
from galapax.engines.programs import CompileTimer
from galapax.engines.repair_by_differences import count_failed_probes, probe_points, repair
from galapax.engines.resample import fresh
from galapax.engines.search import REASON, Carry, Finished, Search
from galapax.evaluation.blackbox import BlackBox
from galapax.evaluation.failures import summarise
from galapax.numerics import random

PROBE_POINTS = 4  # that are called at a time to learn the shape, as many as the smallest population has


class HostEngine:
    """An Engine for objectives that are called. How many numbers they give is known once they were."""

    most = 1

    def __init__(
        self,
        box: BlackBox,
        clock: CompileTimer,
        interrupts: Interrupts,
        check: Callable[[Shape], None],
        n_probes: int = 0,
    ) -> None:
        self.box, self.clock, self.interrupts = box, clock, interrupts
        self.n_probes = n_probes  # candidates that may be called to learn the shape before the others are
        self.check = check  # is called with the shape, as soon as it is known
        self._waiting: list[Any] = []  # the first values of the slices, until they are told

    def begin(self, parts: list[Slice]) -> None:
        self.interrupts.at_once = lambda: self.box.calling
        # the first candidates do not depend on how many numbers the objective gives: evaluate them, then begin for real
        first = [self.clock.call(Search.begin, (), part.search, part.keys, part.initial) for part in parts]
        self.box.check_workers(sum(len(part.wanted) for part in parts) * first[0].state.candidates.shape[1])
        if self.n_probes:
            self._probe(np.array(first[0].state.candidates[parts[0].wanted[0]], np.float64)[: self.n_probes])
        first, lost = self._repair(parts, first, np.int32(1))
        self._waiting = self._measure(parts, first, np.int32(1), lost)
        self.check(self.box.shape)
        for part, measured, raw in zip(parts, first, self._waiting, strict=True):
            part.search = replace(part.search, shape=self.box.shape)
            carry = self.clock.call(Search.begin, (), part.search, part.keys, part.initial)
            asked = self.clock.call(Search.ask, (), part.search, carry, np.int32(1))
            if part.search.resamples or part.search.differences:
                asked = _with_candidates(asked, measured.state.candidates)
            part.carry = self.clock.call(_start, (self.box.problem.eq_tolerance,), part.search, asked, raw)

    def _probe(self, points: np.ndarray) -> None:
        """Call the first of the first run's candidates (k, d), until one has a value: where the functions turn out to
        give other numbers than was assumed, another algorithm begins with these points, and no call is lost.
        """
        if self.box.widths:  # a run that ended among its first points begins again
            self.check(self.box.shape)
            return
        each = PROBE_POINTS if self.box.remote is None else len(points)  # workers are kept busy
        for start in range(0, len(points), each):
            self.box.probe(points[start : start + each])
            if self.box.widths:
                self.check(self.box.shape)
                return

    def memory(self) -> Any:
        return self.box.memory()

    def restore(self, parts: list[Slice], carries: list[list[np.ndarray]]) -> None:
        self.interrupts.at_once = lambda: self.box.calling
        self.check(self.box.shape)
        for part, kept in zip(parts, carries, strict=True):
            part.search = replace(part.search, shape=self.box.shape)
            part.carry = with_arrays(jax.eval_shape(part.search.begin, part.keys, part.initial), kept)

    def pace(self, parts: list[Slice]) -> tuple[int, float]:
        return 0, 0.0

    def plan(self, length: int, seconds: float) -> int:
        return 1

    def advance(self, parts: list[Slice], first: int, count: int) -> list[list[Any]]:
        assert count == 1
        number = np.int32(first)
        asked: list[Any] = [part.carry for part in parts]
        waiting, self._waiting = self._waiting, []
        if not waiting:
            asked = [self.clock.call(Search.ask, (), part.search, part.carry, number) for part in parts]
            asked, lost = self._repair(parts, asked, number)
            waiting = self._measure(parts, asked, number, lost)
        tallies, tolerance = [], (self.box.problem.eq_tolerance,)
        for part, own, raw in zip(parts, asked, waiting, strict=True):
            arguments = (part.search, part.keys, own, number, raw)
            part.carry, row, tally = self.clock.call(_tell, tolerance, *arguments)
            part.latest = [row]
            tallies.append([tally])
        return tallies

    def finish(self, parts: list[Slice]) -> list[Finished]:
        return [
            self.clock.call(searching.finish, (part.span,), part.search, part.carry, part.relative) for part in parts
        ]

    def survivors(self, part: Slice) -> Population:
        return self.clock.call(searching.survivors, (), part.carry)

    def precompile(self, part: Slice) -> Iterator[None]:
        search, clock = part.search, CompileTimer(waits=False)
        if not self.box.widths or search.resamples or search.differences:
            return
        search, tolerance = replace(search, shape=self.box.shape), (self.box.problem.eq_tolerance,)
        carry = clock.program(Search.begin, (), (search, part.keys, part.initial)).zeros_like_output()
        yield
        asked = clock.program(Search.ask, (), (search, carry, np.int32(1))).zeros_like_output()
        runs, n = asked.state.candidates.shape[:2]
        raw = {name: np.zeros((runs, n, width), self.box.dtype) for name, width in self.box.widths.items()}
        clock.program(_tell, tolerance, (search, part.keys, asked, np.int32(1), raw))
        yield
        clock.program(_start, tolerance, (search, asked, raw))
        yield
        clock.program(searching.finish, (part.span,), (search, asked, part.relative))

    def _repair(self, parts: list[Slice], asked: list[Carry], number: Any) -> tuple[list[Carry], list[Any]]:
        """The carries with some candidates moved onto the constraints, where the search does so; and of each slice how
        many of the points tried for it failed, (S, n).
        """
        if not parts[0].search.differences:
            return asked, []
        points = [
            np.array(self.clock.call(probe_points, (), part.search, carry, number), np.float64)
            for part, carry in zip(parts, asked, strict=True)
        ]
        chosen = [np.zeros(own.shape[:2], bool) for own in points]
        for part, carry, rows in zip(parts, asked, chosen, strict=True):
            rows[_going(part, carry)] = True
        out, lost, tolerance = [], [], self.box.problem.eq_tolerance
        tried = self._values(parts, points, chosen, more=True)
        for part, carry, raw, rows in zip(parts, asked, tried, chosen, strict=True):
            known = [raw[name] for name in ("ineq", "eq") if name in raw]
            values = np.concatenate(known, axis=2).astype(carry.state.candidates.dtype)
            search = replace(part.search, shape=self.box.shape)
            out.append(self.clock.call(_repair_batch, (tolerance,), search, carry, number, values))
            failed = self._failed(raw, rows).astype(values.dtype)
            lost.append(
                self.clock.call(_count_failed_probes, (carry.state.candidates.shape[1],), search, number, failed)
            )
        return out, lost

    def _measure(
        self, parts: list[Slice], asked: list[Carry], number: Any, lost: list[Any]
    ) -> list[dict[str, np.ndarray]]:
        """Raw values {name: (S, n, width)} of each slice's candidates; NaN for runs that are finished or not wanted and
        for candidates that are not to be evaluated, which cost no calls. Where fresh points took the place of failed
        ones, they do so in `asked`, too, and "again" (S, n) tells how often. lost: of `_mended`, kept as "lost".
        """
        chosen = [self._chosen(part, carry, number) for part, carry in zip(parts, asked, strict=True)]
        points = [np.array(carry.state.candidates, np.float64) for carry in asked]
        out = self._values(parts, points, chosen)
        each, rooms = (
            count_candidate_evaluations(parts[0].search.algorithm),
            [np.full(len(rows), np.inf) for rows in chosen],
        )
        if parts[0].search.resamples and parts[0].search.rules.evaluations is not None:
            rooms = [
                np.array(self.clock.call(Search.spare, (), part.search, carry, number), np.float64)
                for part, carry in zip(parts, asked, strict=True)
            ]
        for attempt in range(parts[0].search.resamples):
            failed = [self._failed(raw, rows) for raw, rows in zip(out, chosen, strict=True)]
            failed = [
                rows & (each * np.cumsum(rows, axis=1) <= left[:, None])
                for rows, left in zip(failed, rooms, strict=True)
            ]
            if self.box.missed.any() or not any(rows.any() for rows in failed):
                break
            for i, (part, rows) in enumerate(zip(parts, failed, strict=True)):
                drawn = self.clock.call(
                    _fresh, (points[i].shape[1],), part.search, part.keys, number, np.int32(attempt)
                )
                points[i][rows] = np.asarray(drawn, np.float64)[rows]
            values = self._values(parts, points, failed)
            for raw, now, rows, left in zip(out, values, failed, rooms, strict=True):
                raw["again"] = raw.get("again", 0) + rows
                left -= each * rows.sum(axis=1)
                for name in self.box.widths:
                    raw[name][rows] = now[name][rows]
        for i, (carry, raw) in enumerate(zip(asked, out, strict=True)):
            kind = carry.state.candidates.dtype
            out[i] = {name: np.asarray(values, kind) for name, values in raw.items()}
            if parts[0].search.resamples:
                out[i].setdefault("again", np.zeros(chosen[i].shape, kind))
                asked[i] = _with_candidates(carry, points[i].astype(kind))
            if lost:
                out[i]["lost"] = np.asarray(lost[i])
        return out

    def _values(
        self, parts: list[Slice], points: list[np.ndarray], chosen: list[np.ndarray], more: bool = False
    ) -> list[dict[str, np.ndarray]]:
        """Raw values of the chosen candidates, {name: (S, n, width)} of each slice. more: see `BlackBox`."""
        raw = self.box(np.concatenate([own[rows] for own, rows in zip(points, chosen, strict=True)]), more)
        at, out = 0, []  # in order, one run after the other
        for part, rows in zip(parts, chosen, strict=True):
            here = slice(at, at + int(rows.sum()))
            own = {name: np.full((*rows.shape, values.shape[1]), np.nan) for name, values in raw.items()}
            for name, values in raw.items():
                own[name][rows] = values[here]
            missed = np.zeros(rows.shape, np.int64)
            missed[rows] = self.box.missed[here]
            part.track.skipped = part.track.skipped + missed.sum(axis=1)
            out.append(own)
            at = here.stop
        return out

    def _failed(self, raw: dict[str, np.ndarray], chosen: np.ndarray) -> np.ndarray:
        """Which of the chosen candidates failed, (S, n)."""
        flat = {name: raw[name].reshape(-1, raw[name].shape[-1]).astype(self.box.dtype) for name in self.box.widths}
        tolerance = self.box.problem.eq_tolerance
        judged = summarise(flat["fun"], flat.get("ineq"), flat.get("eq"), tolerance, np)
        return chosen & np.asarray(judged.failed).reshape(chosen.shape)

    def _chosen(self, part: Slice, asked: Carry, number: Any) -> np.ndarray:
        """Which candidates are to be evaluated, (S, n)."""
        runs, n = asked.state.candidates.shape[:2]
        rows = np.zeros((runs, n), bool)
        rows[_going(part, asked)] = True
        if not part.search.algorithm.traits.fixed_evaluations:
            counts = np.asarray(self.clock.call(Search.counts, (), part.search, asked, number))
            rows &= np.arange(n) < counts[:, None]
        return rows


def _going(part: Slice, asked: Carry) -> np.ndarray:
    """The places of the runs that are wanted and not finished."""
    assert asked.frozen is not None
    running = np.asarray(asked.frozen.marks)[:, REASON] == RUNNING
    return part.wanted[running[part.wanted]]


def _evaluation(eq_tolerance: float, raw: Any) -> Evaluation:
    evaluation = jax.vmap(lambda v: summarise(v["fun"], v.get("ineq"), v.get("eq"), eq_tolerance))(raw)
    again, lost = raw.get("again"), raw.get("lost")
    failed = [each for each in (again, lost) if each is not None]  # whatever was tried again had failed
    return evaluation._replace(again=again, lost=sum(failed) if failed else None)


def _with_candidates(asked: Carry, candidates: Any) -> Carry:
    return asked._replace(state=asked.state._replace(candidates=candidates))


def _fresh(count: int, search: Search, keys: Array, number: Array, attempt: Array) -> Array:
    return fresh(count, search, jax.vmap(random.fold_in, in_axes=(0, None))(keys, number), attempt)


def _repair_batch(eq_tolerance: float, search: Search, asked: Carry, number: Array, values: Array) -> Carry:
    return repair(search, asked, number, values, eq_tolerance)


def _count_failed_probes(count: int, search: Search, number: Array, failed: Array) -> Array:
    return count_failed_probes(search, count, number, failed)


def _start(eq_tolerance: float, search: Search, asked: Carry, raw: Any) -> Carry:
    return search.start(asked, _evaluation(eq_tolerance, raw))


def _tell(
    eq_tolerance: float, search: Search, keys: Array, asked: Carry, number: Array, raw: Any
) -> tuple[Carry, Array, Array]:
    own = jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)
    carry, row = search.tell(asked, own, number, _evaluation(eq_tolerance, raw))
    return carry, *summarize_chunk(search, row[None], np.int32(1), carry)
