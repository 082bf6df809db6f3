"""The xla engine: objective and algorithm compiled into one program that runs whole chunks of generations.

On a CPU the chunk's length is an argument and follows the clock. On a GPU it is part of the program, since a loop whose
end the device must ask the host for costs a round trip each generation.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.core.algorithm import Algorithm, Evaluation, Shape
from galapax.core.errors import InputError
from galapax.core.problem import Bounds
from galapax.engines import loop
from galapax.engines.loop import Carry, Outcome, Rules, Watch
from galapax.engines.points import evaluate_points
from galapax.engines.programs import Clock
from galapax.evaluation.formulas import Formulas, Traced
from galapax.numerics import devices, random

CHUNK_SECONDS = 0.1  # on a CPU the host looks about so often
GPU_CHUNK = 1024  # the most generations between two looks on a GPU
VIEWED_CHUNK = 256  # as long as somebody watches
GPU_OPTIONS: dict[str, str | bool] = {
    "xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"
}  # else the state is copied


def run(
    traced: Traced,
    algorithm: Algorithm,
    bounds: Bounds,
    rules: Rules,
    *,
    keys: Any,
    cells: Any,
    initial: Any,
    watch: Watch,
    keep_history: bool,
    with_x: bool,
    repairs: int,
) -> Outcome:
    """Run a batch, one run per key, to its end.

    algorithm: hyper-parameters that differ between runs have one value for each. cells: (R,), which runs share them.
    initial: starting points (k, d), (R, k, d), or None. with_x: the best x of each generation is in the history.
    repairs: how many candidates a generation are moved onto the constraints before they are evaluated.
    """
    clock, formulas = Clock(), traced.formulas
    runs, limit = keys.shape[0], int(rules.generations)
    on_cpu = devices.on_cpu()
    if on_cpu:
        rows = cpu_rows(runs, algorithm.population)
    else:
        genes, period = runs * algorithm.population * bounds.dim, getattr(algorithm, "period", 1)
        most = GPU_CHUNK if watch.viewer is None else VIEWED_CHUNK
        rows = gpu_rows(limit, genes, latency(traced, bounds), period, most)
    # chunks that end where they are asked to, some of them shorter than their program
    cut = not on_cpu and (bool(watch.snapshots) or watch.viewer is not None)
    uneven = cut or (not on_cpu and limit % rows > 0)
    freeze = rules.target > -math.inf or int(rules.stall) < loop.NEVER or uneven
    algorithm, bounds, keys, consts, device_rules, initial = jax.device_put(
        (algorithm, bounds, keys, traced.consts, rules.as_arrays(bounds.lower.dtype), initial)
    )
    fixed = (formulas, rows, not on_cpu, cut, with_x, repairs)

    options = GPU_OPTIONS if devices.platform() == "gpu" else None
    relative = (cells - cells[0]).astype(np.int32)

    compiling = 0.0  # in the time that the first chunk takes

    def chunk(carry: Carry, first: int, count: int) -> tuple[Carry, Any, Any]:
        nonlocal compiling
        span = np.array([first, count], np.int32)  # one transfer
        before = clock.compile_seconds
        given = (algorithm, bounds, consts, device_rules, keys, carry, span)
        out = clock.call(_chunk, fixed, *given, donate=(5,), options=options)  # the carry's memory is used again
        compiling += clock.compile_seconds - before
        return out

    def plan(length: int, seconds: float) -> int:
        if not on_cpu:
            return rows
        if length == 0:
            return 1  # a generation may take long: time the first before asking for more
        return max(1, min(rows, int(length * min(8.0, CHUNK_SECONDS / max(seconds, 1e-9)))))

    carry = clock.call(loop.begin, (formulas.shape, freeze), algorithm, keys, bounds, initial)
    with loop.interrupts() as interrupted:
        outcome = loop.drive(
            chunk,
            plan,
            carry,
            cells=cells,
            limit=limit,
            watch=watch,
            keep_history=keep_history,
            interrupted=interrupted,
            finish=lambda carry: clock.call(loop.finish, (int(relative[-1]) + 1,), carry, relative),
            survivors=lambda carry: clock.call(loop.survivors, (), carry),
        )
    waited = outcome.device_seconds - compiling
    return replace(outcome, compile_seconds=clock.compile_seconds, device_seconds=waited)


def _chunk(
    formulas: Formulas,
    rows: int,
    static_length: bool,
    cut: bool,
    with_x: bool,
    repairs: int,
    algorithm: Algorithm,
    bounds: Bounds,
    consts: Any,
    rules: Rules,
    keys: Array,
    carry: Carry,
    span: Array,
) -> tuple[Carry, Array, Array]:
    """`span[1]` generations from number `span[0]` on (all `rows` if the length is static), their history and tally.

    cut: the first number may be any, not only one more than a multiple of the algorithm's period.
    """

    # what a static loop makes beyond the wanted generations is masked
    rules = rules._replace(generations=jnp.minimum(rules.generations, span[0] + span[1] - 1))

    def evaluate(candidates: Array) -> Evaluation:
        if not formulas.own_trigonometry:
            return jax.vmap(lambda x: formulas(consts, x))(candidates)
        # all solutions of all runs as one batch, since trigonometry.py decides something for a whole batch
        runs, n = candidates.shape[:2]
        flat = formulas(consts, candidates.reshape(runs * n, -1))
        return jax.tree.map(lambda a: a.reshape(runs, n, *a.shape[1:]), flat)

    def fold_all(number: Any) -> Array:
        return jax.vmap(random.fold, in_axes=(0, None))(keys, number)

    if static_length:  # drawn ahead, since in the loop it would be a kernel of its own; on a CPU it is best left fused
        ahead = jax.vmap(fold_all)(span[0] + jnp.arange(rows, dtype=jnp.int32))

    def repair(number: Any, candidates: Array) -> Array:
        # the rows take turns, as many each time, so that the work is the same in every generation
        turn = (number * repairs + jnp.arange(repairs, dtype=jnp.int32)) % candidates.shape[1]
        moved = jax.vmap(jax.vmap(lambda x: formulas.repair(consts, x, bounds)))(candidates[:, turn])
        return candidates.at[:, turn].set(moved)

    def mender(number: Any) -> Any:
        return partial(repair, number) if repairs else None

    begun = static_length and hasattr(algorithm, "prelude")
    if begun:
        carry = loop.begun_with(algorithm, span[0], carry, evaluate, formulas.shape, mender(span[0]))

    def body(interlude: bool | None, i: Any, both: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, history = both
        own = lax.dynamic_index_in_dim(ahead, i, keepdims=False) if static_length else fold_all(span[0] + i)
        number = span[0] + i
        mend = mender(number)
        carry, row = loop.generation(
            algorithm, rules, own, number, carry, evaluate, with_x, formulas.shape, mend, interlude, begun
        )
        return carry, lax.dynamic_update_index_in_dim(history, row, i, axis=0)

    period = getattr(algorithm, "period", 0)

    def cycle(i: Any, both: tuple[Carry, Array]) -> tuple[Carry, Array]:
        """A period of generations; the interlude after it costs no question to the host, nor does the loop's end."""
        first = i * period
        both = lax.fori_loop(0, period - 1, lambda j, both: body(False, first + j, both), both)
        return body(True, first + period - 1, both)

    width = loop.columns(formulas.shape, rules, carry.proposed.candidates.shape[-1] if with_x else 0)
    history = jnp.zeros((rows, width, keys.shape[0]), carry.proposed.candidates.dtype)
    count = jnp.int32(rows) if static_length else span[1]
    if static_length and period and not cut:
        carry, history = lax.fori_loop(0, rows // period, cycle, (carry, history))
    else:
        carry, history = lax.fori_loop(0, rows if static_length else count, partial(body, None), (carry, history))
    marks = None if carry.frozen is None else carry.frozen.marks
    return carry, history, loop.tally(formulas.shape, rules, history, count, marks)


def cpu_rows(runs: int, population: int) -> int:
    """The longest chunk on a CPU: history for so many generations is kept on the device, and failures are counted in
    32 bits.
    """
    return min(max(64, min(1024, 2**17 // runs)), max(1, 2**31 // population))


def gpu_rows(limit: int, genes: int, seconds: float, period: int = 1, most: int = GPU_CHUNK) -> int:
    """The length of every chunk on a GPU: at most `most`, less for large populations and for slow objectives.

    seconds: what evaluating a few points takes, which is the least that a generation can take.
    period: a chunk has whole periods, so that the program knows where interludes are. Where up to twice as many chunks
    can be of one length with nothing left over, they are, since then no generation has to be masked.
    """
    most = max(1, min(most, 2**33 // genes, 4 ** int(math.log(max(4.0, 2.0 / seconds), 4))))
    fewest = math.ceil(limit / most)
    for chunks in range(fewest, min(2 * fewest, fewest + 100) + 1):
        if limit % (chunks * period) == 0:
            return limit // chunks
    return math.ceil(limit / fewest / period) * period


def latency(traced: Traced, bounds: Bounds) -> float:
    """Seconds to evaluate a few points on the device, measured once for each objective."""
    name = traced.formulas.digest
    if name not in _latencies:
        middle, dtype = (bounds.lower + bounds.span / 2)[None], bounds.lower.dtype
        evaluate_points(traced, middle, dtype)
        taken = []
        for _ in range(3):
            start = time.perf_counter()
            evaluate_points(traced, middle, dtype)
            taken.append(time.perf_counter() - start)
        _latencies[name] = min(taken)
    return _latencies[name]


def runs_at_once(algorithm: Algorithm, bounds: Bounds, shape: Shape, runs: int) -> int:
    """How many of the runs fit into the memory that is free. One that does not fit alone is refused."""
    name = (jax.tree.structure(algorithm), bounds.dim, bounds.lower.dtype, shape)
    if name not in _sizes:
        key = jax.ShapeDtypeStruct((1, 2), jnp.uint32)
        one = jax.eval_shape(lambda key: loop.begin(shape, True, algorithm, key, bounds), key)
        _sizes[name] = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one))
    size, free = _sizes[name], free_memory(jax.devices()[0])
    if size > free:
        raise InputError(
            f"one run with a population of {algorithm.population} needs at least {size / 2**30:.1f} GiB and "
            f"{free / 2**30:.1f} GiB are free on the {jax.devices()[0].device_kind}: take a smaller population."
        )
    # twice the carry for what a generation needs besides it; the history of a chunk on top
    rows = 1024 * loop.columns(shape, loop.Rules(0, 0, 0, reference=0)) * bounds.lower.dtype.itemsize
    return max(1, min(runs, int(0.5 * free / (2 * size + rows))))


def free_memory(device: jax.Device) -> int:
    """Bytes that can still be had on the device."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return host_memory()


def host_memory() -> int:
    """Bytes that can still be had on this machine."""
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * 2**30


_sizes: dict[Any, int] = {}
_latencies: dict[str, float] = {}
