"""Min-max answers refined by gradients: x that minimises the worst of a few y, and y that follow it.

The worst case of x is the largest of a few local maxima over y. Each of them moves with x, and by the envelope theorem
its slope in x is that of the function with y held still. So x descends the largest of them, as the constraints
f(x, y_i) <= t of a problem in x and t (local/augmented_lagrangian.py); then y are sought anew, local maxima that were
not met before join, and x descends again. Hettich & Kortanek (1993), SIAM Review 35(3):380-429, section 7.3,
doi:10.1137/1035089.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.core.interrupts import Interrupts
from galapax.core.problem import Bounds
from galapax.local import augmented_lagrangian, lbfgs
from galapax.local.augmented_lagrangian import Interval
from galapax.local.lbfgs import ENDED
from galapax.local.worst_case import BATCH_SIZE, Check, worst_cases
from galapax.numerics import compile_cache, random
from galapax.operators.sampling import sample_uniform

if TYPE_CHECKING:
    from galapax.objective.game import Game, TracedGame

MAX_ATTEMPTS = 3  # to refine an x whose check finds a worse case than all that were met
RELATIVE_TOLERANCE = 1e-7  # of the value: changes below it count as none
MAX_ROUNDS = 9  # searches for y, each followed by a descent of x; fewer where QUIET of them in a row bring nothing
MAX_QUIET_ROUNDS = 2
MIN_RELATIVE_GAIN = 1e-9  # of the value, or of all that was gained
MAX_OPPONENTS = 12  # local maxima over y that x is judged by
NEW_OPPONENTS = 12  # y that are sought anew in each round, half of them from the worst of a cloud of points
CLOUD_POINTS = 256  # of which half have some variables at a wall: the worst case is often at one
ASCENT_EVALUATIONS = 60  # evaluations of an ascent in y
FOLLOW_EVALUATIONS = 8  # evaluations by which a y follows x during a descent
MAX_DESCENT_EVALUATIONS = 800  # evaluations of x in a round
STEP_SHARES = np.array([1.0, 0.5, 0.2, 0.05, 0.01])  # of the way that a descent went
GRADIENT_COST = 4  # evaluations that a gradient counts for, see local/refine.py
SAME_POINT_DISTANCE = 1e-6  # of the box: y this close to each other are one


class MinMaxRefinement(NamedTuple):
    """Of one run, or of R of them."""

    x: Array  # (dx,) the best
    value: Array  # the worst value of x among the y that were met
    y: Array  # (KEPT, dy) the worst y for x, worst first
    before: Array  # the worst value that was met by the x that it began with
    gain: Array  # by how much the last round was better than those before it
    quiet: Array  # rounds in a row that brought nothing
    pairs: Array  # evaluations
    here: Array  # (dx,) where x is to be looked at next
    judges: Array  # (KEPT, dy) y by which the next descent is judged


class RefinedMinMax(NamedTuple):
    """Of R runs: x, refined or as it was, and the check of its worst case."""

    x: np.ndarray  # (R, dx)
    value: np.ndarray  # (R,) the worst value among the y that x was judged by
    check: Check
    pairs: np.ndarray  # (R,) evaluations of the refinement
    better: np.ndarray  # (R,) bool: x is refined
    converged: np.ndarray  # (R,) bool: refining it further brought nothing, and the check found nothing worse


def refine_minmax(
    traced: TracedGame,
    x: np.ndarray,
    opponents: np.ndarray,
    boxes: tuple[Bounds, Bounds],
    seed: int,
    numbers: np.ndarray,
    interrupts: Interrupts,
) -> RefinedMinMax:
    """Refine x (R, dx), judged by opponents (R, dy, k), and check what comes of it; never to a worse case than before.

    numbers: of the runs, (R,). Where the check finds a y that is worse than all that were met, x is refined once more.
    """
    runs = len(x)
    keys = np.concatenate([random.run_keys(seed, 2**30 + int(n), 1) for n in numbers])
    best, met = x.copy(), opponents.copy()
    value, before, gain, pairs = np.full(runs, np.inf), np.full(runs, np.inf), np.zeros(runs), np.zeros(runs, np.int64)
    check = Check.none(runs, boxes[1].dim)
    active = np.arange(runs)  # those that are still refined
    for attempt in range(MAX_ATTEMPTS):
        if interrupts.seen or not active.size:
            break
        for start in range(0, active.size, BATCH_SIZE):
            rows = active[
                np.minimum(np.arange(start, start + BATCH_SIZE), active.size - 1)
            ]  # as many always: one program
            batch_arguments = (traced.consts, best[rows], met[rows], boxes, keys[rows] + np.uint32(attempt))
            refinement = jax.device_get(compile_cache.call(exchange, (traced.game,), *batch_arguments))
            batch_rows = rows[: active.size - start]
            k = len(batch_rows)
            if not attempt:
                before[batch_rows] = refinement.before[:k]
            best[batch_rows], value[batch_rows], gain[batch_rows] = (
                refinement.x[:k],
                refinement.value[:k],
                refinement.gain[:k],
            )
            pairs[batch_rows] += refinement.pairs[:k].astype(np.int64)
            met[batch_rows, :, -MAX_OPPONENTS:] = refinement.y[:k].swapaxes(1, 2)[:, :, : met.shape[2]]
        new_check = worst_cases(traced, best[active], met[active], boxes[1], seed, numbers[active], interrupts)
        check.put(active, new_check)
        worse = check.value[active] > value[active] + RELATIVE_TOLERANCE * np.maximum(1, np.abs(value[active]))
        met[active[worse], :, 0] = check.y[active[worse]]
        active = active[worse]
    better = (check.value < before) & np.any(best != x, axis=1)  # the x before had at least that worst case
    same = np.flatnonzero(~better)
    if same.size:
        best[same] = x[same]
        check.put(same, worst_cases(traced, x[same], opponents[same], boxes[1], seed, numbers[same], interrupts))
    still = np.abs(gain) <= RELATIVE_TOLERANCE * np.maximum(1, np.abs(value))
    agreed = check.value <= value + RELATIVE_TOLERANCE * np.maximum(1, np.abs(value))
    return RefinedMinMax(best, value, check, pairs, better, still & agreed & check.settled & np.isfinite(value))


def exchange(
    game: Game, consts: Any, x: Array, opponents: Array, boxes: tuple[Bounds, Bounds], keys: Array
) -> MinMaxRefinement:
    """Refine each x (R, dx), whose opponents are (R, dy, k). boxes: of x and of y."""
    return jax.vmap(lambda x, y, key: _refine_one(game, consts, x, y.T, boxes[0], boxes[1], key))(x, opponents, keys)


def _refine_one(
    game: Game, consts: Any, x: Array, met: Array, x_box: Bounds, y_box: Bounds, key: Array
) -> MinMaxRefinement:
    def worth(x: Array, y: Array) -> Array:
        values = jax.vmap(lambda y: game.one(consts, x, y))(y)
        return jnp.where(jnp.isnan(values), -jnp.inf, values)

    each = 1 + GRADIENT_COST
    of_round = (STEP_SHARES.size + 1) * CLOUD_POINTS + (MAX_OPPONENTS + NEW_OPPONENTS) * (ASCENT_EVALUATIONS * each + 1)

    def refine_round(i: Any, best: MinMaxRefinement) -> MinMaxRefinement:
        """Search for the worst y of `here`; then descend from the best x, judged by the worst of all y so far."""
        cloud = _sample_cloud(random.fold_in(key, i), y_box)
        known_y = jnp.concatenate([best.judges, best.y, cloud])
        trials = best.x + STEP_SHARES[:, None].astype(best.x.dtype) * (
            best.here - best.x
        )  # a descent may have gone too far
        here = trials[jnp.argmin(jax.vmap(lambda x: jnp.max(worth(x, known_y)))(trials))]
        worst = jnp.argsort(-worth(here, cloud))[: NEW_OPPONENTS // 2]
        start = jnp.concatenate([best.judges, cloud[worst], cloud[: NEW_OPPONENTS - NEW_OPPONENTS // 2]])
        maxima = _ascend(game, consts, here, start, y_box, ASCENT_EVALUATIONS)
        maxima, values = _distinct_worst(maxima, worth(here, maxima), y_box)
        better = values[0] < best.value
        gain = jnp.where(jnp.isfinite(best.value), best.value - values[0], 0)
        x, value = jnp.where(better, here, best.x), jnp.where(better, values[0], best.value)
        first = jnp.where(i == 0, values[0], best.before)
        candidates_y = jnp.concatenate([maxima, best.judges])
        judges, _ = _distinct_worst(candidates_y, jnp.maximum(worth(x, candidates_y), worth(here, candidates_y)), y_box)
        next_x, n_steps = _descend(game, consts, x, judges, x_box, y_box)
        return MinMaxRefinement(
            x=x,
            value=value,
            y=jnp.where(better, maxima, best.y),
            before=first,
            gain=gain,
            quiet=jnp.where(
                gain > MIN_RELATIVE_GAIN * jnp.maximum(jnp.abs(value), first - value), 0, best.quiet + (i > 0)
            ),
            pairs=best.pairs + of_round + n_steps * MAX_OPPONENTS * (FOLLOW_EVALUATIONS + 1) * each,
            here=next_x,
            judges=judges,
        )

    judges = met[jnp.argsort(-worth(x, met))[:MAX_OPPONENTS]]
    zero = jnp.zeros((), x.dtype)
    start = MinMaxRefinement(x, zero + jnp.inf, judges, zero, zero, zero, zero + met.shape[0], x, judges)

    def going(candidates_y: tuple[Array, MinMaxRefinement]) -> Array:
        return (candidates_y[0] < MAX_ROUNDS) & (candidates_y[1].quiet < MAX_QUIET_ROUNDS)

    return lax.while_loop(
        going, lambda candidates_y: (candidates_y[0] + 1, refine_round(*candidates_y)), (jnp.int32(0), start)
    )[1]


def _ascend(game: Game, consts: Any, x: Array, y: Array, box: Bounds, trials: int) -> Array:
    """Local maxima over y that ascents from y (k, dy) came to."""

    def look(y: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(lambda y: -game.one(consts, x, y))(y)

    def step(_: Any, was: Any) -> Any:
        new = jax.vmap(lambda d: lbfgs.tell(d, *look(d.trial), box, -jnp.inf, 0.0))(was)
        ended = was.status == ENDED
        return jax.tree.map(lambda a, b: jnp.where(ended.reshape((-1,) + (1,) * (a.ndim - 1)), b, a), new, was)

    return lax.fori_loop(0, trials, step, jax.vmap(lbfgs.begin)(y)).x


def _sample_cloud(key: Array, box: Bounds) -> Array:
    """Points of a box, (CLOUD, d)."""
    inside, walls = random.split(key, 2)
    points = sample_uniform(inside, box, CLOUD_POINTS)
    side = random.uniform(walls, points.shape, points.dtype)
    at_wall = jnp.where(side < 0.35, box.lower, jnp.where(side > 0.65, box.upper, points))
    return jnp.where((jnp.arange(CLOUD_POINTS) % 2 == 0)[:, None], points, at_wall)


def _distinct_worst(y: Array, values: Array, box: Bounds) -> tuple[Array, Array]:
    """The KEPT y (k, dy) with the largest values, worst first, those that are the same as a worse one last."""
    order = jnp.argsort(-values)
    y, values = y[order], values[order]
    far = jnp.max(jnp.abs((y[:, None] - y[None, :]) / box.span), axis=2)
    k = jnp.arange(y.shape[0])
    double = jnp.any((far < SAME_POINT_DISTANCE) & (k[None, :] < k[:, None]), axis=1)
    order = jnp.argsort(double, stable=True)[:MAX_OPPONENTS]
    return y[order], values[order]


def _descend(game: Game, consts: Any, x: Array, y: Array, x_box: Bounds, y_box: Bounds) -> tuple[Array, Array]:
    """x where the largest of the local maxima near y (KEPT, dy) is least, and how many evaluations of them it took."""
    dim, dtype = x.shape[0], x.dtype
    values, slopes = jax.vmap(lambda y: jax.value_and_grad(lambda x: game.one(consts, x, y))(x))(y)
    sound = jnp.isfinite(values)
    top = jnp.max(jnp.where(sound, values, -jnp.inf))
    steep = jnp.max(jnp.where(sound[:, None], jnp.abs(slopes * x_box.span), 0))
    unit = jnp.where(jnp.isfinite(steep) & (steep > 0), steep, 1)
    limits = jnp.array([-1.0, 1.0], dtype)
    box = Bounds(jnp.append(x_box.lower, limits[0]), jnp.append(x_box.upper, limits[1]))
    interval = Interval(jnp.full(MAX_OPPONENTS, -jnp.inf, dtype), jnp.zeros(MAX_OPPONENTS, dtype))

    def judged(point: Array, multipliers: Array, penalty: Array) -> tuple[Array, Array]:
        here = lax.stop_gradient(point[:dim])
        follow = lax.stop_gradient(_ascend(game, consts, here, y, y_box, FOLLOW_EVALUATIONS))
        values_followed = jax.vmap(lambda y: game.one(consts, point[:dim], y))(follow)
        gaps = jnp.where(sound, (values_followed - top) / unit - point[dim], -1)
        return augmented_lagrangian.value(jnp.append(point[dim], gaps), multipliers, penalty, interval), gaps

    def step(both: tuple[Any, Array]) -> tuple[Any, Array]:
        state, n_steps = both
        trial = state.descent.trial
        (value, gaps), gradient = jax.value_and_grad(judged, has_aux=True)(trial, state.multipliers, state.penalty)
        return augmented_lagrangian.tell(state, value, gradient, gaps, interval, box), n_steps + 1

    share = jax.nn.softmax(jnp.where(sound, (values - top) / (1e-6 * unit), -jnp.inf))
    start = augmented_lagrangian.begin(jnp.append(x, jnp.zeros(1, dtype)), share)
    going = lambda both: ~both[0].ended & (both[1] < MAX_DESCENT_EVALUATIONS)  # noqa: E731
    end, n_steps = lax.while_loop(going, step, (start, jnp.zeros((), dtype)))
    return end.descent.x[:dim], n_steps
