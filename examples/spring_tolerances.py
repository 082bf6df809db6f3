"""The spring of spring.py with tolerances: its wire is not drawn exactly, and its load is not known exactly.

Run it with `python examples/spring_tolerances.py`. The lightest spring without tolerances lies on its limits, so that a
small error breaks them. Here all limits hold together with a probability of 95 %.
"""

import jax.numpy as jnp

import galapax as gx

TOLERANCES = {"wire": gx.normal(1, 0.005), "load": gx.normal(1, 0.03)}  # factors of the nominal values


def weight(x, y):
    wire, coil, turns = x
    return (turns + 2) * coil * (wire * y["wire"]) ** 2


def limits(x, y):
    """Each entry must be at most 0."""
    wire, coil, turns = x[0] * y["wire"], x[1], x[2]
    deflection = 1 - y["load"] * coil**3 * turns / (71785 * wire**4)
    bending = (4 * coil**2 - wire * coil) / (12566 * (coil * wire**3 - wire**4)) + 1 / (5108 * wire**2)
    surge = 1 - 140.45 * wire / (coil**2 * turns)
    return jnp.array([deflection, y["load"] * bending - 1, surge, (wire + coil) / 1.5 - 1])


if __name__ == "__main__":
    result = gx.robust(
        weight, [(0.05, 2.0), (0.25, 1.3), (2.0, 15.0)], TOLERANCES, "mean", ineq=limits,
        ineq_measure=gx.chance(0.95), samples=500, max_evaluations=4000,
    )  # fmt: skip
    print(f"mean weight {result.robust.value:.6f}, without tolerances 0.012665")
    print(result.robust)
