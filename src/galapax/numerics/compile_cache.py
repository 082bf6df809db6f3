"""Compiled programs: those in memory, with a size limit, and those on disk for the next process.

In memory the key of a program is its function, its static arguments, and shape, dtype and device of the other
arguments. Values of arrays are not part of it, so that a cached program does not keep a user's arrays alive (see
objective/hoist_constants.py). GALAPAX_PROGRAMS_MIB is the limit in MiB; the least recently used program is evicted
first. GALAPAX_PRECOMPILE=off: no program is compiled before it is needed.

JAX's own disk cache is consulted only after a program was traced and lowered, which is most of the latency of a short
run. Here the key of a program on disk is computed from its inputs: the versions of galapax and JAX, the machine, the
function and its static arguments, the hyper-parameters, the text of the objective's jaxpr, and shape, dtype and device
of all arrays. A program without such a key (a user's own algorithm, an objective that calls back into Python) is not
saved. numerics/disk_cache.py describes where the files are and which may be loaded. A file that cannot be loaded counts
as absent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import importlib.machinery
import importlib.util
import os
import pickle
import sys
import threading
import time
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import jaxlib
import jaxlib.lapack
import numpy as np
from jax.experimental import serialize_executable

from galapax.core.errors import OutOfMemory
from galapax.numerics import devices, disk_cache
from galapax.numerics.devices import CONFIG, compile_settings, on_cpu

LAPACK_MODULES = ("cython_blas", "cython_lapack")


@lru_cache(maxsize=1)
def preload_lapack() -> None:
    """Import the two modules of SciPy that JAX needs for LAPACK, without the rest of scipy.linalg, which takes longer.

    Where that does not work JAX imports them in its own way.
    """
    if "scipy.linalg" in sys.modules:
        return
    scipy = importlib.util.find_spec("scipy")
    if scipy is None or scipy.origin is None:
        return
    folder = Path(scipy.origin).parent / "linalg"
    for name in LAPACK_MODULES:
        files = [folder / f"{name}{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
        file = next((f for f in files if f.is_file()), None)
        if file is None or f"scipy.linalg.{name}" in sys.modules:
            return
        full = f"scipy.linalg.{name}"
        loader = importlib.machinery.ExtensionFileLoader(full, str(file))
        spec = importlib.util.spec_from_loader(full, loader)
        assert spec is not None
        try:
            sys.modules[full] = module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except Exception:  # a SciPy with another layout
            sys.modules.pop(full, None)
            return


# whose `repr` is the same in every process
REPR_TYPES = (bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic, enum.Enum)


class _JaxCache(threading.local):
    hits = 0  # programs that JAX loaded from its own cache in this thread


_jax_cache = _JaxCache()


def _count_cache_hits(event: str, **_: object) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _jax_cache.hits += 1


jax.monitoring.register_event_listener(_count_cache_hits)


def jax_cache_hits() -> int:
    """Count the programs that JAX loaded from its own cache in this thread.

    Such a program cannot be serialised again: on a CPU it would not find its own functions.
    """
    return _jax_cache.hits


class NotCacheable(Exception):
    """Raised for a value that has no description which is the same in every process."""


@runtime_checkable
class HasSource(Protocol):
    """An objective that its text identifies."""

    @property
    def text(self) -> str: ...


def program_name(
    function: Callable[..., object],
    static: tuple[object, ...],
    arguments: tuple[object, ...],
    settings: tuple[object, ...],
) -> str | None:
    """Compute the name of a program's file; None for a program that cannot be saved.

    settings: everything else that the program depends on. With several devices, in one process or in many, no program
    is saved: JAX would load it for all of them.
    """
    if jax.device_count() > 1:
        return None
    try:
        descriptions = [_describe_environment(), _describe(function), _describe(static), _describe(settings)]
        leaves, tree = jax.tree.flatten(arguments)
        descriptions += [_describe_structure(tree), *map(_describe_leaf, leaves)]
    except NotCacheable:
        return None
    return hashlib.sha256("\n".join(descriptions).encode()).hexdigest()


def load(name: str, arguments: object) -> tuple[jax.stages.Compiled, tuple[int, int]] | None:
    """Load the program of that name, for arguments like these, and the sizes saved with it; None if absent."""
    content = disk_cache.load(name, "program")
    if content is None:
        return None
    try:
        payload, out_tree, sizes, calls_lapack = pickle.loads(content)
        if calls_lapack:
            _prepare_lapack()
        in_tree = jax.tree.structure((arguments, {}))
        compiled = serialize_executable.deserialize_and_load(payload, in_tree, out_tree)
    except Exception:  # whatever is wrong with the file, the program is compiled again
        return None
    return compiled, sizes


def save(name: str, compiled: jax.stages.Compiled, sizes: tuple[int, int]) -> None:
    """Save a program for other processes if it can be serialised. sizes: of the program and of its working memory."""
    if disk_cache.folder() is None:
        return
    try:
        payload, _, out_tree = serialize_executable.serialize(compiled)
        content = pickle.dumps((payload, out_tree, sizes, "lapack_" in (compiled.as_text() or "")))
    except Exception:  # it cannot be serialised
        return
    disk_cache.save(name, "program", content)


@lru_cache(maxsize=1)
def _prepare_lapack() -> None:
    """Register the addresses of the LAPACK routines, which JAX does when it first lowers a LAPACK call.

    A program loaded from disk was lowered elsewhere, and its calls would have no target.
    """
    preload_lapack()
    try:
        jaxlib.lapack.prepare_lapack_call("potrf_ffi", np.float32)
    except Exception:  # another version of jaxlib: lowering does the same, in ten times the time
        jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), jnp.float32))


def _describe_environment() -> str:
    """Describe what every program depends on: versions, flags, configuration and device."""
    flags = {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")}
    config = {
        k: v for k, v in jax.config.values.items() if not any(word in k for word in ("cache", "log", "traceback"))
    }
    device = (devices.platform(), devices.default_device().device_kind, len(jax.local_devices()), jax.process_count())
    return repr((disk_cache.environment(), sorted(flags.items()), sorted(config.items(), key=str), device))


NUMPY_TYPES = (np.ndarray, np.generic)


def leaf_kind(leaf: object) -> tuple[Hashable, ...]:
    """Return what a program depends on in an argument: shape, dtype and device.

    Not the whole abstract value and not the layout: results of a program from disk differ in these from results of the
    same program compiled here, although the next program accepts both.
    """
    if isinstance(leaf, NUMPY_TYPES):  # checked first, since it is the quicker of the two
        return leaf.shape, leaf.dtype
    if isinstance(leaf, jax.Array):
        held_by = leaf.sharding.device_set
        device = leaf.sharding if len(held_by) > 1 else next(iter(held_by))
        return leaf.shape, leaf.dtype, leaf.aval.weak_type, device
    return (leaf.__class__.__name__,)


def _describe_leaf(leaf: object) -> str:
    if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1:
        raise NotCacheable  # loading programs for several devices is untested
    return repr(leaf_kind(leaf))


def _describe_structure(tree: jax.tree_util.PyTreeDef) -> str:
    """Describe the structure of the arguments, and the static fields in it."""
    node = tree.node_data()
    if node is None:
        return "*" if tree.num_leaves else "None"
    kind, static_fields = node
    children = ",".join(map(_describe_structure, tree.children()))
    return f"{_type_name(kind)}<{_describe(static_fields)}>({children})"


def _describe(value: object) -> str:
    if isinstance(value, HasSource):
        if not isinstance(value.text, str) or " at 0x" in value.text or "callback" in value.text:
            raise NotCacheable
        return f"{_type_name(type(value))}: {value.text}"
    if isinstance(value, REPR_TYPES):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, type):
        return _type_name(value)
    if isinstance(value, types.FunctionType):
        return _qualified_name(value)
    return f"{_type_name(type(value))}({','.join(_describe_fields(value))})"


def _describe_fields(value: object) -> Iterator[str]:
    if isinstance(value, tuple | list):
        yield from map(_describe, value)
    elif isinstance(value, dict):
        yield from (f"{_describe(key)}={_describe(item)}" for key, item in value.items())
    elif dataclasses.is_dataclass(value):
        yield from (f"{field.name}={_describe(getattr(value, field.name))}" for field in dataclasses.fields(value))
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    else:
        raise NotCacheable


def _type_name(kind: type) -> str:
    if kind.__module__ in ("builtins", "numpy", "collections"):
        return f"{kind.__module__}.{kind.__qualname__}"
    return _qualified_name(kind)


def _qualified_name(thing: Any) -> str:
    """Return module and name of a class or function of galapax; code outside may change unnoticed and is refused."""
    if not thing.__module__.startswith("galapax.") or "<" in thing.__qualname__:
        raise NotCacheable
    return f"{thing.__module__}.{thing.__qualname__}"


LIMIT_MIB = 512.0
BYTES_PER_CHARACTER = 25  # of resident memory per character of a program's text, see `_program_bytes`
MAX_COMPILE_THREADS = 2  # background threads
UNCHECKED_BYTES = 2**24  # free memory is not looked up for programs with less working memory
CompilerOptions = Mapping[str, str | bool]


def may_precompile() -> bool:
    """Return whether other threads may compile programs before they are needed, as GALAPAX_PRECOMPILE says."""
    return os.environ.get("GALAPAX_PRECOMPILE", "").lower() not in ("off", "0", "no")


Output = TypeVar("Output")


class ProgramCall(NamedTuple):
    """A call of function(*static, *arguments), compiled with `static` as constants of the program.

    A program is identified by all of it but the values of `arguments`, of which shapes, dtypes and devices count.

    donate: positions of the arguments whose buffers are donated. quick: on a CPU, prefer a short compile time to fast
    code. options: of the compiler.
    """

    function: Callable[..., Any]
    static: tuple[object, ...]
    arguments: tuple[Any, ...]
    donate: tuple[int, ...] = ()
    quick: bool = True
    options: CompilerOptions | None = None

    @property
    def key(self) -> Hashable:
        """The key of its program in memory."""
        leaves, tree = jax.tree.flatten(self.arguments)
        kinds = tuple(map(leaf_kind, leaves))
        return self.function, self.static, tree, kinds, self.donate, self._options, compile_settings()

    @property
    def file_name(self) -> str | None:
        """The name of its program's file; None for a program that cannot be saved."""
        settings = (self.donate, self._options, self.quick, bool(CONFIG.jax_enable_x64))
        return program_name(self.function, self.static, self.arguments, settings)

    @property
    def _options(self) -> tuple[tuple[str, str | bool], ...]:
        return tuple(sorted((self.options or {}).items()))


class Program(NamedTuple):
    """A compiled program and its memory."""

    compiled: jax.stages.Compiled
    size: int  # bytes of the program itself, estimated
    working_bytes: int  # while it runs, besides arguments and results

    def __call__(self, *arguments: object) -> Any:
        return self.compiled(*arguments)

    def zeros_like_output(self) -> Any:
        """Return zeros with the shapes and dtypes of its results."""
        return jax.device_put(jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), self.compiled.out_info))


class BeingCompiled(Exception):
    """Raised to a caller that does not wait: another thread is compiling the program."""


class Statistics(NamedTuple):
    """What the cache holds, and how many programs were compiled or loaded from disk since the start."""

    programs: int
    size: int  # bytes
    compiled: int


class CompileCache:
    """A cache of compiled programs. limit: in bytes; None for that of GALAPAX_PROGRAMS_MIB."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._programs: OrderedDict[Hashable, Program] = OrderedDict()  # the least recently used first
        self._pending: dict[Hashable, Future[Program]] = {}  # being compiled
        self._size = self._compiled = 0
        self._jobs: deque[Callable[[], None]] = deque()  # for background threads
        self._deferred_jobs: list[Callable[[], None]] = []  # queued once this thread compiles a program, too
        self._threads: set[threading.Thread] = set()

    @property
    def limit(self) -> int:
        """The size limit in bytes; the program used last is kept whatever its size."""
        if self._limit is not None:
            return self._limit
        return int(float(os.environ.get("GALAPAX_PROGRAMS_MIB", LIMIT_MIB)) * 2**20)

    def statistics(self) -> Statistics:
        with self._lock:
            return Statistics(len(self._programs), self._size, self._compiled)

    def clear(self) -> None:
        """Drop all programs."""
        with self._lock:
            self._programs.clear()
            self._size = 0

    def call(
        self,
        function: Callable[..., Output],
        static: tuple[object, ...],
        *arguments: object,
        timer: CompileTimer | None = None,
        **settings: Any,
    ) -> Output:
        """Call function(*static, *arguments) compiled. settings: further fields of the ProgramCall."""
        result: Output = self.program(ProgramCall(function, static, arguments, **settings), timer)(*arguments)
        return result

    def program(self, call: ProgramCall, timer: CompileTimer | None = None) -> Program:
        """Return the program of a call, which takes any arguments of the same shapes, dtypes and devices.

        timer: adds up the seconds that compiling took. Raises OutOfMemory if the program's working memory is not free:
        on a CPU the system would kill the process. Raises BeingCompiled if another thread is compiling it and the timer
        does not wait.
        """
        key = call.key
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
            is_first = key not in self._pending
            if program is None and not is_first and timer is not None and not timer.waits:
                raise BeingCompiled
            pending = self._pending.setdefault(key, Future()) if program is None else None
            if pending is not None and self._deferred_jobs:
                self._jobs.extend(self._deferred_jobs)
                self._deferred_jobs.clear()
                self._start_thread()
        if pending is not None:
            start = time.perf_counter()
            if is_first:
                self._compile(pending, key, call)
            program = pending.result()
            if timer is not None:
                timer.compile_seconds += time.perf_counter() - start
        assert program is not None
        return _require_memory(program)

    def find(self, call: ProgramCall, on_disk: bool = True) -> Program | None:
        """Return the program of a call if it is in memory, or on disk; None if it must be compiled first.

        Raises OutOfMemory as `program` does.
        """
        key = call.key
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
            is_missing = key in self._pending or not on_disk
        if program is None and not is_missing:
            program = _load_program(call.file_name, call.arguments)
            if program is not None:
                with self._lock:
                    self._insert(key, program)
        return None if program is None else _require_memory(program)

    def precompile(self, steps: Callable[[], Iterator[object]], when_compiling: bool = False) -> bool:
        """Compile programs in a background thread, one with each item of `steps`, until `precompiling` ends.

        A failure is ignored there: whoever needs the program compiles it again and gets the error. The process waits
        for the thread before it ends, because XLA cannot be interrupted.

        when_compiling: start only once this thread compiles a program, too. A call whose programs are all cached has no
        use for the thread, and starting one takes a tenth of the time of such a call.

        Returns False where no thread may compile: by GALAPAX_PRECOMPILE, or since this is the only core.
        """
        if not may_precompile() or devices.count_cores() < 2:
            return False
        settings = devices.capture_jax_config()

        def run_job() -> None:
            with settings(), contextlib.suppress(Exception):
                queue = self._jobs
                for _ in steps():
                    if queue is not self._jobs:
                        break

        with self._lock:
            (self._deferred_jobs if when_compiling else self._jobs).append(run_job)
            if not when_compiling:
                self._start_thread()
        return True

    def _start_thread(self) -> None:
        """Start a background thread if there are jobs for it. The lock is held."""
        if self._jobs and len(self._threads) < min(MAX_COMPILE_THREADS, devices.count_cores() - 1):
            thread = threading.Thread(target=self._run_jobs, name="galapax precompile", daemon=False)
            self._threads.add(thread)
            thread.start()

    @contextlib.contextmanager
    def precompiling(self) -> Iterator[None]:
        """Discard precompile jobs that have not started when the context ends: nobody will use their programs."""
        try:
            yield
        finally:
            with self._lock:
                self._jobs, self._deferred_jobs = deque(), []

    def _run_jobs(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._threads.discard(threading.current_thread())
                    return
                job = self._jobs.popleft()
            job()

    def _compile(self, pending: Future[Program], key: Hashable, call: ProgramCall) -> None:
        """Compile a program, for which other threads may be waiting, and add it to the cache."""
        try:
            program = _compile_program(call)
        except BaseException as error:
            with self._lock:
                del self._pending[key]
            pending.set_exception(error)
            return
        with self._lock:
            del self._pending[key]
            self._insert(key, program)
        pending.set_result(program)

    def _insert(self, key: Hashable, program: Program) -> None:
        """Add a program and evict the least recently used ones above the limit. The lock is held."""
        replaced = self._programs.pop(key, None)
        self._programs[key] = program
        self._size += program.size - (0 if replaced is None else replaced.size)
        self._compiled += 1
        while self._size > self.limit and len(self._programs) > 1:
            self._size -= self._programs.popitem(last=False)[1].size


class CompileTimer:
    """Calls compiled functions and measures how long the caller waited for compilation.

    waits: also for programs that another thread is compiling; else BeingCompiled is raised.
    """

    def __init__(self, waits: bool = True) -> None:
        self.compile_seconds, self.waits = 0.0, waits

    def begin(self) -> float:
        """Start timing a compilation that is not XLA's; pass the return value to `end`."""
        return time.perf_counter()

    def end(self, start: float) -> None:
        self.compile_seconds += time.perf_counter() - start

    def call(
        self, function: Callable[..., Output], static: tuple[object, ...], *arguments: object, **settings: Any
    ) -> Output:
        """Call through the cache that all runs share, see `CompileCache.call`."""
        return PROGRAMS.call(function, static, *arguments, timer=self, **settings)

    def program(self, call: ProgramCall) -> Program:
        """Return a program of the cache that all runs share, see `CompileCache.program`."""
        return PROGRAMS.program(call, self)


class Stepped(NamedTuple):
    """How long a program was computed step by step, in which call first, and which call has it compiled."""

    seconds: float
    first: weakref.ref[CompileTimer]  # every call has its own
    compiling: weakref.ref[CompileTimer] | None


MAX_STEPPED_SECONDS = 0.3  # of one program; compiling it takes about so long
MAX_STEPPED_PROGRAMS = 256


class StepSchedule:
    """Decides which programs are computed step by step, by smaller ones that most objectives share.

    A program is compiled once it pays, beside the steps: in the second call that needs it, or once stepping has taken
    as long as compiling takes; then a single core compiles it, too. Until then little is compiled for a new objective.
    """

    def __init__(self) -> None:
        self._stepped: OrderedDict[Hashable, Stepped] = OrderedDict()
        self._lock = threading.Lock()

    def program(self, call: ProgramCall, clock: CompileTimer, idle_call: Callable[[], ProgramCall]) -> Program | None:
        """Return the program of a call if it is in memory, on disk, or worth compiling now; None to step.

        idle_call: makes the call with arguments that nobody else uses, for a background thread.
        """
        program = PROGRAMS.find(call, on_disk=False)
        if program is not None:
            return program
        stepped = self._stepped.get(key := call.key)
        if stepped is None:
            return PROGRAMS.find(call)
        is_compiling = stepped.compiling is not None and stepped.compiling() is clock
        pays_alone = stepped.seconds >= MAX_STEPPED_SECONDS
        if is_compiling or (not pays_alone and stepped.first() is clock):
            return None
        idle = idle_call()

        def compile_program() -> Iterator[object]:
            yield CompileTimer(waits=False).program(idle)

        if PROGRAMS.precompile(compile_program):
            self._stepped[key] = stepped._replace(compiling=weakref.ref(clock))
            return None
        return clock.program(call) if pays_alone else None

    @contextlib.contextmanager
    def timing(self, call: ProgramCall, clock: CompileTimer) -> Iterator[None]:
        """Add the time of this thread in the context to that which the steps of a program have taken."""
        key, start = call.key, time.thread_time()
        yield
        with self._lock:  # several threads may step slices of one program
            before = self._stepped.pop(key, Stepped(0.0, weakref.ref(clock), None))
            self._stepped[key] = before._replace(seconds=before.seconds + time.thread_time() - start)
            if len(self._stepped) > MAX_STEPPED_PROGRAMS:
                self._stepped.popitem(last=False)


STEPS = StepSchedule()


def call(function: Callable[..., Output], static: tuple[object, ...], *arguments: object) -> Output:
    """Call function(*static, *arguments) compiled, without timing the compilation."""
    return PROGRAMS.call(function, static, *arguments)


def statistics() -> Statistics:
    """Return the statistics of the cache that all runs share."""
    return PROGRAMS.statistics()


def clear() -> None:
    """Drop all programs of the cache that all runs share, and forget which were stepped."""
    PROGRAMS.clear()
    STEPS._stepped.clear()


def count_compiled() -> int:
    """Count the programs that were compiled or loaded from disk since the start."""
    return PROGRAMS.statistics().compiled


def _require_memory(program: Program) -> Program:
    """Return a program, or raise OutOfMemory if its working memory is not free."""
    if program.working_bytes > UNCHECKED_BYTES and program.working_bytes > (free := devices.free_memory()):
        raise OutOfMemory(program.working_bytes, free)
    return program


def _load_program(name: str | None, arguments: tuple[object, ...]) -> Program | None:
    """Load a program from disk, if it is there."""
    loaded = None if name is None else load(name, arguments)
    return None if loaded is None else Program(loaded[0], *loaded[1])


def _compile_program(call: ProgramCall) -> Program:
    """Load a program from disk, or trace and compile it and save it there."""
    name = call.file_name
    loaded = _load_program(name, call.arguments)
    if loaded is not None:
        return loaded

    hits_before = jax_cache_hits()
    if on_cpu():
        preload_lapack()

    # a new function each time: JAX caches traces per function object, so a program evicted here is freed there, too
    def program(*arguments: object) -> Any:
        return call.function(*call.static, *arguments)

    program.__name__ = program.__qualname__ = getattr(call.function, "__name__", "program")
    lowered = jax.jit(program, donate_argnums=call.donate).lower(*call.arguments)
    compiled = _compile_quickly(lowered) if call.quick and call.options is None and on_cpu() else None
    if compiled is None:
        compiled = lowered.compile(dict(call.options) if call.options else None)
    sizes = _program_bytes(compiled), _working_bytes(compiled)
    if name is not None and hits_before == jax_cache_hits():
        save(name, compiled, sizes)
    return Program(compiled, *sizes)


# XLA's fusion emitters for CPUs take twice as long to compile and pay only in loops of small operations
QUICK_COMPILE_OPTIONS: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False}
_unknown_options: set[str] = set()  # options that the installed XLA does not have


def _compile_quickly(lowered: jax.stages.Lowered) -> jax.stages.Compiled | None:
    """Compile with options that shorten compile time; None if the installed XLA does not know them."""
    if _unknown_options:
        return None
    try:
        return lowered.compile(dict(QUICK_COMPILE_OPTIONS))
    except Exception as error:
        if "xla_cpu_use_fusion_emitters" not in str(error):
            raise
        _unknown_options.update(QUICK_COMPILE_OPTIONS)
        return None


def _program_bytes(compiled: jax.stages.Compiled) -> int:
    """Estimate the bytes of memory that a program takes.

    XLA does not report it on a CPU. Measured there, resident memory grew by 23 to 28 bytes per character of the
    program's text, for every algorithm: 1.4 MiB for a small one, 10 MiB for NSGA-II.
    """
    executable = compiled.runtime_executable()
    code = 0 if executable is None else executable.size_of_generated_code_in_bytes()
    return BYTES_PER_CHARACTER * len(compiled.as_text() or "") + max(0, code)


def _working_bytes(compiled: jax.stages.Compiled) -> int:
    """Return the bytes of working memory that the compiler planned; 0 if it does not report them."""
    analysis = compiled.memory_analysis()
    return 0 if analysis is None else int(getattr(analysis, "temp_size_in_bytes", 0))


PROGRAMS = CompileCache()
