"""Circles in a unit square with the largest sum of radii: thousands of descents at once, and a proof of the sum.

Run it as a program: `python examples/circles.py [26 or 32] [picture.png]`, for minutes. AlphaEvolve (2025) reached
2.635 for 26 circles and 2.937 for 32. In a round all packings descend together, while overlaps are only penalised; the
best of them become exact by sequential quadratic programming. The first packings are rows of circles, of later rounds
half come from the best so far by moving a few of their circles elsewhere. That no circle overlaps another or leaves the
square is checked in fractions, without rounding.
"""

import sys
import time
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np

import galapax as gx

STARTS, REFINED, PARENTS = 1024, 4, 8  # packings of a round; those that become exact; those from which the next come
WEIGHTS = (10.0, 1000.0)  # of overlaps
SHRINK = 1 - 1e-12  # of the radii, before the proof: more than rounding can add


def packing_problem(count, weight=None):
    """The sum of the radii: x has the centres (2 count), then the radii. Overlaps are constraints, or penalised."""
    i, j = np.triu_indices(count, 1)

    def total(x):
        return jnp.sum(x[2 * count :])

    def overlap(x):
        centres, radii = x[: 2 * count].reshape(count, 2), x[2 * count :]
        apart = jnp.sqrt(jnp.sum((centres[i] - centres[j]) ** 2, axis=1) + 1e-30)
        walls = [radii[:, None] - centres, radii[:, None] + centres - 1]
        return jnp.concatenate([radii[i] + radii[j] - apart, *(wall.ravel() for wall in walls)])

    bounds = [(0, 1)] * (2 * count) + [(0, 0.5)] * count
    if weight is None:
        return gx.Problem(total, bounds, ineq=overlap, name=f"{count} circles")

    def penalised_total(x):
        return total(x) - weight * jnp.sum(jnp.maximum(overlap(x), 0) ** 2)

    return gx.Problem(penalised_total, bounds)


def refine(problem, x):
    """Refine all points x (k, d) by their gradients, together; return the runs."""
    # the one generation only evaluates the points; the refinement of each is what searches
    result = gx.minimize(
        problem,
        gx.DE(population=4),
        x0=x[:, None],
        runs=len(x),
        polish=True,
        maximize=True,
        generations=1,
        max_evaluations=10**6,
    )
    return result.runs


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
    centres = [(Fraction(a), Fraction(b)) for a, b in x[: 2 * count].reshape(count, 2)]
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

    figure = Figure(figsize=(5, 5))
    axes = figure.subplots()
    for (a, b), r in zip(x[: 2 * count].reshape(count, 2), x[2 * count :], strict=True):
        axes.add_patch(Circle((a, b), r, facecolor="#9ecae1", edgecolor="#08306b"))
    title = f"{count} circles, sum of radii {np.sum(x[2 * count :]):.6f}"
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[], yticks=[], title=title)
    figure.savefig(file, dpi=80)


def pack(count, rounds=30, target=np.inf, seed=0, file=None, starts=STARTS):
    """Search for so many rounds, or until the sum of the radii is at least `target`; print progress and the proof."""
    random, began = np.random.default_rng(seed), time.perf_counter()
    exact = packing_problem(count)
    weak, strong = (packing_problem(count, weight) for weight in WEIGHTS)
    packings: list[tuple[float, Any]] = []  # each with the sum of its radii, the best first
    for number in range(rounds):
        centres = [rows_of_circles(count, random) for _ in range(starts)]
        if packings:
            parents = [packings[k % len(packings)][1][: 2 * count].reshape(count, 2) for k in range(starts // 2)]
            centres[: len(parents)] = [move_circles(parent, random) for parent in parents]
        x = np.array([[*np.clip(c, 0.01, 0.99).ravel(), *np.full(count, 0.05)] for c in centres])
        runs = refine(strong, refine(weak, x).x)
        x = runs.x
        order = np.argsort(-runs.fun)
        distinct = order[np.append(True, -np.diff(runs.fun[order]) > 1e-6)]
        runs = refine(exact, x[distinct[:REFINED]])
        packings += [(f, y) for f, y, is_sound in zip(runs.fun, runs.x, runs.feasible, strict=True) if is_sound]
        packings.sort(key=lambda packing: -packing[0])
        packings = [p for k, p in enumerate(packings) if k == 0 or packings[k - 1][0] - p[0] > 1e-7][:PARENTS]
        print(f"round {number + 1}: {packings[0][0]:.8f} after {time.perf_counter() - began:.0f} s", flush=True)
        if packings[0][0] >= target:
            break
    best = packings[0][1]
    sum_of_radii = prove(best, count)
    print(f"{count} circles, proved in fractions: sum of radii {float(sum_of_radii):.9f}")
    if file is not None:
        draw(best, count, file)
    return best


if __name__ == "__main__":
    words = sys.argv[1:]
    number = next((int(word) for word in words if word.isdigit()), 26)
    target = {26: 2.6358, 32: 2.9372}.get(number, np.inf)
    pack(number, target=target, file=next((word for word in words if word.endswith(".png")), None))
