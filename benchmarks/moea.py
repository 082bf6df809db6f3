"""Time a generation of the multi-objective algorithms on whatever device is there: `python benchmarks/moea.py`.

Two objectives: ZDT1 in 30 variables; three: DTLZ2 in 12; float32. A loop of 100 generations is compiled as one program
and run; the best of three runs is divided by 100, by the clock and in CPU time, which a busy machine changes less.
Parts of a generation are timed the same way with --parts. With --peers the algorithms of pygmo and pymoo, those that
are installed, run the same problems beside ours, in float64 as they do; `taskset -c 0` keeps all of them on one core.
--three has three objectives alone, --only names the methods of ours, as `--only SMSEMOA`, and their like.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import harness
import jax
import jax.numpy as jnp
import numpy as np

import galapax as gx
from galapax.algorithms.moead import MOEAD
from galapax.algorithms.npga import NPGA
from galapax.algorithms.nsga2 import NSGA2
from galapax.algorithms.nsga3 import NSGA3
from galapax.algorithms.sharing_moea import SharingMOEA
from galapax.algorithms.sms_emoa import SMSEMOA
from galapax.core.algorithm import Budget
from galapax.numerics import random
from galapax.objective.traced import trace
from galapax.operators import ranking
from galapax.operators.niching import fill_directions

ROUNDS = 3
SIZES = (100, 1024, 4096, 16384)
MOST_OF_SMSEMOA = 1024  # individuals; ours measures every cell of a grid of twice as many rows and columns


def generations(algorithm: Any, problem: gx.Problem, count: int) -> Callable[[Any], Any]:
    """A run of `count` generations from a key, to be compiled."""
    traced = trace(problem, jnp.float32)
    bounds = problem.bounds.round_inwards(np.float32)
    algorithm = algorithm.bind(problem.dim, traced.shape, Budget())
    ahead = jnp.arange(count, dtype=jnp.int32) + 1

    def run(key: Any) -> Any:
        keys = jax.vmap(random.fold_in, in_axes=(None, 0))(key, ahead)

        def body(i: Any, state: Any) -> Any:
            return algorithm.step(keys[i], state, traced(state.candidates))

        state = algorithm.init(random.fold_in(key, 0), bounds, traced.shape)
        return jax.lax.fori_loop(0, count, body, state).parents

    return run


def repeated(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """`function` of objectives (n, 2), `count` times in a loop that XLA cannot shorten."""

    def run(objectives: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            out = function(carry)
            touched = sum(jnp.sum(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(out))
            return carry + jnp.where(jnp.isnan(touched), 1e-30, 0.0)

        return jax.lax.fori_loop(0, count, body, objectives)

    return run


def seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, float, float]:
    """Of the best of three runs, by the clock and of the CPU, and of compiling."""
    start = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    compiling = time.perf_counter() - start
    timing = harness.time_calls(lambda: jax.block_until_ready(program(*arguments)), ROUNDS)
    return timing.least, min(timing.cpu), compiling


def parts(count: int, sizes: tuple[int, ...]) -> None:
    """Time the parts of a generation for n = 2N points of two objectives: at random, and on a front."""
    rng = np.random.default_rng(0)
    named: dict[str, Callable[..., Any]] = {
        "dominance_counts": ranking.dominance_counts,
        "first_front": ranking.first_front,
        "ranks": ranking.ranks,
        "ranks_and_crowding": ranking.ranks_and_crowding,
        "mean_distance": ranking.mean_distance,
        "niche_counts": lambda f: ranking.niche_counts(f, 0.2),
        "best_rows": lambda f: ranking.select_best_rows(f[:, 0].astype(jnp.int32), f[:, 1], f.shape[0] // 2),
        "crowding_by_pairs": lambda f: ranking.crowding_by_pairs(f, jnp.zeros(f.shape[0], jnp.int32)),
        "crowding_by_sorting": lambda f: ranking.crowding_by_sorting(f, jnp.zeros(f.shape[0], jnp.int32)),
    }
    print(f"{'part':>20} " + " ".join(f"{'N=' + str(n):>22}" for n in sizes) + "   us, random / on a front")
    for name, function in named.items():
        cells = []
        for n in sizes:
            t = rng.random(2 * n)
            clouds = rng.random((2 * n, 2)), np.stack([t, 1 - np.sqrt(t)], axis=1)
            times = [seconds(repeated(function, count), jnp.asarray(c, jnp.float32))[0] / count * 1e6 for c in clouds]
            cells.append(f"{times[0]:>10.1f} /{times[1]:>10.1f}")
        print(f"{name:>20} " + " ".join(cells), flush=True)


def zdt1_in_numpy(x: np.ndarray) -> np.ndarray:
    """Of rows x (n, 30), (n, 2)."""
    g = 1 + 9 * x[:, 1:].mean(axis=1)
    return np.stack([x[:, 0], g * (1 - np.sqrt(x[:, 0] / g))], axis=1)


def dtlz2_in_numpy(x: np.ndarray) -> np.ndarray:
    """Of rows x (n, 12), (n, 3)."""
    r = 1 + ((x[:, 2:] - 0.5) ** 2).sum(axis=1)
    a, b = 0.5 * np.pi * x[:, 0], 0.5 * np.pi * x[:, 1]
    return np.stack([r * np.cos(a) * np.cos(b), r * np.cos(a) * np.sin(b), r * np.sin(a)], axis=1)


def pymoo_seconds(kind: str, m: int, n: int, count: int) -> float:
    """CPU seconds of a generation of pymoo's."""
    from pymoo.algorithms.moo.moead import MOEAD as PymooMOEAD
    from pymoo.algorithms.moo.nsga2 import NSGA2 as PymooNSGA2
    from pymoo.algorithms.moo.nsga3 import NSGA3 as PymooNSGA3
    from pymoo.algorithms.moo.sms import SMSEMOA as PymooSMSEMOA
    from pymoo.core.problem import Problem
    from pymoo.optimize import minimize

    dim, evaluate = (30, zdt1_in_numpy) if m == 2 else (12, dtlz2_in_numpy)

    class Same(Problem):
        def __init__(self) -> None:
            super().__init__(n_var=dim, n_obj=m, xl=0.0, xu=1.0)

        def _evaluate(self, x: Any, out: Any, *args: Any, **kwargs: Any) -> None:
            out["F"] = evaluate(np.atleast_2d(x))

    directions = fill_directions(m, n)
    solver = {
        "NSGA2": lambda: PymooNSGA2(pop_size=n),
        "NSGA3": lambda: PymooNSGA3(ref_dirs=directions, pop_size=n),
        "MOEAD": lambda: PymooMOEAD(directions),
        "SMSEMOA": lambda: PymooSMSEMOA(pop_size=n),
    }[kind]()
    start = time.process_time()
    minimize(Same(), solver, ("n_gen", count), seed=1)
    return (time.process_time() - start) / count


def pygmo_seconds(n: int, count: int) -> float:
    """CPU seconds of a generation of pygmo's NSGA-II, on its own ZDT1 in C++."""
    import pygmo

    population = pygmo.population(pygmo.problem(pygmo.zdt(prob_id=1, param=30)), size=n, seed=1)
    algorithm = pygmo.algorithm(pygmo.nsga2(gen=count))
    start = time.process_time()
    algorithm.evolve(population)
    return (time.process_time() - start) / count


def peers(sizes: list[int], two: bool, kinds: list[str], generations: int) -> None:
    """The algorithms of other libraries, milliseconds a generation."""
    sizes = [n + -n % 4 for n in sizes if n <= 4096]  # pygmo takes multiples of 4
    rows: dict[str, Callable[[int, int], float]] = {}
    if two and "NSGA2" in kinds:
        rows |= {"pygmo NSGA2, 2": pygmo_seconds, "pymoo NSGA2, 2": partial(pymoo_seconds, "NSGA2", 2)}
    known = ("NSGA2", "NSGA3", "MOEAD", "SMSEMOA")
    rows |= {f"pymoo {kind}, 3": partial(pymoo_seconds, kind, 3) for kind in known if kind in kinds}
    print(f"{'objectives':>16} " + " ".join(f"{'N=' + str(n):>10}" for n in sizes) + "   CPU ms/generation, float64")
    for name, measure in rows.items():
        try:
            # of SMS-EMOA as many generations as of ours: the first are cheap, as few leave the last front
            sms = "SMSEMOA" in name
            counts = {n: generations if sms else max(3, 4000 // n) for n in sizes if not sms or n <= MOST_OF_SMSEMOA}
            timed = {n: measure(n, count) for n, count in counts.items()}
            cells = [f"{timed[n] * 1e3:>10.2f}" if n in timed else " " * 10 for n in sizes]
        except ImportError:
            print(f"{name:>16} is not installed")
            continue
        print(f"{name:>16} " + " ".join(cells), flush=True)


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("--generations", type=int, default=100)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--parts", action="store_true", help="also time the parts of a generation")
    parser.add_argument("--peers", action="store_true", help="also time the algorithms of pygmo and pymoo")
    parser.add_argument("--three", action="store_true", help="three objectives alone")
    parser.add_argument("--only", nargs="+", help="these methods alone")
    arguments = parser.parse_args()
    print(f"{harness.describe_machine()}; float32, ZDT1 or DTLZ2")
    table = harness.Table("algorithm", "m", "N", "us/generation", "CPU us", "compile s", widths=[12, 2])
    kinds = [] if arguments.three else [(kind, "zdt1", 2) for kind in (SharingMOEA, NSGA2, NPGA)]
    kinds += [(kind, "dtlz2", 3) for kind in (NSGA2, NSGA3, MOEAD, SMSEMOA)]
    named = arguments.only or [kind.__name__ for kind, _, _ in kinds]
    for algorithm, problem, m in kinds:
        if algorithm.__name__ not in named:
            continue
        for n in arguments.sizes:
            if algorithm is SMSEMOA and n > MOST_OF_SMSEMOA:
                continue
            run = generations(algorithm(population=n), gx.problems.get(problem), arguments.generations)
            took, cpu, compiling = seconds(run, random.run_keys(0, 0, 1)[0])
            each = [f"{t / arguments.generations * 1e6:.1f}" for t in (took, cpu)]
            table.add(algorithm.__name__, m, n, *each, f"{compiling:.2f}")
    if arguments.peers:
        peers(arguments.sizes, not arguments.three, named, arguments.generations)
    if arguments.parts:
        parts(20, tuple(arguments.sizes))


if __name__ == "__main__":
    main()
