"""Draw the pictures of docs/explain: `python docs/explain_pictures.py [NAME ...]`, an algorithm on a small problem."""

import sys
from pathlib import Path

import jax.numpy as jnp

import galapax as gx

OUT = Path(__file__).parent / "explain/pictures"


def waves(x):
    """A bowl with a few minima, whose best one is off the centre."""
    y = x - jnp.array([0.7, -0.4])
    return jnp.sum(y**2) + 4 * jnp.sum(1 - jnp.cos(2.5 * y))


def valley(x):
    return 10 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


HILLS = gx.Problem(waves, [(-4, 5), (-5, 4)], name="waves", title="Several minima")
BANANA = gx.Problem(valley, [(-2, 2), (-1, 3)], name="valley", title="Rosenbrock's valley")
WEDGE = gx.problems.get("g24")
LANDSCAPES = {
    "de": (HILLS, gx.DE(population=30), [1, 5, 12]),
    "cmaes": (BANANA, gx.CMAES(population=20), [1, 8, 20]),
    "lshade": (HILLS, gx.LSHADE(population=40), [1, 10, 25]),
    "lsrtde": (HILLS, gx.LSRTDE(population=40), [1, 10, 25]),
    "epsilon_de": (WEDGE, gx.EpsilonDE(population=40), [1, 8, 20]),
    "cde": (WEDGE, gx.CoevolutionaryDE(population=40), [1, 15, 40]),
    "pso": (HILLS, gx.PSO(population=30), [1, 5, 15]),
    "ep": (HILLS, gx.FEP(population=40), [1, 5, 20]),
    "ga": (HILLS, gx.ThreeParentGA(population=30), [1, 3, 8]),
    "real_coded_ga": (HILLS, gx.RealCodedGA(population=30), [1, 4, 12]),
    "random_search": (HILLS, gx.RandomSearch(population=40), [1, 5, 10]),
}
FRONTS = {
    "nsga2": ("zdt1", gx.NSGA2(population=60), 150),
    "nsga3": ("dtlz2", gx.NSGA3(), 150),
    "moead": ("dtlz2", gx.MOEAD(), 150),
    "sms_emoa": ("dtlz2", gx.SMSEMOA(population=92), 150),
    "sharing_moea": ("moea_zdt1", gx.SharingMOEA(population=60), 100),
    "npga": ("zdt1", gx.NPGA(population=60), 150),
}


def main(chosen: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    for name in chosen or [*LANDSCAPES, *FRONTS]:
        if name in LANDSCAPES:
            problem, algorithm, snapshots = LANDSCAPES[name]
            last = snapshots[-1] + 10
            result = gx.minimize(
                problem, algorithm, generations=last, polish=False, restarts=None, keep=gx.Keep(snapshots=snapshots)
            )
            figure = result.plot.landscape(points=121)
        else:
            problem, algorithm, generations = FRONTS[name]
            figure = gx.minimize(gx.problems.get(problem), algorithm, generations=generations).plot.front()
        figure.savefig(OUT / f"{name}.png", dpi=65)
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
