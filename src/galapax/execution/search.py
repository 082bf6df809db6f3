"""One generation of R runs as pure functions: ask for candidates, evaluate them, tell their values.

`Search` knows no clock, no file and no print. Compiled engines call `generation` in a loop; the host engine and the
Optimizer call `ask` and `tell` around evaluations of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from galapax.core.algorithm import (
    Algorithm,
    Forecast,
    State,
    TakesKnownValues,
    count_by_method,
    count_evaluations,
    estimate_distribution,
    forecast_objectives,
    insert_initial_points,
    is_shared,
    select_opponents,
    select_solutions,
    static,
)
from galapax.core.problem import Bounds, CandidateEvaluation, Columns, Population, Record, Shape, as_population
from galapax.core.restarts import same_point_distance
from galapax.core.stop import RUNNING, STOP_CODES, Rules, Stop
from galapax.execution.candidate_repair import repair_traced, resample_failed, rows_to_repair
from galapax.metrics.indicators import hypervolume_by_generation
from galapax.numerics import devices, random
from galapax.numerics.jaxpr import isolate
from galapax.objective.hoist_constants import Constants
from galapax.objective.traced import append_keys
from galapax.operators.ranking import first_front, is_feasible
from galapax.operators.selection import best_index
from galapax.operators.variation import round_codes, snap_to_grid


class CandidatesOnly(NamedTuple):
    """Candidates without the rest of a state, which traced functions do not read."""

    candidates: Array


def evaluate_sharded(
    objective: TracedObjective, consts: Constants, candidates: Array, count: int
) -> CandidateEvaluation:
    """Evaluate candidates (R, n, d), an equal part on each of `count` devices; all of them get the result."""
    mesh, n = devices.make_mesh(count), candidates.shape[1]
    padding = jnp.repeat(candidates[:, :1], -n % count, axis=1)  # so that the parts are equal

    def evaluate_shard(consts: Constants, shard: Array) -> CandidateEvaluation:
        return objective.evaluate(consts, CandidatesOnly(shard))

    shard_spec = PartitionSpec(None, devices.MESH_AXIS)
    in_specs = (PartitionSpec(), shard_spec)
    # unchecked: formulas were traced before, without axes that differ from device to device
    sharded = jax.shard_map(evaluate_shard, mesh=mesh, in_specs=in_specs, out_specs=shard_spec, check_vma=False)
    padded = sharded(consts, jnp.concatenate([candidates, padding], axis=1))
    replicated = lax.with_sharding_constraint(padded, NamedSharding(mesh, PartitionSpec()))
    return jax.tree.map(lambda a: a[:, :n], replicated)


def evaluate_isolated(
    objective: TracedObjective, consts: Constants, candidates: Array, number: Array | int
) -> CandidateEvaluation:
    """Evaluate candidates (R, n, d); the values have the same bits in every program."""

    def evaluate(consts: Constants, candidates: Array) -> CandidateEvaluation:
        return objective.evaluate(consts, CandidatesOnly(candidates))

    return isolate(number, evaluate, consts, candidates)


MAX_FINALISTS = 16  # of a noisy run's survivors, among which its answer is looked for
BEST, VIOLATION, SINCE_BETTER, REASON, SPENT, STEP_ACCEPTED = range(6)  # of `StopState.stop_columns`


class TracedObjective(Protocol):
    """An objective as part of the program: hashable, its arrays come as data."""

    @property
    def text(self) -> str:
        """The program as text: equal texts are the same program."""

    @property
    def is_random(self) -> bool:
        """Whether each candidate needs a key behind it."""

    def evaluate(self, consts: Constants, state: State | CandidatesOnly) -> CandidateEvaluation:
        """Evaluate `state.candidates` (R, n, d); every array of the evaluation has the runs as its first axis."""

    def repair(self, consts: Constants, x: Array, bounds: Bounds) -> Array:
        """Return x (d,) moved towards the constraints that it violates."""


class StopState(NamedTuple):
    """What is needed to stop each run of a batch at its own generation."""

    state: (
        State | None
    )  # before the last step; None once it is known which state holds, or where no run continues after another
    stop_columns: Array  # (R, 6), see above. One array, since every small one is a kernel of its own on a GPU


class Carry(NamedTuple):
    """A batch of runs between two generations; every leaf but shared ones has the runs as its first axis.

    `state` is as the last step left it. Where runs can finish before others, the state before that step is kept too,
    and ACCEPTED tells which of the two holds. Choosing at the start of the next generation and not at the end of this
    one lets XLA write the step's results once and read them; a mask at the end made it compute the survivors again for
    each partner drawn (half the time of small ensembles on a CPU).
    """

    state: State
    stop_state: StopState | None


class LastSamples(NamedTuple):
    """Where a search under noise has ended, of R runs."""

    centre: Array  # (R, d), of its last samples, in the unit cube
    root: Array  # (R, d, d), of their covariance
    points: Array  # (R, k, d), the survivors with the best values, which are lucky ones
    violation: Array  # (R, k)
    rivals: Array | None = None  # (R, k, d), the centres of a run's other searches


class Finished(NamedTuple):
    """The results of a batch of R runs."""

    x: Array  # (R, d), the best of each
    survivors: Population  # of the best run of each cell, (cells, n, ...); with several objectives of every run
    individuals: (
        Population | None
    )  # with several objectives: the individuals among whom each run's front is, (R, k, ...)
    is_on_front: Array | None  # whether each of them is on the front, (R, k)
    opponents: Array | None  # (R, ...), what they were judged by besides the problem
    by_method: Array | None  # (R, k), evaluations of each method of an algorithm that combines some
    last: LastSamples | None = None  # of a noisy objective
    forecast: Forecast | None = None  # with several objectives: what each run's models expect, (R, ...)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Search:
    """R runs of an algorithm on a problem.

    algorithm: hyper-parameters that differ between the runs are (R,), all others single numbers.
    objective, consts: of a traced problem; None where the caller evaluates.
    repairs: number of candidates per generation that are repaired before evaluation, by the objective's `repair`.
    differences: whether they are repaired by finite differences instead, which the engine evaluates, see
        candidate_repair.py.
    per_run_stopping: whether runs can finish before others.
    stop_when_all_done: whether the engine's loop ends with the last running run; a single run then needs no copy of its
        state from before.
    record_best_x: whether the best x of each generation is recorded.
    resamples: number of fresh points that may replace a candidate that failed.
    all_discrete: whether all variables are codes of integers or choices.
    n_devices: devices that share the evaluation of a generation; 0 where one evaluates all of it.
    noisy: whether the values are random.
    splits_last: whether the last generation may be a part of one, so that the budget is used to the last evaluation.
    isolates_evaluation: whether candidates are evaluated apart from the rest of a generation, so that the values are
        the same to the last bit as those of a program that does nothing else, see `isolate`.
    only_evaluates: whether the only generation evaluates the first candidates and breeds no others: what follows it is
        no generation. That is a small program, whatever the algorithm.
    """

    algorithm: Algorithm
    bounds: Bounds
    rules: Rules
    consts: Constants | None = None
    shape: Shape = static(Shape())  # noqa: RUF009 (a field)
    objective: TracedObjective | None = static(None)  # noqa: RUF009
    repairs: int = static(0)
    differences: bool = static(False)
    per_run_stopping: bool = static(True)
    stop_when_all_done: bool = static(False)
    record_best_x: bool = static(False)
    resamples: int = static(0)
    all_discrete: bool = static(False)
    n_devices: int = static(0)
    noisy: bool = static(False)
    splits_last: bool = static(False)
    isolates_evaluation: bool = static(False)
    only_evaluates: bool = static(False)

    @property
    def columns(self) -> Columns:
        """The columns of the history."""
        return Columns(self.shape, self.rules.reference is not None, self.bounds.dim if self.record_best_x else 0)

    def begin(
        self, keys: Array, initial: Array | None = None, known: tuple[Array, CandidateEvaluation] | None = None
    ) -> Carry:
        """Return the carry before the first generation of the runs with these keys (R, 2).

        initial: points (k, d) that replace the first candidates of every run, or (R, k, d), those of each run.
        known: evaluated points for an algorithm that learns from them, see `TakesKnownValues`.
        """

        def init(algorithm: Algorithm, key: Array, points: Array | None) -> State:
            state = algorithm.init(random.fold_in(key, 0), self.bounds, self.shape)
            if known is not None:
                assert isinstance(algorithm, TakesKnownValues)
                state = algorithm.with_known_values(state, *known)
            return state if points is None else insert_initial_points(algorithm, state, points)

        single = jax.tree.map(
            lambda a: a if is_shared(a) else jax.ShapeDtypeStruct(a.shape[1:], a.dtype),
            self.algorithm,
            is_leaf=is_shared,
        )
        axes = run_axes(jax.eval_shape(lambda algorithm, key: init(algorithm, key, None), single, keys[0]))
        points_axis = 0 if initial is not None and initial.ndim == 3 else None
        batched = jax.vmap(init, in_axes=(self.setting_axes, 0, points_axis), out_axes=axes)
        state = batched(self.algorithm, keys, initial)
        if self._snaps:
            state = state._replace(candidates=round_codes(state.candidates, self.bounds))
        if not self.per_run_stopping:
            return Carry(state, None)
        first = jnp.array([jnp.inf, jnp.inf, 0, RUNNING, 0, 1], state.candidates.dtype)
        before = jax.tree.map(jnp.copy, state) if self._keeps(keys) else None
        return Carry(state, StopState(before, jnp.tile(first, (keys.shape[0], 1))))

    def init_and_start(self, keys: Array, initial: Array | None = None) -> Carry:
        """`begin` for a traced objective, followed by the algorithm's `start` with its first evaluation, if it has one.

        That is done here, once: in the loop it would be kernels of every generation. The first generation evaluates
        its candidates again.
        """
        carry = self.begin(keys, initial)
        if not self.has_start:
            return carry
        pending = self.ask(carry, 1)
        started = self.start(pending, self.evaluate(pending, keys))
        state = started.state._replace(candidates=carry.state.candidates)  # not repaired yet
        if carry.stop_state is None or carry.stop_state.state is None:
            return carry._replace(state=state)
        return Carry(state, carry.stop_state._replace(state=jax.tree.map(jnp.copy, state)))

    @property
    def has_start(self) -> bool:
        """Whether the algorithm sets something from the evaluation of the first candidates."""
        return type(self.algorithm).start is not Algorithm.start

    def without_objective(self) -> Search:
        """Return the search for programs that evaluate nothing, which are then the same for every objective."""
        return replace(self, objective=None, consts=None)

    def without_generation(self) -> Search:
        """Return the search for programs that compute no generation, which are the same whatever a generation does."""
        return replace(self.without_objective(), only_evaluates=False)

    def ask(self, carry: Carry, number: Array | int) -> Carry:
        """Return the carry whose `state.candidates` (R, n, d) are to be evaluated in generation `number`, from 1."""
        state = active_state(carry)
        if self.repairs and not self.differences:
            state = state._replace(candidates=self._repair(state.candidates, number))
        return Carry(state, None if carry.stop_state is None else StopState(None, carry.stop_state.stop_columns))

    def evaluate(self, pending: Carry, keys: Array) -> CandidateEvaluation:
        """Evaluate the candidates of a traced objective. keys: (R, 2), of the generation."""
        assert self.objective is not None and self.consts is not None
        state: State | CandidatesOnly = pending.state
        if self.objective.is_random:
            noise_keys = jax.vmap(lambda key: random.fold_in(key, random.Stream.NOISE))(keys)
            state = CandidatesOnly(jax.vmap(append_keys)(state.candidates, noise_keys))
        if self.n_devices:
            return evaluate_sharded(self.objective, self.consts, state.candidates, self.n_devices)
        return self.objective.evaluate(self.consts, state)

    def start(self, pending: Carry, evaluation: CandidateEvaluation) -> Carry:
        """Call the algorithm's `start` with the evaluation of the first candidates, before `tell`."""

        def one(algorithm: Algorithm, state: State, evaluation: CandidateEvaluation) -> State:
            return algorithm.start(state, evaluation, self.shape)

        axes = run_axes(pending.state)
        start_all = jax.vmap(one, in_axes=(self.setting_axes, axes, 0), out_axes=axes)
        return pending._replace(state=start_all(self.algorithm, pending.state, evaluation))

    def tell(
        self,
        pending: Carry,
        keys: Array,
        number: Array | int,
        evaluation: CandidateEvaluation,
        ends: bool | None = None,
    ) -> tuple[Carry, Array]:
        """Complete generation `number` of every run: return the new carry and a packed Record (columns, R).

        keys: (R, 2), of the runs for this generation. ends: whether it is the last of a round (see `round`), if that is
        known when the program is compiled.
        """
        axes = run_axes(pending.state)
        stop_columns = None if pending.stop_state is None else pending.stop_state.stop_columns
        evaluation = self.mask_inactive(pending, number, evaluation)

        def one(algorithm: Algorithm, key: Array, state: State, evaluation: CandidateEvaluation) -> State:
            if self.only_evaluates:
                return state._replace(parents=as_population(state.candidates, evaluation))
            return algorithm.step(key, state, evaluation)

        step = jax.vmap(one, in_axes=(self.setting_axes, 0, axes, 0), out_axes=axes)
        state = self._apply_cycle(step(self.algorithm, keys, pending.state, evaluation), keys, number, ends)
        if self._snaps:
            state = state._replace(candidates=self._on_grid(keys, state))
        termination = None if stop_columns is None else self._termination_at_round_end(state, number, ends)

        def describe(
            algorithm: Algorithm,
            before: State,
            state: State,
            evaluation: CandidateEvaluation,
            stop_columns: Array | None,
            termination: Array | None,
            budget: Array | None,
            n_candidates: Array | None,
        ) -> tuple[Array | None, Array]:
            count = count_evaluations(algorithm, before, number)
            if evaluation.known is not None and n_candidates is not None:
                evaluated = jnp.arange(evaluation.known.shape[0]) < n_candidates
                count = count - jnp.sum(evaluation.known & evaluated)
            n_evaluations = self._count_affordable(count, budget)
            if evaluation.n_resampled is not None:
                n_evaluations = n_evaluations + jnp.sum(evaluation.n_resampled)
            record = self._summarize(state.parents, select_solutions(algorithm, state), evaluation, n_evaluations)  # type: ignore[arg-type]
            if stop_columns is None:
                return None, record.pack(state.candidates.dtype)
            following = 1 if self.splits_last else count_evaluations(algorithm, state, number + 1) + self.repair_cost
            stop_columns = self._update_stop_columns(
                stop_columns, record, termination, None if budget is None else following > budget - record.evaluations
            )
            return stop_columns, record._replace(active=stop_columns[STEP_ACCEPTED]).pack(state.candidates.dtype)

        column_axis = None if stop_columns is None else 0
        budget = self._evaluations_left(pending)
        n_candidates = None if evaluation.known is None else self.counts(pending, number, evaluation.known)
        in_axes = (self.setting_axes, axes, axes, 0, column_axis, column_axis, 0, 0)
        stop_columns, row = jax.vmap(describe, in_axes=in_axes, out_axes=(0, 1))(
            self.algorithm, pending.state, state, evaluation, stop_columns, termination, budget, n_candidates
        )
        before = pending.state if self._keeps(keys) else None
        return Carry(state, None if stop_columns is None else StopState(before, stop_columns)), row

    def generation(
        self,
        carry: Carry,
        keys: Array,
        number: Array | int,
        ends: bool | None = None,
        evaluation: CandidateEvaluation | None = None,
    ) -> tuple[Carry, Array]:
        """Ask, evaluate and tell, for a traced objective. keys: (R, 2), of the generation.

        evaluation: of the candidates, if another program computed it by `evaluate_isolated`.
        """
        pending, n_lost = self.ask(carry, number), None
        if self.isolates_evaluation:
            if evaluation is None:
                assert self.objective is not None and self.consts is not None
                evaluation = evaluate_isolated(self.objective, self.consts, pending.state.candidates, number)
            else:
                evaluation = isolate(number, lambda values: values, evaluation)
            return self.tell(pending, keys, number, evaluation, ends)
        if self.differences:
            pending, n_lost = repair_traced(self, pending, number)
        evaluation = self.evaluate(pending, keys)
        if self.resamples:
            pending, evaluation = resample_failed(self, pending, keys, number, evaluation)
        if n_lost is not None:
            evaluation = evaluation._replace(n_lost=n_lost if evaluation.n_lost is None else n_lost + evaluation.n_lost)
        return self.tell(pending, keys, number, evaluation, ends)

    def last_samples(self, state: State) -> LastSamples:
        """Return where the runs have ended, for the estimate of their answers."""

        def one(algorithm: Algorithm, state: State) -> LastSamples:
            population = state.parents
            violation = jnp.zeros_like(population.fitness) if population.violation is None else population.violation
            rows = jnp.lexsort((population.fitness, violation))[:MAX_FINALISTS]
            centre, root = estimate_distribution(algorithm, state, self.bounds)
            return LastSamples(centre, root, population.x[rows], violation[rows])

        return jax.vmap(one, in_axes=(self.setting_axes, run_axes(state)))(self.algorithm, state)

    @property
    def setting_axes(self) -> Algorithm:
        """The vmap axes of the hyper-parameters: 0 for those that differ from run to run."""
        return jax.tree.map(
            lambda leaf: 0 if not is_shared(leaf) and leaf.ndim else None, self.algorithm, is_leaf=is_shared
        )

    @property
    def _snaps(self) -> bool:
        """Whether candidates are rounded to the grid of discrete variables."""
        return self.bounds.grid is not None and self.algorithm.traits.rounds_discrete

    def _on_grid(self, keys: Array, state: State) -> Array:
        def one(key: Array, x: Array, parent: Array) -> Array:
            return snap_to_grid(random.fold_in(key, random.Stream.GRID), x, parent, self.bounds, self.all_discrete)

        n_bred = state.parents.x.shape[1]  # survivors that are evaluated again lie on the grid
        bred = jax.vmap(one)(keys, state.candidates[:, :n_bred], state.parents.x)
        return jnp.concatenate([bred, state.candidates[:, n_bred:]], axis=1)

    def _repair(self, candidates: Array, number: Array | int) -> Array:
        objective, consts = self.objective, self.consts
        assert objective is not None and consts is not None

        def repair(x: Array) -> Array:
            return objective.repair(consts, x, self.bounds)

        turn = rows_to_repair(self, candidates.shape[1], number)
        return candidates.at[:, turn].set(jax.vmap(jax.vmap(repair))(candidates[:, turn]))  # codes have no slope

    def counts(self, pending: Carry, number: Array | int, known: Array | None = None) -> Array:
        """Return how many candidates of each run are to be evaluated, (R,): the first ones.

        known: candidates (R, n) that cost no evaluation.
        """

        def one(algorithm: Algorithm, state: State) -> Array:
            return jnp.asarray(count_evaluations(algorithm, state, number), jnp.int32)

        axes = (self.setting_axes, run_axes(pending.state))
        counts = jax.vmap(one, in_axes=axes)(self.algorithm, pending.state)
        remaining = self._evaluations_left(pending)
        if not self.splits_last or remaining is None:
            return counts
        remaining = remaining - jnp.where(remaining > self.repair_cost, self.repair_cost, 0)
        if known is not None:
            costs = jnp.cumsum(~known, axis=1)
            return jnp.minimum(counts, jnp.sum(costs <= remaining[:, None], axis=1, dtype=jnp.int32))
        return jnp.clip(counts, 0, remaining.astype(jnp.int32))

    @property
    def repair_cost(self) -> int:
        """Evaluations of the repairs of a generation: each takes the values and the partial derivatives at a point."""
        return self.repairs * (1 + self.bounds.dim)

    def affords_repairs(self, pending: Carry) -> Array | None:
        """Return whether each run has evaluations left for repairs and a candidate, (R,); None if all have."""
        remaining = self._evaluations_left(pending)
        return None if not self.splits_last or remaining is None else remaining > self.repair_cost

    def _evaluations_left(self, pending: Carry) -> Array | None:
        """Return the evaluations left to each run, (R,); None without a limit."""
        if pending.stop_state is None or self.rules.evaluations is None:
            return None
        return jnp.asarray(self.rules.evaluations) - pending.stop_state.stop_columns[:, SPENT]

    def _count_affordable(self, count: Array | int, remaining: Array | None) -> Array | int:
        """Return how many evaluations a run makes in a generation of so many candidates. remaining: what its budget
        allows.
        """
        if not self.splits_last or remaining is None:
            return count + self.repair_cost
        return jnp.minimum(count + jnp.where(remaining > self.repair_cost, self.repair_cost, 0), remaining)

    def spare(self, pending: Carry, number: Array | int) -> Array | None:
        """Return the evaluations left to each run after generation `number`, (R,); None without a limit."""
        remaining = self._evaluations_left(pending)
        if remaining is None:
            return None
        return remaining - self._count_affordable(self.counts(pending, number), remaining)

    def mask_inactive(
        self, pending: Carry, number: Array | int, evaluation: CandidateEvaluation
    ) -> CandidateEvaluation:
        """Set the values of inactive candidates to +inf."""
        if self.algorithm.traits.fixed_evaluations and not self.splits_last:
            return evaluation
        rows = jnp.arange(pending.state.candidates.shape[1], dtype=jnp.int32)
        is_evaluated = rows < self.counts(pending, number, evaluation.known)[:, None]
        return evaluation._replace(
            objectives=jnp.where(is_evaluated[..., None], evaluation.objectives, jnp.inf),
            violation=None if evaluation.violation is None else jnp.where(is_evaluated, evaluation.violation, jnp.inf),
            failed=jnp.where(is_evaluated, evaluation.failed, jnp.zeros_like(evaluation.failed)),
        )

    @property
    def round(self) -> int:
        """The number of generations after which the algorithm's `cycle` runs and its `termination` is checked."""
        return self.algorithm.period or self.algorithm.traits.termination_every

    def _keeps(self, keys: Array) -> bool:
        """Return whether the state before the last step is kept, for runs that finished in it."""
        return not (self.stop_when_all_done and keys.shape[0] == 1)

    def termination_codes(self, state: State) -> Array:
        """Return the termination code of each run as reported by the algorithm, (R,)."""

        def one(algorithm: Algorithm, state: State) -> Array:
            tolerance = jnp.asarray(self.rules.tolerance)
            return algorithm.termination(state, self.bounds, tolerance).astype(state.candidates.dtype)

        codes = jax.vmap(one, in_axes=(self.setting_axes, run_axes(state)))(self.algorithm, state)
        if self.rules.known is None:
            return codes
        is_known = (codes == RUNNING) & jax.vmap(self._is_near_known)(jnp.asarray(self.rules.known), state.parents)
        return jnp.where(is_known, STOP_CODES[Stop.KNOWN], codes)

    def _is_near_known(self, known: Array, population: Population) -> Array:
        """Return whether a run's population lies around the known point, (1 + d,), and has nothing better.

        The point is NaN where none is known, which is asked for: on a CPU XLA's maximum over rows may drop a NaN.
        """
        value, x = known[0], known[1:]
        evaluated = jnp.isfinite(population.fitness)
        distance = same_point_distance(float(jnp.finfo(population.x.dtype).eps))
        is_near = jnp.max(jnp.abs(population.x - x) / self.bounds.span, axis=1) <= distance
        has_better = jnp.any(population.fitness < value)
        return jnp.isfinite(value) & jnp.any(evaluated) & jnp.all(is_near | ~evaluated) & ~has_better

    def _termination_at_round_end(self, state: State, number: Array | int, ends: bool | None) -> Array:
        """Return the termination codes (R,) at the end of a round; RUNNING before it."""

        def silence(state: State) -> Array:
            return jnp.full(state.candidates.shape[0], RUNNING, state.candidates.dtype)

        if ends is False or self.only_evaluates:
            return silence(state)
        if ends or self.round == 1:
            return self.termination_codes(state)
        return lax.cond(number % self.round == 0, self.termination_codes, silence, state)

    def _apply_cycle(self, state: State, keys: Array, number: Array | int, ends: bool | None) -> State:
        """Apply the algorithm's `cycle` where this generation ends a period."""
        period = self.algorithm.period
        if not period or ends is False:
            return state

        def between(algorithm: Algorithm, key: Array, state: State) -> State:
            return algorithm.cycle(random.fold_in(key, random.Stream.CYCLE), state, self.shape)

        axes = run_axes(state)
        cycle_all = jax.vmap(between, in_axes=(self.setting_axes, 0, axes), out_axes=axes)
        if ends:
            return cycle_all(self.algorithm, keys, state)
        return lax.cond(number % period == 0, lambda s: cycle_all(self.algorithm, keys, s), lambda s: s, state)

    def _summarize(
        self, population: Population, front: Population, evaluation: CandidateEvaluation, n_evaluations: Array
    ) -> Record[Array]:
        """Return one run's record of a generation.

        Per objective the best, mean and worst of the survivors; with constraints also the best one's violation and the
        share of feasible survivors; with a reference point the hypervolume of the front. front: where the answer is
        taken from; what is best is looked for there. For one objective the best is the best individual's, feasible ones
        first; for several it is the least of each among the least infeasible. Mean and worst are over the survivors
        that did not fail. Of a noisy objective the best is the mean of the fresh values: a survivor's is a lucky draw.
        """
        values = population.objectives
        dtype = values.dtype
        finite = jnp.isfinite(values)
        count = jnp.sum(finite.astype(dtype), axis=0)
        mean = jnp.where(count > 0, jnp.sum(jnp.where(finite, values, 0), axis=0) / jnp.maximum(count, 1), jnp.inf)
        worst = jnp.where(count > 0, jnp.max(jnp.where(finite, values, -jnp.inf), axis=0), jnp.inf)
        volume = error = None
        if self.rules.reference is not None:
            feasible = is_feasible(front.objectives, front.violation)
            volume, error = hypervolume_by_generation(front.objectives, jnp.asarray(self.rules.reference), feasible)
        x = front.x[best_index(front)] if self.record_best_x else None
        failed = jnp.sum(evaluation.failed.astype(dtype))
        if evaluation.n_lost is not None:
            failed = failed + jnp.sum(evaluation.n_lost.astype(dtype))
        is_averaged = self.noisy and self.shape.objectives == 1
        if population.violation is None or front.violation is None:
            best = self._mean_of_fresh(evaluation) if is_averaged else jnp.min(front.objectives, axis=0)
            return Record(1.0, failed, n_evaluations, best, mean, worst, None, None, volume, error, x)
        least = jnp.min(front.violation)
        best = jnp.min(jnp.where((front.violation == least)[:, None], front.objectives, jnp.inf), axis=0)
        best = self._mean_of_fresh(evaluation) if is_averaged else best
        share = jnp.mean((population.violation <= 0).astype(dtype))
        if not self.algorithm.traits.fixed_evaluations:  # of the rows in use
            share = share * values.shape[0] / jnp.maximum(count[0], 1)
        return Record(1.0, failed, n_evaluations, best, mean, worst, least, share, volume, error, x)

    def _mean_of_fresh(self, evaluation: CandidateEvaluation) -> Array:
        """Return the mean of a generation's fresh values, (1,), of its feasible candidates if there are any."""
        counts = jnp.isfinite(evaluation.fitness)
        if evaluation.violation is not None:
            counts = counts & (evaluation.violation == jnp.min(evaluation.violation))
        total = jnp.sum(jnp.where(counts, evaluation.fitness, 0)) / jnp.maximum(1, jnp.sum(counts))
        return jnp.where(jnp.any(counts), total, jnp.inf)[None]

    def _update_stop_columns(
        self, stop_columns: Array, record: Record[Array], termination: Array | None, over: Array | None
    ) -> Array:
        """Return one run's stop columns (6,) after a generation; those of a finished run do not change.

        termination: code reported by the algorithm. over: whether another generation would exceed the evaluations.
        """
        rules, active = self.rules, stop_columns[REASON] == RUNNING
        best = record.best[0] if record.hypervolume is None else -record.hypervolume
        violation = jnp.zeros_like(best) if record.violation is None else record.violation
        better = (violation < stop_columns[VIOLATION]) | (
            (violation == stop_columns[VIOLATION]) & (best < stop_columns[BEST])
        )
        since = jnp.where(better, 0, stop_columns[SINCE_BETTER] + 1)
        hit = (best <= rules.target) & jnp.isfinite(best) & (violation <= 0)
        spent = stop_columns[SPENT] + record.evaluations
        reason = jnp.where(since >= rules.stall, STOP_CODES[Stop.STALL], RUNNING)
        reason = jnp.where((rules.tolerance > 0) & (termination != RUNNING), termination, reason)  # type: ignore[arg-type]
        if over is not None:
            reason = jnp.where(over & (reason == RUNNING), STOP_CODES[Stop.BUDGET], reason)
        reason = jnp.where(hit, STOP_CODES[Stop.TARGET], reason).astype(best.dtype)
        if (
            record.hypervolume is not None or self.noisy
        ):  # a front may lose points, so the best so far is not always the last
            best, violation = (
                jnp.where(better, new, stop_columns[i]) for new, i in ((best, BEST), (violation, VIOLATION))
            )
        columns = [
            jnp.where(active, new, stop_columns[i]) for i, new in enumerate((best, violation, since, reason, spent))
        ]
        return jnp.stack([*columns, active.astype(best.dtype)])


def active_state(carry: Carry) -> State:
    """Return the state that holds for each run: the new one, or that before the last step."""
    if carry.stop_state is None or carry.stop_state.state is None:
        return carry.state
    accepted = carry.stop_state.stop_columns[:, STEP_ACCEPTED] > 0

    def pick(new: Array, old: Array) -> Array:
        return new if is_shared(new) else jnp.where(accepted.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(pick, carry.state, carry.stop_state.state, is_leaf=is_shared)


def run_axes(state: State) -> State:
    """Return the vmap axes of a batch's state: 0, but for leaves that the runs share."""
    return jax.tree.map(lambda leaf: None if is_shared(leaf) else 0, state, is_leaf=is_shared)


def finish(n_cells: int, search: Search, carry: Carry, cells: Array) -> Finished:
    """Return the results of the runs. cells: (R,), the cell of each run, from 0 to n_cells - 1; -1 for none."""
    state = active_state(carry)
    select_all = jax.vmap(select_solutions, in_axes=(search.setting_axes, run_axes(state)))
    solutions: Population = select_all(search.algorithm, state)
    rows = jax.vmap(best_index)(solutions)
    best = jax.tree.map(lambda a: jax.vmap(lambda in_cell, row: in_cell[row])(a, rows), solutions)
    opponents, by_method = select_opponents(search.algorithm, state), count_by_method(search.algorithm, state)
    if search.shape.objectives > 1:
        is_on_front = jax.vmap(first_front)(solutions.objectives, solutions.violation)
        expected = forecast_objectives(search.algorithm, state)
        return Finished(best.x, state.parents, solutions, is_on_front, opponents, by_method, forecast=expected)

    def best_of(cell: Array) -> Array:
        in_cell = cells == cell
        violation = jnp.zeros_like(best.fitness) if best.violation is None else best.violation
        least = jnp.min(jnp.where(in_cell, violation, jnp.inf))
        return jnp.argmin(jnp.where(in_cell & (violation == least), best.fitness, jnp.inf))

    chosen = jax.vmap(best_of)(jnp.arange(n_cells))
    survivors = jax.tree.map(lambda a: a[chosen], state.parents)
    last = search.last_samples(state) if search.noisy else None
    return Finished(best.x, survivors, None, None, opponents, by_method, last)


def survivors(carry: Carry) -> Population:
    """Return the survivors of all runs, (R, n, ...)."""
    return active_state(carry).parents
