"""Minimise a function of one solution: `python examples/ten_lines.py`."""

import jax.numpy as jnp

import galapax as gx


def rastrigin(x):
    return jnp.sum(x**2 - 10 * jnp.cos(2 * jnp.pi * x) + 10)


result = gx.minimize(rastrigin, [(-5.12, 5.12)] * 5, gx.DE(population=50, crossover_rate=0.3), generations=500)
print(result)
