"""Make the stored fronts of the engineering problems, and measure the hypervolumes of fronts that are known by formula.

    python benchmarks/reference_fronts.py                   everything: about a quarter of an hour on one core
    python benchmarks/reference_fronts.py osy welded_beam   some of the stored ones
    python benchmarks/reference_fronts.py --formulas        the hypervolumes alone

A stored front is what nothing dominates among the points of one long run of NSGA-II and one of NSGA-III, 2000
individuals, 1000 generations, double precision. The file has its hypervolume (exact, by moocore, of all points) and 300
of the points, ordered so that the first n are spread over the front for any n. What is printed beside it says how much
each run found alone.
"""

from __future__ import annotations

import time
from pathlib import Path

import harness
import numpy as np

import galapax as gx
from galapax.metrics import indicators
from galapax.problems import constrained_fronts, scalable_fronts

STORED = ("osy", "welded_beam", "car_side_impact", "crashworthiness", "water_resources")
FOLDER = Path(gx.problems.__file__).parent / "fronts"
POPULATION, GENERATIONS, KEPT = 2000, 1000, 300


def spread(points: np.ndarray, count: int) -> np.ndarray:
    """`count` of the points (n, m): the best in each objective, then always the one farthest from those taken."""
    unit = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    rows = list(dict.fromkeys(np.argmin(unit, axis=0).tolist()))
    gap = np.min(np.linalg.norm(unit[:, None] - unit[rows], axis=2), axis=1)
    while len(rows) < min(count, len(points)):
        rows.append(int(np.argmax(gap)))
        gap = np.minimum(gap, np.linalg.norm(unit - unit[rows[-1]], axis=1))
    return points[rows]


def store(name: str) -> None:
    problem, fronts = gx.problems.get(name), []
    corner = np.array(problem.reference_point)
    began = time.perf_counter()
    for solver in (gx.NSGA2(population=POPULATION), gx.NSGA3(population=POPULATION)):
        result = gx.minimize(
            problem,
            solver,
            generations=GENERATIONS,
            progress=False,
            keep=gx.Keep(history=False),
            compute=gx.Compute(dtype="float64"),
        )
        sound = result.CV <= 0
        fronts.append(result.F[sound])
    points = np.concatenate(fronts)
    points = np.unique(points[indicators.non_dominated(points)], axis=0)
    whole = indicators.volume(points, corner)
    shares = [indicators.volume(front, corner) / whole for front in fronts]
    rows = spread(points, KEPT)
    lines = [f"hypervolume {whole:.10g}", *(",".join(f"{v:.10g}" for v in row) for row in rows)]
    (FOLDER / f"{name}.csv").write_text("\n".join(lines) + "\n")
    worst = ", ".join(f"{v:.6g}" for v in points.max(axis=0))
    print(f"{name:>16} {len(points):>5} points, hypervolume {whole:.8g}; NSGA-II alone {shares[0]:.4f}, NSGA-III alone "
          f"{shares[1]:.4f}; worst of each ({worst}); {time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip


def volume(points: np.ndarray, corner: np.ndarray, cells: int = 2000) -> float:
    """Of a very dense sample of a surface (n, 3): the mean of what is dominated from the near and the far edges of the
    cells of a grid over the first two objectives."""
    step = corner[:2] / cells
    sums = []
    for edge in (np.floor, np.ceil):
        place = np.minimum(edge(points[:, :2] / step).astype(int), cells - 1)
        height = np.full((cells, cells), corner[2])
        np.minimum.at(height, (place[:, 0], place[:, 1]), points[:, 2])
        height = np.minimum.accumulate(np.minimum.accumulate(height, axis=0), axis=1)
        sums.append(float((corner[2] - height).sum() * step.prod()))
    return float(np.mean(sums))


def surface(name: str, p: np.ndarray) -> np.ndarray:
    """Points of a front of three objectives by formula, from p (n, 2) in [0, 1]; those that are infeasible left out."""
    if name.startswith("wfg"):
        return 2.0 * np.arange(1, 4) * np.stack(scalable_fronts.shape(int(name[3:]), p), axis=1)
    a, b = 0.5 * np.pi * p.T
    points = np.stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)], axis=1)
    if name == "mw8":
        points = points[constrained_fronts.mw8_inside(points)]
    if name == "c2_dtlz2":
        points = points[constrained_fronts.c2_dtlz2_inside(points)]
    if name == "c3_dtlz4":
        points /= np.sqrt(1 - 0.75 * (points**2).max(axis=1))[:, None]
    return points


def formulas() -> None:
    """The hypervolumes in `problems/constrained_fronts.py` and `problems/scalable_fronts.py`; DTLZ2, which is known to
    have 0.80740, to check."""
    for name in ("tnk", "mw1", "mw2", "mw3", "mw13"):
        corner = np.array(gx.problems.get(name).reference_point)
        print(f"{name:>9} {indicators.volume(constrained_fronts.dense(name), corner):.6f}", flush=True)
    t = np.linspace(0, 1, 400_001)[:, None]
    for number in (1, 2):
        corner = np.array(gx.problems.get(f"wfg{number}", objectives=2).reference_point)
        points = np.array([2.0, 4.0]) * np.stack(scalable_fronts.shape(number, t), axis=1)
        print(
            f"     wfg{number} with two {indicators.volume(points[indicators.non_dominated(points)], corner):.6f}",
            flush=True,
        )
    axis = np.linspace(0, 1, 3001)
    p = np.stack([side.ravel() for side in np.meshgrid(axis, axis)], axis=1)
    for name in ("dtlz2", "mw8", "c2_dtlz2", "c3_dtlz4", "wfg1", "wfg2"):
        corner = np.array(gx.problems.get(name).reference_point)
        print(f"{name:>9} {volume(surface(name, p), corner):.4f}", flush=True)


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("problems", nargs="*", default=list(STORED), metavar="problem", help=", ".join(STORED))
    parser.add_argument("--formulas", action="store_true", help="the hypervolumes of known fronts alone")
    given = parser.parse_args()
    formulas()
    for name in () if given.formulas else given.problems:
        store(name)


if __name__ == "__main__":
    main()
