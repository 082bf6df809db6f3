"""The objective over two variables, evaluated beside the run for its live page."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from galapax.core.problem import Problem
from galapax.engines import glimpse
from galapax.engines.points import evaluate_points
from galapax.evaluation.formulas import Traced, trace
from galapax.results.result import objective_sign
from galapax.running.observers import Facts
from galapax.view.live.messages import genes_of, plain

SIDE, BLOCK = 72, 216  # a grid of contours has SIDE * SIDE points, evaluated so many at a time
SLOW = 8.0  # seconds that a grid may take
_contouring = threading.Lock()
_leaving = threading.Event()


def _leave() -> None:
    """A thread inside JAX when the process ends would abort it: it ends after the block that it is at."""
    _leaving.set()
    _contouring.acquire(timeout=20.0)


atexit.register(_leave)


class Contours:
    """The grids of one run, each worked out once."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._known: dict[tuple[int, int, int], dict[str, Any]] = {}
        self._formulas: Traced | None = None

    def of(
        self, which: tuple[int, int, int], best: Callable[[], tuple[int, np.ndarray] | None], anew: bool
    ) -> dict[str, Any]:
        """The grid over two variables, of one objective; {"why": ...} where there is none.

        best: gives the generation and the best individual (d,) of now, where the other variables are taken from; the
        middle of the box if there is none yet. anew: not the one already known.
        """
        problem, (first, second, objective) = self.facts.problem, which
        shown = min(problem.dim, glimpse.VARIABLES)
        if not (0 <= first < shown and 0 <= second < shown and first != second and objective >= 0):
            return {"why": "Choose two different variables."}
        if not self.facts.contours:
            return {"why": "No contours: the objective cannot be called here."}
        with _contouring:  # one grid at a time, whatever pages ask for
            if which in self._known and not (anew and problem.dim > 2):
                return self._known[which]
            try:
                grid = self._grid(first, second, objective, best())
            except Exception as error:  # whatever a user's function raises, the page says it and the run goes on
                return {"why": f"No contours: {type(error).__name__}: {error}"}
            self._known[which] = grid
            return grid

    def _grid(self, first: int, second: int, objective: int, best: tuple[int, np.ndarray] | None) -> dict[str, Any]:
        problem, settings = self.facts.problem, self.facts.settings
        box = genes_of(problem)
        lower, upper = np.asarray(box.lower, float), np.asarray(box.upper, float)
        generation, at = (0, (lower + upper) / 2) if best is None else best
        points = np.tile(at, (SIDE * SIDE, 1))
        across, up = (np.linspace(lower[i], upper[i], SIDE) for i in (first, second))
        points[:, first], points[:, second] = np.tile(across, SIDE), np.repeat(up, SIDE)
        kind = settings["dtype"]
        with jax.enable_x64(kind == "float64"):
            assert isinstance(problem, Problem)
            if self._formulas is None:
                rows = self.facts.population if settings["vectorized"] else 0
                self._formulas = trace(problem.coded(), kind, maximize=settings["maximize"], vectorized=rows)
            formulas = self._formulas
            if objective >= formulas.shape.objectives:
                return {"why": "Choose one of the objectives."}
            values, violations, began = [], [], 0.0
            for start in range(0, len(points), BLOCK):
                out = evaluate_points(formulas, points[start : start + BLOCK], kind, BLOCK)
                values.append(np.asarray(out.objectives)[:, objective])
                violations.append(np.zeros(len(values[-1])) if out.violation is None else np.asarray(out.violation))
                began = began or time.perf_counter()  # after the compilation
                if time.perf_counter() - began > SLOW:
                    return {"why": "No contours: the objective takes too long."}
                if _leaving.is_set():
                    return {"why": "No contours: the run is over."}
        z = objective_sign(settings) * np.concatenate(values).astype(float)
        return {
            "side": SIDE,
            "generation": generation,
            "values": [plain(float(f"{v:.6g}")) for v in z],
            "feasible": (np.concatenate(violations) <= 0).astype(int).tolist(),
        }
