"""Search by models for black boxes of which few evaluations can be had: `local.few_evaluations` as an algorithm.

The state is the list of evaluations made so far, and the next points are a pure function of it: models are fitted on
the host, in a callback of the compiled step. The searches that runs in this process have reached are remembered, so a
step continues one instead of repeating it; a resumed run repeats it once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Traits,
    static,
)
from galapax.core.checks import check_integer
from galapax.core.errors import InputError
from galapax.core.problem import (
    BLACK_BOX_EQ_TOLERANCE,
    Bounds,
    CandidateEvaluation,
    EqTolerance,
    Population,
    Shape,
    as_population,
    check_tolerance,
    derive_eq_tolerance,
    empty_population,
)
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.operators.selection import best_index, take_row

if TYPE_CHECKING:
    from galapax.local.few_evaluations import FewEvaluations

MAX_MODEL_EVALUATIONS_PER_VARIABLE = 100  # of a black box, up to which models get further than populations
MAX_MODEL_EVALUATIONS = 300  # or so many, where these are more: with one or two variables
MAX_EVALUATIONS_PER_VARIABLE = 200  # evaluations a variable that a search remembers if nothing limits it
MIN_CAPACITY = 64
MAX_REMEMBERED_SEARCHES = 256  # as many runs go on at a time; others repeat what they did in each step


class ModelSearchState(NamedTuple):
    candidates: Array  # (k, d) waiting for their evaluation
    parents: Population  # (1, ...) the best point
    x: Array  # (capacity, d) evaluated points in their order
    values: Array  # (capacity, 1 + p + q) objective, inequalities, equalities; NaN where a point failed
    is_known: Array  # (capacity,) bool, whether a value was known and not asked for
    n_told: Array  # int32, how many points are in the list
    is_done: Array  # bool, whether enough descents agreed
    by_method: Array  # int32 (k,), evaluations of each method
    seed: Array  # uint32 (2,)
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ModelSearch(Algorithm[ModelSearchState]):
    """Quadratic models, SQP by differences and a surrogate-assisted CMA-ES, for one objective and few evaluations.

    population: points evaluated at a time, such as the number of workers.
    capacity: evaluations that a search can remember; by default what the budget allows.
    eq_tolerance: within which equalities hold, one number or one for each; by default 1e-6 of their spread.
    """

    population: int = static(1)
    capacity: int = static(None)
    eq_tolerance: EqTolerance | None = static(None)  # noqa: RUF009 (a field)

    traits: ClassVar[Traits] = Traits(rounds_discrete=False, fast_compile=True, termination_every=1, min_generations=1)

    def validate(self) -> None:
        check_integer(self.population, "population", 1, "a model search evaluates this many points at a time")
        check_tolerance(self.eq_tolerance)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        if self.capacity is not None:
            return self
        limit = MAX_EVALUATIONS_PER_VARIABLE * dim
        if budget.evaluations is not None:
            limit = budget.evaluations
        if budget.generations is not None:
            limit = min(limit, budget.generations * self.population)
        capacity = MIN_CAPACITY
        while capacity < limit + self.population:  # by powers of two, so that few programs are compiled
            capacity *= 2
        return dataclasses.replace(self, capacity=capacity)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> ModelSearchState:
        if bounds.lower.dtype != jnp.float64:
            raise InputError('ModelSearch needs float64 for its differences: pass compute=gx.Compute(dtype="float64").')
        seed = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        dim = bounds.lower.shape[0]
        x = jnp.zeros((self.capacity or MIN_CAPACITY, dim), bounds.lower.dtype)
        values = jnp.full((x.shape[0], 1 + shape.ineq + shape.eq), jnp.nan, x.dtype)
        nobody = take_row(empty_population(x[:1], shape), 0)
        n_told, is_done, by_method = jnp.int32(0), jnp.asarray(False), jnp.zeros(len(self.methods()), jnp.int32)
        is_known = jnp.zeros(x.shape[0], bool)
        state = ModelSearchState(
            x[: self.population], nobody, x, values, is_known, n_told, is_done, by_method, seed.astype(jnp.uint32),
            bounds,
        )  # fmt: skip
        return self.ask(state, shape.ineq)

    def step(self, key: Array, state: ModelSearchState, evaluation: CandidateEvaluation) -> ModelSearchState:
        """Add what was evaluated to the list, and ask for the next points."""
        is_full = state.n_told + self.population > state.x.shape[0]  # then it asks for the same points again
        longer = append_evaluations(state, state.candidates, evaluation, is_known=False)
        state = longer._replace(
            x=jnp.where(is_full, state.x, longer.x),
            values=jnp.where(is_full, state.values, longer.values),
            is_known=jnp.where(is_full, state.is_known, longer.is_known),
            n_told=jnp.where(is_full, state.n_told, longer.n_told),
        )
        return self.ask(state, 0 if evaluation.ineq is None else evaluation.ineq.shape[1])

    def with_known_values(self, state: ModelSearchState, x: Array, evaluation: CandidateEvaluation) -> ModelSearchState:
        """Add evaluated points to the list, which becomes longer by as many, and ask for points with them in mind."""
        room = -(-x.shape[0] // MIN_CAPACITY) * MIN_CAPACITY  # few sizes, as each is a program
        state = state._replace(
            x=jnp.pad(state.x, ((0, room), (0, 0))),
            values=jnp.pad(state.values, ((0, room), (0, 0)), constant_values=jnp.nan),
            is_known=jnp.pad(state.is_known, (0, room)),
        )
        state = append_evaluations(state, x, evaluation, is_known=True)
        return self.ask(state, 0 if evaluation.ineq is None else evaluation.ineq.shape[1])

    def ask(self, state: ModelSearchState, n_ineq: int) -> ModelSearchState:
        """The state with its next candidates."""
        dtype = state.candidates.dtype
        words = (*state.candidates.shape, dtype.itemsize // 4)
        counts = jax.ShapeDtypeStruct(state.by_method.shape, np.int32)
        result = (jax.ShapeDtypeStruct(words, np.uint32), jax.ShapeDtypeStruct((), np.bool_), counts)
        numbers = (state.bounds.lower, state.bounds.upper, state.x, state.values)
        # as words, since JAX hands callbacks numbers in the precision that their thread has: single
        as_words = [jax.lax.bitcast_convert_type(a, jnp.uint32) for a in numbers]
        points, is_done, by_method = jax.pure_callback(
            partial(_SEARCHES.ask, np.dtype(dtype), self.population, n_ineq, self.eq_tolerance),
            result, state.n_told, state.is_known, state.seed, *count_levels(state.bounds), *as_words,
            vmap_method="sequential",
        )  # fmt: skip
        candidates = jax.lax.bitcast_convert_type(points if words[-1] > 1 else points[..., 0], dtype)
        return state._replace(candidates=candidates, is_done=is_done, by_method=by_method)

    def methods(self) -> tuple[str, ...]:
        from galapax.local.few_evaluations import METHODS  # scipy.optimize takes a while to import

        return METHODS

    def evaluations_by_method(self, state: ModelSearchState) -> Array:
        return state.by_method

    def termination(self, state: ModelSearchState, bounds: Bounds, tolerance: Array) -> Array:
        is_full = state.n_told + self.population > state.x.shape[0]
        code = jnp.where(is_full, STOP_CODES[Stop.BUDGET], RUNNING)
        return jnp.where(state.is_done, STOP_CODES[Stop.TOLERANCE], code)


def append_evaluations(
    state: ModelSearchState, x: Array, evaluation: CandidateEvaluation, is_known: bool
) -> ModelSearchState:
    """Write evaluated points (k, d) at the end of the list, and keep the best point."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), state.parents, as_population(x, evaluation))
    constraints = [c for c in (evaluation.ineq, evaluation.eq) if c is not None]
    rows = jnp.concatenate([evaluation.objectives[:, :1], *constraints], axis=1)
    start = (state.n_told, jnp.int32(0))
    marks = jnp.full(x.shape[0], is_known)
    return state._replace(
        parents=take_row(both, best_index(both)),
        x=jax.lax.dynamic_update_slice(state.x, x.astype(state.x.dtype), start),
        values=jax.lax.dynamic_update_slice(state.values, rows.astype(state.values.dtype), start),
        is_known=jax.lax.dynamic_update_slice(state.is_known, marks, start[:1]),
        n_told=state.n_told + x.shape[0],
    )


def count_levels(bounds: Bounds) -> tuple[Array, Array]:
    """Return how many values each variable can take (d,), 0 for a real one, and whether they have no order."""
    grid = bounds.grid
    if grid is None:
        return jnp.zeros(bounds.lower.shape, jnp.int32), jnp.zeros(bounds.lower.shape, bool)
    counts = jnp.where(jnp.asarray(grid.discrete), jnp.asarray(grid.last) - jnp.asarray(grid.first) + 1, 0)
    return counts.astype(jnp.int32), jnp.asarray(grid.unordered)


def is_for_models(evaluations: int | None, dim: int) -> bool:
    """Return whether a black box of `dim` variables has so few evaluations that models of it pay."""
    limit = max(MAX_MODEL_EVALUATIONS_PER_VARIABLE * dim, MAX_MODEL_EVALUATIONS)
    return evaluations is not None and evaluations <= limit


class _SearchStep(NamedTuple):
    """A search and what it asks for."""

    search: FewEvaluations
    points: np.ndarray
    is_done: bool
    by_method: np.ndarray


class SearchMemory:
    """The searches that runs of this process have reached, by the evaluations that they were told."""

    def __init__(self) -> None:
        self._steps: OrderedDict[bytes, _SearchStep] = OrderedDict()

    def ask(
        self,
        dtype: np.dtype[Any],
        n: int,
        n_ineq: int,
        tolerance: EqTolerance | None,
        count: np.ndarray,
        is_known: np.ndarray,
        seed: np.ndarray,
        levels: np.ndarray,
        unordered: np.ndarray,
        *words: ArrayLike,
    ) -> tuple[np.ndarray, np.bool_, np.ndarray]:
        """The points that follow the first `count` evaluations of a search, n at a time; whether it is done, and how
        many evaluations each of its methods had.

        is_known: (capacity,) which were not asked for. levels, unordered: (d,), see `Grid`. words: of the box's bounds
        (d,), and of all points (capacity, d) and values (capacity, 1 + p + q).
        """
        from galapax.local.few_evaluations import FewEvaluations, Grid  # scipy.optimize takes a while to import

        lower, upper, x, values = (np.ascontiguousarray(a).view(dtype) for a in words)
        lower, upper = lower.reshape(-1), upper.reshape(-1)
        n_told, span = int(count), upper - lower
        x, values = x.reshape(len(x), -1)[:n_told], values.reshape(len(values), -1)[:n_told]
        seed, is_known = np.asarray(seed), np.asarray(is_known)[:n_told]
        grid = Grid(np.asarray(levels), np.asarray(unordered))
        settings = repr((n, n_ineq, tolerance)).encode() + grid.levels.tobytes() + grid.unordered.tobytes()
        start = hashlib.blake2b(settings + b"".join(a.tobytes() for a in (seed, lower, upper)))

        def name(rows: int) -> bytes:
            digest = start.copy()
            digest.update(x[:rows].tobytes())
            digest.update(values[:rows].tobytes())
            digest.update(is_known[:rows].tobytes())
            return digest.digest()

        key = name(n_told)
        if key not in self._steps:
            groups = _group_rows(is_known, n)
            starts_known = len(groups) == 1 and bool(is_known[0])  # before anything was asked for
            step = self._steps.pop(name(groups[-1].start), None) if groups and not starts_known else None
            if step is None:
                grid_or_none = grid if grid.levels.any() else None
                search = FewEvaluations(len(lower), seed_of(seed), grid=grid_or_none, n_parallel=n)
            else:
                search = step.search
            for rows in groups if step is None else groups[-1:]:
                unit, ineq, eq = (x[rows] - lower) / span, values[rows, 1 : 1 + n_ineq], values[rows, 1 + n_ineq :]
                if rows.start == 0 and eq.shape[1]:  # as a black box derives it from its first generation
                    within = derive_eq_tolerance(eq, BLACK_BOX_EQ_TOLERANCE) if tolerance is None else tolerance
                    search.log.eq_tolerance = np.asarray(within)
                if is_known[rows.start]:
                    search.learn(unit, values[rows, 0], ineq, eq)
                    continue
                if not search.is_asked:
                    search.ask(n)
                search.tell(values[rows, 0], ineq, eq, unit)
            points = search.outstanding_points if search.is_asked else search.ask(n)
            self._steps[key] = _SearchStep(search, points, search.is_done, search.evaluations.copy())
            if len(self._steps) > MAX_REMEMBERED_SEARCHES:
                self._steps.popitem(last=False)
        step = self._steps[key]
        points = np.clip(lower + step.points * span, lower, upper).astype(dtype)
        return points[..., None].view(np.uint32), np.bool_(step.is_done), step.by_method.astype(np.int32)


def _group_rows(is_known: np.ndarray, n: int) -> list[slice]:
    """Group the rows of a list into known ones that follow each other, and batches of n that were asked for."""
    groups, first = [], 0
    while first < len(is_known):
        later = np.flatnonzero(~is_known[first:])
        n_known = int(later[0]) if len(later) else len(is_known) - first
        groups.append(slice(first, first + (n_known or n)))
        first = groups[-1].stop
    return groups


def seed_of(key: np.ndarray) -> int:
    """A seed for NumPy from the two words of a key."""
    return int(key[0]) << 32 | int(key[1])


_SEARCHES = SearchMemory()
