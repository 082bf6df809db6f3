"""Adapters: problems from other libraries, results for them, and drop-ins for scipy's functions.

    from galapax.compat import from_pymoo, from_pygmo, from_coco, from_ioh, to_pymoo
    from galapax.compat.scipy import differential_evolution, minimize

Nothing here is imported by `import galapax`, and none of the other libraries until one of its objects is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from galapax.core.errors import MissingPackage
from galapax.results.result import Result

if TYPE_CHECKING:
    from pymoo.core.result import Result as PymooResult


from galapax.problems.adapters import from_coco, from_ioh, from_pygmo, from_pymoo


def to_pymoo(result: Result) -> PymooResult:
    """Convert a Result into pymoo's: X, F, G, H, CV, pop and opt, for its visualisations and indicators."""
    try:
        from pymoo.core.population import Population
        from pymoo.core.result import Result as PymooResult
    except ImportError:
        raise MissingPackage("to_pymoo needs pymoo: pip install pymoo.") from None
    is_multi_objective = "F" in result
    fields: dict[str, np.ndarray | None]
    if is_multi_objective:
        fields = {"X": result.X, "F": result.F, "G": result.G, "H": result.H, "CV": result.CV[:, None]}
    else:
        fields = {"X": result.x[None], "F": np.array([[result.fun]]), "CV": np.array([[result.violation]])}
        fields |= {
            name: None if values is None else values[None] for name, values in (("G", result.ineq), ("H", result.eq))
        }
    known_fields = {name: values for name, values in fields.items() if values is not None}
    out = PymooResult()
    fitness = np.asarray(result.population_fitness, np.float64)
    out.pop = Population.new(X=result.population, F=fitness if is_multi_objective else fitness[:, None])
    out.opt = Population.new(**known_fields)
    for name, values in fields.items():
        setattr(out, name, values if is_multi_objective or values is None else values[0])
    out.success, out.message = result.success, result.message
    out.exec_time = sum(result.timings.get(values, 0.0) for values in ("compile", "run", "host"))
    return out


__all__ = ["from_coco", "from_ioh", "from_pygmo", "from_pymoo", "to_pymoo"]
