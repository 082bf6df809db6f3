"""EP and FEP beside Yao, Liu & Lin (1999): `python benchmarks/ep_literature.py [--runs 50] [--quick]`.

30 variables, mu = 100, q = 10, initial step 3.0, float64; mean of the best values over the runs. The second table shows
what the floor under the step lengths does, which the paper does not mention: FEP on Rastrigin's function.
"""

from __future__ import annotations

import harness
import numpy as np

import galapax as gx

CASES = {  # generations, box, published means of FEP and of classical EP
    "sphere": (1500, 100.0, 5.7e-4, 2.2e-4),
    "schwefel_2_26": (9000, 500.0, -12554.5, -7917.1),
    "rastrigin": (5000, 5.12, 4.6e-2, 89.0),
    "ackley": (1500, 32.0, 1.8e-2, 9.2),
    "griewank": (2000, 600.0, 1.6e-2, 8.6e-2),
}


def solve(name: str, algorithm: gx.EP, generations: int, side: float, runs: int) -> np.ndarray:
    """Best values of the runs."""
    problem = gx.problems.get(name, dim=30).with_(bounds=gx.box(-side, side, 30))
    result = gx.minimize(
        problem,
        algorithm,
        generations=generations,
        tolerance=0,
        polish=False,
        runs=runs,
        progress=False,
        keep=gx.Keep(history=False),
    )
    return np.array([result.fun]) if result.runs is None else result.runs.fun


def main() -> None:
    parser = harness.make_parser(__doc__, runs=50)
    parser.add_argument("--quick", action="store_true", help="without Schwefel's 9000 generations and the second table")
    options = parser.parse_args()
    print(f"{options.runs} runs, mean of the best (median)")
    print(f"{'':16}{'generations':>12}{'FEP paper':>12}{'FEP here':>24}{'EP paper':>12}{'EP here':>24}")
    for name, (generations, side, fep, ep) in CASES.items():
        if options.quick and generations > 5000:
            continue
        line = f"{name:16}{generations:>12}"
        for kind, published in ((gx.FEP, fep), (gx.EP, ep)):
            fun = solve(name, kind(initial_step=3.0), generations, side, options.runs)
            ours = f"{fun.mean():.3g} ({np.median(fun):.3g})"
            line += f"{published:>12.6g}{ours:>24}"
        print(line, flush=True)
    if not options.quick:
        print("\nFEP on rastrigin by least_step (paper: 0.046)")
        for least in (0.0, 1e-4, 1e-3, 1e-2):
            fun = solve("rastrigin", gx.FEP(initial_step=3.0, least_step=least), 5000, 5.12, options.runs)
            print(f"  {least:<8g} mean {fun.mean():.3g}, median {np.median(fun):.3g}", flush=True)


if __name__ == "__main__":
    main()
