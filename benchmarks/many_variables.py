"""The default beside others in 100 variables, 200 000 evaluations: `python benchmarks/many_variables.py`.

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

DIM, BUDGET = 100, 200_000


def functions(dim: int) -> dict[str, tuple[Callable[[Any], Any], float]]:
    """{name: (function, half width of its box)}, none with its minimum in the middle."""
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
    scales = 10.0 ** np.linspace(0, 6, dim)

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
        "ellipsoid, rotated": (ellipsoid, 5.0),
        "Rosenbrock": (rosenbrock, 5.0),
        "Ackley": (ackley, 30.0),
        "Rastrigin": (rastrigin, 5.0),
    }


def lbfgsb(function: Callable[[Any], Any], box: list[tuple[float, float]], seed: int) -> tuple[float, int]:
    """SciPy's L-BFGS-B from random points until the budget is spent: the best value and the evaluations taken."""
    from scipy.optimize import minimize

    pulled = jax.jit(jax.value_and_grad(function))
    draws, best, spent = np.random.default_rng(seed), np.inf, 0

    def both(x: Any) -> tuple[float, Any]:
        value, gradient = pulled(x)
        return float(value), np.asarray(gradient)

    while spent < BUDGET and best > 1e-10:
        start = draws.uniform(*np.array(box).T)
        options = {"maxfun": (BUDGET - spent) // 5, "maxiter": 10**6, "ftol": 1e-15, "gtol": 1e-10}
        found = minimize(both, start, jac=True, method="L-BFGS-B", bounds=box, options=options)
        best, spent = min(best, float(found.fun)), spent + 5 * int(found.nfev)
    return best, spent


def pycma(function: Callable[[Any], Any], box: list[tuple[float, float]], seed: int) -> tuple[float, int] | None:
    try:
        import cma
    except ImportError:
        return None
    call = jax.jit(jax.vmap(function))
    width = box[0][1] - box[0][0]
    start = np.random.default_rng(seed).uniform(*(0.8 * np.array(box).T))
    options = {"verbose": -9, "seed": seed + 1, "maxfevals": BUDGET, "bounds": [box[0][0], box[0][1]], "ftarget": 1e-10}
    es = cma.CMAEvolutionStrategy(start, 0.2 * width, options)
    while not es.stop():
        x = es.ask()
        es.tell(x, np.asarray(call(np.array(x))).tolist())
    return float(es.best.f), int(es.countevals)


def main() -> None:
    parser = harness.make_parser(__doc__, seed=0)
    parser.add_argument("--peers", action="store_true", help="L-BFGS-B and pycma, too")
    given = parser.parse_args()
    names = ["default", "no gradients", "cmaes", "lshade", "de"] + (["L-BFGS-B", "pycma"] if given.peers else [])
    print(f"{DIM} variables, {BUDGET} evaluations: value (evaluations)")
    print(f"{'':20}" + "".join(f"{name:>20}" for name in names))
    for label, (function, side) in functions(DIM).items():
        box, cells = [(-side, side)] * DIM, []
        for name in names:
            found: tuple[float, int] | None
            if name == "L-BFGS-B":
                with jax.enable_x64(True):
                    found = lbfgsb(function, box, given.seed)
            elif name == "pycma":
                with jax.enable_x64(True):
                    found = pycma(function, box, given.seed)
            else:
                own = None if name in ("default", "no gradients") else name
                options: dict[str, Any] = {"max_evaluations": BUDGET, "seed": given.seed, "progress": False}
                result = gx.minimize(function, box, own, polish="auto" if name == "default" else False, **options)
                found = float(result.fun), int(result.nfev)
            cells.append("" if found is None else f"{found[0]:.2g} ({found[1]})")
        print(f"{label:20}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
