"""Survivors of a random objective are evaluated again, for any algorithm that selects survivors.

A survivor's value is a lucky draw: the more candidates it was the best of, the luckier. `Reevaluated` wraps an
algorithm without changing its search, evaluates some survivors together with its candidates, those first that were
evaluated least often, and lets them compete by the mean of all their values, so that the lucky ones go. See Jin &
Branke (2005), IEEE Trans. Evol. Comput. 9(3):303-317, doi:10.1109/TEVC.2005.846356, section II.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    HasArchive,
    SamplesDistribution,
    State,
    Traits,
    count_repairs,
    double_population,
    insert_initial_points,
)
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape

SURVIVORS_SHARE = 0.25  # of the survivors that are evaluated again in a generation
MIN_VALUES_OF_ANSWER = 3  # that the mean of an answer has, if any survivor has as many


class ReevaluatedState(NamedTuple):
    candidates: Array  # (n + k, d), those of the wrapped algorithm and k of its survivors
    parents: Population  # (n, ...), whose objectives are means
    counts: Array  # (n,) values in these means
    rows: Array  # (k,) which survivors are evaluated again
    inner: Any  # the wrapped algorithm's state without its candidates and parents


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Reevaluated(Algorithm[ReevaluatedState]):
    """`inner`, whose survivors compete by the means of several values."""

    inner: Algorithm

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        return self.inner.traits._replace(fixed_evaluations=False)

    @property
    def population(self) -> int:
        return self.inner.population + self.n_again

    @property
    def n_again(self) -> int:
        """Survivors that are evaluated again in a generation."""
        return math.ceil(SURVIVORS_SHARE * self.inner.population)

    @property
    def period(self) -> int:
        return self.inner.period

    def validate(self) -> None:
        self.inner.validate()

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        return replace(self, inner=self.inner.bind(dim, shape, budget))

    def with_doubled_population(self, first: int, times: int) -> Self:
        return replace(self, inner=double_population(self.inner, round(first / (1 + SURVIVORS_SHARE)), times))

    def n_repairs(self) -> int:
        return count_repairs(self.inner)

    def evaluations(self, state: ReevaluatedState, number: Array | int) -> Array:
        """In the first generation there are no survivors."""
        return jnp.where(jnp.any(state.counts > 0), self.population, self.inner.population)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> ReevaluatedState:
        inner = self.inner.init(key, bounds, shape)
        return self._wrap(inner, jnp.zeros(inner.parents.x.shape[0], jnp.int32))

    def with_initial_points(self, state: ReevaluatedState, points: Array) -> ReevaluatedState:
        return self._wrap(insert_initial_points(self.inner, self._unwrap(state), points), state.counts)

    def start(self, state: ReevaluatedState, evaluation: CandidateEvaluation, shape: Shape) -> ReevaluatedState:
        return self._wrap(self.inner.start(self._unwrap(state), self._of_candidates(evaluation), shape), state.counts)

    def step(self, key: Array, state: ReevaluatedState, evaluation: CandidateEvaluation) -> ReevaluatedState:
        """Add the survivors' new values to their means, then let the algorithm select and breed."""
        n, parents, rows = self.inner.population, state.parents, state.rows
        fresh, means = evaluation.objectives[n:], parents.objectives[rows]
        # a candidate that was repaired or replaced is none of the survivors
        is_valid = jnp.all(state.candidates[n:] == parents.x[rows], axis=1) & (state.counts[rows] > 0)
        is_valid &= jnp.all(jnp.isfinite(fresh) & jnp.isfinite(means), axis=1)
        counts = state.counts.at[rows].add(is_valid.astype(jnp.int32))
        means = jnp.where(is_valid[:, None], means + (fresh - means) / jnp.maximum(counts[rows], 1)[:, None], means)
        before = parents._replace(objectives=parents.objectives.at[rows].set(means))
        after = self.inner.step(key, self._unwrap(state)._replace(parents=before), self._of_candidates(evaluation))
        return self._wrap(after, _counts_of(after.parents, before, counts))

    def cycle(self, key: Array, state: ReevaluatedState, shape: Shape) -> ReevaluatedState:
        inner = self.inner.cycle(key, self._unwrap(state), shape)
        return self._wrap(inner, _counts_of(inner.parents, state.parents, state.counts))

    def termination(self, state: ReevaluatedState, bounds: Bounds, tolerance: Array) -> Array:
        return self.inner.termination(self._unwrap(state), bounds, tolerance)

    def solutions(self, state: ReevaluatedState) -> Population:
        """The survivors whose means are of several values; those of one are often lucky draws."""
        is_settled = state.counts >= MIN_VALUES_OF_ANSWER
        is_usable = is_settled | ~jnp.any(is_settled)
        parents, violation = state.parents, state.parents.violation
        return parents._replace(
            objectives=jnp.where(is_usable[:, None], parents.objectives, jnp.inf),
            violation=None if violation is None else jnp.where(is_usable, violation, jnp.inf),
        )

    def _wrap(self, inner: State, counts: Array) -> ReevaluatedState:
        _, rows = lax.top_k(-counts, self.n_again)
        candidates = jnp.concatenate([inner.candidates, inner.parents.x[rows]])
        return ReevaluatedState(candidates, inner.parents, counts, rows, inner._replace(candidates=None, parents=None))

    def _unwrap(self, state: ReevaluatedState) -> State:
        return state.inner._replace(candidates=state.candidates[: self.inner.population], parents=state.parents)

    def _of_candidates(self, evaluation: CandidateEvaluation) -> CandidateEvaluation:
        """The evaluation of the wrapped algorithm's candidates."""
        return jax.tree.map(lambda a: a[: self.inner.population], evaluation)


def reevaluates(algorithm: Algorithm) -> bool:
    """Whether `Reevaluated` can wrap it: its survivors are its answer, and as many as its candidates."""
    return algorithm.traits.fixed_evaluations and not isinstance(algorithm, HasArchive | SamplesDistribution)


def _counts_of(parents: Population, before: Population, counts: Array) -> Array:
    """The number of values of each survivor: those that it had before, or 1 where it is new."""
    is_same = jnp.all(parents.objectives[:, None] == before.objectives, axis=2)
    for gene, earlier in zip(parents.x.T, before.x.T, strict=True):
        is_same &= gene[:, None] == earlier
    n_before = jnp.max(jnp.where(is_same, counts, 0), axis=1)
    return jnp.maximum(n_before, jnp.isfinite(parents.objectives[:, 0]).astype(jnp.int32))
