"""Into how many pieces an ensemble is cut.

How XLA rounds a sum or fuses a product depends on the shape of the batch, so the same run in batches of two sizes
differs in its last bits and then, as evolution is chaotic, altogether. Every slice of an ensemble therefore has the
same number of runs, and a run is replayed in a slice of that size.

On a CPU that number depends on the size of a run: as many runs as fit the innermost caches. One run is then the same in
every ensemble, but for ensembles of very many small runs. Those have wider slices, since calling a program of XLA takes
a lock that all threads share: sixteen thousand runs take half the work so. A native kernel shares out the runs of a
slice itself, so these are wide, of a few sizes, for each of which programs are compiled. On a GPU a slice is as large
as memory allows, as the device is only full with many runs.

An objective may need more working memory than there is. That is counted when the program is compiled: on a CPU fewer
threads then compute at once, which changes nothing; a slice that does not even fit alone is halved, with a warning, as
its runs then round otherwise than elsewhere. How wide slices were is in the outcome of each run and in checkpoints, so
that what is replayed or resumed is the same to the bit.
"""

from __future__ import annotations

import math

from galapax.core.algorithm import Algorithm, estimate_cost
from galapax.core.checks import abbreviate
from galapax.core.errors import InputError, format_bytes
from galapax.numerics import devices, processes

# numbers of one array of a slice on a CPU; fewer make XLA's fixed costs felt, more fall out of the innermost cache
CACHED = 2**13
MOST = 64  # runs in a slice on a CPU
NATIVE = (
    48,
    272,
    1040,
    4112,
)  # runs in a slice of native kernels; no powers of two, which caches cannot hold side by side
MANY, WIDER = 128, 4  # an ensemble of so many slices has fewer, so many times as wide: still enough for every core


def width(algorithm: Algorithm, dim: int, runs: int, fit: int, native: bool = False) -> int:
    """How many runs a slice has.

    runs: of the ensemble. fit: so many fit into memory. native: whether kernels of our own make them.
    """
    if native:
        return next((n for n in NATIVE if n >= min(runs, NATIVE[-1]) and n <= fit), min(fit, NATIVE[-1]))
    if devices.on_cpu():
        usual = 2 ** int(math.log2(max(1, min(MOST, CACHED // estimate_cost(algorithm, dim)))))
        return usual * WIDER if usual == MOST and runs >= MANY * MOST else usual
    slices = max(math.ceil(runs / fit), min(runs, len(devices.local_devices()) * processes.process_count()))
    return math.ceil(runs / slices)


def runs_that_fit(size: int, row: int, population: int) -> int:
    """How many runs fit into the memory that is free. One that does not fit alone is refused.

    size: bytes of a run's state. row: of its history in a chunk.
    """
    free = devices.free_memory()
    if size > free:
        raise InputError(
            f"one run with a population of {abbreviate(population)} needs at least {format_bytes(size)} and "
            f"{format_bytes(free)} are free on the {devices.default_device().device_kind}: use a smaller population."
        )
    return max(1, int(0.5 * free / (2 * size + row)))  # twice the state for what a generation needs besides it
