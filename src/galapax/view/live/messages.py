"""What the page is sent of a run, as JSON or bytes."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any

import numpy as np

from galapax.core.box import Bounds
from galapax.core.problem import Described
from galapax.core.variables import Variable
from galapax.engines import glimpse
from galapax.results.result import objective_sign
from galapax.view.live import Facts

FRONT = 400  # points of a true front


def described(facts: Facts) -> dict[str, Any]:
    """What does not change during the run."""
    problem, settings = facts.problem, facts.settings
    known = objective_sign(settings) > 0  # what is known of a problem is of its minimum
    front = None
    if problem.front is not None and known:
        with contextlib.suppress(Exception):  # a user's function; without it the page lacks the front alone
            front = [[plain(v) for v in point] for point in np.asarray(problem.front(FRONT), float)]
    shown, box = min(problem.dim, glimpse.VARIABLES), genes_of(problem)
    return {
        "name": problem.name,
        "title": problem.title or problem.name,
        "variables": [problem.with_unit(name) for name in problem.variable_names()[:shown]],
        "scales": [_scale(v) for v in problem.space.variables[:shown]] if problem.space is not None else None,
        "dim": problem.dim,
        "lower": np.asarray(box.lower, float)[:shown].tolist(),
        "upper": np.asarray(box.upper, float)[:shown].tolist(),
        "objectives": [problem.with_unit(name) for name in problem.objectives or ()],
        "constrained": problem.constrained,
        "optimum": problem.optimum if known else None,
        "front": front,
        "population": facts.population,
        "shown": min(facts.population, glimpse.INDIVIDUALS),
        "generations": facts.generations,
        "contours": facts.contours,
        "settings": _shown(settings),
    }


def genes_of(problem: Described) -> Bounds:
    """The box of its genes, which is where a page draws individuals."""
    return problem.bounds if problem.space is None else problem.space.genes


def _scale(variable: Variable) -> dict[str, Any] | None:
    """How a gene becomes what the user declared (see core/variables.py); None where it is the value itself."""
    if not variable.discrete:
        return {"kind": "log"} if variable.log else None
    if variable.kind == "integer":
        return {"kind": "integer", "first": int(variable.lower), "last": int(variable.upper)}
    labels = ["no", "yes"] if variable.kind == "flag" else [str(label) for label in variable.labels]
    return {"kind": "labels", "first": 0, "last": len(labels) - 1, "labels": labels}


def packed(number: int, generation: int, run: int, some: glimpse.Survivors, sign: float) -> bytes:
    """A frame: length of the header, header (JSON), objectives, violation (float64), genes (float32)."""
    objectives = sign * np.asarray(some.objectives, np.float64)
    shown, variables = some.x.shape
    header = {
        "frame": number,
        "generation": generation,
        "run": run,
        "shown": shown,
        "variables": variables,
        "objectives": objectives.shape[1],
        "violation": some.violation is not None,
    }
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 4) % 8)  # arrays begin at a multiple of their size
    parts = [struct.pack("<I", len(text)), text, objectives.astype("<f8").tobytes()]
    if some.violation is not None:
        parts.append(some.violation.astype("<f8").tobytes())
    parts.append(some.x.astype("<f4").tobytes())
    return b"".join(parts)


def _shown(value: Any) -> Any:
    """A setting as JSON can have it."""
    if isinstance(value, dict):
        return {str(k): _shown(v) for k, v in value.items()}
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def plain(value: Any) -> float | None:
    """A number as JSON can have it."""
    return float(value) if math.isfinite(value) else None
