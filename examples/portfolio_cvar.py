"""A portfolio of least conditional value at risk: the mean loss in the worst tenth of the years.

Run it with `python examples/portfolio_cvar.py`. With scenarios the problem is also a linear program (Rockafellar &
Uryasev, 2000, Journal of Risk 2(3):21-41), which scipy solves for comparison. The returns are drawn, not real.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

import galapax as gx

ASSETS = ["bonds", "shares", "gold", "cash"]
YEARS, LEVEL = 100, 0.9
RETURNS = np.random.default_rng(7).normal([0.03, 0.07, 0.04, 0.01], [0.04, 0.17, 0.12, 0.002], (YEARS, 4))
LEAST_RETURN = 0.03


def loss(x, returns):
    """Of a year, as a share of what was invested. x: shares of all assets but the last, which gets the rest."""
    return -(x @ returns[:-1] + (1 - jnp.sum(x)) * returns[-1])


def too_much(x):
    return jnp.sum(x) - 1


def too_little(x):
    mean = jnp.asarray(RETURNS.mean(axis=0))
    return LEAST_RETURN - (x @ mean[:-1] + (1 - jnp.sum(x)) * mean[-1])


def solve_linear_program() -> float:
    """The exact optimum: variables are the shares, the value at risk, and what each scenario loses beyond it."""
    cost = np.r_[np.zeros(4), 1, np.full(YEARS, 1 / YEARS / (1 - LEVEL))]
    above = np.c_[-RETURNS, -np.ones(YEARS), -np.eye(YEARS)]
    enough = np.r_[-RETURNS.mean(axis=0), np.zeros(YEARS + 1)]
    limits = [(0, None)] * 4 + [(None, None)] + [(0, None)] * YEARS
    program: Any = linprog(
        cost, np.vstack([above, enough]), np.r_[np.zeros(YEARS), -LEAST_RETURN],
        [np.r_[np.ones(4), np.zeros(YEARS + 1)]], [1], limits,
    )  # fmt: skip
    return float(program.fun)


if __name__ == "__main__":
    result = gx.robust(
        loss, [(0, 1)] * 3, gx.scenarios(RETURNS), gx.cvar(LEVEL), ineq=[too_much, too_little], max_evaluations=4000
    )
    shares = [*result.x, 1 - result.x.sum()]
    print(", ".join(f"{name} {share:.1%}" for name, share in zip(ASSETS, shares, strict=True)))
    print(f"mean loss of the worst tenth: {result.fun:.6f}; by linear programming {solve_linear_program():.6f}")
