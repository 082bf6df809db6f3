"""The tension/compression spring: the lightest coil spring that bends, shears and surges no more than it may.

Run it with `galapax solve examples/spring.py`, or as a program: `python examples/spring.py`.
Arora (1989), Introduction to Optimum Design; best known weight 0.0126652327883.
"""

import jax.numpy as jnp

import galapax as gx


def weight(x):
    wire, coil, turns = x
    return (turns + 2) * coil * wire**2


def limits(x):
    """Each entry must be at most 0."""
    wire, coil, turns = x
    deflection = 1 - coil**3 * turns / (71785 * wire**4)
    stress = (4 * coil**2 - wire * coil) / (12566 * (coil * wire**3 - wire**4)) + 1 / (5108 * wire**2) - 1
    surge = 1 - 140.45 * wire / (coil**2 * turns)
    diameter = (wire + coil) / 1.5 - 1
    return jnp.array([deflection, stress, surge, diameter])


problem = gx.Problem(
    weight,
    [(0.05, 2.0), (0.25, 1.3), (2.0, 15.0)],
    ineq=limits,
    name="spring",
    title="Tension/compression spring",
    optimum=0.012665232788319417,
    variables=["wire diameter", "coil diameter", "active turns"],
    constraint_names=["deflection", "shear stress", "surge frequency", "outer diameter"],
)

if __name__ == "__main__":
    print(gx.minimize(problem))
