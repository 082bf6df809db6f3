"""Which engine makes the runs of a task, and why. The compiler of fused kernels is imported where one is asked for."""

from __future__ import annotations

from typing import NamedTuple

import jax

from galapax.core.errors import InputError
from galapax.engines.drive import Engine
from galapax.engines.programs import Clock
from galapax.engines.search import Search
from galapax.engines.xla import Xla
from galapax.numerics import devices
from galapax.running.task import Task

PAYS = 2**22  # numbers, individuals by variables, of a run up to which one kernel is faster (docs/fused.md)


class Choice(NamedTuple):
    name: str  # "xla", "fused", "native", or "host" for functions that are called
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def choice(task: Task, clock: Clock) -> Choice:
    """The engine for a task; one that was asked for and cannot be had is refused. clock: is told of compiling."""
    asked = task.engine
    if task.options.blackbox:
        if asked in ("fused", "native"):
            raise InputError(
                f'engine="{asked}" compiles the functions, and these are called as plain Python: leave engine out.'
            )
        return Choice("host", "the functions are called as plain Python")
    if asked == "xla":
        return Choice("xla", "as asked")
    if task.n_devices:
        several = (
            f"{task.n_devices} devices share the population" if task.n_devices > 1 else "one device: nothing to spread"
        )
        return Choice("xla", several)
    if task.options.islands is not None:
        if asked != "auto":
            raise InputError(
                f'engine="{asked}" makes each run by itself, and islands exchange individuals: leave engine out.'
            )
        return Choice("xla", "islands exchange individuals")
    if asked == "auto" and (why := _does_not_pay(task)):
        return Choice("xla", why)
    from galapax.engines.fused.graph import NotFusible

    try:
        _fusible(task, "native" if asked == "native" else "fused", clock)
    except (NotFusible, RuntimeError) as error:
        if asked == "auto":
            return Choice("xla", str(error))
        raise InputError(f'engine="{asked}" cannot make this run: {error}. engine="auto" can.') from None
    return Choice("fused", "one kernel is faster") if asked == "auto" else Choice(asked, "as asked")


def _does_not_pay(task: Task) -> str:
    """Why not even to try one kernel; "" where it may be faster. Nothing of its compiler is imported for that."""
    if devices.platform() != "gpu":
        return f"runs on the {devices.platform().upper()}"
    if task.solvers[0].traits.multi_objective:  # benchmarks/gpu.py --only fronts
        return "a front is ranked faster by many kernels"
    work = task.population * task.problem.dim
    if work > PAYS:
        return f"for {work} numbers a generation one kernel is no faster"
    count = len(devices.local_devices())
    return f"{count} devices share the runs" if count > 1 and task.total > 1 else ""


def _fusible(task: Task, engine: str, clock: Clock) -> None:
    """Write and compile the kernel, which is then remembered, or say why it cannot be."""
    from galapax.engines.fused import cpu_kernel, cuda
    from galapax.engines.fused.graph import NotFusible

    if engine == "fused":
        cuda.current_device()
    elif not devices.on_cpu():
        kind = devices.default_device().device_kind
        raise NotFusible(f"native kernels need JAX on a CPU (JAX_PLATFORMS=cpu), and JAX runs on {kind}")
    elif cpu_kernel.find_compiler() is None:
        raise NotFusible("no C compiler was found on this machine")
    with jax.enable_x64(task.dtype == "float64"):
        _kernel(task.search(), task.total, engine, clock)


def _kernel(search: Search, runs: int, engine: str, clock: Clock) -> None:
    from galapax.engines.fused.engine import compile_kernel

    compile_kernel(search, runs, engine == "native", clock)


def engine_of(task: Task, search: Search, clock: Clock, width: int, runs: int) -> Engine:
    """The engine for some runs of a task; search: of `runs` runs. A larger population may need another one."""
    if task.engine in ("fused", "native"):
        from galapax.engines.fused.engine import FusedEngine
        from galapax.engines.fused.graph import NotFusible

        try:
            _kernel(search, runs, task.engine, clock)
            return FusedEngine(
                search, clock, width, task.steps, task.engine == "native", task.options.compute.threads or 1
            )
        except NotFusible:
            pass
    return Xla(search, clock, width, task.steps, task.options.compute.threads or 1)
