"""Draw the picture of the README: `python docs/picture.py` (or `make picture`)."""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import galapax as gx
from galapax.view import plots

GENERATIONS = (1, 15, 45)


def populations(problem: gx.Problem) -> dict[int, np.ndarray]:
    """The candidates of a run of DE at some generations."""
    optimizer = gx.Optimizer(gx.DE(population=60), problem.bounds, seed=1)
    fun = jax.jit(jax.vmap(problem.fun))
    out = {}
    for generation in range(1, max(GENERATIONS) + 1):
        x = optimizer.ask()
        if generation in GENERATIONS:
            out[generation] = x
        optimizer.tell(x, np.asarray(fun(x)))
    return out


def main() -> None:
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.15, 1))
    problem = gx.problems.get("rastrigin", dim=2)
    side = np.linspace(-5.12, 5.12, 201)
    grid = np.stack(np.meshgrid(side, side), axis=-1)
    values = np.asarray(jax.vmap(jax.vmap(problem.fun))(grid))
    for axes, (generation, x) in zip(top.subplots(1, 3, sharey=True), populations(problem).items(), strict=True):
        axes.imshow(values, extent=(-5.12, 5.12, -5.12, 5.12), origin="lower", cmap="Blues_r", interpolation="bilinear")
        axes.plot(x[:, 0], x[:, 1], "o", color=plots.ORANGE, ms=5, mec="black", mew=0.5)
        axes.set_title(f"generation {generation}", fontsize=11)
        axes.set_aspect("equal")
    spring = gx.problems.get("spring")
    axes = bottom.subplots()
    for algorithm, colour in ((gx.DE(), plots.BLUE), (gx.RandomSearch(), plots.ORANGE)):
        result = gx.minimize(spring, algorithm, generations=400, runs=1000)
        plots.draw_convergence(axes, result, colour, label=f"{type(algorithm).__name__}, median of 1000 runs")
    axes.set_title("A spring designed a thousand times, in one computation", loc="left", fontsize=11)
    figure.savefig(Path(__file__).parent / "picture.png", dpi=110)


if __name__ == "__main__":
    main()
