"""Gaps of gx.minimax: by how much the true worst case of its answer is above the least possible one.

python benchmarks/minmax.py                               the default, all games
python benchmarks/minmax.py planes waves --runs 20
python benchmarks/minmax.py --no-polish                   co-evolution alone, 4000 generations

Nothing that galapax says about the worst case is believed: for each game it is computed here, by NumPy, from the
structure of the game (a closed form, corners of the box, or a fine grid that is refined), and so is the value of the
game: from the literature, by Remez's exchange, by linear programming or by another search over x. Games are symmetric
(one saddle point, min and max can be exchanged) or asymmetric (they cannot be, or x and y differ in number).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import harness
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog, minimize, minimize_scalar

import galapax as gx

REACHED = 1e-4


class Game(NamedTuple):
    """A game, and what is known about it without galapax."""

    problem: gx.MinMaxProblem
    symmetric: bool
    worst: Callable[[np.ndarray], float]  # the true worst case of x
    value: float  # the least worst case


def peak(fun: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> float:
    """The largest value of a function of one variable: a grid, and each of its ten best peaks refined."""
    grid = np.linspace(low, high, 20_001)
    values = fun(grid)
    inner = np.flatnonzero((values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:])) + 1
    best = float(values.max())
    for i in inner[np.argsort(-values[inner])[:10]]:
        around = (grid[i - 1], grid[i + 1])
        found = minimize_scalar(lambda y: -float(fun(np.array(y))), bounds=around, options={"xatol": 1e-13})
        best = max(best, -float(found.fun))
    return best


def corners(fun: Callable[[np.ndarray], float], low: float, high: float, dim: int) -> float:
    """The largest value at a corner of the box."""
    return max(fun(np.array(y)) for y in np.stack(np.meshgrid(*[[low, high]] * dim), axis=-1).reshape(-1, dim))


# --- the games of gx.problems -------------------------------------------------------------------------------------


def worst_saddle(x: np.ndarray) -> float:
    y = np.clip((x[1] - x[0]) / 2 * np.array([1, -1]), -5, 5)
    return 5 * x @ x - y @ y + x[0] * (-y[0] + y[1] + 5) + x[1] * (y[0] - y[1] + 3)


def worst_quartic(x: np.ndarray) -> float:
    y = np.clip([x[0] ** 2 / 4, x[1] ** 2], -5, 5)
    return 4 * (x[0] - 2) ** 2 - 2 * y[0] ** 2 + x[0] ** 2 * y[0] - y[1] ** 2 + 2 * x[1] ** 2 * y[1]


def worst_multipliers(x: np.ndarray) -> float:
    broken = np.array([x[0] ** 2 - x[1], x[0] + x[1] - 2])
    return (x[0] - 2) ** 2 + (x[1] - 1) ** 2 + 10 * np.maximum(broken, 0).sum()


def worst_sine(x: np.ndarray) -> float:
    return peak(lambda y: np.sin(x[0] - y) / np.maximum(np.hypot(x[0], y), 1e-12), 0, 10)


def worst_cosine(x: np.ndarray) -> float:
    return peak(lambda y: np.cos(np.hypot(x[0], y)) / (np.hypot(x[0], y) + 10), 0, 10)


# --- games of other shapes ----------------------------------------------------------------------------------------


def cubic() -> Game:
    """A cubic that is to be near exp on [0, 1]: five y are equally bad at the best x."""

    def far(x: Any, y: Any) -> Any:
        return (x[0] + x[1] * y[0] + x[2] * y[0] ** 2 + x[3] * y[0] ** 3 - jnp.exp(y[0])) ** 2

    nodes, grid = 0.5 - 0.5 * np.cos(np.pi * np.arange(5) / 4), np.linspace(0, 1, 1_000_001)
    error = 0.0
    for _ in range(20):  # Remez's exchange
        table = np.column_stack([nodes**k for k in range(4)] + [(-1.0) ** np.arange(5)])
        *factors, error = np.linalg.solve(table, np.exp(nodes))
        wrong = np.polynomial.polynomial.polyval(grid, factors) - np.exp(grid)
        parts = np.split(np.arange(grid.size), np.flatnonzero(np.diff(np.sign(wrong)) != 0) + 1)
        nodes = np.array([grid[part[np.argmax(np.abs(wrong[part]))]] for part in parts])

    def worst(x: np.ndarray) -> float:
        return peak(lambda y: (np.polynomial.polynomial.polyval(y, x) - np.exp(y)) ** 2, 0, 1)

    return Game(gx.MinMaxProblem(far, [(-3, 3)] * 4, [(0, 1)], name="cubic"), False, worst, float(error**2))


def waves() -> Game:
    """Many local maxima over three y, which move with five x."""

    def high(x: Any, y: Any) -> Any:
        return 3 * jnp.sum((x - 0.3) ** 2) + jnp.sum(jnp.cos(4 * (y - x[:2].sum()))) + 0.1 * jnp.sum(y * x[2])

    def worst(x: np.ndarray) -> float:  # the three y have the same part each
        here = peak(lambda y: np.cos(4 * (y - x[0] - x[1])) + 0.1 * y * x[2], -2, 2)
        return 3 * float(np.sum((x - 0.3) ** 2)) + 3 * here

    return _sought(gx.MinMaxProblem(high, [(-2, 2)] * 5, [(-2, 2)] * 3, name="waves"), worst, 40)


def uncertain_fit() -> Game:
    """Least squares whose six measurements may each be wrong by 0.3: convex in y, so that each corner is a maximum."""
    rng = np.random.default_rng(1)
    table, seen = rng.normal(size=(6, 3)), rng.normal(size=6)

    def misfit(x: Any, y: Any) -> Any:
        return jnp.sum((jnp.asarray(table) @ x - seen + 0.3 * y) ** 2)

    def worst(x: np.ndarray) -> float:
        return float(np.sum((np.abs(table @ x - seen) + 0.3) ** 2))

    return _sought(gx.MinMaxProblem(misfit, [(-2, 2)] * 3, [(-1, 1)] * 6, name="uncertain_fit"), worst, 200)


def bilinear() -> Game:
    """A game of two players with 3 and 5 variables, linear in each: its answer is where planes meet."""
    rng = np.random.default_rng(2)
    pay, own, other = rng.normal(size=(3, 5)), rng.normal(size=3), rng.normal(size=5)

    def payoff(x: Any, y: Any) -> Any:
        return x @ jnp.asarray(pay) @ y + x @ jnp.asarray(own) + y @ jnp.asarray(other)

    def worst(x: np.ndarray) -> float:
        return float(x @ own + np.abs(x @ pay + other).sum())

    above = [np.concatenate([sign * pay, -np.eye(5)]).T for sign in (1, -1)]
    found = linprog(
        np.concatenate([own, np.ones(5)]),
        A_ub=np.concatenate(above),
        b_ub=np.concatenate([-other, other]),
        bounds=[(-1, 1)] * 3 + [(None, None)] * 5,
    )
    problem = gx.MinMaxProblem(payoff, [(-1, 1)] * 3, [(-1, 1)] * 5, name="bilinear")
    return Game(problem, False, worst, float(found.fun))


def _sought(problem: gx.MinMaxProblem, worst: Callable[[np.ndarray], float], starts: int) -> Game:
    """A game whose value is the least worst case of many simplex searches over x."""
    rng, box = np.random.default_rng(0), problem.x_bounds
    least = np.inf
    for start in box.lower + box.span * rng.random((starts, box.dim)):
        x, before = start, np.inf
        while True:  # again from where it ended, until that brings nothing
            ends = list(zip(box.lower, box.upper, strict=True))
            found = minimize(worst, x, method="Nelder-Mead", bounds=ends, options={"xatol": 1e-10, "fatol": 1e-12})
            if found.fun > before - 1e-11:
                break
            x, before = found.x, float(found.fun)
            if before > least + 0.1:
                break
        least = min(least, before)
    return Game(problem, False, worst, least)


def games() -> dict[str, Callable[[], Game]]:
    """By name, each made when it is asked for."""

    def known(name: str, symmetric: bool, worst: Callable[[np.ndarray], float]) -> Callable[[], Game]:
        problem = gx.problems.get(name)
        return lambda: Game(problem, symmetric, worst, float(problem.optimum))

    return {
        "cde_p1": known("cde_p1", True, lambda x: float(x @ x)),
        "saddle": known("minmax_saddle", True, worst_saddle),
        "quartic": known("minmax_quartic", True, worst_quartic),
        "multipliers": known("minmax_multipliers", True, worst_multipliers),
        "planes": known("minmax_planes", False, lambda x: 3 + 0.1 * float(x[0])),  # where the planes meet, y = x
        "damped_sine": known("minmax_damped_sine", False, worst_sine),
        "damped_cosine": known("minmax_damped_cosine", False, worst_cosine),
        "cubic": cubic,
        "waves": waves,
        "uncertain_fit": uncertain_fit,
        "bilinear": bilinear,
    }


def main() -> None:
    every = games()
    parser = harness.make_parser(__doc__, runs=4, seed=0)
    parser.add_argument("games", nargs="*", default=list(every), help=", ".join(every))
    parser.add_argument("--generations", type=int, help="of x; default: minimax's own")
    parser.add_argument("--no-polish", action="store_true", help="without gradients, as it was before they were used")
    given = parser.parse_args()
    unknown = set(given.games) - set(every)
    if unknown:
        parser.error(f"no game {', '.join(sorted(unknown))}; there are {', '.join(every)}.")
    print(
        f"gx.minimax, {given.runs} runs of each game, seed {given.seed}; gap: true worst case of x - value of the game"
    )
    print(
        "| game | x, y | asymmetric | median gap | largest gap | evaluations, mean | at most | of the check, mean | "
        "CPU seconds per run |"
    )
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    reached = 0
    for name in given.games:
        game = every[name]()
        began = time.process_time()
        result = gx.minimax(
            game.problem, runs=given.runs, seed=given.seed, generations=given.generations,
            polish=not given.no_polish, progress=False, keep=gx.Keep(history=False),
        )  # fmt: skip
        took = (time.process_time() - began) / given.runs
        runs = result.runs if result.runs is not None else None
        x = runs.x if runs is not None else result.x[None]
        spent = runs.nfev if runs is not None else np.array([result.nfev])
        gaps = np.array([game.worst(one) for one in x]) - game.value
        reached += gaps.max() <= REACHED
        sizes = f"{game.problem.x_bounds.dim}, {game.problem.y_bounds.dim}"
        print(
            f"| {name} | {sizes} | {'no' if game.symmetric else 'yes'} | {np.median(gaps):.1e} | {gaps.max():.1e} | "
            f"{spent.mean():,.0f} | {spent.max():,} | {result.worst_case_nfev / given.runs:,.0f} | {took:.1f} |",
            flush=True,
        )
    print(f"every run within {REACHED}: {reached} of {len(given.games)} games")


if __name__ == "__main__":
    main()
