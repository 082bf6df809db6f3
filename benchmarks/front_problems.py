"""Problems of several objectives on which libraries are compared; as JAX functions, so that all evaluate the same ones.

WFG: Huband, Hingston, Barone & While (2006), IEEE Trans. Evol. Comput. 10(5):477-506. MW: Ma & Wang (2019), IEEE Trans.
Evol. Comput. 23(6):972-986. OSY: Osyczka & Kundu (1995), Structural Optimization 10:94-99. TNK: Tanaka et al. (1995),
SMC 1995:1556-1561. C2-DTLZ2: Jain & Deb (2014), IEEE Trans. Evol. Comput. 18(4):602-622. Checked against pymoo 0.6.2 by
`python benchmarks/front_problems.py`. The hypervolumes are of dense samples of the true fronts; of OSY of the
non-dominated points of 10 runs of NSGA-II with 300 000 evaluations each. C2-DTLZ2, and WFG with three objectives,
have 1: there shares are hypervolumes.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import galapax as gx

Array = jax.Array


def osy() -> gx.Problem:
    def fun(x: Array) -> Array:
        centre = jnp.array([2.0, 2.0, 1.0, 4.0, 1.0], x.dtype)
        weight = jnp.array([25.0, 1.0, 1.0, 1.0, 1.0], x.dtype)
        return jnp.stack([-jnp.sum(weight * (x[:5] - centre) ** 2), jnp.sum(x**2)])

    def ineq(x: Array) -> Array:
        return -jnp.stack([
            (x[0] + x[1] - 2) / 2, (6 - x[0] - x[1]) / 6, (2 - x[1] + x[0]) / 2, (2 - x[0] + 3 * x[1]) / 2,
            (4 - (x[2] - 3) ** 2 - x[3]) / 4, ((x[4] - 3) ** 2 + x[5] - 4) / 4,
        ])  # fmt: skip

    box = [(0, 10), (0, 10), (1, 5), (0, 6), (1, 5), (0, 10)]
    return gx.Problem(fun, box, ineq=ineq, name="osy", reference_point=(-18.8, 83.2), hypervolume=16_180.0)


def tnk() -> gx.Problem:
    def ineq(x: Array) -> Array:
        wave = 0.1 * jnp.cos(16 * jnp.arctan(x[0] / x[1]))
        return jnp.stack([1 + wave - jnp.sum(x**2), 2 * jnp.sum((x - 0.5) ** 2) - 1])

    box = [(0, math.pi), (1e-30, math.pi)]
    return gx.Problem(lambda x: x, box, ineq=ineq, name="tnk", reference_point=(1.1, 1.1), hypervolume=0.433394)


def mw(number: int) -> gx.Problem:
    d, top = 15, 1.5 if number == 13 else 1.0
    i = np.arange(1, d)

    def g1(x: Array) -> Array:
        return 1 + jnp.sum(1 - jnp.exp(-10 * (x[1:] ** (d - 2) - 0.5 - i / (2 * d)) ** 2))

    def g2(x: Array) -> Array:
        z = 1 - jnp.exp(-10 * (x[1:] - i / d) ** 2)
        return 1 + jnp.sum(0.1 / d * z**2 + 1.5 - 1.5 * jnp.cos(2 * math.pi * z))

    def fun(x: Array) -> Array:
        if number == 13:
            g = g2(x)
            return g * jnp.stack([x[0], 5 - jnp.exp(x[0]) - jnp.abs(0.5 * jnp.sin(3 * math.pi * x[0]))])
        return jnp.stack([x[0], g1(x) - 0.85 * x[0] if number == 1 else g2(x) - x[0]])

    def ineq(x: Array) -> Array:
        a, b = fun(x)
        if number == 13:
            wave = 0.5 * jnp.sin(3 * math.pi * a)
            low, high = 5 - jnp.exp(a) - wave - b, 4 - 0.4 * a - wave - b
            return jnp.stack([-(4 - a - 0.5 * a**2 - wave - b) * (4 - 0.7 * a - wave - b), low * high])
        waves = 2 if number == 1 else 3
        return a + b - 1 - 0.5 * jnp.sin(waves * math.pi * math.sqrt(2) * (b - a)) ** 8

    reference = {1: (1.1, 1.1), 2: (1.1, 1.1), 13: (1.65, 4.4)}[number]
    volume = {1: 0.594028, 2: 0.71, 13: 3.4781}[number]
    return gx.Problem(fun, [(0, top)] * d, ineq=ineq, name=f"mw{number}", reference_point=reference, hypervolume=volume)


def wfg(number: int, objectives: int = 2, distance: int = 20) -> gx.Problem:
    """WFG1 or WFG4, with 4 variables along the front, or twice as many as that takes."""
    m = objectives
    k = 4 if m == 2 else 2 * (m - 1)
    d, gap = k + distance, k // (m - 1)
    upper = 2.0 * np.arange(1, d + 1)

    def transformed(x: Array) -> Array:  # (m,) the last of them is the distance
        y = jnp.clip(x / upper, 0, 1)
        if number == 4:
            t = jnp.abs(y - 0.35) / (2 * (jnp.floor(0.35 - y) + 0.35))
            y = jnp.clip((1 + jnp.cos(122 * math.pi * (0.5 - t)) + 40 * t**2) / 12, 0, 1)
            parts = [jnp.mean(y[j * gap : (j + 1) * gap]) for j in range(m - 1)]
            return jnp.stack([*parts, jnp.mean(y[k:])])
        far = jnp.clip(jnp.abs(y - 0.35) / jnp.abs(jnp.floor(0.35 - y) + 0.35), 0, 1)
        low = jnp.minimum(0, jnp.floor(far - 0.75)) * 0.8 * (0.75 - far) / 0.75
        high = jnp.minimum(0, jnp.floor(0.85 - far)) * 0.2 * (far - 0.85) / 0.15
        flat = jnp.clip(0.8 + low - high, 0, 1)
        y = jnp.where(np.arange(d) < k, y, flat) ** 0.02
        w = 2.0 * np.arange(1, d + 1)
        groups = [slice(j * gap, (j + 1) * gap) for j in range(m - 1)] + [slice(k, d)]
        return jnp.stack([jnp.sum(y[g] * w[g]) / w[g].sum() for g in groups])

    def fun(x: Array) -> Array:
        t = transformed(x)
        p = jnp.maximum(t[-1], 1.0) * (t[:-1] - 0.5) + 0.5
        a, b = jnp.sin(0.5 * math.pi * p), jnp.cos(0.5 * math.pi * p)
        if number == 1:
            a, b = 1 - b, 1 - a
        shape = [jnp.prod(a[: m - 1 - j]) * (b[m - 1 - j] if j else 1.0) for j in range(m)]
        if number == 1:
            shape[-1] = 1 - p[0] - jnp.cos(10 * math.pi * p[0] + 0.5 * math.pi) / (10 * math.pi)
        return t[-1] + 2.0 * jnp.arange(1, m + 1) * jnp.stack(shape)

    reference = tuple(2.2 * (j + 1) for j in range(m))
    volume = {(1, 2): 6.785718, (4, 2): 3.396815}.get((number, m), 1.0)
    return gx.Problem(
        fun, list(zip(np.zeros(d), upper, strict=True)), name=f"wfg{number}", reference_point=reference,
        hypervolume=volume,
    )  # fmt: skip


def c2_dtlz2(objectives: int = 3) -> gx.Problem:
    m = objectives
    plain = gx.problems.get("dtlz2")
    r = 0.4 if m == 3 else 0.5

    def ineq(x: Array) -> Array:
        f = plain.fun(x)
        corners = jnp.min((f - 1) ** 2 + jnp.sum(f**2) - f**2)
        return jnp.minimum(corners, jnp.sum((f - 1 / math.sqrt(m)) ** 2)) - r**2

    return gx.Problem(plain.fun, plain.bounds, ineq=ineq, name="c2_dtlz2", reference_point=(1.1,) * m, hypervolume=1.0)


PROBLEMS: dict[str, Callable[[], gx.Problem]] = {
    "osy": osy,
    "tnk": tnk,
    **{f"mw{n}": partial(mw, n) for n in (1, 2, 13)},
    **{f"wfg{n}": partial(wfg, n) for n in (1, 4)},
    "c2_dtlz2": c2_dtlz2,
}


def get(name: str) -> Any:
    """One of these, or a built-in problem."""
    return PROBLEMS[name]() if name in PROBLEMS else gx.problems.get(name)


def check() -> None:
    """Compare with pymoo's at random points."""
    multi = importlib.import_module("pymoo.problems")
    for name, make in PROBLEMS.items():
        ours = make()
        sizes = {"n_var": ours.dim, "n_obj": 2} if name.startswith("wfg") else {}
        theirs = multi.get_problem(name.replace("c2_", "c2"), **sizes)
        x = np.random.default_rng(1).uniform(ours.bounds.lower, ours.bounds.upper, (1000, ours.dim))
        with jax.enable_x64(True):
            f = np.asarray(jax.vmap(ours.fun)(x))  # NumPy: outside this block JAX would subtract in float32
            g = np.asarray(jax.vmap(ours.ineq)(x)).reshape(1000, -1) if ours.ineq is not None else None
        values = theirs.evaluate(x, return_values_of=["F", "G"])
        pairs = [(f, values[0])] if g is None else [(f, values[0]), (g, values[1])]
        apart = max(np.max(np.abs(a - b) / (1 + np.abs(b))) for a, b in pairs)
        print(f"{name:>9}: relative differences of at most {apart:.1e} at 1000 points")


if __name__ == "__main__":
    check()
