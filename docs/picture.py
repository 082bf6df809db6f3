"""Draw the picture of the README: `python docs/picture.py` (or `make picture`)."""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import galapax as gx
from galapax.view import maps, plots


def main() -> None:
    figure = Figure(figsize=(10, 9.3), layout="constrained")
    above, middle, below = figure.subfigures(3, 1, height_ratios=(3.0, 1.8, 3.0))

    problem = gx.problems.get("rastrigin", dim=2)
    result = gx.minimize(problem, gx.DE(population=60), generations=40, seed=1, keep=gx.Keep(snapshots=[1, 10, 20, 40]))
    side = np.linspace(-5.12, 5.12, 201)
    values = np.asarray(jax.vmap(jax.vmap(problem.fun))(np.stack(np.meshgrid(side, side), axis=-1)))
    for axes, (generation, kept) in zip(above.subplots(1, 4), result.snapshots.items(), strict=True):
        axes.imshow(values, extent=(-5.12, 5.12, -5.12, 5.12), origin="lower", cmap="Blues_r", interpolation="bilinear")
        axes.plot(kept.x[:, 0], kept.x[:, 1], "o", color=plots.ORANGE, ms=5, mec="black", mew=0.5)
        axes.set(xticks=[], yticks=[], xlim=(-5.12, 5.12), ylim=(-5.12, 5.12))
        axes.set_title(f"generation {generation}")
        axes.set(xlabel="x1", ylabel="x2" if generation == 1 else "")
    above.suptitle(
        "Differential evolution: 60 individuals, two variables, many valleys", x=0.01, ha="left", fontsize=14
    )

    problem = gx.problems.get("fep_f5")
    result = gx.minimize(
        problem, gx.FEP(population=400), generations=1000, seed=1, keep=gx.Keep(snapshots=[1, 100, 500, 1000])
    )
    for axes, (generation, kept) in zip(middle.subplots(1, 4), result.snapshots.items(), strict=True):
        axes.imshow(maps.genome_map(kept.x, problem.bounds, background=(255, 255, 255)), interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"generation {generation}")
    text = "Evolutionary programming: 400 individuals, 32 variables, four of them in the colour of a pixel"
    middle.suptitle(text, x=0.01, ha="left", fontsize=14)

    axes = below.subplots()
    spring = gx.problems.get("spring")
    for algorithm, colour in ((gx.DE(), plots.BLUE), (gx.RandomSearch(), plots.ORANGE)):
        result = gx.minimize(spring, algorithm, generations=400, runs=1000, polish=False)  # what evolution does
        plots.draw_convergence(axes, result, colour, label=f"{type(algorithm).__name__}, median of 1000 runs")
    axes.set_ylabel("weight − best known weight", fontsize=12)
    axes.set_xlabel("generation", fontsize=12)
    below.suptitle("A spring designed a thousand times, in one computation", x=0.01, ha="left", fontsize=14)
    figure.savefig(Path(__file__).parent / "picture.png", dpi=110)


if __name__ == "__main__":
    main()
