"""Gradient-based refinement of min-max answers, and independent searches for the worst y that check them.

The worst case of x is the largest of a few local maxima over y. Each of them moves with x, and by the envelope theorem
its slope in x is that of the function with y fixed. So x minimises the largest of them, as a problem in x and t with
the constraints f(x, y_i) <= t (local/augmented_lagrangian.py); then the maxima are searched again, new ones join, and x
descends again. Hettich & Kortanek (1993), SIAM Review 35(3):380-429, section 7.3, doi:10.1137/1035089.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.problem import Bounds, Population
from galapax.core.stop import Interrupts
from galapax.local import augmented_lagrangian, lbfgs
from galapax.local.augmented_lagrangian import Interval, LagrangianDescent
from galapax.local.lbfgs import ENDED, Descent
from galapax.local.refine import GRADIENT_COST
from galapax.numerics import compile_cache, random
from galapax.operators.sampling import sample_uniform
from galapax.operators.variation import best_1, evolve_generation, rand_1

if TYPE_CHECKING:
    from galapax.objective.game import Game, TracedGame
    from galapax.objective.hoist_constants import Constants


SEARCHES_PER_X = 8
POPULATION_SIZE = 100
MAX_GENERATIONS = 500  # for up to ten variables of y, proportionally more for more
# a search ends when its y lie within this share of the box, by bytes of the dtype
CONVERGED_SPREAD = {8: 1e-11, 4: 1e-6}
FLAT_SPREAD = 1e-5  # the same if their values are equal to rounding, as around a smooth maximum
BATCH_SIZE = 4  # x that are checked at once; a fixed number, so that each result is the same alone
AGREEMENT_TOLERANCE = 1e-3  # relative difference from the worst value within which searches agree


class WorstCaseCheck(NamedTuple):
    """The worst case found for the x of each of R runs."""

    value: np.ndarray  # (R,); NaN if it was not searched
    y: np.ndarray  # (R, dy)
    agreeing: np.ndarray  # (R,), share of the searches that found it
    is_confirmed: np.ndarray  # (R,) bool: more than one found it
    n_pairs: np.ndarray  # (R,) evaluations of all checks of the run

    @staticmethod
    def empty(runs: int, dim: int) -> WorstCaseCheck:
        """Create the table before anything is checked."""
        value, y = np.full(runs, np.nan), np.full((runs, dim), np.nan)
        return WorstCaseCheck(value, y, np.zeros(runs), np.zeros(runs, bool), np.zeros(runs, np.int64))

    def update_rows(self, rows: np.ndarray, new_check: WorstCaseCheck) -> None:
        """Replace the results of these runs, and add up the evaluations."""
        n_pairs = self.n_pairs[rows] + new_check.n_pairs
        for column, new_column in zip(self, new_check, strict=True):
            column[rows] = new_column
        self.n_pairs[rows] = n_pairs


def find_worst_cases(
    traced: TracedGame,
    x: np.ndarray,
    opponents: np.ndarray,
    box: Bounds,
    seed: int,
    numbers: np.ndarray,
    interrupts: Interrupts,
) -> WorstCaseCheck:
    """Search the worst y for each x (R, dx) from scratch; the worst opponent of (R, dy, k) counts if it is worse.

    numbers: of the runs, (R,). After Ctrl-C the remaining runs have their worst opponent.
    """
    runs = len(x)
    keys = np.concatenate([random.run_keys(seed, 2**31 + int(n), 1) for n in numbers])
    check = WorstCaseCheck.empty(runs, box.dim)
    for start in range(0, runs, BATCH_SIZE):
        rows = np.minimum(np.arange(start, start + BATCH_SIZE), runs - 1)
        batch_arguments = (traced.consts, x[rows], opponents[rows], box, keys[rows])
        n_generations = 0 if interrupts.seen else MAX_GENERATIONS * max(1, box.dim // 10)
        values, y, pairs = jax.device_get(compile_cache.call(_search, (traced.game, n_generations), *batch_arguments))
        for i, row in enumerate(rows[: min(BATCH_SIZE, runs - start)]):
            best = int(np.argmax(values[i]))
            check.value[row], check.y[row], check.n_pairs[row] = values[i, best], y[i, best], int(pairs[i])
            agrees = values[i, 1:] >= _agreement_threshold(values[i])
            check.agreeing[row], check.is_confirmed[row] = agrees.mean(), agrees.sum() > 1
    return check


def _agreement_threshold(values: np.ndarray) -> float:
    """Return the least value that agrees with the largest one, relative to its size or to the range of the values."""
    largest, finite = float(values.max()), values[np.isfinite(values)]
    if not np.isfinite(largest) or not finite.size:
        return largest
    return largest - AGREEMENT_TOLERANCE * max(abs(largest), float(np.ptp(finite)), 1e-6)


def _search(
    game: Game, generations: int, consts: Constants, x: Array, opponents: Array, box: Bounds, keys: Array
) -> tuple[Array, Array, Array]:
    """Return, for each x (k, dx), the worst values of its opponents and of each search, their y, and the
    evaluations.
    """

    def search_x(x: Array, opponents: Array, key: Array) -> tuple[Array, Array, Array]:
        values = game(consts, x[None], opponents.T)[0]
        values = jnp.where(jnp.isnan(values), -jnp.inf, values)
        y, worst, n_populations = jax.vmap(
            lambda i: _maximize_over_y(game, generations, consts, x, box, random.fold_in(key, i), i)
        )(jnp.arange(SEARCHES_PER_X))
        worst_opponent = jnp.argmax(values)
        all_values = jnp.append(values[worst_opponent][None], worst)
        all_y = jnp.concatenate([opponents[:, worst_opponent][None], y])
        return all_values, all_y, opponents.shape[1] + POPULATION_SIZE * jnp.sum(n_populations)

    return jax.vmap(search_x)(x, opponents, keys)


def _maximize_over_y(
    game: Game, generations: int, consts: Constants, x: Array, box: Bounds, key: Array, number: Array
) -> tuple[Array, Array, Array]:
    """Maximise over y for one x (dx,) by differential evolution; return y, its value and the populations evaluated.

    Half of the searches use DE/best/1, which is faster in many variables.
    """

    def loss(y: Array) -> Array:
        values = game(consts, x[None], y)[0]
        return jnp.where(jnp.isnan(values), jnp.inf, -values)

    def mutation(key: Array, parents: Population, weight: ArrayLike) -> Array:
        return jnp.where(number % 2 == 0, rand_1(key, parents, weight), best_1(key, parents, weight))

    first = sample_uniform(random.fold_in(key, generations), box, POPULATION_SIZE)
    if 2**box.dim <= POPULATION_SIZE // 2:  # the worst case is often a corner
        first = jnp.concatenate([box.lower + box.span * corners(box.dim), first])[:POPULATION_SIZE]
    rows = jnp.concatenate([first, loss(first)[:, None]], axis=1)
    float_info = jnp.finfo(box.lower.dtype)

    def is_running(carry: tuple[Array, Array]) -> Array:
        generation, rows = carry
        width = jnp.max(jnp.ptp(rows[:, :-1], axis=0) / box.span)
        is_flat = jnp.ptp(rows[:, -1]) <= 8 * float_info.eps * jnp.max(jnp.abs(rows[:, -1]))
        return (generation < generations) & (
            width > jnp.where(is_flat, FLAT_SPREAD, CONVERGED_SPREAD[float_info.bits // 8])
        )

    def evolve(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        i, rows = carry
        return i + 1, evolve_generation(random.fold_in(key, i), rows, loss, box, mutation, 0.5, 0.9)

    generation, rows = lax.while_loop(is_running, evolve, (jnp.int32(0), rows))
    best = jnp.argmin(rows[:, -1])
    return rows[best, :-1], -rows[best, -1], generation + 1


def corners(dim: int) -> np.ndarray:
    """Return the corners of the unit cube, (2**dim, dim)."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=dim)))


MAX_ATTEMPTS = 3  # refinements of an x whose check finds a worse case than all known ones
RELATIVE_TOLERANCE = 1e-7  # of the value: smaller changes count as none
MAX_ROUNDS = 9  # searches over y, each followed by a descent in x
MAX_QUIET_ROUNDS = 2  # rounds in a row without a gain
MIN_RELATIVE_GAIN = 1e-9  # of the value, or of all that was gained
MAX_OPPONENTS = 12  # local maxima over y in the descent
NEW_OPPONENTS = 12  # ascents from new points in each round, half of them from the worst points of a sample
SAMPLE_POINTS = 256  # half of them with some variables at a bound, where the worst case often is
ASCENT_EVALUATIONS = 60  # evaluations of an ascent in y
FOLLOW_EVALUATIONS = 8  # evaluations by which a y follows x during a descent
MAX_DESCENT_EVALUATIONS = 800  # evaluations of x in a round
BACKTRACKING_SHARES = np.array([1.0, 0.5, 0.2, 0.05, 0.01])  # of the way that a descent went
SAME_Y_DISTANCE = 1e-6  # of the box: y within this distance count as one


class MinMaxRefinement(NamedTuple):
    """State of the refinement of one run, or of R runs."""

    x: Array  # (dx,) the best
    value: Array  # the worst value of x among the known y
    y: Array  # (MAX_OPPONENTS, dy) the worst known y for x, worst first
    first_value: Array  # the worst value of the first x among the known y
    gain: Array  # of the last round
    n_quiet: Array  # rounds in a row without a gain
    n_pairs: Array  # evaluations
    next_x: Array  # (dx,) result of the last descent, to be checked next
    opponents: Array  # (MAX_OPPONENTS, dy) y of the next descent


class RefinedMinMax(NamedTuple):
    """The x of R runs, refined or as they were, and the checks of their worst cases."""

    x: np.ndarray  # (R, dx)
    value: np.ndarray  # (R,) the worst value among the known y
    check: WorstCaseCheck
    n_pairs: np.ndarray  # (R,) evaluations of the refinement
    is_better: np.ndarray  # (R,) bool: x is refined
    has_converged: np.ndarray  # (R,) bool: further refinement gained nothing, and the check found nothing worse


def refine_minmax(
    traced: TracedGame,
    x: np.ndarray,
    opponents: np.ndarray,
    boxes: tuple[Bounds, Bounds],
    seed: int,
    numbers: np.ndarray,
    interrupts: Interrupts,
) -> RefinedMinMax:
    """Refine x (R, dx) against opponents (R, dy, k), and check the result; the worst case never gets worse.

    numbers: of the runs, (R,). If the check finds a y that is worse than all known ones, x is refined once more.
    """
    runs = len(x)
    keys = np.concatenate([random.run_keys(seed, 2**30 + int(n), 1) for n in numbers])
    best, known_y = x.copy(), opponents.copy()
    value, first_value = np.full(runs, np.inf), np.full(runs, np.inf)
    gain, n_pairs = np.zeros(runs), np.zeros(runs, np.int64)
    check = WorstCaseCheck.empty(runs, boxes[1].dim)
    active = np.arange(runs)  # runs that are still refined
    for attempt in range(MAX_ATTEMPTS):
        if interrupts.seen or not active.size:
            break
        for start in range(0, active.size, BATCH_SIZE):
            # a fixed number of rows, for one program
            rows = active[np.minimum(np.arange(start, start + BATCH_SIZE), active.size - 1)]
            batch_arguments = (traced.consts, best[rows], known_y[rows], boxes, keys[rows] + np.uint32(attempt))
            refinement = jax.device_get(compile_cache.call(refine_batch, (traced.game,), *batch_arguments))
            batch_rows = rows[: active.size - start]
            k = len(batch_rows)
            if not attempt:
                first_value[batch_rows] = refinement.first_value[:k]
            best[batch_rows], value[batch_rows] = refinement.x[:k], refinement.value[:k]
            gain[batch_rows] = refinement.gain[:k]
            n_pairs[batch_rows] += refinement.n_pairs[:k].astype(np.int64)
            worst_y = refinement.y[:k].swapaxes(1, 2)
            known_y[batch_rows, :, -MAX_OPPONENTS:] = worst_y[:, :, : known_y.shape[2]]
        new_check = find_worst_cases(traced, best[active], known_y[active], boxes[1], seed, numbers[active], interrupts)
        check.update_rows(active, new_check)
        is_worse = check.value[active] > value[active] + RELATIVE_TOLERANCE * np.maximum(1, np.abs(value[active]))
        known_y[active[is_worse], :, 0] = check.y[active[is_worse]]
        active = active[is_worse]
    is_better = (check.value < first_value) & np.any(best != x, axis=1)  # the first x had at least that worst case
    unchanged = np.flatnonzero(~is_better)
    if unchanged.size:
        best[unchanged] = x[unchanged]
        first_check = find_worst_cases(
            traced, x[unchanged], opponents[unchanged], boxes[1], seed, numbers[unchanged], interrupts
        )
        check.update_rows(unchanged, first_check)
    tolerance = RELATIVE_TOLERANCE * np.maximum(1, np.abs(value))
    is_confirmed = check.is_confirmed & (check.value <= value + tolerance)
    has_converged = (np.abs(gain) <= tolerance) & is_confirmed & np.isfinite(value)
    return RefinedMinMax(best, value, check, n_pairs, is_better, has_converged)


def refine_batch(
    game: Game, consts: Constants, x: Array, opponents: Array, boxes: tuple[Bounds, Bounds], keys: Array
) -> MinMaxRefinement:
    """Refine each x (R, dx) against its opponents (R, dy, k). boxes: of x and of y."""
    return jax.vmap(lambda x, y, key: _refine_one(game, consts, x, y.T, boxes[0], boxes[1], key))(x, opponents, keys)


def _refine_one(
    game: Game, consts: Constants, x: Array, known_y: Array, x_box: Bounds, y_box: Bounds, key: Array
) -> MinMaxRefinement:
    def payoffs(x: Array, y: Array) -> Array:
        values = jax.vmap(lambda y: game.one(consts, x, y))(y)
        return jnp.where(jnp.isnan(values), -jnp.inf, values)

    step_cost = 1 + GRADIENT_COST
    n_ascents = MAX_OPPONENTS + NEW_OPPONENTS
    round_cost = (BACKTRACKING_SHARES.size + 1) * SAMPLE_POINTS + n_ascents * (ASCENT_EVALUATIONS * step_cost + 1)

    def refine_round(i: Array, best: MinMaxRefinement) -> MinMaxRefinement:
        """Search the worst y of the last descent's x; then descend from the best x on the worst of all known y."""
        sample = _sample_with_bounds(random.fold_in(key, i), y_box)
        all_y = jnp.concatenate([best.opponents, best.y, sample])
        # backtrack, because a descent may have gone too far
        trials = best.x + BACKTRACKING_SHARES[:, None].astype(best.x.dtype) * (best.next_x - best.x)
        trial = trials[jnp.argmin(jax.vmap(lambda x: jnp.max(payoffs(x, all_y)))(trials))]
        worst = jnp.argsort(-payoffs(trial, sample))[: NEW_OPPONENTS // 2]
        start = jnp.concatenate([best.opponents, sample[worst], sample[: NEW_OPPONENTS - NEW_OPPONENTS // 2]])
        maxima = _ascend(game, consts, trial, start, y_box, ASCENT_EVALUATIONS)
        maxima, values = _select_distinct_worst(maxima, payoffs(trial, maxima), y_box)
        is_better = values[0] < best.value
        gain = jnp.where(jnp.isfinite(best.value), best.value - values[0], 0)
        x, value = jnp.where(is_better, trial, best.x), jnp.where(is_better, values[0], best.value)
        first_value = jnp.where(i == 0, values[0], best.first_value)
        candidates_y = jnp.concatenate([maxima, best.opponents])
        largest = jnp.maximum(payoffs(x, candidates_y), payoffs(trial, candidates_y))
        opponents, _ = _select_distinct_worst(candidates_y, largest, y_box)
        next_x, n_steps = _descend(game, consts, x, opponents, x_box, y_box)
        is_gain = gain > MIN_RELATIVE_GAIN * jnp.maximum(jnp.abs(value), first_value - value)
        return MinMaxRefinement(
            x=x,
            value=value,
            y=jnp.where(is_better, maxima, best.y),
            first_value=first_value,
            gain=gain,
            n_quiet=jnp.where(is_gain, 0, best.n_quiet + (i > 0)),
            n_pairs=best.n_pairs + round_cost + n_steps * MAX_OPPONENTS * (FOLLOW_EVALUATIONS + 1) * step_cost,
            next_x=next_x,
            opponents=opponents,
        )

    opponents = known_y[jnp.argsort(-payoffs(x, known_y))[:MAX_OPPONENTS]]
    zero = jnp.zeros((), x.dtype)
    start = MinMaxRefinement(
        x=x,
        value=zero + jnp.inf,
        y=opponents,
        first_value=zero,
        gain=zero,
        n_quiet=zero,
        n_pairs=zero + known_y.shape[0],
        next_x=x,
        opponents=opponents,
    )

    def is_running(carry: tuple[Array, MinMaxRefinement]) -> Array:
        return (carry[0] < MAX_ROUNDS) & (carry[1].n_quiet < MAX_QUIET_ROUNDS)

    return lax.while_loop(is_running, lambda carry: (carry[0] + 1, refine_round(*carry)), (jnp.int32(0), start))[1]


def _ascend(game: Game, consts: Constants, x: Array, y: Array, box: Bounds, n_evaluations: int) -> Array:
    """Ascend from each y (k, dy) to a local maximum."""

    def evaluate(y: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(lambda y: -game.one(consts, x, y))(y)

    def step(_: Array, state: Descent) -> Descent:
        new = jax.vmap(lambda d: lbfgs.tell(d, *evaluate(d.trial), box, -jnp.inf, 0.0))(state)
        has_ended = state.status == ENDED
        stepped: Descent = jax.tree.map(
            lambda a, b: jnp.where(has_ended.reshape((-1,) + (1,) * (a.ndim - 1)), b, a), new, state
        )
        return stepped

    return lax.fori_loop(0, n_evaluations, step, jax.vmap(lbfgs.begin)(y)).x


def _sample_with_bounds(key: Array, box: Bounds) -> Array:
    """Sample points of a box (SAMPLE_POINTS, d), every other one with some variables at a bound."""
    key_inside, key_bound = random.split(key, 2)
    points = sample_uniform(key_inside, box, SAMPLE_POINTS)
    side = random.uniform(key_bound, points.shape, points.dtype)
    at_bound = jnp.where(side < 0.35, box.lower, jnp.where(side > 0.65, box.upper, points))
    return jnp.where((jnp.arange(SAMPLE_POINTS) % 2 == 0)[:, None], points, at_bound)


def _select_distinct_worst(y: Array, values: Array, box: Bounds) -> tuple[Array, Array]:
    """Select MAX_OPPONENTS of y (k, dy) with the largest values, worst first; duplicates come last."""
    order = jnp.argsort(-values)
    y, values = y[order], values[order]
    distance = jnp.max(jnp.abs((y[:, None] - y[None, :]) / box.span), axis=2)
    k = jnp.arange(y.shape[0])
    is_duplicate = jnp.any((distance < SAME_Y_DISTANCE) & (k[None, :] < k[:, None]), axis=1)
    order = jnp.argsort(is_duplicate, stable=True)[:MAX_OPPONENTS]
    return y[order], values[order]


def _descend(game: Game, consts: Constants, x: Array, y: Array, x_box: Bounds, y_box: Bounds) -> tuple[Array, Array]:
    """Minimise over x the largest of the local maxima near y (MAX_OPPONENTS, dy); also count the evaluations of x."""
    dim, dtype = x.shape[0], x.dtype
    values, slopes = jax.vmap(lambda y: jax.value_and_grad(lambda x: game.one(consts, x, y))(x))(y)
    is_finite = jnp.isfinite(values)
    largest = jnp.max(jnp.where(is_finite, values, -jnp.inf))
    steepest = jnp.max(jnp.where(is_finite[:, None], jnp.abs(slopes * x_box.span), 0))
    unit = jnp.where(jnp.isfinite(steepest) & (steepest > 0), steepest, 1)
    t_limits = jnp.array([-1.0, 1.0], dtype)
    box = Bounds(jnp.append(x_box.lower, t_limits[0]), jnp.append(x_box.upper, t_limits[1]))
    interval = Interval(jnp.full(MAX_OPPONENTS, -jnp.inf, dtype), jnp.zeros(MAX_OPPONENTS, dtype))

    def evaluate(point: Array, multipliers: Array, penalty: Array) -> tuple[Array, Array]:
        fixed_x = lax.stop_gradient(point[:dim])
        moved_y = lax.stop_gradient(_ascend(game, consts, fixed_x, y, y_box, FOLLOW_EVALUATIONS))
        values = jax.vmap(lambda y: game.one(consts, point[:dim], y))(moved_y)
        constraints = jnp.where(is_finite, (values - largest) / unit - point[dim], -1)
        outputs = jnp.append(point[dim], constraints)
        return augmented_lagrangian.lagrangian_value(outputs, multipliers, penalty, interval), constraints

    def step(carry: tuple[LagrangianDescent, Array]) -> tuple[LagrangianDescent, Array]:
        state, n_steps = carry
        with_gradient = jax.value_and_grad(evaluate, has_aux=True)
        (value, constraints), gradient = with_gradient(state.descent.trial, state.multipliers, state.penalty)
        return augmented_lagrangian.tell(state, value, gradient, constraints, interval, box), n_steps + 1

    def is_running(carry: tuple[LagrangianDescent, Array]) -> Array:
        return ~carry[0].ended & (carry[1] < MAX_DESCENT_EVALUATIONS)

    multipliers = jax.nn.softmax(jnp.where(is_finite, (values - largest) / (1e-6 * unit), -jnp.inf))
    start = augmented_lagrangian.begin(jnp.append(x, jnp.zeros(1, dtype)), multipliers)
    end, n_steps = lax.while_loop(is_running, step, (start, jnp.zeros((), dtype)))
    return end.descent.x[:dim], n_steps
