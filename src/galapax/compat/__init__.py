"""Adapters: problems from other libraries, results for them, and a drop-in for scipy's differential evolution.

    from galapax.compat import from_pymoo, from_pygmo, from_coco, from_ioh, to_pymoo
    from galapax.compat.scipy import differential_evolution

Nothing here is imported by `import galapax`, and none of the other libraries until one of its objects is given.
"""

from galapax.compat.adapters import from_coco, from_ioh, from_pygmo, from_pymoo, to_pymoo

__all__ = ["from_coco", "from_ioh", "from_pygmo", "from_pymoo", "to_pymoo"]
