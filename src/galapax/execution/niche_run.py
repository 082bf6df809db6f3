"""Run the searches for minima: evaluate what they ask for, show how far they are, and save their state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from galapax.core.errors import InputError
from galapax.core.problem import CandidateEvaluation, Record, Shape
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.execution.observers import (
    MAX_INDIVIDUALS,
    MAX_VARIABLES,
    QUANTILES,
    Best,
    HistorySample,
    PopulationSample,
    Progress,
    Session,
    Waiting,
)
from galapax.execution.polish import MAX_SLICE_RUNS, refine_slice
from galapax.execution.state import BatchCheckpoint, CheckpointSession, Track
from galapax.execution.task import Task
from galapax.local.niches import DescentEnds, Descents, NicheSearch
from galapax.local.refine import RefinedRuns
from galapax.numerics.compile_cache import CompileTimer
from galapax.numerics.devices import on_cpu
from galapax.objective.blackbox import BlackBox
from galapax.objective.evaluation_log import summarise
from galapax.objective.traced import Traced, evaluate_points

DESCENT_ROWS = 16  # descents that a compiled program makes at once on a CPU
PROGRAM_ROWS = (16, 64, 256, 512, 1024, 2048, 4096)  # points that a compiled program evaluates at once on a CPU
ACCELERATOR_ROWS = (1024, 16384)  # and elsewhere, where few sizes matter more
INFEASIBLE = 1e300  # scores from here on are of infeasible points, the less the nearer to feasible


class ScoreEvaluator:
    """Evaluates points of the unit box by one number, the less the better: feasible ones by their value."""

    def __init__(self, task: Task, box: BlackBox | None, clock: CompileTimer) -> None:
        self.task, self.box, self.clock = task, box, clock
        self.n_failed = np.zeros(task.runs, int)
        self.bounds = task.problem.bounds.round_inwards(np.dtype(task.dtype))

    def genes(self, x: np.ndarray) -> np.ndarray:
        lower, upper = (np.asarray(side, np.float64) for side in (self.bounds.lower, self.bounds.upper))
        return np.clip(lower + (upper - lower) * x, lower, upper)

    def snap(self, x: np.ndarray) -> np.ndarray:
        """Points of the unit box at the codes of integers and choices."""
        space = self.task.problem.space
        if space is None or not space.discrete.any():
            return x
        lower, upper = (np.asarray(side, np.float64) for side in (self.bounds.lower, self.bounds.upper))
        return (space.round_codes(self.genes(x)) - lower) / (upper - lower)

    def evaluate(self, x: np.ndarray, runs: np.ndarray) -> CandidateEvaluation:
        genes = self.genes(x)
        if self.box is None:
            traced = Traced(self.task.objective, self.task.consts)  # type: ignore[arg-type]
            sizes = PROGRAM_ROWS if on_cpu() else ACCELERATOR_ROWS
            rows = next((size for size in sizes if size >= len(x)), sizes[-1])
            return evaluate_points(traced, genes, self.task.dtype, rows)
        raw = self.box(genes, self.task.first_run + runs)
        if raw["fun"].shape[1] != 1:
            raise InputError(f"minima needs one objective, and fun returned {raw['fun'].shape[1]} numbers.")
        if "eq" in raw:
            self.box.settle_eq_tolerance(raw["eq"])
        self.box.complete_generation()
        return summarise(raw["fun"], raw.get("ineq"), raw.get("eq"), self.box.eq_tolerance, np)

    def __call__(self, x: np.ndarray, runs: np.ndarray) -> np.ndarray:
        """The scores (n,) of points x (n, d) of these runs (n,), from 0."""
        evaluation = self.evaluate(x, runs)
        value = np.asarray(evaluation.objectives, np.float64)[:, 0]
        failed = np.asarray(evaluation.failed) | ~np.isfinite(value)
        violation = None if evaluation.violation is None else np.asarray(evaluation.violation, np.float64)
        return merge_violation(value, violation, failed)

    def descend(self, x: np.ndarray, limits: np.ndarray) -> DescentEnds:
        """Descend from points x (k, d) by the gradient, each with so many evaluations (k,)."""
        genes, rows = self.genes(x), DESCENT_ROWS if on_cpu() else MAX_SLICE_RUNS
        blocks = []
        for start in range(0, len(x), rows):
            block = slice(start, start + rows)
            padded = np.resize(genes[block], (rows, genes.shape[1]))
            shares = np.where(np.arange(rows) < len(genes[block]), np.resize(limits[block], rows), 0)
            refined = refine_slice(self.task, self.clock, padded, shares)
            blocks.append(jax.tree.map(lambda a: a[: len(genes[block])], refined))  # noqa: B023
        ends: RefinedRuns = jax.tree.map(lambda *arrays: np.concatenate(arrays), *blocks)
        lower, upper = (np.asarray(side, np.float64) for side in (self.bounds.lower, self.bounds.upper))
        violation = np.asarray(ends.violation, np.float64) if self.task.problem.constrained else None
        value = np.asarray(ends.value, np.float64)
        scores = merge_violation(value, violation, ~np.isfinite(value) | ~np.isfinite(ends.violation))
        places = np.clip((np.asarray(ends.x, np.float64) - lower) / (upper - lower), 0, 1)
        return DescentEnds(places, scores, np.asarray(ends.evaluations), np.asarray(ends.smooth))


def merge_violation(value: np.ndarray, violation: np.ndarray | None, failed: np.ndarray) -> np.ndarray:
    """Return scores (n,): values of feasible points, above all of them the others by their violation, inf if failed."""
    if violation is None:
        return np.where(failed, np.inf, value)
    violation = np.where(failed, 0.0, violation)
    # 1 / (1 + v) keeps the order of violations from 1e-16 on
    beyond = INFEASIBLE * (1.0 + violation / (1.0 + violation))
    return np.where(failed, np.inf, np.where(violation > 0, beyond, value))


def read_violation(scores: np.ndarray) -> np.ndarray:
    """Return the violation of points with these scores, as `merge_violation` has put it in."""
    share = np.clip(scores / INFEASIBLE - 1, 0, None)  # v / (1 + v)
    return np.where(scores >= INFEASIBLE, share / np.maximum(1 - share, 1e-300), 0.0)


class AnswerLog:
    """The numbers that the searches were told, in their order. From those of an earlier process it answers first."""

    def __init__(self, stored: np.ndarray) -> None:
        self.stored, self.n_replayed, self.blocks = stored, 0, [np.zeros(0)]

    def answer(self, shape: tuple[int, ...], compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the next numbers of this shape."""
        size = math.prod(shape)
        end = self.n_replayed + size
        if end <= len(self.stored):
            block, self.n_replayed = self.stored[self.n_replayed : end].reshape(shape), end
        else:
            block = compute()
        self.blocks.append(block.ravel())
        return block

    def numbers(self) -> np.ndarray:
        self.blocks = [np.concatenate(self.blocks)]
        return self.blocks[0]


class RoundView:
    """What the live page reads of the searches: a round is a generation, and the minima so far are the population."""

    def __init__(
        self, searches: Sequence[NicheSearch], shape: Shape, genes: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        self.searches, self.shape, self.genes = searches, shape, genes

    def survivors(self, run: int) -> PopulationSample:
        """The minima of interest of this run, the best ones if there are very many."""
        search = self.searches[run]
        minima = sorted(search.best_minima() or [search.best_sample], key=lambda minimum: minimum.score)
        genes = self.genes(np.array([minimum.x for minimum in minima[:MAX_INDIVIDUALS]]))
        scores = np.array([minimum.score for minimum in minima[:MAX_INDIVIDUALS]])
        violation = read_violation(scores) if self.shape.constrained else None
        return PopulationSample(
            genes[:, :MAX_VARIABLES].astype(np.float32), _values(scores)[:, None], violation, genes[0]
        )

    def rows(self, chosen: np.ndarray, run: int, before: Track, now: Track) -> HistorySample:
        """These of the rounds that lie between the two tracks."""
        table = self._rounds(chosen, run, before, now)
        best, mean, worst = (_values(column)[:, None] for column in table.T[2:])
        violation = read_violation(table[:, 2]) if self.shape.constrained else None
        share = None if violation is None else (violation <= 0).astype(float)
        record = Record(1.0, np.zeros(len(table)), table[:, 0], best, mean, worst, violation, share)
        median = np.median(self.survivors(run).objectives, axis=0)
        if len(self.searches) == 1:
            return HistorySample(record, median, None)
        scores = [self._rounds(chosen, other, before, now)[:, 2] for other in range(len(self.searches))]
        bests = np.sort(np.where(np.array(scores) < INFEASIBLE, scores, np.inf), axis=0)
        return HistorySample(record, median, bests[np.rint(np.array(QUANTILES) * (len(bests) - 1)).astype(int)].T)

    def _rounds(self, chosen: np.ndarray, run: int, before: Track, now: Track) -> np.ndarray:
        """These rounds of a run, (n, 5); its last one where it has fewer, inf before its first."""
        rounds = np.array([[0.0, 0.0, np.inf, np.inf, np.inf], *self.searches[run].rounds])
        return rounds[np.minimum(before.generations[run] + 1 + chosen, now.generations[run])]

    def track(self, n_failed: np.ndarray) -> Track:
        """What is known of each run now."""
        searches = self.searches
        scores = np.array([search.best_sample.score for search in searches])
        means = np.array([search.rounds[-1].mean if search.rounds else np.inf for search in searches])
        ends = [Stop.TOLERANCE if search.is_done else Stop.BUDGET for search in searches]
        reasons = [STOP_CODES[end] if s.is_verifying else RUNNING for end, s in zip(ends, searches, strict=True)]
        zeros = np.zeros(len(searches))
        return Track(
            generations=np.array([search.n_rounds for search in searches]),
            evaluations=np.array([search.evaluations for search in searches]),
            best=np.where(scores < INFEASIBLE, scores, np.inf),
            violation=np.where(np.isfinite(scores), read_violation(scores), np.inf),
            failed=n_failed,
            reason=np.array(reasons),
            skipped=zeros,
            feasible_share=(scores < INFEASIBLE).astype(float),
            hypervolume=zeros + np.nan,
            mean=means,
        )


def _values(scores: np.ndarray) -> np.ndarray:
    return np.where(scores < INFEASIBLE, scores, np.nan)


class MinimaRun:
    """Searches that advance together, with those who watch them."""

    def __init__(
        self,
        task: Task,
        searches: Sequence[NicheSearch],
        evaluate: ScoreEvaluator,
        began: float,
        callback: Callable[[Progress], Any] | None,
        show: Callable[[Progress | Waiting], None],
        page: Session | None,
        journal: CheckpointSession | None,
    ) -> None:
        self.task, self.searches, self.evaluate, self.began = task, searches, evaluate, began
        self.callback, self.show, self.page, self.journal = callback, show, page, journal
        constrained = task.problem.constrained
        self.view = RoundView(searches, Shape(ineq=int(constrained)), evaluate.genes)
        self.track, self.paused_seconds = Track.start(len(searches)), 0.0
        self.callback_error: Exception | None = None
        saved = None if journal is None else journal.begin_batch()
        self.log = AnswerLog(saved.carries[0][0] if isinstance(saved, BatchCheckpoint) else np.zeros(0))
        self.n_rounds = 0  # of all searches, at the last Progress

    def is_late(self) -> bool:
        limit = self.task.options.max_seconds
        return limit is not None and time.perf_counter() - self.began - self.paused_seconds > limit

    def finish(self, is_interrupted: Callable[[], bool]) -> Stop | None:
        """Evaluate what the searches ask for until they are done; return what stopped them before, if any."""
        if self.page is not None:
            self.page.on_batch_start(self.task.first_run)
        moves = [search.run() for search in self.searches]
        requests = {row: next(move) for row, move in enumerate(moves)}
        stop = None
        while requests and stop is None:
            answers = self.answer(requests)
            stop = self.why_stopped(is_interrupted)
            if stop in (Stop.INTERRUPT, Stop.WORKERS) and self.evaluate.box is not None:
                self.log.blocks.pop()  # some of its points were not evaluated
                break
            requests = {}
            for row, answer in answers.items():
                with suppress(StopIteration):
                    requests[row] = moves[row].send(answer)
            stop = stop or self.report(bool(requests), is_interrupted)
            if self.journal is not None and self.journal.due(self.n_rounds):
                self.journal.save(self.checkpoint())
        if self.journal is not None:
            self.journal.save(self.checkpoint())
        return stop

    def answer(self, requests: dict[int, np.ndarray | Descents]) -> dict[int, np.ndarray | DescentEnds]:
        """Answer one request of each search, points by their scores and descents by their ends."""
        answers: dict[int, np.ndarray | DescentEnds] = {}
        samples = {row: request for row, request in requests.items() if not isinstance(request, Descents)}
        if samples:
            x, counts = np.concatenate([*samples.values()]), [len(points) for points in samples.values()]
            runs = np.repeat([*samples], counts)
            scores = self.log.answer((len(x),), lambda: self.evaluate(x, runs))
            self.evaluate.n_failed += np.bincount(runs[np.isinf(scores)], minlength=len(self.searches))
            answers |= zip(samples, np.split(scores, np.cumsum(counts)[:-1]), strict=True)
        descents = {row: request for row, request in requests.items() if isinstance(request, Descents)}
        if descents:
            counts = [len(request.x) for request in descents.values()]
            limits = np.repeat([request.limit for request in descents.values()], counts)
            x = np.concatenate([request.x for request in descents.values()])
            ends = self.log.answer((len(x), x.shape[1] + 3), lambda: np.column_stack(self.evaluate.descend(x, limits)))
            parts = np.split(ends, np.cumsum(counts)[:-1])
            answers |= {
                row: DescentEnds(part[:, :-3], part[:, -3], part[:, -2].astype(int), part[:, -1] > 0)
                for row, part in zip(descents, parts, strict=True)
            }
        return answers

    def why_stopped(self, is_interrupted: Callable[[], bool]) -> Stop | None:
        box = self.evaluate.box
        if is_interrupted() or (box is not None and box.interrupted):
            return Stop.INTERRUPT
        if box is not None and box.halt_reason:
            return Stop.WORKERS
        return Stop.TIME if self.is_late() else None

    def report(self, is_running: bool, is_interrupted: Callable[[], bool]) -> Stop | None:
        """Show how far the searches are, after each round or call of a black box; return why to stop, if so."""
        searches, box = self.searches, self.evaluate.box
        n_rounds = sum(search.n_rounds for search in searches)
        if n_rounds == self.n_rounds and box is None and is_running:
            return None
        self.n_rounds = n_rounds
        assert searches[0].max_evaluations is not None
        best = min(search.best_sample.score for search in searches)
        state = Progress(
            generation=max(search.n_rounds for search in searches),
            generations=None,
            nfev=sum(search.evaluations for search in searches),
            fun=self.task.sign * best if abs(best) < INFEASIBLE else math.nan,
            violation=0.0 if best < INFEASIBLE else math.inf,
            runs_done=sum(search.is_verifying for search in searches),
            runs=len(searches),
            seconds=time.perf_counter() - self.began,
            max_seconds=self.task.options.max_seconds,
            max_evaluations=searches[0].max_evaluations * len(searches),
            overhead=self.evaluate.clock.compile_seconds,
            restored=self.log.n_replayed > 0,
            read_best=self.read_best,
        )
        self.show(state)
        try:
            reply = None if self.callback is None else self.callback(state)
        except StopIteration:
            return Stop.CALLBACK
        except Exception as error:  # raised again with the result
            self.callback_error = error
            return Stop.CALLBACK
        finally:
            state.read_best = None
        return Stop.CALLBACK if reply is True else self.update_page(is_running, is_interrupted)

    def update_page(self, is_running: bool, is_interrupted: Callable[[], bool]) -> Stop | None:
        """Show the minima on the live page, and wait while its viewer pauses the search; return whether the viewer
        stops it."""
        if self.page is None:
            return None
        before, self.track = self.track, self.view.track(self.evaluate.n_failed)
        generation = int(self.track.generations.max())
        self.page.on_chunk(generation, before, self.track, self.view, not is_running)
        if not is_running:
            return None
        started_at = time.perf_counter()
        stop = self.page.wait_if_paused(is_interrupted)
        self.paused_seconds += time.perf_counter() - started_at
        return stop

    def read_best(self) -> Best:
        """The best point of all searches."""
        sample = min((search.best_sample for search in self.searches), key=lambda sample: sample.score)
        if not math.isfinite(sample.score):
            return Best()
        x = self.task.decode(self.evaluate.genes(sample.x))
        return Best(x, self.task.problem.params(x))

    def checkpoint(self) -> BatchCheckpoint:
        box = self.evaluate.box
        memory = None if box is None else box.memory()
        return BatchCheckpoint(self.n_rounds, [[self.log.numbers()]], [], [], {}, memory, len(self.searches))
