"""Problems of several objectives that pymoo has, too: `python benchmarks/front_problems.py` compares both.

At 1000 random points each.
pymoo's welded beam has the root of 1/2 where the paper, and ours, has 0.707, and its limit on weld and beam another
scale; its seventh limit of water resources has 54.58 where the paper has 54.48. So their constraints are not compared.
"""

from __future__ import annotations

import importlib
from typing import Any

import jax
import numpy as np

import galapax as gx

WFG = tuple(f"wfg{n}" for n in (1, 2, 4, 5, 6, 7, 8, 9))
OURS_SCALED = {"c1_dtlz3": 16 * 81}  # what divides ours
OTHER_LIMITS = ("welded_beam", "water_resources")
NAMES = {"car_side_impact": "carside.Carside", "water_resources": "wrm.WRM", "welded_beam": "welded_beam.WeldedBeam"}
MW, C_DTLZ = ("mw1", "mw2", "mw3", "mw4", "mw8", "mw13"), ("c1_dtlz1", "c1_dtlz3", "c2_dtlz2", "c3_dtlz1", "c3_dtlz4")
COMPARED = (*WFG, "tnk", "osy", *MW, *C_DTLZ, *NAMES)


def get(name: str, objectives: int | None = None) -> Any:
    """A built-in problem; those that take any number of objectives with so many, WFG with two unless told."""
    if name in WFG:
        return gx.problems.get(name, objectives=objectives or 2)
    return gx.problems.get(name) if objectives is None else gx.problems.get(name, objectives=objectives)


def of_pymoo(name: str, dim: int, objectives: int) -> Any:
    """pymoo's problem of that name."""
    if name in NAMES:
        module, kind = NAMES[name].split(".")
        return getattr(importlib.import_module(f"pymoo.problems.multi.{module}"), kind)()
    sizes = {"n_var": dim, "n_obj": objectives} if name in WFG or "dtlz" in name else {}
    return importlib.import_module("pymoo.problems").get_problem(name.replace("_", ""), **sizes)


def check() -> None:
    """Compare with pymoo's at random points."""
    for name in COMPARED:
        for m in (2, 3) if name in WFG else (None,):
            ours = get(name, m)
            x = np.random.default_rng(1).uniform(ours.bounds.lower, ours.bounds.upper, (1000, ours.dim))
            with jax.enable_x64(True):
                f = np.asarray(jax.vmap(ours.fun)(x))  # NumPy: outside this block JAX would subtract in float32
                g = np.asarray(jax.vmap(ours.ineq)(x)) if ours.ineq is not None else None
            theirs = of_pymoo(name, ours.dim, f.shape[1]).evaluate(x, return_values_of=["F", "G"])
            pairs = [(f, theirs[0])]
            if g is not None and name not in OTHER_LIMITS:
                pairs.append((g, theirs[1] / OURS_SCALED.get(name, 1)))
            apart = max(np.max(np.abs(a - b) / (1 + np.abs(b))) for a, b in pairs)
            print(f"{name:>16} {f.shape[1]} relative differences of at most {apart:.1e} at 1000 points", flush=True)


if __name__ == "__main__":
    check()
