"""The objective over two variables as an image, the background of the population's scatter chart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from galapax.core.problem import Problem, missing_function
from galapax.results.result import Result
from galapax.view import figure_data
from galapax.view.report.page import ChartSpec, data_uri

BACKGROUND_PIXELS = 360  # pixels along each variable: ripples of a hundred periods show as ripples
STRIPE_PIXELS = 9  # pixels that a stripe of infeasible points is wide
N_COLOUR_BANDS = 16  # colours between the least and the largest value
DARK_BLUE, LIGHT_BLUE = np.array([11, 74, 134]), np.array([235, 243, 250])


def landscape_image(result: Result) -> ChartSpec | None:
    """Draw the objective of two variables on a grid, low values dark, infeasible ones striped; None if impossible.

    A black box is not called for it, and neither is a function that fails.
    """
    problem = figure_data.restore_functions(result.problem)
    if not isinstance(problem, Problem) or problem.dim != 2 or problem.fun is missing_function:
        return None
    if result.settings["blackbox"] or result.settings["vectorized"] or "y" in result:
        return None
    lower, upper = np.asarray(problem.bounds.lower), np.asarray(problem.bounds.upper)
    across, up = (np.linspace(low, high, BACKGROUND_PIXELS) for low, high in zip(lower, upper, strict=True))
    grid = np.stack([side.ravel() for side in np.meshgrid(across, up)], axis=1)
    try:
        values = _evaluate_points(problem.fun, grid)[:, 0]
        is_infeasible = (
            np.zeros(len(grid), bool) if problem.ineq is None else _evaluate_points(problem.ineq, grid).max(axis=1) > 0
        )
    except Exception:  # whatever a user's function raises on a grid, the report is written without this picture
        return None
    if not np.isfinite(values).any():
        return None
    pixels = _colour_bands(result.sign * values, is_infeasible)
    return {
        "image": data_uri(pixels),
        "x": [float(lower[0]), float(upper[0])],
        "y": [float(lower[1]), float(upper[1])],
    }


def _evaluate_points(function: Callable[..., Any], points: np.ndarray) -> np.ndarray:
    """Evaluate a function at points (k, d): (k, m). Not compiled: that would take longer than this."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(function)(points), np.float64).reshape(len(points), -1)


def _colour_bands(values: np.ndarray, is_infeasible: np.ndarray) -> np.ndarray:
    """Colour values by bands at their quantiles, so that valleys show: (side, side, 3), the first row on top."""
    finite = values[np.isfinite(values)]
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, N_COLOUR_BANDS + 1)[1:-1] ** 1.3))
    band = np.searchsorted(edges, np.where(np.isfinite(values), values, np.inf)) / max(1, len(edges))
    pixels = DARK_BLUE + (LIGHT_BLUE - DARK_BLUE) * band[:, None]
    rows, columns = np.divmod(np.arange(len(values)), BACKGROUND_PIXELS)
    striped = is_infeasible & ((rows + columns) % (2 * STRIPE_PIXELS) < STRIPE_PIXELS)
    pixels[striped] = 0.45 * pixels[striped] + 0.55 * np.array([150, 150, 150])
    return pixels.reshape(BACKGROUND_PIXELS, BACKGROUND_PIXELS, 3)[::-1].round().astype(np.uint8)
