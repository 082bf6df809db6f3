"""A chain of four snap-through elements between springs: all states in which it can rest, with their energies.

Run it as a program: `python examples/stable_states.py`. Each element has two rest positions, -1 and 1, and is coupled
to its neighbours, so that there are up to 16 stable states; a load makes some of them vanish. A designer needs all of
them, since the chain rests in the one where it was pushed, not in the best one.
"""

import jax.numpy as jnp

import galapax as gx

COUPLING, LOAD = 0.15, 0.1


def energy(x):
    """Of the displacements x (4,): double wells, springs between neighbours, and the work of the load on the last."""
    wells = jnp.sum((x**2 - 1) ** 2)
    springs = COUPLING * jnp.sum((x[1:] - x[:-1]) ** 2)
    return wells + springs - LOAD * x[-1]


if __name__ == "__main__":
    result = gx.minima(energy, [(-2, 2)] * 4)
    print(result.message)
    print(f"{len(result.minima)} stable states:")
    for state, level, share in zip(result.minima.x, result.minima.fun, result.minima.share, strict=True):
        print(
            "".join("+" if x > 0 else "-" for x in state), f"energy {level:7.4f}, reached from {share:.1%} of the box"
        )
