"""A vibration absorber for a machine whose speed is not known: the least amplitude at the worst frequency.

Run it with `galapax solve examples/robust_absorber.py`, or as a program: `python examples/robust_absorber.py`.
Den Hartog (1956), Mechanical Vibrations: for a mass ratio mu his rule tunes the absorber to 1 / (1 + mu), with damping
sqrt(3 mu / (8 (1 + mu)^3)), and expects an amplitude of sqrt(1 + 2 / mu), 6.40 for mu = 0.05.
"""

import jax.numpy as jnp

import galapax as gx

MASS_RATIO = 0.05


def amplitude(x, y):
    """Of the main mass, in units of its static deflection. x: tuning and damping; y: the frequency of the machine."""
    tuning, damping = x
    g = y[0]
    damped = (2 * damping * g) ** 2
    above = damped + (g**2 - tuning**2) ** 2
    below = damped * (g**2 - 1 + MASS_RATIO * g**2) ** 2
    below = below + (MASS_RATIO * tuning**2 * g**2 - (g**2 - 1) * (g**2 - tuning**2)) ** 2
    return jnp.sqrt(above / below)


problem = gx.MinMaxProblem(
    amplitude, x_bounds=[(0.5, 1.5), (0.01, 0.5)], y_bounds=[(0.5, 1.5)], name="absorber", title="Vibration absorber"
)

if __name__ == "__main__":
    result = gx.minimax(problem)
    print(result)
    print(f"worst amplitude {result.worst_case:.4f} at frequency {result.y[0]:.4f}")
