"""One population evaluated by several devices, an equal part each; all of them know the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from galapax.core.evaluation import Evaluation
from galapax.numerics import devices

if TYPE_CHECKING:
    from galapax.engines.search import Traced


class CandidatesOnly(NamedTuple):
    """Candidates without the rest of a state, which formulas do not read."""

    candidates: Array


def evaluate_sharded(objective: Traced, consts: Any, candidates: Array, count: int) -> Evaluation:
    """What the objective says of candidates (R, n, d), by so many devices."""
    mesh, n = devices.make_mesh(count), candidates.shape[1]
    more = jnp.repeat(candidates[:, :1], -n % count, axis=1)  # so that the parts are equal

    def part(consts: Any, own: Array) -> Evaluation:
        return objective.evaluate(consts, CandidatesOnly(own))

    among = PartitionSpec(None, devices.MESH_AXIS)
    given = (PartitionSpec(), among)
    # unchecked: formulas were traced before, without axes that differ from device to device
    shared = jax.shard_map(part, mesh=mesh, in_specs=given, out_specs=among, check_vma=False)
    every = shared(consts, jnp.concatenate([candidates, more], axis=1))
    known = lax.with_sharding_constraint(every, NamedSharding(mesh, PartitionSpec()))
    return jax.tree.map(lambda a: a[:, :n], known)
