"""Contour grids of the objective over two variables, evaluated beside the run for its live page."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

import jax
import numpy as np

from galapax.core.direction import check_maximize, objective_signs
from galapax.core.problem import Problem
from galapax.execution import observers
from galapax.execution.observers import Facts
from galapax.objective.traced import Traced, evaluate_points, trace
from galapax.view.live.messages import JsonObject, gene_bounds, to_json_number

CONTOUR_SIDE = 72  # points of a grid along each variable
CONTOUR_BATCH = 216  # points evaluated at a time
MAX_CONTOUR_SECONDS = 8.0  # that a grid may take
_grid_lock = threading.Lock()
_is_exiting = threading.Event()


def _wait_at_exit() -> None:
    """Let a grid's thread finish its batch: a thread inside JAX when the process ends would abort it."""
    _is_exiting.set()
    _grid_lock.acquire(timeout=20.0)


atexit.register(_wait_at_exit)


class ContourGrids:
    """The contour grids of one run, each evaluated once."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._grids: dict[tuple[int, int, int], JsonObject] = {}
        self._formulas: Traced | None = None

    def get(
        self, key: tuple[int, int, int], best: Callable[[], tuple[int, np.ndarray] | None], recompute: bool
    ) -> JsonObject:
        """Return the grid over two variables, of one objective; {"why": ...} where there is none.

        best: returns the current generation and best individual (d,), which gives the other variables; the middle of
        the box if there is none yet. recompute: do not take the cached one.
        """
        problem, (first, second, objective) = self.facts.problem, key
        n_shown = min(problem.dim, observers.MAX_VARIABLES)
        if not (0 <= first < n_shown and 0 <= second < n_shown and first != second and objective >= 0):
            return {"why": "Choose two different variables."}
        if not self.facts.contours:
            return {"why": "No contours: the objective cannot be called here."}
        with _grid_lock:  # one grid at a time, whatever pages ask for
            if key in self._grids and not (recompute and problem.dim > 2):
                return self._grids[key]
            try:
                grid = self._grid(first, second, objective, best())
            except Exception as error:  # whatever a user's function raises, the page says it and the run goes on
                return {"why": f"No contours: {type(error).__name__}: {error}"}
            self._grids[key] = grid
            return grid

    def _grid(self, first: int, second: int, objective: int, best: tuple[int, np.ndarray] | None) -> JsonObject:
        problem, settings = self.facts.problem, self.facts.settings
        maximize = check_maximize(settings["maximize"])
        bounds = gene_bounds(problem)
        lower, upper = np.asarray(bounds.lower, float), np.asarray(bounds.upper, float)
        generation, base_point = (0, (lower + upper) / 2) if best is None else best
        points = np.tile(base_point, (CONTOUR_SIDE * CONTOUR_SIDE, 1))
        across, up = (np.linspace(lower[i], upper[i], CONTOUR_SIDE) for i in (first, second))
        points[:, first], points[:, second] = np.tile(across, CONTOUR_SIDE), np.repeat(up, CONTOUR_SIDE)
        dtype = settings["dtype"]
        with jax.enable_x64(dtype == "float64"):
            assert isinstance(problem, Problem)
            if self._formulas is None:
                rows = self.facts.population if settings["vectorized"] else 0
                is_random = bool(settings["noisy"])
                self._formulas = trace(
                    problem.in_genes(), dtype, maximize=maximize, vectorized=rows, is_random=is_random
                )
            formulas = self._formulas
            if objective >= formulas.shape.objectives:
                return {"why": "Choose one of the objectives."}
            values, violations, started_at = [], [], 0.0
            for start in range(0, len(points), CONTOUR_BATCH):
                out = evaluate_points(formulas, points[start : start + CONTOUR_BATCH], dtype, CONTOUR_BATCH)
                values.append(np.asarray(out.objectives)[:, objective])
                violations.append(np.zeros(len(values[-1])) if out.violation is None else np.asarray(out.violation))
                started_at = started_at or time.perf_counter()  # after the compilation
                if time.perf_counter() - started_at > MAX_CONTOUR_SECONDS:
                    return {"why": "No contours: the objective takes too long."}
                if _is_exiting.is_set():
                    return {"why": "No contours: the run is over."}
        signs = np.broadcast_to(objective_signs(maximize), formulas.shape.objectives)
        z = signs[objective] * np.concatenate(values).astype(float)
        return {
            "side": CONTOUR_SIDE,
            "generation": generation,
            "values": [to_json_number(float(f"{v:.6g}")) for v in z],
            "feasible": (np.concatenate(violations) <= 0).astype(int).tolist(),
        }
