"""Our results for the tools of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from galapax.core.errors import InputError
from galapax.results.result import Result


def to_pymoo(result: Result) -> Any:
    """A Result as pymoo's: X, F, G, H, CV, pop and opt, for its visualisations and indicators."""
    try:
        from pymoo.core.population import Population
        from pymoo.core.result import Result as Theirs
    except ImportError:
        raise InputError("to_pymoo needs pymoo: pip install pymoo.") from None
    several = "F" in result
    own: dict[str, Any]
    if several:
        own = {"X": result.X, "F": result.F, "G": result.G, "H": result.H, "CV": result.CV[:, None]}
    else:
        own = {"X": result.x[None], "F": np.array([[result.fun]]), "CV": np.array([[result.violation]])}
        own |= {name: None if part is None else part[None] for name, part in (("G", result.ineq), ("H", result.eq))}
    known = {name: values for name, values in own.items() if values is not None}
    out = Theirs()
    fitness = np.asarray(result.population_fitness, np.float64)
    out.pop = Population.new(X=result.population, F=fitness if several else fitness[:, None])
    out.opt = Population.new(**known)
    for name, values in own.items():
        setattr(out, name, values if several or values is None else values[0])
    out.success, out.message = result.success, result.message
    out.exec_time = sum(result.timings.get(part, 0.0) for part in ("compile", "run", "host"))
    return out
