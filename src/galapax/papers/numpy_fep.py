"""Fast evolutionary programming in plain NumPy: the baseline of the speed tables, and an independent reference.

The operators are functions of their random numbers, so that a test can feed them those of the library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import numpy as np


def mutate(
    x: np.ndarray, eta: np.ndarray, step: np.ndarray, noise: np.ndarray, shared_noise: np.ndarray, min_eta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mutate all parents (n, k): x moves by the parents' eta, and eta is mutated log-normally."""
    k = x.shape[1]
    scale = np.exp(shared_noise / np.sqrt(2 * k) + noise / np.sqrt(2 * np.sqrt(k)))
    return x + eta * step, np.maximum(eta * scale, min_eta)


def repair(x: np.ndarray, parents: np.ndarray, lower: np.ndarray, upper: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Move genes that left the box to a share of the way from the bound they crossed to their parent."""
    wall = np.where(x < lower, lower, upper)
    return np.where((x < lower) | (x > upper), wall + share * (parents - wall), x)


def tournament_scores(fitness: np.ndarray, opponents: np.ndarray) -> np.ndarray:
    """Count the wins of each of 2n individuals over its opponents (q, 2n); q + 1 for the best; failed ones below."""
    wins = (fitness[None, :] <= fitness[opponents]).sum(axis=0)
    wins[fitness == fitness.min()] = len(opponents) + 1
    failed = np.arange(len(fitness)) >= len(fitness) // 2
    return np.where(np.isfinite(fitness), wins + 2, failed)


def select_survivors(scores: np.ndarray) -> np.ndarray:
    """Select the half with the highest scores, earlier ones first among equals; parents stay in their rows."""
    n = len(scores) // 2
    selected = np.sort(np.argsort(-scores, kind="stable")[:n])
    rows = np.full(n, -1)
    parents = selected[selected < n]
    rows[parents] = parents
    rows[rows < 0] = selected[selected >= n]
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
    dtype: Literal["float32", "float64"] = "float32",
    seed: int = 0,
) -> tuple[np.ndarray, dict[str, float]]:
    """Run FEP on fun of (n, k); return the best value by generation, and seconds by phase of a generation."""
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
        noise, shared_noise = rng.standard_normal((n, k), dtype=dtype), rng.standard_normal((n, 1), dtype=dtype)
        mutants, child_eta = mutate(x, eta, step, noise, shared_noise, least_step)
        child = repair(mutants, x, lower, upper, rng.random((n, k), dtype=dtype)).astype(dtype)
        seconds["mutation"] += time.perf_counter() - start
        start = time.perf_counter()
        child_fitness = fun(child)
        seconds["evaluation"] += time.perf_counter() - start
        start = time.perf_counter()
        all_fitness = np.concatenate([fitness, child_fitness])
        rows = select_survivors(tournament_scores(all_fitness, rng.integers(0, 2 * n, (opponents, 2 * n))))
        x, eta = np.concatenate([x, child])[rows], np.concatenate([eta, child_eta])[rows].astype(dtype)
        fitness = all_fitness[rows]
        seconds["selection"] += time.perf_counter() - start
        best.append(fitness.min())
    return np.array(best), seconds
