"""Messages to the live page, as JSON or bytes."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any, SupportsFloat

import numpy as np

from galapax.core.direction import objective_signs
from galapax.core.problem import ProblemDescription
from galapax.core.space import Bounds
from galapax.core.variables import Variable
from galapax.execution import observers
from galapax.view.live import Facts

N_TRUE_FRONT_POINTS = 400

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
        "scales": [_gene_scale(v) for v in problem.space.searched[:n_shown]] if problem.space is not None else None,
        "dim": bounds.dim,
        "lower": np.asarray(bounds.lower, float)[:n_shown].tolist(),
        "upper": np.asarray(bounds.upper, float)[:n_shown].tolist(),
        "objectives": [problem.with_unit(name) for name in problem.objectives or ()],
        "constrained": problem.constrained,
        "optimum": problem.optimum if is_minimised else None,
        "front": front,
        "population": facts.population,
        "max_individuals": observers.MAX_INDIVIDUALS,
        "generations": facts.generations,
        "contours": facts.contours,
        "settings": _to_json(settings),
    }


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
