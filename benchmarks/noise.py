"""Random objectives: the true value of the answer, and whether the reported interval holds it.

    python benchmarks/noise.py [--runs 9] [--only sphere] [--tables search bowl coverage scenarios racing]

search: the sphere, Rosenbrock's and Rastrigin's function with noise 0.1 at 2000 and 10 000 evaluations; medians of the
true value (from the optimum, without noise) at the answer, of black boxes. bowl: an ill-conditioned bowl, rotated, of
condition 1e4 and 1e6, with noise 1 and 2000 evaluations per variable. coverage: how many of 200 runs (--coverage) have
the true value in their interval, and the mean error of `fun`, of compiled objectives with a key. Each run has its own
optimum and rotation. scenarios: seconds of a compiled `gx.robust` with 1000 scenarios, designs and generations each
(--size), and the memory that its device had in use at most, where it says so. racing: black boxes of which every
scenario is a call; robust by default (models) and by CMA-ES, each x in 20 scenarios, CMA-ES that races its candidates
over the same scenarios, and the noisy search with one draw a call. Beside galapax run pycma's CMA-ES (its
favourite point) and the same with its NoiseHandler, where pycma is installed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import harness
import jax
import jax.numpy as jnp
import numpy as np

import galapax as gx
from galapax.api.robust import as_uncertain

try:
    import cma
except ImportError:
    cma = None

BOX = (-5.0, 5.0)


class Objective(NamedTuple):
    """A function with noise of a black box, and its true value above the optimum."""

    mean: Callable[[np.ndarray], float]
    noise: float
    rng: np.random.Generator

    def __call__(self, x: np.ndarray) -> float:
        return self.mean(np.asarray(x)) + self.noise * float(self.rng.standard_normal())


def sphere(y: np.ndarray) -> float:
    return float(y @ y)


def rosenbrock(y: np.ndarray) -> float:
    z = y + 1
    return float(np.sum(100 * (z[1:] - z[:-1] ** 2) ** 2 + (1 - z[:-1]) ** 2))


def rastrigin(y: np.ndarray) -> float:
    return float(10 * len(y) + np.sum(y**2 - 10 * np.cos(2 * np.pi * y)))


def bowl(power: int) -> Callable[[np.ndarray], float]:
    return lambda y: float(10.0 ** (power * np.arange(len(y)) / (len(y) - 1)) @ y**2)


def build(function: Callable[[np.ndarray], float], dim: int, noise: float, seed: int, rotates: bool) -> Objective:
    """Return a black box whose optimum, and rotation where it has one, are those of the seed."""
    rng = np.random.default_rng(seed)
    shift = rng.uniform(-2, 2, dim)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0] if rotates else np.eye(dim)
    return Objective(lambda x: function(rotation @ (x - shift)), noise, rng)


def with_galapax(fun: Objective, dim: int, budget: int, seed: int) -> np.ndarray:
    result = gx.minimize(fun, [BOX] * dim, noisy=True, blackbox=True, max_evaluations=budget, seed=seed, progress=False)
    return np.asarray(result.x)


def with_pycma(fun: Objective, dim: int, budget: int, seed: int, handles_noise: bool = False) -> np.ndarray:
    start = np.random.default_rng(seed).uniform(-4, 4, dim)
    options = {"verbose": -9, "seed": seed + 1, "bounds": list(BOX), "maxfevals": budget, "tolstagnation": 10**9,
               "tolfun": 0, "tolfunhist": 0, "tolflatfitness": 10**9}  # fmt: skip
    handler = cma.NoiseHandler(dim) if handles_noise else None
    _, search = cma.fmin2(fun, start, 2.0, options, noise_handler=handler)
    return np.clip(search.result.xfavorite, *BOX)


METHODS: dict[str, Callable[[Objective, int, int, int], np.ndarray]] = {"galapax": with_galapax}
if cma is not None:
    METHODS["pycma"] = with_pycma
    METHODS["pycma, NoiseHandler"] = lambda *arguments: with_pycma(*arguments, handles_noise=True)


def print_rows(rows: list[tuple[str, Callable[[np.ndarray], float], int, float, int, bool]], runs: int) -> None:
    """Print the median of the true values of each method's answers, and in brackets the largest, and seconds a run."""
    table = harness.Table("problem", "evaluations", *METHODS, widths=[36])
    for name, function, dim, noise, budget, rotates in rows:
        cells = []
        for method in METHODS.values():
            values, start = [], time.process_time()
            for seed in range(runs):
                fun = build(function, dim, noise, seed, rotates)
                values.append(fun.mean(method(fun, dim, budget, seed)))
            seconds = (time.process_time() - start) / runs
            cells.append(f"{statistics.median(values):.2g} ({max(values):.2g}; {seconds:.1f} s)")
        table.add(name, budget, *cells)


def print_coverage(runs: int) -> None:
    """Print how often the intervals of an ensemble hold the true value."""

    def noisy(x: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.sum((x - 0.3) ** 2) + 0.1 * jax.random.normal(key)

    table = harness.Table("variables", "evaluations", f"{runs} intervals that hold", "mean error", "width")
    for dim in (2, 5, 10):
        result = gx.minimize(noisy, [BOX] * dim, max_evaluations=400 * dim, runs=runs, progress=False)
        assert result.runs is not None and result.runs.fun_interval is not None
        truth = np.sum((result.runs.x - 0.3) ** 2, axis=1)
        low, high = result.runs.fun_interval.T
        held = float(np.mean((low <= truth) & (truth <= high)))
        error = float(np.mean(result.runs.fun - truth))
        width = float(np.median(high - low))
        table.add(dim, 400 * dim, f"{100 * held:.1f} %", f"{error:.1e}", f"{width:.2g}")


def print_scenarios(size: int) -> None:
    """Print how long `gx.robust` takes with so many scenarios, designs and generations, once it is compiled."""

    def deviation(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.sum((x * (1 + 0.1 * y) - 1) ** 2)

    uncertain = [gx.normal(0, 1)] * 5
    table = harness.Table("measure", "seconds", "million values a second", "memory", widths=[12])
    for measure in ("mean", gx.mean_std(1), gx.cvar(0.9), gx.chance(0.95)):
        for seed in (0, 1):
            result = gx.robust(
                deviation, [BOX] * 5, uncertain, measure, algorithm="de", population=size, generations=size,
                samples=size, seed=seed, polish=False, tolerance=0, compute=gx.Compute(dtype="float32"), progress=False,
            )  # fmt: skip
        statistics_of_device = jax.local_devices()[0].memory_stats() or {}
        peak = statistics_of_device.get("peak_bytes_in_use")
        seconds = result.timings["run"]
        memory = "-" if peak is None else f"{peak / 2**20:.0f} MiB"
        table.add(str(measure), f"{seconds:.2f}", f"{size * result.nfev / seconds / 1e6:.0f}", memory)


PRICES, COSTS = np.array([3.0, 4, 5, 6]), np.array([1.0, 2, 1.5, 3])
CHECKS = 20_000  # scenarios of the true mean


def newsvendor(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Loss of orders x (4,) under normal demands, of which y (..., 4) are the standard scores."""
    demand = np.maximum(5 + 1.5 * y, 0)
    return np.sum(COSTS * x - PRICES * np.minimum(x, demand), axis=-1)


def perturbed_rosenbrock(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Rosenbrock's function of x (4,) that is made with an error of 0.1 y (..., 4)."""
    z = x + 0.1 * y
    return np.sum(100 * (z[..., 1:] - z[..., :-1] ** 2) ** 2 + (1 - z[..., :-1]) ** 2, axis=-1)


class Race:
    """Means of candidates over scenarios; one that is clearly worse than the better half on some meets no more.

    All meet the same scenarios, and are compared by paired differences after 8, 16, 32, ... of them.
    """

    def __init__(self, fun: Callable[..., np.ndarray], scenarios: np.ndarray, calls: int) -> None:
        self.fun, self.scenarios, self.calls_left = fun, scenarios, calls
        self.best, self.x = np.inf, np.zeros(scenarios.shape[1])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        means, alive, met = np.full(len(x), np.inf), np.arange(len(x)), 0
        values = np.zeros((len(x), len(self.scenarios)))
        while met < len(self.scenarios):
            more = min(len(self.scenarios), max(8, 2 * met))
            self.calls_left -= len(alive) * (more - met)
            if self.calls_left < 0:
                return means  # what was not paid for counts as failed
            for row in alive:
                values[row, met:more] = self.fun(x[row], self.scenarios[met:more])
            met = more
            current = values[alive, :met].mean(axis=1)
            means[alive] = current
            last = alive[np.argsort(current)[min(len(alive), max(1, len(x) // 2)) - 1]]
            behind = values[alive, :met] - values[last, :met]
            alive = alive[behind.mean(axis=1) <= 2 * behind.std(axis=1, ddof=1) / np.sqrt(met)]
        row = alive[np.argmin(means[alive])]
        if means[row] < self.best:
            self.best, self.x = means[row], x[row].copy()
        return means


def print_racing(runs: int) -> None:
    """Print the true mean above the optimum at the answer, where every scenario of a solution is a call of its own."""
    table = harness.Table("problem", "calls", "models", "CMA-ES", "CMA-ES, racing", "noisy=True", widths=[22])
    n_scenarios, uncertain = 20, [gx.normal(0, 1)] * 4
    options = {"blackbox": True, "progress": False}
    searched = gx.CMAES(surrogate=False)
    checks = np.random.default_rng(5).standard_normal((CHECKS, 4))
    for name, fun, box in (("newsvendor", newsvendor, (0, 12)), ("Rosenbrock", perturbed_rosenbrock, (-3, 3))):
        optimum = float(gx.minimize(lambda x: fun(x, checks).mean(), [box] * 4, max_evaluations=1000, **options).fun)  # noqa: B023
        for calls in (1000, 4000):
            regrets: list[list[float]] = [[], [], [], []]
            for seed in range(runs):
                rng = np.random.default_rng(seed)
                common = options | {"max_evaluations": calls // n_scenarios, "seed": seed, "samples": n_scenarios}
                answers = [
                    gx.robust(fun, [box] * 4, uncertain, check_samples=2, algorithm=algorithm, **common).x
                    for algorithm in (None, searched)
                ]
                stratified = as_uncertain(uncertain).draw(n_scenarios, rng, stratified=True).points
                race = Race(fun, stratified, calls)
                gx.minimize(race, [box] * 4, searched, vectorized=True, max_evaluations=calls, seed=seed, **options)
                answers.append(race.x)
                random = gx.minimize(
                    lambda x: float(fun(x, rng.standard_normal(4))), [box] * 4, noisy=True, max_evaluations=calls,  # noqa: B023
                    seed=seed, **options,
                )  # fmt: skip
                answers.append(random.x)
                for regret, x in zip(regrets, answers, strict=True):
                    regret.append(float(fun(x, checks).mean()) - optimum)
            table.add(f"{name}, 4 variables", calls, *(f"{statistics.median(regret):.2g}" for regret in regrets))


def main() -> None:
    parser = harness.make_parser(__doc__, runs=9, only=True)
    parser.add_argument("--coverage", type=int, default=200, help="runs of the coverage (%(default)s)")
    parser.add_argument("--size", type=int, default=1000, help="scenarios, designs and generations (%(default)s)")
    parser.add_argument("--tables", nargs="+", default=["search", "bowl", "coverage"], help="which (all)")
    arguments = parser.parse_args()
    print(harness.describe_machine("cma"))
    search = [
        (f"{name}, {dim} variables", function, dim, 0.1, budget, False)
        for budget in (2000, 10_000)
        for name, function in (("sphere", sphere), ("Rosenbrock", rosenbrock), ("Rastrigin", rastrigin))
        for dim in (5, 10)
    ]
    bowls = [
        (f"bowl of condition 1e{power}, {dim} variables", bowl(power), dim, 1.0, 2000 * dim, True)
        for dim in (5, 20)
        for power in (4, 6)
    ]
    for table, rows in (("search", search), ("bowl", bowls)):
        wanted = [row for row in rows if harness.is_selected(row[0], arguments.only)]
        if table in arguments.tables and wanted:
            print_rows(wanted, arguments.runs)
    if "coverage" in arguments.tables:
        print_coverage(arguments.coverage)
    if "racing" in arguments.tables:
        print_racing(arguments.runs)
    if "scenarios" in arguments.tables:
        print_scenarios(arguments.size)


if __name__ == "__main__":
    main()
