"""What lies under the points of a figure: the objective over two variables, as a picture."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from galapax.core.problem import Problem, unavailable
from galapax.results.result import Result
from galapax.view import data
from galapax.view.report.parts import data_address

SIDE = 360  # pixels along each variable: ripples of a hundred periods show as ripples
STRIPE = 9  # pixels that a stripe of infeasible points is wide
BANDS = 16  # colours between the least and the largest value
DARK, LIGHT = np.array([11, 74, 134]), np.array([235, 243, 250])


def landscape(result: Result) -> dict[str, Any] | None:
    """The objective of two variables on a grid, low values dark, infeasible ones striped; None where there is none.

    A black box is not called for it, and neither is a function that fails.
    """
    problem = data.with_functions(result.problem)
    if not isinstance(problem, Problem) or problem.dim != 2 or problem.fun is unavailable:
        return None
    if result.settings["blackbox"] or result.settings["vectorized"] or "y" in result:
        return None
    lower, upper = np.asarray(problem.bounds.lower), np.asarray(problem.bounds.upper)
    across, up = (np.linspace(low, high, SIDE) for low, high in zip(lower, upper, strict=True))
    grid = np.stack([side.ravel() for side in np.meshgrid(across, up)], axis=1)
    try:
        values = _at(problem.fun, grid)[:, 0]
        broken = np.zeros(len(grid), bool) if problem.ineq is None else _at(problem.ineq, grid).max(axis=1) > 0
    except Exception:  # whatever a user's function raises on a grid, the report is written without this picture
        return None
    if not np.isfinite(values).any():
        return None
    pixels = _coloured(result.sign * values, broken)
    return {
        "image": data_address(pixels),
        "x": [float(lower[0]), float(upper[0])],
        "y": [float(lower[1]), float(upper[1])],
    }


def _at(function: Any, points: np.ndarray) -> np.ndarray:
    """The values (k, m) of a function at points (k, d). Not compiled: that would take longer than this."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(function)(points), np.float64).reshape(len(points), -1)


def _coloured(values: np.ndarray, broken: np.ndarray) -> np.ndarray:
    """Pixels (SIDE, SIDE, 3), the first row on top: bands at quantiles of the values, so that valleys show."""
    finite = values[np.isfinite(values)]
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, BANDS + 1)[1:-1] ** 1.3))
    band = np.searchsorted(edges, np.where(np.isfinite(values), values, np.inf)) / max(1, len(edges))
    pixels = DARK + (LIGHT - DARK) * band[:, None]
    rows, columns = np.divmod(np.arange(len(values)), SIDE)
    striped = broken & ((rows + columns) % (2 * STRIPE) < STRIPE)
    pixels[striped] = 0.45 * pixels[striped] + 0.55 * np.array([150, 150, 150])
    return pixels.reshape(SIDE, SIDE, 3)[::-1].round().astype(np.uint8)
