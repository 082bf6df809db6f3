"""Which variables matter: total effects in a forest of regression trees that is fitted to evaluated points.

The method is functional ANOVA by forests (Hutter, Hoos & Leyton-Brown 2014, ICML, 754-762) with extremely randomised
trees (Geurts, Ernst & Wehenkel 2006, Machine Learning 63:3-42). In place of main effects it has total effects, which
count interactions, too (Homma & Saltelli 1996), estimated as by Jansen (1999, Computer Physics Communications
117:35-43). The effects are over the whole box: the forest is evaluated at uniform points, and as a search evaluates
most points near its optimum, trees are grown with points drawn by the share of the box to which they are the nearest
one. Where the search has hardly been, effects are underestimated all the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

N_TREES = 32
MIN_LEAF_POINTS = 2  # a node with fewer than twice as many is a leaf
MAX_POINTS = 1000  # a random choice of more
N_SAMPLES = 512  # a power of 2, at which the forest is evaluated


class Tree(NamedTuple):
    """A regression tree, one entry per node; a leaf has no children (-1)."""

    feature: np.ndarray
    threshold: np.ndarray
    children: np.ndarray  # (nodes, 2): up to the threshold, and above
    value: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        node = np.zeros(len(x), int)
        while (is_inner := self.children[node, 0] >= 0).any():
            at = node[is_inner]
            is_above = x[is_inner, self.feature[at]] > self.threshold[at]
            node[is_inner] = self.children[at, is_above.astype(int)]
        return self.value[node]


def grow_tree(rng: np.random.Generator, x: np.ndarray, y: np.ndarray) -> Tree:
    """Grow an extremely randomised tree: of one random threshold for each feature, a node takes the best."""
    feature, threshold, value = [0], [0.0], [float(y.mean())]
    children: list[tuple[int, int]] = [(-1, -1)]
    stack = [(0, np.arange(len(x)))]
    while stack:
        node, rows = stack.pop()
        xs, ys = x[rows], y[rows] - y[rows].mean()
        low, high = xs.min(axis=0), xs.max(axis=0)
        if len(rows) < 2 * MIN_LEAF_POINTS or not ys.any() or not (high > low).any():
            continue
        cuts = low + rng.random(x.shape[1]) * (high - low)
        is_left = xs <= cuts
        n_left = is_left.sum(axis=0)
        total = ys @ is_left
        is_allowed = (n_left >= MIN_LEAF_POINTS) & (len(rows) - n_left >= MIN_LEAF_POINTS) & (high > low)
        if not is_allowed.any():
            continue
        # what remains of the variance is least where this is greatest; the sum of all ys is 0
        gain = np.where(is_allowed, total**2 / np.maximum(1, n_left) + total**2 / np.maximum(1, len(rows) - n_left), -1)
        best = int(np.argmax(gain))
        feature[node], threshold[node] = best, float(cuts[best])
        children[node] = (len(value), len(value) + 1)
        for side in (rows[is_left[:, best]], rows[~is_left[:, best]]):
            stack.append((len(value), side))
            feature.append(0)
            threshold.append(0.0)
            children.append((-1, -1))
            value.append(float(y[side].mean()))
    return Tree(np.array(feature), np.array(threshold), np.array(children), np.array(value))


class Importances(NamedTuple):
    """Total effects (d,), and the share of the variance over the box that the forest explains at points left out."""

    effects: np.ndarray
    explained: float


def total_effects(
    x: np.ndarray, y: np.ndarray, lower: np.ndarray, upper: np.ndarray, unordered: np.ndarray, seed: int = 0
) -> Importances:
    """Estimate the share of the variance of y over the box in which each variable takes part, alone or with others.

    x: (n, d). y: (n,). lower, upper: the box, (d,). unordered: whether neighbouring values are not alike, (d,) bool.
    The effects add up to more than 1 where variables interact.
    """
    from scipy.spatial import KDTree
    from scipy.stats import qmc

    rng = np.random.default_rng(seed)
    if len(x) > MAX_POINTS:
        rows = rng.choice(len(x), MAX_POINTS, replace=False)
        x, y = x[rows], y[rows]
    y = np.ldexp(y, -np.frexp(np.abs(y).max())[1])  # to at most 1, exactly: squares of 1e160 overflow
    d = x.shape[1]
    pairs = qmc.Sobol(2 * d, seed=rng).random(N_SAMPLES)
    samples, others = (lower + (upper - lower) * half for half in np.split(pairs, 2, axis=1))
    scale = np.where(upper > lower, upper - lower, 1.0)
    nearest = KDTree(x / scale).query(samples / scale)[1]
    share = np.bincount(nearest, minlength=len(x)) / N_SAMPLES  # of the box, to which a point is the nearest one
    first = np.floor(np.minimum(lower, x.min(axis=0))).astype(int)
    forest: list[tuple[Tree, dict[int, np.ndarray]]] = []
    held_out, n_held_out = np.zeros(len(x)), np.zeros(len(x))
    for _ in range(N_TREES):
        rows = rng.choice(len(x), size=len(x), p=share)
        is_out = np.ones(len(x), bool)
        is_out[rows] = False
        # the codes of unordered choices in another order, so that a threshold may separate any of them
        orders = {int(i): rng.permutation(int(upper[i]) - first[i] + 2) for i in np.flatnonzero(unordered)}
        shuffled = _reorder(x, orders, first)
        tree = grow_tree(rng, shuffled[rows], y[rows])
        forest.append((tree, orders))
        held_out[is_out] += tree.predict(shuffled[is_out])
        n_held_out += is_out
    seen = (n_held_out > 0) & (share > 0)
    weights, values = share[seen] / max(share[seen].sum(), 1e-300), y[seen]
    residual = float(weights @ (values - held_out[seen] / n_held_out[seen]) ** 2)
    variance = float(weights @ (values - weights @ values) ** 2)
    explained = 1 - residual / variance if variance > 0 else 0.0

    def predict(points: np.ndarray) -> np.ndarray:
        return np.mean([tree.predict(_reorder(points, orders, first)) for tree, orders in forest], axis=0)

    base, effects = predict(samples), np.zeros(d)
    for i in range(d):
        varied = samples.copy()
        varied[:, i] = others[:, i]
        effects[i] = np.mean((predict(varied) - base) ** 2)
    spread = 2 * float(base.var())
    return Importances(effects / spread if spread > 0 else effects, explained)


def _reorder(points: np.ndarray, orders: dict[int, np.ndarray], first: np.ndarray) -> np.ndarray:
    """Give the codes of some columns another order. first: the first code of each."""
    if not orders:
        return points
    points = points.copy()
    for i, order in orders.items():
        points[:, i] = order[np.round(points[:, i]).astype(int) - first[i]]
    return points
