"""CMA-ES: a normal distribution that learns the shape of the objective from which of its samples were good.

Hansen (2016), The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772; negative weights after Jastrebski & Arnold
(2006), IEEE CEC, 2814-2821, doi:10.1109/CEC.2006.1688662; penalty for the box after Hansen, Niederberger, Guzzella &
Koumoutsakos (2009), IEEE Trans. Evol. Comput. 13(1):180-197, doi:10.1109/TEVC.2008.924423; the diagonal form after Ros
& Hansen (2008), PPSN X, 296-305, doi:10.1007/978-3-540-87700-4_30; the surrogate after Hansen (2019), GECCO, 664-672,
doi:10.1145/3321707.3321842.

Differs from the papers: the box is scaled to the unit cube; a Cholesky factor takes the place of the symmetric root, as
in Krause, Arbones & Igel (2016), NIPS, which changes no invariance and costs a tenth; a point outside the box is
evaluated where it is clipped to, so that nothing outside is ever evaluated; the scale of the penalty is a smoothed mean
of interquartile ranges and not their median over a window; a search stagnates when neither its best value nor the mean
of its better half has become better for long. With constraints, feasible points rank first, then the less violated.
With a surrogate a step evaluates a few samples, the best by the model first; the distribution moves once the model
agrees with the latest values, or all samples have theirs.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Traits,
    static,
)
from galapax.core.checks import check_bool, check_integer, check_positive, check_range
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.numerics import random
from galapax.numerics.linear_algebra import invert_lower
from galapax.operators.selection import best_index, no_worse, rank_by_fitness, set_first, take_row, tree_where
from galapax.operators.surrogate import (
    MAX_COMPARED,
    MIN_COMPARED,
    SampleArchive,
    Surrogate,
    agrees,
    append_samples,
    count_coefficients,
    create_archive,
    create_unfitted,
    fit_surrogate,
    latest_rows,
    minimize_in_ball,
)

MIN_DIAGONAL_DIM = 300  # variables from which on the matrix is diagonal, unless the user says otherwise
FIRST_STEP, FIRST_STEP_RADIUS = 0.2, 1.3  # of the box: the first step, and its length over all variables, if less
START_STEP_SHARE = 0.25  # of the first step, around a single starting point
FIRST_MEAN_SHARE = 0.8  # share of the box in which the first mean is drawn
MAX_CONDITION = 1e14
MIN_CODE_DEVIATION = 0.3  # steps: the least standard deviation of an integer or choice
EQUAL_VALUE_ULPS = 64  # of a value's last digit, within which two values count as the same
MAX_BEST_DEVIATIONS = 10  # standard deviations from the mean within which the best point belongs to the last samples,
MAX_BASIN_SHARE = 1e-4  # or the square root of one, up to this share of the box: values differ there by rounding alone
GROWTH = 4  # of the samples, from a search that noise has ended to the next one,
GROWTH_GENERATIONS = 100  # for which there must be evaluations for so many generations
MIN_GENERATIONS_PER_VARIABLE = 10  # that more samples than usual must leave
LAST_PATIENCE = 1e6  # of a search after which there is no larger one
MAX_STEP_GROWTH = 1e3  # a distribution so many times as wide as the first one diverges
# evaluations of a black box for each variable up to which a surrogate is the default: few, so each must be dear
MAX_SURROGATE_EVALUATIONS_PER_VARIABLE = 1000
ARCHIVE_SHARE = 2  # latest points that a surrogate is fitted to, for each coefficient or sample
REFIT_SHARE = 128  # points of the archive for each new one after which the model is fitted again


class StrategyParameters(NamedTuple):
    """What follows from the number of variables and of samples, in the tutorial's letters (table 1, eq. 49 to 58).

    The weight of the sample in place i, from 1, is `weight(i)`.
    """

    count: Any  # lambda
    good: Array | float  # what the positive raw weights are divided by
    bad: Array | float  # and the negative ones
    total: Array | float  # sum of all weights
    mueff: Array | float
    c_1: Array | float
    c_mu: Array | float
    c_c: Array | float
    c_s: Array | float
    d_s: Array | float

    def weight(self, place: Array | int) -> Array:
        """Of the samples in these places: positive for the better half, negative for the others, 0 beyond them."""
        raw = jnp.log((self.count + 1) / 2) - jnp.log(place)
        worse = jnp.where(place <= self.count, jnp.minimum(raw, 0) / self.bad, 0)
        return jnp.where(place <= jnp.floor(self.count / 2), raw / self.good, worse)


def shorten(normals: Array) -> Array:
    """Points from elsewhere as samples (k, d): a far one would tear the distribution, so none is longer than usual."""
    length = jnp.sqrt(jnp.sum(normals**2, axis=1, keepdims=True))
    return normals * jnp.minimum(1.0, (math.sqrt(normals.shape[1]) + 2) / jnp.maximum(length, 1e-30))


def constants(dim: int, count: int, diagonal: bool = False) -> StrategyParameters:
    """The strategy parameters for `count` samples of `dim` variables."""
    raw = math.log((count + 1) / 2) - np.log(np.arange(1, count + 1))
    good, bad = raw[: count // 2], raw[count // 2 :]
    mueff, mueff_bad = (float(part.sum() ** 2 / (part**2).sum()) for part in (good, bad))
    gain = 0.25 + mueff + 1 / mueff - 2
    if diagonal:  # fewer numbers to learn, learnt faster
        c_1 = 1 / (dim + 2 * math.sqrt(dim) + mueff / dim)
        c_mu = min(1 - c_1, gain / (dim + 4 * math.sqrt(dim) + mueff / 2))
        c_c = (1 + 1 / dim + mueff / dim) / (math.sqrt(dim) + 1 / dim + 2 * mueff / dim)
    else:
        c_1 = min(1, count / 6) * 2 / ((dim + 1.3) ** 2 + mueff)
        c_mu = min(1 - c_1, 2 * gain / ((dim + 2) ** 2 + mueff))
        c_c = (4 + mueff / dim) / (dim + 4 + 2 * mueff / dim)
    limits = [1 + c_1 / c_mu, 1 + 2 * mueff_bad / (mueff + 2)]
    if not diagonal:
        limits.append((1 - c_1 - c_mu) / (dim * c_mu))
    c_s = min(0.5, (mueff + 2) / (dim + mueff + 3))
    # many samples would let the step size grow too fast
    wide = max(1.0, 3 * (1 - 2 ** (-dim / 9))) if count > 2 * default_samples(dim) else 1.0
    d_s = 1 + c_s + 2 * max(0.0, wide * math.sqrt((mueff - 1) / (dim + 1)) - 1)
    negative = max(min(limits), 0.0)  # none are left where so many samples replace the whole matrix
    bad_by = -bad.sum() / negative if negative else math.inf
    return StrategyParameters(count, good.sum(), bad_by, 1 - negative, mueff, c_1, c_mu, c_c, c_s, d_s)


def default_samples(dim: int) -> int:
    return 4 + int(3 * math.log(dim))


class Distribution(NamedTuple):
    """Where the next samples come from, in coordinates in which the box is the unit cube."""

    mean: Array  # (d,)
    step: Array  # sigma
    matrix: Array  # C (d, d); (d,) where it is diagonal
    root: Array  # its Cholesky factor, or square roots
    path: Array  # p_c (d,)
    step_path: Array  # p_s (d,)


class BoundaryPenalty(NamedTuple):
    """The penalty on samples outside the box."""

    weights: Array  # (d,)
    scale: Array  # logarithm of values per squared length, smoothed; NaN before it is known


class SearchHealth(NamedTuple):
    """What tells whether the search is done."""

    age: Array  # generations so far
    middle: Array  # the least mean of a better half
    since: Array  # generations since that or the best value became less
    flat: Array  # share of recent generations in which a quarter of the samples had the same value
    first_step: Array
    stuck: Array  # whether it cannot get on


class FittedModel(NamedTuple):
    """A model in the coordinates of the distribution for which it was fitted."""

    model: Surrogate
    center: Array  # (d,) in the unit cube
    root: Array  # (d, d) of the covariance; (d,) where it is diagonal
    inverse: Array  # of the root
    n_points: Array  # int32, of the archive so far

    def find_coordinates(self, unit: Array) -> Array:
        """The coordinates (k, d) of points of the unit cube."""
        moves = unit - self.center
        return moves * self.inverse if self.inverse.ndim == 1 else _product(moves, self.inverse.T)


class SurrogateState(NamedTuple):
    """What a surrogate needs between two steps of the same or the next generation of samples."""

    archive: SampleArchive
    fitted: FittedModel
    values: Array  # (n,) of the candidates; NaN where one was not evaluated
    n_next: Array  # int32, how many of the first candidates are evaluated next
    gained: Array  # whether the best value became less since the distribution moved


class CMAESState(NamedTuple):
    candidates: Array  # (n, d) waiting for their evaluation
    normals: Array  # (n, d) the standard normal numbers that made them
    parents: Population  # the samples last evaluated; in the first place the best ever
    now: Distribution
    walls: BoundaryPenalty
    progress: SearchHealth
    bounds: Bounds
    surrogate: SurrogateState | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CMAES(Algorithm[CMAESState]):
    """Covariance matrix adaptation for one objective: few evaluations on smooth, ill-conditioned, rotated problems.

    population: samples a generation, lambda; by default 4 + 3 ln d.
    samples: so many of them, if not all; a run that restarts with more samples then needs no new program each time.
    sigma0: standard deviation of the first samples, sigma, as a share of the box; by default 0.2, and 1.3 / sqrt(d) in
        many variables, where it would take long to shrink.
    diagonal: learn the variances alone, for many variables; by default from 300 on.
    patience: of random values, after how many times the generations in which chance may hide the progress the search
        ends, if the budget has room for one with more samples; twice as many are then the default.
    surrogate: evaluate only as many samples as it takes to trust a quadratic model's ranking of the others, for real
        variables without constraints. A generation is then what is evaluated at a time. By default for black boxes with
        at most 1000 evaluations per variable.
    batch: with a surrogate, samples that are evaluated at a time, at least; by default one for each worker.
    """

    population: int = static(None)
    samples: int | None = None
    sigma0: float | None = None
    diagonal: bool = static(None)
    patience: float | None = None
    surrogate: bool | None = static(None)
    batch: int = static(None)
    constants: StrategyParameters | None = None  # follow from the others

    # samples must stay as they were drawn, and `widen_discrete` sees to integers; it knows by itself when it is done
    traits: ClassVar[Traits] = Traits(
        fixed_evaluations=False, rounds_discrete=False, fast_compile=True, termination_every=1
    )

    def validate(self) -> None:
        if self.population is not None:
            check_integer(self.population, "population", 4, "the better half of the samples updates the distribution")
        if self.samples is not None:
            check_range(self.samples, "samples", 4, self.population or 4)
        if self.sigma0 is not None:
            check_positive(self.sigma0, "sigma0")
        check_bool(self.diagonal, "diagonal")
        check_bool(self.surrogate, "surrogate")
        if self.batch is not None:
            check_integer(self.batch, "batch", 1, "at least one sample is evaluated at a time")
        if self.patience is not None:
            check_positive(self.patience, "patience")

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        population, most = self.population, budget.evaluations or math.inf
        if population is None:
            population = default_samples(dim)
            if self.patience is not None and most >= 2 * population * MIN_GENERATIONS_PER_VARIABLE * dim:
                population *= 2
        count = int(population if self.samples is None else self.samples)
        diagonal = dim >= MIN_DIAGONAL_DIM if self.diagonal is None else self.diagonal
        sigma0 = min(FIRST_STEP, FIRST_STEP_RADIUS / math.sqrt(dim)) if self.sigma0 is None else self.sigma0
        parameters, patience = constants(dim, count, diagonal), self.patience
        if patience is not None and most < GROWTH_GENERATIONS * GROWTH * count:
            patience = LAST_PATIENCE
        return dataclasses.replace(
            self,
            population=population,
            samples=None,
            sigma0=sigma0,
            diagonal=diagonal,
            patience=patience,
            constants=parameters,
        )

    def with_doubled_population(self, first: int, times: int) -> Self:
        return dataclasses.replace(self, population=first * 4 ** ((times + 1) // 2), samples=first * 2**times)

    def evaluations(self, state: CMAESState, number: Array | int) -> Array | int:
        assert self.constants is not None
        return self.constants.count if state.surrogate is None else state.surrogate.n_next

    def with_more_candidates(self, state: CMAESState, n: Array | int) -> CMAESState:
        surrogate, k = state.surrogate, self.constants
        if surrogate is None:
            return state
        assert k is not None
        n_waiting = jnp.sum(jnp.isnan(surrogate.values) & (jnp.arange(self.population) < k.count), dtype=jnp.int32)
        n_next = jnp.maximum(surrogate.n_next, jnp.minimum(n, n_waiting))
        return state._replace(surrogate=surrogate._replace(n_next=n_next))

    def with_smaller_spread(self, factor: float) -> Self:
        return dataclasses.replace(self, sigma0=(self.sigma0 or FIRST_STEP) * factor)

    def cost_hint(self, dim: int) -> int:
        return self.population * dim if self.diagonal else (self.population + dim) * dim

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> CMAESState:
        key_mean, key_sample = random.split(key)
        dim, dtype = bounds.dim, bounds.lower.dtype
        mean = 0.5 + FIRST_MEAN_SHARE * (random.uniform(key_mean, (dim,), dtype) - 0.5)
        unit = jnp.ones(dim, dtype) if self.diagonal else jnp.eye(dim, dtype=dtype)
        zeros, step = jnp.zeros(dim, dtype), jnp.asarray(self.sigma0, dtype)
        now = Distribution(mean, step, unit, unit, zeros, zeros)
        walls = BoundaryPenalty(zeros, jnp.full((), jnp.nan, dtype))
        start, worst = jnp.zeros((), dtype), jnp.full((), jnp.inf, dtype)
        progress = SearchHealth(start, worst, start, start, step, jnp.zeros((), bool))
        x, normals = self.sample(key_sample, now, bounds)
        state = CMAESState(x, normals, empty_population(x, shape), now, walls, progress, bounds)
        if not self.surrogate or shape.constrained or bounds.grid is not None:
            return state
        return state._replace(surrogate=self.create_surrogate(x))

    def create_surrogate(self, x: Array) -> SurrogateState:
        """The state of a surrogate before the first values of candidates x (n, d)."""
        assert self.constants is not None
        n, dim = x.shape
        archive = create_archive(ARCHIVE_SHARE * max(count_coefficients(dim), n), dim, x.dtype)
        n_first = jnp.asarray(self.constants.count, jnp.int32)
        unit = jnp.ones(dim, x.dtype) if self.diagonal else jnp.eye(dim, dtype=x.dtype)
        fitted = FittedModel(create_unfitted(dim, x.dtype), jnp.zeros(dim, x.dtype), unit, unit, jnp.int32(0))
        return SurrogateState(archive, fitted, jnp.full(n, jnp.nan, x.dtype), n_first, jnp.zeros((), bool))

    def fit(self, archive: SampleArchive, now: Distribution, bounds: Bounds) -> FittedModel:
        """Fit a model in the coordinates of this distribution."""
        root = now.step * now.root
        inverse = 1 / root if self.diagonal else invert_lower(root)
        fitted = FittedModel(create_unfitted(bounds.dim, root.dtype), now.mean, root, inverse, archive.n_points)
        points = fitted.find_coordinates((archive.x - bounds.lower) / bounds.span)
        is_point = jnp.arange(len(points)) < archive.n_points
        return fitted._replace(model=fit_surrogate(points, jnp.where(is_point, archive.values, jnp.inf)))

    def refit(self, before: FittedModel, archive: SampleArchive, now: Distribution, bounds: Bounds) -> FittedModel:
        """Fit the model again if there are enough new points: in 20 variables a fit takes longer than all the rest."""
        capacity = archive.x.shape[0]
        if capacity < 2 * REFIT_SHARE:
            return self.fit(archive, now, bounds)
        n_new = jnp.maximum(1, jnp.minimum(archive.n_points, capacity) // REFIT_SHARE)
        # a loop and no `cond`, of which `vmap` would compute both branches
        return lax.while_loop(
            lambda fitted: archive.n_points - fitted.n_points >= n_new,
            lambda _: self.fit(archive, now, bounds),
            before,
        )

    def with_initial_points(self, state: CMAESState, points: Array) -> CMAESState:
        """The first point is the mean; the others take the place of samples around it. A single one is a place to start
        from, and the first step is small.
        """
        bounds, now, progress = state.bounds, state.now, state.progress
        unit = (points - bounds.lower) / bounds.span
        now = now._replace(mean=unit[0])
        if points.shape[0] == 1:
            now = now._replace(step=now.step * START_STEP_SHARE)
            progress = progress._replace(first_step=now.step)
        point_normals = shorten((unit - unit[0]) / now.step)
        normals = jnp.concatenate([point_normals, state.normals[points.shape[0] :]])
        x = jnp.concatenate([points, self.place(now, normals, bounds)[points.shape[0] :]])
        parents = state.parents._replace(x=x)
        return state._replace(candidates=x, normals=normals, parents=parents, now=now, progress=progress)

    def with_known_values(self, state: CMAESState, x: Array, evaluation: CandidateEvaluation) -> CMAESState:
        """The mean is that of the best points, the better the heavier, and the first step their distance from it."""
        bounds, now, known = state.bounds, state.now, as_population(x, evaluation)
        n_sound = jnp.sum(jnp.isfinite(known.fitness))
        n_best = jnp.clip(jnp.minimum(self.population // 2, (n_sound + 1) // 2), 1)
        rank = rank_by_fitness(known.fitness, known.violation).astype(x.dtype)
        weights = jnp.maximum(jnp.log(n_best + 0.5) - jnp.log(rank + 1), 0)
        weights = (weights / jnp.sum(weights))[:, None]
        unit = (x - bounds.lower) / bounds.span
        mean = jnp.sum(weights * unit, axis=0)
        spread = jnp.sqrt(jnp.mean(jnp.sum(weights * (unit - mean) ** 2, axis=0)))
        started = now._replace(mean=mean, step=jnp.clip(spread, START_STEP_SHARE * now.step, now.step))
        now = jax.tree.map(lambda a, b: jnp.where(n_sound > 0, a, b), started, now)
        candidates = self.place(now, state.normals, bounds)
        parents = set_first(state.parents, take_row(known, best_index(known)))
        progress = state.progress._replace(first_step=now.step)
        state = self.with_archived_values(state, x, evaluation)
        return state._replace(candidates=candidates, parents=parents, now=now, progress=progress)

    def with_archived_values(self, state: CMAESState, x: Array, evaluation: CandidateEvaluation) -> CMAESState:
        """The surrogate is fitted to these points, too; of more than its archive holds to the best."""
        if state.surrogate is None:
            return state
        known = as_population(x, evaluation)
        best_last = jnp.argsort(-rank_by_fitness(known.fitness, known.violation))
        archive = append_samples(
            state.surrogate.archive, x[best_last], known.fitness[best_last], jnp.ones(x.shape[0], bool)
        )
        return state._replace(surrogate=state.surrogate._replace(archive=archive))

    def with_immigrants(self, state: CMAESState, rows: Array, points: Array) -> CMAESState:
        """Points from elsewhere are judged where they are, and move the distribution as far as a sample could.

        Hansen (2011), Injecting external solutions into CMA-ES, arXiv:1110.4181.
        """
        normals = state.normals.at[rows].set(shorten(self.find_normals(state.now, points, state.bounds)))
        return state._replace(candidates=state.candidates.at[rows].set(points), normals=normals)

    def sample(self, key: Array, now: Distribution, bounds: Bounds) -> tuple[Array, Array]:
        """New candidates and the normal numbers that made them."""
        normals = random.normal(key, (self.population, bounds.dim), bounds.lower.dtype)
        return self.place(now, normals, bounds), normals

    def place(self, now: Distribution, normals: Array, bounds: Bounds) -> Array:
        """The points of the box that samples stand for."""
        unit = now.mean + now.step * self.transform(now, normals)
        return jnp.clip(bounds.lower + bounds.span * unit, bounds.lower, bounds.upper)

    def find_normals(self, now: Distribution, points: Array, bounds: Bounds) -> Array:
        """The normal numbers (k, d) that stand for these points."""
        moves = ((points - bounds.lower) / bounds.span - now.mean) / now.step
        if self.diagonal:
            return moves / now.root
        return lax.linalg.triangular_solve(now.root, moves.T, left_side=True, lower=True).T

    def transform(self, now: Distribution, normals: Array) -> Array:
        """Normal numbers (n, d) with the distribution's covariance."""
        return normals * now.root if self.diagonal else _product(normals, now.root.T)

    def step(self, key: Array, state: CMAESState, evaluation: CandidateEvaluation) -> CMAESState:
        """Rank the samples, move the distribution towards the good and away from the bad, and sample it."""
        samples = as_population(state.candidates, evaluation)
        best, old = take_row(samples, best_index(samples)), take_row(state.parents, 0)
        gained = ~no_worse(old, best)
        best = tree_where(gained, best, old)
        if state.surrogate is not None:
            return self.step_with_surrogate(key, state, samples, best, gained[0])
        return self.move(key, state, samples.fitness, samples.violation, set_first(samples, best), gained[0])

    def move(
        self, key: Array, state: CMAESState, fitness: Array, violation: Array | None, parents: Population, gained: Array
    ) -> CMAESState:
        """The next generation after samples with these values (n,). gained: whether the best value became less."""
        now, bounds = state.now, state.bounds
        k = self.constants
        assert k is not None
        moves = self.transform(now, state.normals)
        judged = fitness + penalize(state, moves)
        rank = rank_by_fitness(judged, violation)
        new, sound = self.update_distribution(k, state, moves, rank)
        new = self.widen_discrete(new, bounds)
        walls = update_boundary_penalty(
            state.walls, now, new, self.variances(now), fitness, rank, state.progress.age, k
        )  # fmt: skip
        # with the penalty: in a corner of the box many samples have the same value, and yet it goes on
        progress = self.update_health(state.progress, gained, judged, rank, new, sound, k)
        x, normals = self.sample(key, new, bounds)
        return state._replace(candidates=x, normals=normals, parents=parents, now=new, walls=walls, progress=progress)

    def step_with_surrogate(
        self, key: Array, state: CMAESState, samples: Population, best: Population, gained: Array
    ) -> CMAESState:
        """Fit the model to the latest values. Move the distribution if the model agrees with them, or if all samples
        have values; else choose the samples to evaluate next.
        """
        before, now, bounds, k = state.surrogate, state.now, state.bounds, self.constants
        assert before is not None and k is not None

        def to_unit(x: Array) -> Array:
            return (x - bounds.lower) / bounds.span

        places = jnp.arange(self.population)
        is_new, is_sample = places < before.n_next, places < k.count
        values = jnp.where(is_new, samples.fitness, before.values)
        archive = append_samples(before.archive, samples.x, samples.fitness, is_new)
        fitted = self.refit(before.fitted, archive, now, bounds)
        is_known = ~jnp.isnan(values)
        n_known = jnp.sum(is_known)
        n_compared = jnp.maximum(MIN_COMPARED, jnp.minimum(1.2 * n_known, 0.75 * k.count))
        rows = latest_rows(archive, min(max(MIN_COMPARED, min(MAX_COMPARED, self.population)), archive.x.shape[0]))
        compared = fitted.find_coordinates(to_unit(archive.x[rows]))
        agreed = agrees(fitted.model, compared, archive.values[rows], jnp.minimum(n_compared, archive.n_points))
        is_complete = n_known >= k.count

        predicted = fitted.model.predict(fitted.find_coordinates(to_unit(state.candidates)))
        shift = jnp.min(jnp.where(is_known, values, jnp.inf)) - jnp.min(jnp.where(is_sample, predicted, jnp.inf))
        ranked = jnp.where(is_known & jnp.isinf(values), jnp.inf, predicted + shift)
        fitness = jnp.where(is_sample, jnp.where(is_complete, values, ranked), jnp.inf)
        rows = latest_rows(archive, self.population)
        latest = Population(archive.x[rows], archive.values[rows][:, None], None)
        parents = set_first(latest, best)
        gained = before.gained | gained

        moved = self.insert_minimum(self.move(key, state, fitness, None, parents, gained), fitted)
        has_moved = agreed | is_complete
        state = jax.tree.map(
            lambda a, b: jnp.where(has_moved, a, b), moved, state._replace(parents=parents)
        )._replace(bounds=bounds)  # fmt: skip
        values = jnp.where(has_moved, jnp.nan, values)

        predicted = fitted.model.predict(fitted.find_coordinates(to_unit(state.candidates))) + penalize(
            state, self.transform(state.now, state.normals)
        )
        is_waiting = is_sample & jnp.isnan(values)
        order = jnp.lexsort((predicted, jnp.where(is_waiting, 0, jnp.where(is_sample, 1, 2))))
        n_next = jnp.where(fitted.model.is_fitted, jnp.where(has_moved, 1, (n_known + 1) // 2), k.count)
        n_next = jnp.minimum(jnp.maximum(n_next, self.batch or 1), jnp.sum(is_waiting)).astype(jnp.int32)
        return state._replace(
            candidates=state.candidates[order],
            normals=state.normals[order],
            surrogate=SurrogateState(archive, fitted, values[order], n_next, gained & ~has_moved),
        )

    def insert_minimum(self, state: CMAESState, fitted: FittedModel) -> CMAESState:
        """Put the model's minimum in the place of the first sample in every other generation, no longer than a sample
        could be.
        """
        bounds, dim = state.bounds, state.bounds.dim
        minimum = minimize_in_ball(fitted.model, dim, math.sqrt(dim) + 2)[None]
        unit = fitted.center + (minimum * fitted.root if self.diagonal else _product(minimum, fitted.root.T))
        point = jnp.clip(bounds.lower + bounds.span * unit, bounds.lower, bounds.upper)
        normals = shorten(self.find_normals(state.now, point, bounds))
        is_due = fitted.model.is_fitted & (state.progress.age % 2 == 1) & jnp.all(jnp.isfinite(normals))
        normals = jnp.where(is_due, normals, state.normals[:1])
        return state._replace(
            candidates=state.candidates.at[:1].set(self.place(state.now, normals, bounds)),
            normals=state.normals.at[:1].set(normals),
        )

    def update_distribution(
        self, k: StrategyParameters, state: CMAESState, moves: Array, rank: Array
    ) -> tuple[Distribution, Array]:
        """The distribution after samples with these moves (n, d) and ranks (n,), and whether it could be made."""
        now, normals, dim = state.now, state.normals, moves.shape[1]
        weights = k.weight((rank + 1).astype(moves.dtype))
        good = jnp.maximum(weights, 0)[:, None]
        move, normal = jnp.sum(good * moves, axis=0), jnp.sum(good * normals, axis=0)
        step_path = (1 - k.c_s) * now.step_path + jnp.sqrt(k.c_s * (2 - k.c_s) * k.mueff) * normal
        length = jnp.sum(step_path**2)
        bias_correction = 1 - (1 - k.c_s) ** (2 * (state.progress.age + 1))
        steady = (
            length < (2 + 4 / (dim + 1)) * dim * bias_correction
        )  # else the step size lags behind, and the path waits
        path = (1 - k.c_c) * now.path + jnp.where(steady, jnp.sqrt(k.c_c * (2 - k.c_c) * k.mueff), 0) * move
        # a bad sample counts as if it had the usual length: a long one could make the matrix indefinite
        share = jnp.where(weights < 0, weights * dim / (jnp.sum(normals**2, axis=1) + 1e-9), weights)
        decay = 1 - k.c_1 - k.c_mu * k.total + jnp.where(steady, 0, k.c_1 * k.c_c * (2 - k.c_c))
        if self.diagonal:
            matrix = decay * now.matrix + k.c_1 * path**2 + k.c_mu * jnp.sum(share[:, None] * moves**2, axis=0)
            root = jnp.sqrt(matrix)
        else:
            learnt = _product((k.c_mu * share[:, None] * moves).T, moves)
            matrix = decay * now.matrix + k.c_1 * path[:, None] * path + learnt
            matrix = (matrix + matrix.T) / 2
            root = lax.linalg.cholesky(matrix, symmetrize_input=False)
        sound = jnp.all(jnp.isfinite(root))
        matrix, root = jnp.where(sound, matrix, now.matrix), jnp.where(sound, root, now.root)
        usual = math.sqrt(dim) * (1 - 1 / (4 * dim) + 1 / (21 * dim**2))  # length of a standard normal vector
        growth = jnp.exp(jnp.clip(k.c_s / k.d_s * (jnp.sqrt(length) / usual - 1), -1, 1))
        return Distribution(now.mean + now.step * move, now.step * growth, matrix, root, path, step_path), sound

    def widen_discrete(self, now: Distribution, bounds: Bounds) -> Distribution:
        """The distribution with a standard deviation of at least CODES_APART steps in each integer or choice: with less
        all samples have the same code, and nothing tells which way to go. As pycma does.
        """
        if bounds.grid is None:
            return now
        least = jnp.where(bounds.grid.discrete, MIN_CODE_DEVIATION / bounds.span, 0)
        factor = jnp.maximum(1, least / (now.step * jnp.sqrt(self.variances(now))))
        if self.diagonal:
            return now._replace(matrix=now.matrix * factor**2, root=now.root * factor)
        matrix = now.matrix * factor[:, None] * factor
        return now._replace(matrix=matrix, root=now.root * factor[:, None])

    def distribution(self, state: CMAESState) -> tuple[Array, Array]:
        now = state.now
        root = jnp.diag(now.root) if self.diagonal else now.root
        return jnp.clip(now.mean, 0, 1), now.step * root

    def variances(self, now: Distribution) -> Array:
        """Of each variable, (d,), without the step size."""
        return now.matrix if self.diagonal else jnp.diagonal(now.matrix)

    def update_health(
        self,
        before: SearchHealth,
        gained: Array,
        fitness: Array,
        rank: Array,
        new: Distribution,
        sound: Array,
        k: StrategyParameters,
    ) -> SearchHealth:
        """What is known of the search's progress a generation later."""
        dim, age, count, half = new.mean.shape[0], before.age + 1, k.count, jnp.floor(k.count / 2)
        middle = jnp.sum(jnp.where(rank < half, fitness, 0)) / half
        since = jnp.where(gained | (middle < before.middle), 0, before.since + 1)
        equal = _value_at_rank(fitness, rank, 0) == _value_at_rank(fitness, rank, jnp.ceil(0.1 + count / 4))
        flat = before.flat + (equal - before.flat) / max(10, dim)
        diagonal = new.root if self.diagonal else jnp.diagonal(new.root)
        stuck = since > 120 + 30 * dim / count + 0.2 * age
        if self.patience is not None:
            stuck |= since > self.patience * (10 + 10 * dim**1.5 / count)
        stuck |= age > 100 + 50 * (dim + 3) ** 2 / jnp.sqrt(count)
        stuck |= jnp.max(diagonal) > math.sqrt(MAX_CONDITION) * jnp.min(diagonal)
        stuck |= jnp.max(self.variances(new)) * new.step**2 > (MAX_STEP_GROWTH * before.first_step) ** 2
        stuck |= (flat > 1 / 3) | ~sound
        return SearchHealth(age, jnp.minimum(middle, before.middle), since, flat, before.first_step, stuck)

    def termination(self, state: CMAESState, bounds: Bounds, tolerance: Array) -> Array:
        now = state.now
        width = now.step * jnp.maximum(jnp.sqrt(jnp.max(self.variances(now))), jnp.max(jnp.abs(now.path)))
        converged = (width <= tolerance) | (state.progress.stuck & (width <= jnp.sqrt(tolerance)))
        stuck = jnp.where(state.progress.stuck, STOP_CODES[Stop.STALL], RUNNING)
        elsewhere = self.is_best_elsewhere(state, bounds, jnp.maximum(width, tolerance))
        return jnp.where(converged, jnp.where(elsewhere, STOP_CODES[Stop.ELSEWHERE], STOP_CODES[Stop.TOLERANCE]), stuck)

    def is_best_elsewhere(self, state: CMAESState, bounds: Bounds, width: Array) -> Array:
        """Whether the best point ever is not one of those that the distribution, this wide, has converged to: it lies
        far from the mean, and is better than all of the last samples by more than rounding explains.
        """
        samples, eps = state.parents, jnp.finfo(state.parents.x.dtype).eps
        away = jnp.abs((samples.x - bounds.lower) / bounds.span - jnp.clip(state.now.mean, 0, 1))
        # an immigrant that was judged last may lie anywhere
        near = jnp.max(away, axis=1) <= jnp.maximum(
            MAX_BEST_DEVIATIONS * width, jnp.minimum(jnp.sqrt(width), MAX_BASIN_SHARE)
        )
        nearby = samples._replace(objectives=jnp.where(near[:, None], samples.objectives, jnp.inf))
        if nearby.violation is not None:
            nearby = nearby._replace(violation=jnp.where(near, nearby.violation, jnp.inf))
        best, last = take_row(samples, 0), take_row(nearby, best_index(nearby))
        larger = jnp.maximum(jnp.abs(last.fitness[0]), jnp.abs(best.fitness[0]))
        better = last.fitness[0] - best.fitness[0] > EQUAL_VALUE_ULPS * eps * jnp.where(jnp.isfinite(larger), larger, 0)
        if best.violation is not None and last.violation is not None:
            better = (best.violation[0] < last.violation[0]) | ((best.violation[0] == last.violation[0]) & better)
        return better & ~near[0]


def is_for_surrogate(evaluations: int | None, dim: int) -> bool:
    """Return whether a black box of `dim` variables has so few evaluations that a surrogate pays."""
    return evaluations is not None and evaluations <= MAX_SURROGATE_EVALUATIONS_PER_VARIABLE * dim


def penalize(state: CMAESState, moves: Array) -> Array:
    """The penalty (n,) of candidates that were drawn outside the box. moves: (n, d) from the mean, in steps."""
    beyond = state.now.mean + state.now.step * moves
    return jnp.sum(state.walls.weights * (beyond - jnp.clip(beyond, 0, 1)) ** 2, axis=1) / moves.shape[1]


def update_boundary_penalty(
    walls: BoundaryPenalty, now: Distribution, new: Distribution, variances: Array, fitness: Array, rank: Array,
    age: Array, k: StrategyParameters,
) -> BoundaryPenalty:  # fmt: skip
    """The penalty after a generation: heavier in the variables whose mean lies far outside, lighter where it is more
    than the values warrant.
    """
    dim, quarter = new.mean.shape[0], jnp.floor(k.count / 4)
    quartiles = jnp.abs(_value_at_rank(fitness, rank, k.count - 1 - quarter) - _value_at_rank(fitness, rank, quarter))
    log_scale = jnp.log(quartiles / jnp.mean(now.step**2 * variances))
    smoothed = walls.scale + (log_scale - walls.scale) * 2 / (21 + 3 * dim / k.count)
    scale = jnp.where(jnp.isfinite(log_scale), jnp.where(jnp.isnan(walls.scale), log_scale, smoothed), walls.scale)
    usual = jnp.exp(scale)
    outside = jnp.abs(new.mean - jnp.clip(new.mean, 0, 1))
    far = outside / (now.step * jnp.sqrt(variances)) - 3 * jnp.maximum(1, math.sqrt(dim) / k.mueff)
    first = jnp.any(outside > 0) & ((jnp.sum(walls.weights) == 0) | (age == 1)) & jnp.isfinite(usual)
    weights = jnp.where(first, 2 * usual, walls.weights)
    rate = jnp.minimum(1, k.mueff / (10 * dim))
    weights = weights * jnp.where(far > 0, jnp.exp(jnp.tanh(far / 3) / 2 * rate), 1)
    return BoundaryPenalty(weights * jnp.where(weights > 5 * usual, jnp.exp(-rate / 3), 1), scale)


def _value_at_rank(values: Array, rank: Array, place: Array | int) -> Array:
    """The value with that rank."""
    return jnp.sum(jnp.where(rank == place, values, 0))


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)  # a GPU would round what enters it to 10 bits
