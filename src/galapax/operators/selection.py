"""Who is better, and who stays. Feasible beats infeasible, less violation beats more, then the objective decides."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from galapax.algorithm import Population


def no_worse(a: Population, b: Population) -> Array:
    """Slot by slot, whether `a` is at least as good as `b`, (n,). Ties count, so that plateaus can be crossed."""
    if a.violation is None or b.violation is None:
        return a.fitness <= b.fitness
    return (a.violation < b.violation) | ((a.violation == b.violation) & (a.fitness <= b.fitness))


def choose(first: Array, a: Population, b: Population) -> Population:
    """Slot by slot the individual of `a` where `first` holds, else that of `b`."""
    return jax.tree.map(lambda p, q: jnp.where(first.reshape(first.shape + (1,) * (p.ndim - 1)), p, q), a, b)


def best_index(population: Population) -> Array:
    """The row of the best individual for one objective, a scalar."""
    if population.violation is None:
        return jnp.argmin(population.fitness)
    least = jnp.min(population.violation)
    return jnp.argmin(jnp.where(population.violation == least, population.fitness, jnp.inf))
