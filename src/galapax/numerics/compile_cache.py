"""In-memory cache of compiled programs with a size limit; the least recently used program is evicted first.

The key of a program is its function, its static arguments, and shape, dtype and device of the other arguments. Values
of arrays are not part of it, so that a cached program does not keep a user's arrays alive (see
objective/hoist_constants.py). GALAPAX_PROGRAMS_MIB is the limit in MiB.
GALAPAX_PRECOMPILE=off: no program is compiled before it is needed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax
import numpy as np

from galapax.core.errors import OutOfMemory
from galapax.numerics import devices, lapack, program_files
from galapax.numerics.devices import CONFIG, compile_settings, on_cpu

LIMIT_MIB = 512.0
BYTES_PER_CHARACTER = 25  # of resident memory per character of a program's text, see `_program_bytes`
MAX_COMPILE_THREADS = 2  # background threads
UNCHECKED_BYTES = 2**24  # free memory is not looked up for programs with less working memory
CompilerOptions = Mapping[str, str | bool]


def may_precompile() -> bool:
    """Whether other threads may compile programs before they are needed, as GALAPAX_PRECOMPILE says."""
    return os.environ.get("GALAPAX_PRECOMPILE", "").lower() not in ("off", "0", "no")


class Program(NamedTuple):
    """A compiled program and its memory."""

    compiled: jax.stages.Compiled
    size: int  # bytes of the program itself, estimated
    working_bytes: int  # while it runs, besides arguments and results

    def __call__(self, *arguments: Any) -> Any:
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
        function: Callable[..., Any],
        static: tuple[Any, ...],
        *arguments: Any,
        donate: tuple[int, ...] = (),
        options: CompilerOptions | None = None,
        quick: bool = True,
        timer: CompileTimer | None = None,
    ) -> Any:
        """Call function(*static, *arguments) compiled, with `static` as constants of the program.

        donate: positions of the arguments whose buffers are donated. options: of the compiler. quick: on a CPU, prefer
        a short compile time to fast code. timer: adds up the seconds that compiling took.
        """
        return self.program(function, static, arguments, donate, options, quick, timer)(*arguments)

    def program(
        self,
        function: Callable[..., Any],
        static: tuple[Any, ...],
        arguments: tuple[Any, ...],
        donate: tuple[int, ...] = (),
        options: CompilerOptions | None = None,
        quick: bool = True,
        timer: CompileTimer | None = None,
    ) -> Program:
        """Return the compiled program of `call`, which takes any arguments of the same shapes, dtypes and devices.

        Raises OutOfMemory if its working memory is not free: on a CPU the system would kill the process. Raises
        BeingCompiled if another thread is compiling it and the timer does not wait.
        """
        key = _program_key(function, static, arguments, donate, options)
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
                self._compile(
                    pending, key, lambda: _compile_program(function, static, arguments, donate, options, quick)
                )
            program = pending.result()
            if timer is not None:
                timer.compile_seconds += time.perf_counter() - start
        assert program is not None
        if program.working_bytes > UNCHECKED_BYTES and program.working_bytes > (free := devices.free_memory()):
            raise OutOfMemory(program.working_bytes, free)
        return program

    def precompile(self, steps: Callable[[], Iterator[object]], when_compiling: bool = False) -> None:
        """Compile programs in a background thread, one with each item of `steps`, until `precompiling` ends.

        A failure is ignored there: whoever needs the program compiles it again and gets the error. The process waits
        for the thread before it ends, because XLA cannot be interrupted.

        when_compiling: start only once this thread compiles a program, too. A call whose programs are all cached has no
        use for the thread, and starting one takes a tenth of the time of such a call.
        """
        if not may_precompile() or devices.count_cores() < 2:
            return
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

    def _compile(self, pending: Future[Program], key: Hashable, build: Callable[[], Program]) -> None:
        """Compile a program, for which other threads may be waiting, and add it to the cache."""
        try:
            program = build()
        except BaseException as error:
            with self._lock:
                del self._pending[key]
            pending.set_exception(error)
            return
        with self._lock:
            del self._pending[key]
            self._programs[key] = program
            self._size += program.size
            self._compiled += 1
            while self._size > self.limit and len(self._programs) > 1:
                self._size -= self._programs.popitem(last=False)[1].size
        pending.set_result(program)


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
        self,
        function: Callable[..., Any],
        static: tuple[Any, ...],
        *arguments: Any,
        donate: tuple[int, ...] = (),
        options: CompilerOptions | None = None,
        quick: bool = True,
    ) -> Any:
        """Call through the cache that all runs share, see `CompileCache.call`."""
        return PROGRAMS.call(function, static, *arguments, donate=donate, options=options, quick=quick, timer=self)

    def program(
        self,
        function: Callable[..., Any],
        static: tuple[Any, ...],
        arguments: tuple[Any, ...],
        donate: tuple[int, ...] = (),
        quick: bool = True,
    ) -> Program:
        """Return a program of the cache that all runs share, see `CompileCache.program`."""
        return PROGRAMS.program(function, static, arguments, donate, None, quick, self)


def call(function: Callable[..., Any], static: tuple[Any, ...], *arguments: Any) -> Any:
    """Call function(*static, *arguments) compiled, without timing the compilation."""
    return PROGRAMS.call(function, static, *arguments)


def statistics() -> Statistics:
    """Return the statistics of the cache that all runs share."""
    return PROGRAMS.statistics()


def clear() -> None:
    """Drop all programs of the cache that all runs share."""
    PROGRAMS.clear()


def count_compiled() -> int:
    """Count the programs that were compiled or loaded from disk since the start."""
    return PROGRAMS.statistics().compiled


def _program_key(
    function: Callable[..., Any],
    static: tuple[Any, ...],
    arguments: tuple[Any, ...],
    donate: tuple[int, ...],
    options: CompilerOptions | None,
) -> Hashable:
    leaves, tree = jax.tree.flatten(arguments)
    kinds = tuple(map(program_files.leaf_kind, leaves))
    return function, static, tree, kinds, donate, tuple(sorted((options or {}).items())), compile_settings()


def _compile_program(
    function: Callable[..., Any],
    static: tuple[Any, ...],
    arguments: tuple[Any, ...],
    donate: tuple[int, ...],
    options: CompilerOptions | None,
    quick: bool,
) -> Program:
    """Load a program from disk, or trace and compile it and save it there."""
    settings = (donate, tuple(sorted((options or {}).items())), quick, bool(CONFIG.jax_enable_x64))
    name = program_files.program_name(function, static, arguments, settings)
    loaded = None if name is None else program_files.load(name, arguments)
    if loaded is not None:
        return Program(loaded[0], *loaded[1])

    hits_before = program_files.jax_cache_hits()
    if on_cpu():
        lapack.preload()

    # a new function each time: JAX caches traces per function object, so a program evicted here is freed there, too
    def program(*arguments: Any) -> Any:
        return function(*static, *arguments)

    program.__name__ = program.__qualname__ = getattr(function, "__name__", "program")
    lowered = jax.jit(program, donate_argnums=donate).lower(*arguments)
    compiled = _compile_quickly(lowered) if quick and options is None and on_cpu() else None
    if compiled is None:
        compiled = lowered.compile(dict(options) if options else None)
    sizes = _program_bytes(compiled), _working_bytes(compiled)
    if name is not None and hits_before == program_files.jax_cache_hits():
        program_files.save(name, compiled, sizes)
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
