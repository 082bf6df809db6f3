"""Fast evolutionary programming in plain NumPy: the yardstick of the speed tables, and an independent reference.

The parts are functions of their random draws, so that a test can feed them the draws of the library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np


def mutate(
    x: np.ndarray, eta: np.ndarray, step: np.ndarray, own: np.ndarray, shared: np.ndarray, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """Children of all parents (n, k): x moves by the parents' eta, and eta is drawn anew besides."""
    k = x.shape[1]
    scale = np.exp(shared / np.sqrt(2 * k) + own / np.sqrt(2 * np.sqrt(k)))
    return x + eta * step, np.maximum(eta * scale, least)


def put_back(x: np.ndarray, inside: np.ndarray, lower: np.ndarray, upper: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Genes that left the box, to a share of the way from the wall they crossed to where they came from."""
    wall = np.where(x < lower, lower, upper)
    return np.where((x < lower) | (x > upper), wall + share * (inside - wall), x)


def score(fitness: np.ndarray, opponents: np.ndarray) -> np.ndarray:
    """Wins of each of 2n individuals over its opponents (q, 2n), q + 1 for as good as the best; failed ones below."""
    wins = (fitness[None, :] <= fitness[opponents]).sum(axis=0)
    wins[fitness == fitness.min()] = len(opponents) + 1
    failed = np.arange(len(fitness)) >= len(fitness) // 2
    return np.where(np.isfinite(fitness), wins + 2, failed)


def survivors(scores: np.ndarray) -> np.ndarray:
    """Indices of the half with the highest scores, earlier ones first among equals; old ones stay in their rows."""
    n = len(scores) // 2
    chosen = np.sort(np.argsort(-scores, kind="stable")[:n])
    rows = np.full(n, -1)
    old = chosen[chosen < n]
    rows[old] = old
    rows[rows < 0] = chosen[chosen >= n]
    return rows


def run(
    fun: Callable[[np.ndarray], np.ndarray],
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    population: int,
    generations: int,
    opponents: int = 10,
    initial_step: float = 1.0,
    least_step: float = 1e-3,
    dtype: Any = "float32",
    seed: int = 0,
) -> tuple[np.ndarray, dict[str, float]]:
    """A run of FEP on fun of (n, k): best value by generation, and seconds by part of a generation."""
    rng = np.random.default_rng(seed)
    n, k = population, len(lower)
    lower, upper = lower.astype(dtype), upper.astype(dtype)
    x = (lower + (upper - lower) * rng.random((n, k), dtype=dtype)).astype(dtype)
    eta = np.full((n, k), initial_step, dtype)
    fitness = fun(x)
    best = [fitness.min()]
    seconds = dict.fromkeys(("selection", "evaluation", "mutation"), 0.0)
    for _ in range(generations - 1):
        start = time.perf_counter()
        step = rng.standard_cauchy((n, k)).astype(dtype)
        own, shared = rng.standard_normal((n, k), dtype=dtype), rng.standard_normal((n, 1), dtype=dtype)
        moved, child_eta = mutate(x, eta, step, own, shared, least_step)
        child = put_back(moved, x, lower, upper, rng.random((n, k), dtype=dtype)).astype(dtype)
        seconds["mutation"] += time.perf_counter() - start
        start = time.perf_counter()
        child_fitness = fun(child)
        seconds["evaluation"] += time.perf_counter() - start
        start = time.perf_counter()
        both = np.concatenate([fitness, child_fitness])
        rows = survivors(score(both, rng.integers(0, 2 * n, (opponents, 2 * n))))
        x, eta = np.concatenate([x, child])[rows], np.concatenate([eta, child_eta])[rows].astype(dtype)
        fitness = both[rows]
        seconds["selection"] += time.perf_counter() - start
        best.append(fitness.min())
    return np.array(best), seconds
