"""The default beside others in many variables.

    python benchmarks/many_variables.py                                         # 100 variables, 200 000 evaluations
    python benchmarks/many_variables.py --dim 1000 --evaluations 100000 --methods cmaes crfmnes --functions sphere

Values reached, the true minimum is 0 each time, and the evaluations taken. Gradients of L-BFGS-B count as in galapax, 4
evaluations each. pycma where it is installed (pip install cma).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness
import jax
import jax.numpy as jnp
import numpy as np

import galapax as gx


def functions(dim: int) -> dict[str, tuple[Callable[[Any], Any], float]]:
    """{name: (function, half width of its box)}, none with its minimum in the middle."""
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
    scales = 10.0 ** np.linspace(0, 6, dim)

    def sphere(x: Any) -> Any:
        return jnp.sum((x - 1.3) ** 2)

    def ellipsoid(x: Any) -> Any:
        return jnp.sum(scales * (turned @ (x - 1.3)) ** 2)

    def rosenbrock(x: Any) -> Any:
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def ackley(x: Any) -> Any:
        y = x - 1.0
        waves = jnp.exp(jnp.mean(jnp.cos(2 * jnp.pi * y)))
        return 20 - 20 * jnp.exp(-0.2 * jnp.sqrt(jnp.mean(y**2))) + jnp.e - waves

    def rastrigin(x: Any) -> Any:
        y = x - 0.7
        return jnp.sum(y**2 - 10 * jnp.cos(2 * jnp.pi * y) + 10)

    return {
        "sphere": (sphere, 5.0),
        "ellipsoid, rotated": (ellipsoid, 5.0),
        "Rosenbrock": (rosenbrock, 5.0),
        "Ackley": (ackley, 30.0),
        "Rastrigin": (rastrigin, 5.0),
    }


def lbfgsb(function: Callable[[Any], Any], box: list[tuple[float, float]], seed: int, budget: int) -> tuple[float, int]:
    """SciPy's L-BFGS-B from random points until the budget is spent: the best value and the evaluations taken."""
    from scipy.optimize import minimize

    pulled = jax.jit(jax.value_and_grad(function))
    draws, best, spent = np.random.default_rng(seed), np.inf, 0

    def both(x: Any) -> tuple[float, Any]:
        value, gradient = pulled(x)
        return float(value), np.asarray(gradient)

    while spent < budget and best > 1e-10:
        start = draws.uniform(*np.array(box).T)
        options = {"maxfun": (budget - spent) // 5, "maxiter": 10**6, "ftol": 1e-15, "gtol": 1e-10}
        found = minimize(both, start, jac=True, method="L-BFGS-B", bounds=box, options=options)
        best, spent = min(best, float(found.fun)), spent + 5 * int(found.nfev)
    return best, spent


def pycma(
    function: Callable[[Any], Any], box: list[tuple[float, float]], seed: int, budget: int
) -> tuple[float, int] | None:
    try:
        import cma
    except ImportError:
        return None
    call = jax.jit(jax.vmap(function))
    width = box[0][1] - box[0][0]
    start = np.random.default_rng(seed).uniform(*(0.8 * np.array(box).T))
    options = {"verbose": -9, "seed": seed + 1, "maxfevals": budget, "bounds": [box[0][0], box[0][1]], "ftarget": 1e-10}
    es = cma.CMAEvolutionStrategy(start, 0.2 * width, options)
    while not es.stop():
        x = es.ask()
        es.tell(x, np.asarray(call(np.array(x))).tolist())
    return float(es.best.f), int(es.countevals)


def main() -> None:
    parser = harness.make_parser(__doc__, seed=0)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--evaluations", type=int, default=200_000)
    parser.add_argument("--functions", nargs="+", help="by default all")
    parser.add_argument("--methods", nargs="+", default=["default", "no gradients", "cmaes", "crfmnes", "lshade", "de"])
    parser.add_argument("--peers", action="store_true", help="L-BFGS-B and pycma, too")
    given = parser.parse_args()
    gx.cache.enable()
    names = given.methods + (["L-BFGS-B", "pycma"] if given.peers else [])
    print(f"{given.dim} variables, {given.evaluations} evaluations: value (evaluations)")
    print(f"{'':20}" + "".join(f"{name:>20}" for name in names))
    for label, (function, side) in functions(given.dim).items():
        if given.functions and label not in given.functions:
            continue
        box, cells = [(-side, side)] * given.dim, []
        for name in names:
            outcome: tuple[float, int] | None
            if name == "L-BFGS-B":
                with jax.enable_x64(True):
                    outcome = lbfgsb(function, box, given.seed, given.evaluations)
            elif name == "pycma":
                with jax.enable_x64(True):
                    outcome = pycma(function, box, given.seed, given.evaluations)
            else:
                algorithm = None if name in ("default", "no gradients") else name
                options: dict[str, Any] = {"max_evaluations": given.evaluations, "seed": given.seed, "progress": False}
                polish = "auto" if name == "default" else False
                result = gx.minimize(function, box, algorithm, polish=polish, **options)
                outcome = float(result.fun), int(result.nfev)
            cells.append("" if outcome is None else f"{outcome[0]:.2g} ({outcome[1]})")
        print(f"{label:20}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
