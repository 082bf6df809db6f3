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

from galapax.core.algorithm import Algorithm, Budget, Traits, static
from galapax.core.checks import check_integer
from galapax.core.errors import InputError
from galapax.core.problem import (
    BLACK_BOX_EQ_TOLERANCE,
    Bounds,
    EqTolerance,
    Evaluation,
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

MAX_DEFAULT_EVALUATIONS_PER_VARIABLE = 100  # of a black box, up to which models get further than populations
MAX_EVALUATIONS_PER_VARIABLE = 200  # evaluations a variable that a search remembers if nothing limits it
MIN_CAPACITY = 64
MAX_REMEMBERED_SEARCHES = 256  # as many runs go on at a time; others repeat what they did in each step


class ModelSearchState(NamedTuple):
    candidates: Array  # (k, d) waiting for their evaluation
    parents: Population  # (1, ...) the best point
    x: Array  # (capacity, d) evaluated points in their order
    values: Array  # (capacity, 1 + p + q) objective, inequalities, equalities; NaN where a point failed
    n_told: Array  # int32, how many points were evaluated
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

    traits: ClassVar[Traits] = Traits(fast_compile=True, termination_every=1, min_generations=1)

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
        state = ModelSearchState(
            x[: self.population], nobody, x, values, n_told, is_done, by_method, seed.astype(jnp.uint32), bounds
        )
        return self.ask(state, shape.ineq)

    def step(self, key: Array, state: ModelSearchState, evaluation: Evaluation) -> ModelSearchState:
        """Add what was evaluated to the list, and ask for the next points."""
        trials = as_population(state.candidates, evaluation)
        both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), state.parents, trials)
        parents = take_row(both, best_index(both))
        constraints = [c for c in (evaluation.ineq, evaluation.eq) if c is not None]
        rows = jnp.concatenate([evaluation.objectives[:, :1], *constraints], axis=1)
        start = (state.n_told, jnp.int32(0))
        is_full = state.n_told + self.population > state.x.shape[0]  # then it asks for the same points again
        x = jax.lax.dynamic_update_slice(state.x, state.candidates, start)
        values = jax.lax.dynamic_update_slice(state.values, rows.astype(state.values.dtype), start)
        state = state._replace(
            parents=parents,
            x=jnp.where(is_full, state.x, x),
            values=jnp.where(is_full, state.values, values),
            n_told=jnp.where(is_full, state.n_told, state.n_told + self.population),
        )
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
            result, state.n_told, state.seed, *as_words, vmap_method="sequential",
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


def is_for_models(evaluations: int, dim: int) -> bool:
    """Return whether a black box of `dim` variables has so few evaluations that models of it pay."""
    return evaluations <= MAX_DEFAULT_EVALUATIONS_PER_VARIABLE * dim


class _Step(NamedTuple):
    """A search and what it asks for."""

    search: FewEvaluations
    points: np.ndarray
    is_done: bool
    by_method: np.ndarray


class SearchMemory:
    """The searches that runs of this process have reached, by the evaluations that they were told."""

    def __init__(self) -> None:
        self._steps: OrderedDict[bytes, _Step] = OrderedDict()

    def ask(
        self,
        dtype: np.dtype[Any],
        n: int,
        n_ineq: int,
        tolerance: EqTolerance | None,
        count: np.ndarray,
        seed: np.ndarray,
        *words: ArrayLike,
    ) -> tuple[np.ndarray, np.bool_, np.ndarray]:
        """The points that follow the first `count` evaluations of a search, n at a time; whether it is done, and how
        many evaluations each of its methods had.

        words: of the box's bounds (d,), and of all points (capacity, d) and values (capacity, 1 + p + q).
        """
        from galapax.local.few_evaluations import FewEvaluations  # scipy.optimize takes a while to import

        lower, upper, x, values = (np.ascontiguousarray(a).view(dtype) for a in words)
        lower, upper = lower.reshape(-1), upper.reshape(-1)
        n_told, span = int(count), upper - lower
        x, values = x.reshape(len(x), -1)[:n_told], values.reshape(len(values), -1)[:n_told]
        seed = np.asarray(seed)
        settings = repr((n, n_ineq, tolerance)).encode()
        start = hashlib.blake2b(settings + b"".join(a.tobytes() for a in (seed, lower, upper)))

        def name(rows: int) -> bytes:
            digest = start.copy()
            digest.update(x[:rows].tobytes())
            digest.update(values[:rows].tobytes())
            return digest.digest()

        key = name(n_told)
        if key not in self._steps:
            step = self._steps.pop(name(n_told - n), None) if n_told else None
            known = n_told - n
            if step is None:
                search, known = FewEvaluations(len(lower), seed_of(seed)), 0
                step = _Step(search, search.ask(n), False, search.evaluations.copy())
            search, points = step.search, step.points
            for first in range(known, n_told, n):
                rows = slice(first, first + n)
                ineq, eq = values[rows, 1 : 1 + n_ineq], values[rows, 1 + n_ineq :]
                if first == 0 and eq.shape[1]:  # as a black box derives it from its first generation
                    within = derive_eq_tolerance(eq, BLACK_BOX_EQ_TOLERANCE) if tolerance is None else tolerance
                    search.log.eq_tolerance = np.asarray(within)
                search.tell(values[rows, 0], ineq, eq, (x[rows] - lower) / span)
                points = search.ask(n)
            self._steps[key] = _Step(search, points, search.is_done, search.evaluations.copy())
            if len(self._steps) > MAX_REMEMBERED_SEARCHES:
                self._steps.popitem(last=False)
        step = self._steps[key]
        points = np.clip(lower + step.points * span, lower, upper).astype(dtype)
        return points[..., None].view(np.uint32), np.bool_(step.is_done), step.by_method.astype(np.int32)


def seed_of(key: np.ndarray) -> int:
    """A seed for NumPy from the two words of a key."""
    return int(key[0]) << 32 | int(key[1])


_SEARCHES = SearchMemory()
