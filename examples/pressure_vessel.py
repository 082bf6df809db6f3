"""The pressure vessel: the cheapest cylindrical tank with hemispherical heads that holds its volume and its pressure.

Run it with `galapax solve examples/pressure_vessel.py`, or as a program: `python examples/pressure_vessel.py`.
Sandgren (1990), Journal of Mechanical Design 112(2):223-229, with thicknesses that may take any value; the minimum is
then 5885.3328, with the longest shell allowed.
"""

import jax.numpy as jnp

import galapax as gx


def cost(x):
    """Material, forming and welding, in dollars."""
    shell, head, radius, length = x
    return 0.6224 * shell * radius * length + 1.7781 * head * radius**2 + (3.1661 * length + 19.84 * radius) * shell**2


def limits(x):
    """Each entry must be at most 0."""
    shell, head, radius, length = x
    volume = jnp.pi * radius**2 * length + 4 / 3 * jnp.pi * radius**3
    return jnp.array([0.0193 * radius - shell, 0.00954 * radius - head, 1 - volume / 1_296_000, length - 240])


problem = gx.Problem(
    cost,
    [(0.0625, 6.1875), (0.0625, 6.1875), (10.0, 200.0), (10.0, 200.0)],
    ineq=limits,
    name="pressure_vessel",
    title="Pressure vessel",
    variables=["shell thickness", "head thickness", "radius", "length"],
    constraint_names=["shell strength", "head strength", "volume", "length of the plate"],
)

if __name__ == "__main__":
    print(gx.minimize(problem))
