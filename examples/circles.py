"""Circles in a unit square with the largest sum of radii: a batch of constrained searches, and a proof of the sum.

Run it as a program: `python examples/circles.py [picture.png]`, for minutes; `pack(32)` packs another number.
AlphaEvolve (2025) reached 2.635 for 26 circles and 2.937 for 32. A round refines RUNS packings by sequential quadratic
programming, all together; the first ones are rows of circles, the later ones come from the best so far by moving a few
of their circles elsewhere. That no circle overlaps another or leaves the square is checked in fractions, without
rounding.
"""

import sys
import time
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

import galapax as gx

RUNS, PARENTS = 16, 4  # packings refined together, and of the best ones those from which the next come
SHRINK = 1 - 1e-12  # of the radii, before the proof: more than rounding can add


def packing_problem(count):
    """Maximise the sum of the radii: x has the centres (2 count), then the radii."""
    i, j = np.triu_indices(count, 1)

    def total(x):
        return jnp.sum(x[2 * count :])

    def overlap(x):
        centres, radii = x[: 2 * count].reshape(count, 2), x[2 * count :]
        apart = jnp.sqrt(jnp.sum((centres[i] - centres[j]) ** 2, axis=1) + 1e-30)
        walls = [radii[:, None] - centres, radii[:, None] + centres - 1]
        return jnp.concatenate([radii[i] + radii[j] - apart, *(wall.ravel() for wall in walls)])

    return gx.Problem(total, [(0, 1)] * (2 * count) + [(0, 0.5)] * count, ineq=overlap, name=f"{count} circles")


def rows_of_circles(count, random):
    """Centres in rows of about equal length, in any order and slightly out of place."""
    n_rows = round(count**0.5) + random.integers(0, 2)
    lengths = np.full(n_rows, count // n_rows)
    lengths[: count - lengths.sum()] += 1
    random.shuffle(lengths)
    centres = [((k + 0.5) / length, (row + 0.5) / n_rows) for row, length in enumerate(lengths) for k in range(length)]
    return np.array(centres) + random.normal(0, 0.03, (count, 2))


def move_circles(centres, random):
    """The centres of a packing with one to three circles elsewhere."""
    centres = centres + random.normal(0, 0.01, centres.shape)
    moved = random.choice(len(centres), random.integers(1, 4), replace=False)
    centres[moved] = random.uniform(0, 1, (len(moved), 2))
    return centres


def prove(x, count):
    """The exact sum of the radii, once every circle is shown to be in the square and apart from all others."""
    centres = [tuple(map(Fraction, centre)) for centre in x[: 2 * count].reshape(count, 2)]
    radii = [Fraction(SHRINK * r) for r in x[2 * count :]]
    for i, ((a, b), r) in enumerate(zip(centres, radii, strict=True)):
        assert r >= 0 and r <= a <= 1 - r and r <= b <= 1 - r
        others = zip(centres[:i], radii[:i], strict=True)
        assert all((a - c) ** 2 + (b - d) ** 2 >= (r + s) ** 2 for (c, d), s in others)
    return sum(radii)


def draw(x, count, file):
    """The packing as a picture."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    axes = Figure(figsize=(5, 5)).subplots()
    for (a, b), r in zip(x[: 2 * count].reshape(count, 2), x[2 * count :], strict=True):
        axes.add_patch(Circle((a, b), r, facecolor="#9ecae1", edgecolor="#08306b"))
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[], yticks=[])
    axes.set_title(f"{count} circles, sum of radii {np.sum(x[2 * count :]):.6f}")
    axes.figure.savefig(file, dpi=80)


def pack(count, rounds=30, target=np.inf, seed=0, file=None):
    """Search for so many rounds, or until the sum of the radii is at least `target`; print progress and the proof."""
    random, problem, began = np.random.default_rng(seed), packing_problem(count), time.perf_counter()
    packings = []
    for number in range(rounds):
        centres = [rows_of_circles(count, random) for _ in range(RUNS)]
        if packings:
            parents = [packings[k % len(packings)][1][: 2 * count].reshape(count, 2) for k in range(RUNS)]
            centres = [move_circles(parent, random) for parent in parents]
        x = np.array([[*np.clip(c, 0.01, 0.99).ravel(), *np.full(count, 0.02)] for c in centres])
        # the one generation only evaluates the starts; the refinement of each is what searches
        options = {"generations": 1, "max_evaluations": 10**6, "polish": True, "maximize": True}
        result = gx.minimize(problem, gx.DE(population=4), x0=x[:, None], runs=RUNS, seed=number, **options)
        runs = result.runs
        packings += [(f, y) for f, y, is_sound in zip(runs.fun, runs.x, runs.feasible, strict=True) if is_sound]
        packings.sort(key=lambda packing: -packing[0])
        distinct = [p for k, p in enumerate(packings) if k == 0 or packings[k - 1][0] - p[0] > 1e-7]
        packings = distinct[:PARENTS]
        print(f"round {number + 1}: {packings[0][0]:.8f} after {time.perf_counter() - began:.0f} s", flush=True)
        if packings[0][0] >= target:
            break
    best = packings[0][1]
    exact = prove(best, count)
    print(f"{count} circles, proved in fractions: sum of radii {float(exact):.9f}")
    if file is not None:
        draw(best, count, file)
    return best


if __name__ == "__main__":
    pack(26, rounds=6, target=2.635, file=next((word for word in sys.argv[1:] if word.endswith(".png")), None))
