"""Messages to the live page, as JSON or bytes, and the contour grids that it asks for."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, SupportsFloat

import jax
import numpy as np

from galapax.core.algorithm import orient_forecast
from galapax.core.problem import Problem, ProblemDescription, check_maximize, objective_signs
from galapax.core.space import Bounds
from galapax.core.variables import Variable
from galapax.execution import observers
from galapax.execution.observers import Facts
from galapax.objective.traced import Traced, evaluate_points, trace

N_TRUE_FRONT_POINTS = 400
MAX_SPREAD_VALUES = 512  # best values of the runs that a page is sent

JsonObject = dict[str, Any]


def describe_run(facts: Facts) -> JsonObject:
    """Describe what does not change during the run."""
    problem, settings = facts.problem, facts.settings
    # a problem's optimum and front are of its minimum
    is_minimised = bool((objective_signs(settings["maximize"]) > 0).all())
    front = None
    if problem.front is not None and is_minimised:
        with contextlib.suppress(Exception):  # a user's function; without it the page lacks the front alone
            front = [
                [to_json_number(v) for v in point] for point in np.asarray(problem.front(N_TRUE_FRONT_POINTS), float)
            ]
    bounds, names = gene_bounds(problem), problem.variable_names()
    if problem.space is not None and len(names) > bounds.dim:  # fixed variables have no gene
        names = [name for name, v in zip(names, problem.space.variables, strict=True) if not v.is_fixed]
    n_shown = min(bounds.dim, observers.MAX_VARIABLES)
    return {
        "name": problem.name,
        "title": problem.title or problem.name,
        "variables": [problem.with_unit(name) for name in names[:n_shown]],
        "scales": [_gene_scale(v) for v in problem.space.free_variables[:n_shown]]
        if problem.space is not None
        else None,
        "dim": bounds.dim,
        "lower": np.asarray(bounds.lower, float)[:n_shown].tolist(),
        "upper": np.asarray(bounds.upper, float)[:n_shown].tolist(),
        "objectives": [problem.with_unit(name) for name in problem.objectives or ()],
        "constrained": problem.constrained,
        "optimum": problem.optimum if is_minimised else None,
        "front": front,
        "map": _describe_grid(settings.get("hyperparameters") or {}),
        "population": facts.population,
        "max_individuals": observers.MAX_INDIVIDUALS,
        "generations": facts.generations,
        "contours": facts.contours,
        "settings": _to_json(settings),
    }


def _describe_grid(hyperparameters: JsonObject) -> JsonObject | None:
    """Describe the cells of a map over two measures; None without one."""
    cells, ranges = (hyperparameters.get(name) for name in ("cells", "ranges"))
    if cells is None or ranges is None or len(cells) != 2:
        return None
    return {"cells": [int(n) for n in cells], "ranges": [[float(limit) for limit in pair] for pair in ranges]}


def gene_bounds(problem: ProblemDescription) -> Bounds:
    """The box of the problem's genes, in which a page draws individuals."""
    return problem.bounds if problem.space is None else problem.space.genes


def _gene_scale(variable: Variable) -> JsonObject | None:
    """Describe how a gene is decoded (see core/space.py); None where it is the value itself."""
    if not variable.discrete:
        return {"kind": "log"} if variable.log else None
    if variable.kind == "integer" and variable.step is None:
        return {"kind": "integer", "first": int(variable.lower), "last": int(variable.upper)}
    labels = ["no", "yes"] if variable.kind == "boolean" else [str(value) for value in variable.all_values()]
    return {"kind": "labels", "first": 0, "last": len(labels) - 1, "labels": labels}


def pack_frame(
    number: int, generation: int, run: int, survivors: observers.PopulationSample, signs: np.ndarray
) -> bytes:
    """Pack a frame: length of the header, header (JSON), objectives, violation (float64), genes (float32)."""
    forecast = None if survivors.forecast is None else orient_forecast(survivors.forecast, signs)
    objectives = signs * np.asarray(survivors.objectives, np.float64)
    n_shown, variables = survivors.x.shape
    header = {
        "frame": number,
        "generation": generation,
        "run": run,
        "shown": n_shown,
        "variables": variables,
        "objectives": objectives.shape[1],
        "violation": survivors.violation is not None,
        "forecast": None if forecast is None else {"next": forecast.next.tolist(), "front": forecast.front.tolist()},
    }
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 4) % 8)  # arrays begin at a multiple of their size
    buffers = [struct.pack("<I", len(text)), text, objectives.astype("<f8").tobytes()]
    if survivors.violation is not None:
        buffers.append(survivors.violation.astype("<f8").tobytes())
    buffers.append(survivors.x.astype("<f4").tobytes())
    return b"".join(buffers)


def _to_json(value: object) -> object:
    """Convert a setting to what JSON can represent."""
    if isinstance(value, dict):
        return {str(k): _to_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_to_json(v) for v in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def to_json_number(value: SupportsFloat) -> float | None:
    """Convert a number for JSON; None for what is not finite."""
    return float(value) if math.isfinite(value) else None


def pick_quantiles(values: np.ndarray) -> np.ndarray:
    """Pick `observers.QUANTILES` of sorted values (R, ...), one for each run."""
    return values[np.rint(np.array(observers.QUANTILES) * (len(values) - 1)).astype(int)]


def sample_spread(best: np.ndarray, sign: float) -> list[float | None]:
    """Sort the runs' best values (R,), to be minimised, thinned to what a page draws, with the user's sign."""
    finite = best[np.isfinite(best)]
    values = np.sort(finite[:: max(1, len(finite) // 4096)])
    columns = np.linspace(0, len(values) - 1, min(len(values), MAX_SPREAD_VALUES)).astype(int)
    return [to_json_number(sign * v) for v in values[columns]]


# --- contour grids of the objective over two variables, evaluated beside the run --------------------------------------


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
