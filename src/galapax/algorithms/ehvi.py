"""Search by Gaussian processes: each evaluation is where the expected hypervolume improvement is largest.

Emmerich, Giannakoglou & Naujoks (2006), IEEE Trans. Evol. Comput. 10(4):421-439, doi:10.1109/TEVC.2005.859463; several
points at a time by the kriging believer, Ginsbourger, Le Riche & Carraro (2010), doi:10.1007/978-3-642-10701-6_6;
constraints by the probability that they hold, Schonlau, Welch & Jones (1998), doi:10.1214/lnms/1215456182; with noise
the models' means take the place of values, as in the re-interpolation of Forrester, Keane & Bressloff (2006),
AIAA J. 44(10):2331-2339, doi:10.2514/1.20068. Differs from the papers: the reference point follows the front, values
worse than the median are compressed before they are modelled, and deviations under noise are not re-interpolated.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import log_ndtr

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Forecast,
    Traits,
    static,
)
from galapax.core.checks import check_integer
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.local import lbfgs
from galapax.local.gaussian_process import Process, Sample, append, fit, predict, prior_of, short_start, smooth
from galapax.numerics import random
from galapax.operators.expected_improvement import Boxes, decompose, log_expected_hypervolume_improvement
from galapax.operators.ranking import dominance_counts
from galapax.operators.variation import round_codes

MAX_FRONT_MODEL_EVALUATIONS_PER_VARIABLE = 50  # of a black box with several objectives, up to which models pay
MAX_CAPACITY = 512  # rows of memory, with which a step takes about a second
CAPACITY_STEP = 32  # rows by which memory grows, so that few programs are compiled
UNLIMITED_EVALUATIONS = 150  # where nothing limits a run
FIT_EVALUATIONS = 12  # of the posterior density of hyper-parameters after each generation
SCREENED = 256  # points of which the most promising are improved
DESCENTS = 8  # of those
DESCENT_EVALUATIONS = 20  # of the acquisition, in each
SPREAD = 0.1  # of the offspring among the screened points, share of the box
CROSSED_GENES = 0.25  # share of genes from the second parent
STEPPED_GENES = 0.2  # share of genes that are changed by a step
REDRAWN_GENES = 0.1  # share of genes that are drawn anew
OPTIMISM = 1.0  # standard deviations below the mean at which the front may be, where the reference point is chosen
REFERENCE_MARGIN = 0.1  # by which the reference point exceeds the front, share of its range
FAILURE_LENGTH = 0.1  # how far a failed evaluation makes others doubtful, share of the box's diagonal
PRIOR_SUCCESSES = 0.1  # that the chance of success begins with
FORECAST_POINTS = 48  # between neighbours of the front, where the models say how it continues
INTERVAL = 1.96  # standard deviations to both sides of a mean that hold 95 %


class EHVIState(NamedTuple):
    candidates: Array  # (k, d) waiting for their evaluation
    parents: Population  # (capacity, ...) every evaluated point, in order; +inf beyond
    constraints: Array  # (capacity, p + q) their inequalities and equalities
    n_evaluated: Array  # int32
    hyperparameters: Array  # (m + p + q, d + 4) of a process for each number that an evaluation gives
    design: Array  # (initial + k, d) points of the unit box before there are models
    expected: Array  # (k, 3, m) of the candidates, see Forecast
    expected_front: Array  # (s, 3, m)
    means: Array | None  # (capacity, m) of the models at the parents, with noise; NaN where there is none yet
    bounds: Bounds


class Scale(NamedTuple):
    """How the values of objectives were compressed and standardised, (m,) each."""

    middle: Array
    unit: Array
    mean: Array
    spread: Array


class Knowledge(NamedTuple):
    """What is known of the functions, believed points included."""

    sample: Sample
    values: Array  # (m + p + q, n) standardised
    scale: Scale
    processes: Process  # stacked, one for each row of the values
    objectives: Array  # (n, m) standardised, among which the front is: values, or with noise the models' means
    is_feasible: Array  # (n,) bool
    has_failed: Array  # (n,) bool
    thresholds: Array  # (p + q,) values of constraints from which on they are violated


class Landscape(NamedTuple):
    """Everything that the acquisition of a point depends on."""

    knowledge: Knowledge
    boxes: Boxes


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EHVI(Algorithm[EHVIState]):
    """Expected hypervolume improvement by Gaussian processes, for two or three objectives and few evaluations.

    population: points evaluated at a time, such as the number of workers.
    initial: points of a Latin hypercube that are evaluated before there are models; by default 2 d, at most a third of
        the budget.
    capacity: evaluations that a run can remember, the least useful are dropped; by default what the budget allows, at
        most 512.
    noisy: whether values are random, so that points are compared by the models' means; `minimize(noisy=True)` sets it.
    """

    population: int = static(1)
    initial: int = static(None)
    capacity: int = static(None)
    noisy: bool = static(False)

    traits: ClassVar[Traits] = Traits(
        multi_objective=True,
        rounds_discrete=False,
        fast_compile=True,
        default_generations=UNLIMITED_EVALUATIONS,
        min_generations=1,
    )

    def validate(self) -> None:
        check_integer(self.population, "population", 1, "this many points are evaluated at a time")
        if self.initial is not None:
            check_integer(self.initial, "initial", 2, "models begin with this many points")
        if self.capacity is not None:
            check_integer(self.capacity, "capacity", 2 * self.population, "rows for two generations of points")

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        limit = UNLIMITED_EVALUATIONS
        if budget.generations is not None:
            limit = budget.generations * self.population
        if budget.evaluations is not None:
            limit = min(budget.evaluations, limit) if budget.generations is not None else budget.evaluations
        initial = max(2, min(2 * dim, limit // 3)) if self.initial is None else self.initial
        rows = min(limit, MAX_CAPACITY) + self.population
        capacity = -(-rows // CAPACITY_STEP) * CAPACITY_STEP if self.capacity is None else self.capacity
        return dataclasses.replace(self, initial=initial, capacity=capacity)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape(2)) -> EHVIState:
        dtype, dim = bounds.lower.dtype, bounds.lower.shape[0]
        if dtype != jnp.float64:
            raise InputError('EHVI needs float64 for its models: pass compute=gx.Compute(dtype="float64").')
        if shape.objectives > 3:
            raise InputError(f"EHVI is for two or three objectives, got {shape.objectives}: use NSGA3.")
        design = latin_hypercube(key, self.initial + self.population, dim, dtype)
        n_outputs = shape.objectives + shape.ineq + shape.eq
        mean, _ = prior_of(dim)
        nobody = empty_population(jnp.broadcast_to(bounds.lower, (self.capacity, dim)), shape)
        first = round_codes(leave_unit_box(design[: self.population], bounds), bounds)
        return EHVIState(
            candidates=first,
            parents=nobody,
            constraints=jnp.zeros((self.capacity, shape.ineq + shape.eq), dtype),
            n_evaluated=jnp.int32(0),
            hyperparameters=jnp.broadcast_to(mean.astype(dtype), (n_outputs, mean.shape[0])),
            design=design,
            expected=jnp.full((self.population, 3, shape.objectives), jnp.nan, dtype),
            expected_front=jnp.full((FORECAST_POINTS, 3, shape.objectives), jnp.nan, dtype),
            means=jnp.full((self.capacity, shape.objectives), jnp.nan, dtype) if self.noisy else None,
            bounds=bounds,
        )

    def forecast(self, state: EHVIState) -> Forecast:
        return Forecast(state.candidates, state.expected, state.expected_front)

    def solutions(self, state: EHVIState) -> Population:
        """The parents; with noise, by what the models expect of them."""
        if state.means is None:
            return state.parents
        known = jnp.isfinite(state.means) & jnp.isfinite(state.parents.objectives)
        return state.parents._replace(objectives=jnp.where(known, state.means, state.parents.objectives))

    def with_known_values(self, state: EHVIState, x: Array, evaluation: CandidateEvaluation) -> EHVIState:
        """Add evaluated points to the list, which becomes longer by as many; they count as points of the design."""
        room = -(-x.shape[0] // CAPACITY_STEP) * CAPACITY_STEP
        pad = lambda rows, value: jnp.pad(rows, ((0, room), (0, 0))[: rows.ndim], constant_values=value)  # noqa: E731
        past = state.parents
        violation = None if past.violation is None else pad(past.violation, jnp.inf)
        parents = Population(pad(past.x, 0.0), pad(past.objectives, jnp.inf), violation)
        means = None if state.means is None else pad(state.means, jnp.nan)
        longer = state._replace(parents=parents, constraints=pad(state.constraints, 0.0), means=means)
        return append_evaluations(longer, x, evaluation, n_spare=self.population)

    def step(self, key: Array, state: EHVIState, evaluation: CandidateEvaluation) -> EHVIState:
        """Add what was evaluated to the list, and choose the next points."""
        k = self.population
        state = append_evaluations(state, state.candidates, evaluation, n_spare=k)
        n_ineq = 0 if evaluation.ineq is None else evaluation.ineq.shape[1]
        shape = Shape(evaluation.objectives.shape[1], n_ineq, state.constraints.shape[1] - n_ineq)
        n_evaluated = state.n_evaluated

        def sample_design(state: EHVIState) -> EHVIState:
            u = lax.dynamic_slice_in_dim(state.design, n_evaluated, k)
            return state._replace(candidates=leave_unit_box(u, state.bounds))

        def follow_models(state: EHVIState) -> EHVIState:
            return propose(key, state, model(state, shape, self.noisy), k, shape)

        state = lax.cond(n_evaluated < self.initial, sample_design, follow_models, state)
        return state._replace(candidates=round_codes(state.candidates, state.bounds))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EI(EHVI):
    """Expected improvement by a Gaussian process, for one objective and few evaluations.

    population, initial, capacity, noisy: as of `EHVI`, which with one objective is this.
    """

    traits: ClassVar[Traits] = EHVI.traits._replace(multi_objective=False)


def is_for_front_models(evaluations: int | None, dim: int, objectives: int) -> bool:
    """Return whether a black box has so few evaluations, and as many objectives, that models of them pay."""
    if evaluations is None or objectives not in (2, 3):
        return False
    return evaluations <= min(MAX_FRONT_MODEL_EVALUATIONS_PER_VARIABLE * dim, MAX_CAPACITY)


def append_evaluations(state: EHVIState, x: Array, evaluation: CandidateEvaluation, n_spare: int) -> EHVIState:
    """Write evaluated points (k, d) into free rows, and then into those whose points the most others dominate.

    n_spare: the last rows, which stay free for points that are believed.
    """
    capacity = state.constraints.shape[0] - n_spare
    row = jnp.arange(capacity)
    n_dominators = dominance_counts(state.parents.objectives, state.parents.violation)[:capacity]
    _, rows = lax.top_k(jnp.where(row < state.n_evaluated, n_dominators, 2 * capacity - row), x.shape[0])
    constraints = [c for c in (evaluation.ineq, evaluation.eq) if c is not None]
    past = state.constraints
    return state._replace(
        parents=jax.tree.map(lambda old, new: old.at[rows].set(new), state.parents, as_population(x, evaluation)),
        constraints=past.at[rows].set(jnp.concatenate(constraints, axis=1)) if constraints else past,
        means=None if state.means is None else state.means.at[rows].set(jnp.nan),
        n_evaluated=jnp.minimum(state.n_evaluated + x.shape[0], capacity),
    )


def latin_hypercube(key: Array, n: int, dim: int, dtype: jnp.dtype) -> Array:
    """n points of the unit box, one in each of n slices along every variable, (n, d)."""
    key_order, key_place = random.split(key)
    order = jnp.argsort(random.uniform(key_order, (n, dim), dtype), axis=0)
    return (order + random.uniform(key_place, (n, dim), dtype)) / n


def leave_unit_box(u: Array, bounds: Bounds) -> Array:
    """Points (n, d) of the unit box as points of the box."""
    return jnp.clip(bounds.lower + u * bounds.span, bounds.lower, bounds.upper)


def compress(values: Array, is_known: Array) -> tuple[Array, Array, Array]:
    """Values (n,) in units of their spread; those above the median only by the logarithm of how far they are above.

    Also the median and the unit.
    """
    low, middle = jnp.nanquantile(jnp.where(is_known, values, jnp.nan), jnp.array([0.0, 0.5]))
    unit = jnp.maximum(middle - low, jnp.finfo(values.dtype).tiny)
    excess = (values - middle) / unit
    compressed = jnp.where(excess > 0, jnp.log1p(jnp.maximum(excess, 0)), excess)
    return jnp.where(is_known, compressed, 0.0), middle, unit


def restore(standardised: Array, scale: Scale) -> Array:
    """Objectives (..., m) in the user's units, from compressed and standardised ones."""
    excess = standardised * scale.spread + scale.mean
    return scale.middle + scale.unit * jnp.where(excess > 0, jnp.expm1(jnp.maximum(excess, 0)), excess)


def compress_constraint(values: Array, is_known: Array) -> Array:
    """Values (n,) of a constraint, large ones of both signs by their logarithm; 0 stays where it is."""
    unit = jnp.nanquantile(jnp.where(is_known, jnp.abs(values), jnp.nan), 0.5)
    scaled = values / jnp.where(unit > 0, unit, 1.0)
    return jnp.where(is_known, jnp.sign(scaled) * jnp.log1p(jnp.abs(scaled)), 0.0)


def standardise(values: Array, is_known: Array) -> tuple[Array, Array, Array]:
    """Values (n,) with mean 0 and standard deviation 1 of the known ones; the mean, and the deviation."""
    count = jnp.maximum(jnp.sum(is_known), 1)
    mean = jnp.sum(jnp.where(is_known, values, 0)) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(is_known, values - mean, 0) ** 2) / count)
    spread = jnp.where(spread > 0, spread, 1.0)
    return jnp.where(is_known, (values - mean) / spread, 0.0), mean, spread


def propose(key: Array, state: EHVIState, knowledge: Knowledge, k: int, shape: Shape) -> EHVIState:
    """The state with the next k points, the models' hyper-parameters and what the models expect."""
    bounds = state.bounds

    def choose(j: Array, carry: tuple[Knowledge, Array]) -> tuple[Knowledge, Array]:
        knowledge, chosen = carry
        u = maximise(random.fold_in(key, j), knowledge, bounds, shape)
        return believe(knowledge, state.n_evaluated + j, u, shape), chosen.at[j].set(u)

    _, chosen = lax.fori_loop(0, k, choose, (knowledge, jnp.zeros((k, bounds.dim), state.candidates.dtype)))
    expected, expected_front = predict_objectives(knowledge, chosen, bounds, shape)
    return state._replace(
        candidates=leave_unit_box(chosen, bounds),
        hyperparameters=knowledge.processes.vector,
        expected=expected,
        expected_front=expected_front,
        means=None if state.means is None else restore(knowledge.objectives, knowledge.scale),
    )


def predict_objectives(knowledge: Knowledge, chosen: Array, bounds: Bounds, shape: Shape) -> tuple[Array, Array]:
    """What is expected at the chosen points (k, d), (k, 3, m), and between neighbours of the front, (s, 3, m).

    Neighbours along the first objective. Points that the front is expected to dominate, or that are expected to be
    infeasible, are NaN.
    """
    u, m = knowledge.sample.u, shape.objectives
    values = knowledge.objectives
    is_on_front = find_front(values, knowledge.is_feasible)
    order, count = jnp.argsort(jnp.where(is_on_front, values[:, 0], jnp.inf)), jnp.sum(is_on_front)
    places = jnp.linspace(0.0, 1.0, FORECAST_POINTS + 2, dtype=u.dtype)[1:-1] * jnp.maximum(count - 1, 0)
    before = jnp.floor(places).astype(jnp.int32)
    share = (places - before)[:, None]
    between = (1 - share) * u[order[before]] + share * u[order[jnp.minimum(before + 1, len(order) - 1)]]
    between = (round_codes(leave_unit_box(between, bounds), bounds) - bounds.lower) / bounds.span
    means, deviations = jax.vmap(lambda u: predict_all(knowledge, u))(jnp.concatenate([chosen, between]))
    steps = jnp.array([-INTERVAL, 0.0, INTERVAL], u.dtype)[:, None]
    rows = restore(means[:, None, :m] + steps * deviations[:, None, :m], knowledge.scale)  # (k + s, 3, m)
    k, middle = len(chosen), means[len(chosen) :]
    is_worse = jnp.all(values <= middle[:, None, :m], axis=2) & knowledge.is_feasible
    is_shown = ~jnp.any(is_worse, axis=1) & (count > 1)
    is_shown &= jnp.all(middle[:, m : m + shape.ineq] <= knowledge.thresholds[: shape.ineq], axis=1)
    return rows[:k], jnp.where(is_shown[:, None, None], rows[k:], jnp.nan)


def model(state: EHVIState, shape: Shape, noisy: bool) -> Knowledge:
    """Fit a process to each objective and each constraint."""
    bounds, objectives, violation = state.bounds, state.parents.objectives, state.parents.violation
    is_past = jnp.arange(len(objectives)) < state.n_evaluated
    is_known = is_past & jnp.all(jnp.isfinite(objectives), axis=1)
    columns, middle, unit = jax.vmap(compress, in_axes=(1, None))(objectives, is_known)
    if shape.constrained:
        compressed = jax.vmap(compress_constraint, in_axes=(1, None))(state.constraints, is_known)
        columns = jnp.concatenate([columns, compressed])
    values, means, spreads = jax.vmap(standardise, in_axes=(0, None))(columns, is_known)
    unordered = jnp.zeros(bounds.dim, bool) if bounds.grid is None else jnp.asarray(bounds.grid.unordered)
    sample = Sample((state.parents.x - bounds.lower) / bounds.span, unordered, is_known)
    m, rough = shape.objectives, short_start(bounds.dim).astype(values.dtype)

    def fit_one(values: Array, previous: Array) -> Process:
        return fit(sample, values, jnp.stack([previous, rough]), FIT_EVALUATIONS)

    processes = jax.vmap(fit_one)(values, state.hyperparameters)
    fitted = jax.vmap(smooth, in_axes=(0, None, 0))(processes, sample, values) if noisy else values
    thresholds, p = (-means / spreads)[m:], shape.ineq
    is_feasible = is_known if violation is None else is_known & (violation <= 0)
    if noisy and p and not shape.eq:
        is_feasible = is_known & jnp.all(fitted[m:] <= thresholds[:, None], axis=0)
    return Knowledge(
        sample=sample,
        values=values,
        scale=Scale(middle, unit, means[:m], spreads[:m]),
        processes=processes,
        objectives=fitted[:m].T,
        is_feasible=is_feasible,
        has_failed=is_past & ~is_known,
        thresholds=thresholds,
    )


def believe(knowledge: Knowledge, row: Array, u: Array, shape: Shape) -> Knowledge:
    """Take the means of the models at a point (d,) for its values, in a row that is free."""
    means, _ = predict_all(knowledge, u)
    sample = knowledge.sample._replace(
        u=knowledge.sample.u.at[row].set(u), is_evaluated=knowledge.sample.is_evaluated.at[row].set(True)
    )
    values = knowledge.values.at[:, row].set(means)
    m, p = shape.objectives, shape.ineq
    is_feasible = jnp.all(means[m : m + p] <= knowledge.thresholds[:p])
    return knowledge._replace(
        sample=sample,
        values=values,
        processes=jax.vmap(append, in_axes=(0, None, 0, None))(knowledge.processes, sample, values, row),
        objectives=knowledge.objectives.at[row].set(means[:m]),
        is_feasible=knowledge.is_feasible.at[row].set(is_feasible),
    )


def predict_all(knowledge: Knowledge, u: Array) -> tuple[Array, Array]:
    """Means and standard deviations (m + p + q,) of all models at a point (d,)."""
    means, deviations = jax.vmap(predict, in_axes=(0, None, None))(knowledge.processes, knowledge.sample, u[None])
    return means[:, 0], deviations[:, 0]


def find_front(objectives: Array, is_feasible: Array) -> Array:
    """Which of the feasible points (n, m) no other of them dominates, (n,)."""
    values = jnp.where(is_feasible[:, None], objectives, jnp.inf)
    is_no_worse = jnp.all(values[:, None] <= values[None], axis=-1)
    is_dominated = jnp.any(is_no_worse & jnp.any(values[:, None] < values[None], axis=-1), axis=0)
    return is_feasible & ~is_dominated


def place_reference(objectives: Array, is_on_front: Array) -> Array:
    """A point (m,) worse than a front in every objective, by a share of the front's range."""
    rows = is_on_front[:, None]
    lowest = jnp.min(jnp.where(rows, objectives, jnp.inf), axis=0)
    highest = jnp.max(jnp.where(rows, objectives, -jnp.inf), axis=0)
    span = jnp.where(highest > lowest, highest - lowest, 1.0)
    return jnp.where(jnp.any(is_on_front), highest, jnp.max(objectives, axis=0)) + REFERENCE_MARGIN * span


def score(u: Array, landscape: Landscape, shape: Shape) -> Array:
    """The logarithm of the acquisition of a point (d,)."""
    return score_prediction(u, *predict_all(landscape.knowledge, u), landscape, shape)


def score_prediction(u: Array, mean: Array, deviation: Array, landscape: Landscape, shape: Shape) -> Array:
    """The same from the predictions of all models (m + p + q,): improvement, feasibility and the chance not to fail."""
    knowledge, m, p = landscape.knowledge, shape.objectives, shape.ineq
    total = log_expected_hypervolume_improvement(mean[:m], deviation[:m], landscape.boxes)
    if shape.constrained:
        z = (knowledge.thresholds - mean[m:]) / deviation[m:]
        chance = jnp.sum(log_ndtr(z[:p])) - jnp.sum(0.5 * z[p:] ** 2 + jnp.log(deviation[m + p :]))  # density at h = 0
        total = chance + jnp.where(jnp.any(knowledge.is_feasible), total, 0.0)
    return total + log_chance_of_success(u, knowledge)


def log_chance_of_success(u: Array, knowledge: Knowledge) -> Array:
    """The logarithm of the chance that the evaluation of a point (d,) does not fail, by a vote of those nearby."""
    sample = knowledge.sample
    squares = jnp.where(sample.unordered, (u != sample.u).astype(u.dtype), (u - sample.u) ** 2)
    weights = jnp.exp(-0.5 * jnp.mean(squares, axis=1) / FAILURE_LENGTH**2)
    failed = jnp.sum(jnp.where(knowledge.has_failed, weights, 0))
    succeeded = PRIOR_SUCCESSES + jnp.sum(jnp.where(sample.is_evaluated, weights, 0))
    return jnp.log(succeeded / (succeeded + failed))


def maximise(key: Array, knowledge: Knowledge, bounds: Bounds, shape: Shape) -> Array:
    """The point (d,) of the unit box with the largest acquisition that was found.

    Of random points and of offspring of the front the most promising are improved by their slope, codes left as they
    are. The reference point exceeds the front of all that was evaluated and of what is predicted of those points: a
    front that has not been followed to its ends shall grow.
    """
    key_spread, key_breed = random.split(key)
    dim, dtype, m = bounds.dim, knowledge.values.dtype, shape.objectives
    values = knowledge.objectives
    is_on_front = find_front(values, knowledge.is_feasible)
    points = jnp.concatenate(
        [
            random.uniform(key_spread, (SCREENED // 2, dim), dtype),
            breed(key_breed, knowledge.sample.u, is_on_front, SCREENED // 2),
        ]
    )
    if bounds.grid is not None:
        points = (round_codes(leave_unit_box(points, bounds), bounds) - bounds.lower) / bounds.span
    means, deviations = jax.vmap(lambda u: predict_all(knowledge, u))(points)
    hopes = means - OPTIMISM * deviations
    is_feasible = jnp.all(hopes[:, m : m + shape.ineq] <= knowledge.thresholds[: shape.ineq], axis=1)
    everything = jnp.concatenate([values, hopes[:, :m]])
    is_best = find_front(everything, jnp.concatenate([knowledge.is_feasible, is_feasible]))
    reference = place_reference(everything, is_best)
    landscape = Landscape(knowledge, decompose(jnp.where(is_on_front[:, None], values, reference), reference))
    movable = jnp.ones(dim, dtype)
    if bounds.grid is not None:
        movable = jnp.where(bounds.grid.discrete, 0.0, movable)
    scores = jax.vmap(lambda u, mean, deviation: score_prediction(u, mean, deviation, landscape, shape))(
        points, means, deviations
    )
    _, rows = lax.top_k(jnp.where(jnp.isnan(scores), -jnp.inf, scores), DESCENTS)

    def loss_and_gradient(u: Array) -> tuple[Array, Array]:
        loss, gradient = jax.value_and_grad(lambda u: -score(u, landscape, shape))(u)
        return loss, gradient * movable

    unit_box = Bounds(jnp.zeros(dim, dtype), jnp.ones(dim, dtype))
    ends, losses = jax.vmap(lambda u: lbfgs.descend(loss_and_gradient, u, unit_box, DESCENT_EVALUATIONS))(points[rows])
    return ends[jnp.argmin(losses)]


def breed(key: Array, u: Array, is_parent: Array, n: int) -> Array:
    """n offspring (n, d) of the parents among points (k, d): pairs crossed, and some genes changed by a normal step."""
    key_order, key_cross, key_which, key_step, key_anywhere = random.split(key, 5)
    shape = (n, u.shape[1])
    order = jnp.argsort(jnp.where(is_parent, 0.0, 1.0) + 0.5 * random.uniform(key_order, (len(u),), u.dtype))
    count = jnp.maximum(jnp.sum(is_parent), 1)
    place = jnp.arange(n)
    mothers, fathers = u[order[place % count]], u[order[(place + 1 + place // count) % count]]
    offspring = jnp.where(random.bernoulli(key_cross, CROSSED_GENES, shape), fathers, mothers)
    lot = random.uniform(key_which, shape, u.dtype)
    stepped = jnp.clip(offspring + SPREAD * random.normal(key_step, shape, u.dtype), 0.0, 1.0)
    anywhere = random.uniform(key_anywhere, shape, u.dtype)
    return jnp.where(lot < STEPPED_GENES, stepped, jnp.where(lot > 1 - REDRAWN_GENES, anywhere, offspring))
