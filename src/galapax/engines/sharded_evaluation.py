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
    padding = jnp.repeat(candidates[:, :1], -n % count, axis=1)  # so that the parts are equal

    def evaluate_shard(consts: Any, shard: Array) -> Evaluation:
        return objective.evaluate(consts, CandidatesOnly(shard))

    shard_spec = PartitionSpec(None, devices.MESH_AXIS)
    in_specs = (PartitionSpec(), shard_spec)
    # unchecked: formulas were traced before, without axes that differ from device to device
    sharded = jax.shard_map(evaluate_shard, mesh=mesh, in_specs=in_specs, out_specs=shard_spec, check_vma=False)
    padded = sharded(consts, jnp.concatenate([candidates, padding], axis=1))
    replicated = lax.with_sharding_constraint(padded, NamedSharding(mesh, PartitionSpec()))
    return jax.tree.map(lambda a: a[:, :n], replicated)
