"""Adapters: problems from other libraries, results for them, and drop-ins for scipy's functions.

    from galapax.compat import from_pymoo, from_pygmo, from_coco, from_ioh, to_pymoo
    from galapax.compat.scipy import differential_evolution, minimize

Nothing here is imported by `import galapax`, and none of the other libraries until one of its objects is given.
"""

from galapax.compat.pymoo_result import to_pymoo
from galapax.problems.adapters import from_coco, from_ioh, from_pygmo, from_pymoo

__all__ = ["from_coco", "from_ioh", "from_pygmo", "from_pymoo", "to_pymoo"]
