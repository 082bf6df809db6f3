"""Select the engine of a task, and say why. The compiler of fused kernels is imported only when one is needed."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import jax

from galapax.core.errors import InputError
from galapax.execution.compiled import Backend, CompiledEngine, XlaBackend
from galapax.execution.search import Search
from galapax.execution.task import Task
from galapax.numerics import devices
from galapax.numerics.compile_cache import CompileTimer

MAX_FUSED_SIZE = 2**22  # population x variables of a run up to which one kernel is faster (docs/fused.md)


class EngineChoice(NamedTuple):
    """The engine of a task and the reason for it, as a Result reports them."""

    name: str  # "xla", "fused", "native", or "host" for functions that are called
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def select_engine(task: Task, clock: CompileTimer) -> EngineChoice:
    """Select the engine for a task; refuse a requested one that cannot compute it. clock: measures compile time."""
    requested = task.engine
    if task.options.blackbox:
        if requested in ("fused", "native"):
            raise InputError(
                f'engine="{requested}" compiles the functions, and these are called as plain Python: leave engine out.'
            )
        return EngineChoice("host", "the functions are called as plain Python")
    if requested == "xla":
        return EngineChoice("xla", "as asked")
    if task.options.noisy:
        if requested != "auto":
            raise InputError(
                f'engine="{requested}" has no keys of JAX, which a random objective takes: leave engine out.'
            )
        return EngineChoice("xla", "the objective is random")
    if task.n_devices:
        reason = (
            f"{task.n_devices} devices share the population" if task.n_devices > 1 else "one device: nothing to spread"
        )
        return EngineChoice("xla", reason)
    if task.options.islands is not None:
        if requested != "auto":
            raise InputError(
                f'engine="{requested}" makes each run by itself, and islands exchange individuals: leave engine out.'
            )
        return EngineChoice("xla", "islands exchange individuals")
    if requested == "auto" and (why := _why_not_fused(task)):
        return EngineChoice("xla", why)
    from galapax.fused.graph import NotFusible

    try:
        _compile_fused_kernel(task, "native" if requested == "native" else "fused", clock)
    except (NotFusible, RuntimeError) as error:
        if requested == "auto":
            return EngineChoice("xla", str(error))
        raise InputError(f'engine="{requested}" cannot make this run: {error}. engine="auto" can.') from None
    return EngineChoice("fused", "one kernel is faster") if requested == "auto" else EngineChoice(requested, "as asked")


def _why_not_fused(task: Task) -> str:
    """Return why a fused kernel would not be faster; "" where it may be. Imports nothing of its compiler."""
    if devices.platform() != "gpu":
        return f"runs on the {devices.platform().upper()}"
    if task.solvers[0].traits.multi_objective:  # benchmarks/gpu.py --only fronts
        return "a front is ranked faster by many kernels"
    size = task.population * task.problem.dim
    if size > MAX_FUSED_SIZE:
        return f"for {size} numbers a generation one kernel is no faster"
    n_devices = len(devices.local_devices())
    return f"{n_devices} devices share the runs" if n_devices > 1 and task.total > 1 else ""


def _compile_fused_kernel(task: Task, engine: str, clock: CompileTimer) -> None:
    """Generate and compile the kernel, which is then cached; raise NotFusible where that is impossible."""
    from galapax.fused import cpu_kernel, cuda
    from galapax.fused.graph import NotFusible

    if engine == "fused":
        cuda.current_device()
    elif not devices.on_cpu():
        kind = devices.default_device().device_kind
        raise NotFusible(f"native kernels need JAX on a CPU (JAX_PLATFORMS=cpu), and JAX runs on {kind}")
    elif cpu_kernel.find_compiler() is None:
        raise NotFusible("no C compiler was found on this machine")
    with jax.enable_x64(task.dtype == "float64"):
        _compile_kernel(task.search(), task.total, engine, clock)


def _compile_kernel(search: Search, runs: int, engine: str, clock: CompileTimer) -> None:
    from galapax.fused.backend import compile_kernel

    compile_kernel(search, runs, engine == "native", clock)


def build_engine(task: Task, search: Search, clock: CompileTimer, width: int, runs: int) -> CompiledEngine:
    """Build the engine of some runs; a larger population may need another backend. search: of `runs` runs."""
    threads = task.options.compute.threads or 1
    backend: Backend = XlaBackend(search, clock, width, task.steps, threads)
    if task.engine in ("fused", "native"):
        from galapax.fused.backend import KernelBackend
        from galapax.fused.graph import NotFusible

        with contextlib.suppress(NotFusible):
            _compile_kernel(search, runs, task.engine, clock)
            backend = KernelBackend(search, clock, width, task.steps, task.engine == "native", threads)
    return CompiledEngine(backend, clock)
