"""Compiled programs, kept while they are used: at most so many bytes of them, the one least recently used goes first.

A program is known by its function, by what is fixed in it, and by the shapes of its arguments; the values of the
arguments are no part of it, so that no array of a user lives as long as a program does (see
objective/hoist_constants.py).
GALAPAX_PROGRAMS_MIB is the limit in MiB. GALAPAX_PRECOMPILE=off: no program is compiled before it is needed.
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
BYTES_PER_CHARACTER = 25
MAX_HELPERS = 2  # threads that compile programs before they are needed
UNCHECKED_BYTES = 2**24  # bytes of working memory that nobody asks about
Options = Mapping[str, str | bool]


def may_precompile() -> bool:
    """Whether other threads may compile programs before they are needed, as GALAPAX_PRECOMPILE says."""
    return os.environ.get("GALAPAX_PRECOMPILE", "").lower() not in ("off", "0", "no")


class Program(NamedTuple):
    compiled: jax.stages.Compiled
    size: int  # bytes of memory, about
    needs: int  # bytes of working memory while it runs, besides arguments and results

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    def zeros_like_output(self) -> Any:
        """Zeros in place of what it computes."""
        return jax.device_put(jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), self.compiled.out_info))


class BeingCompiled(Exception):
    """Another thread is making that program."""


class Statistics(NamedTuple):
    """kept: programs that are there now. size: their bytes. compiled: since the start, or loaded from disk."""

    kept: int
    size: int
    compiled: int


class CompileCache:
    """A cache of compiled programs. limit: bytes; None for what GALAPAX_PROGRAMS_MIB says."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Program] = OrderedDict()
        self._coming: dict[Hashable, Future[Program]] = {}
        self._size = self._compiled = 0
        self._later: deque[Callable[[], None]] = deque()
        self._with_another: list[Callable[[], None]] = []  # of them, those that begin once another program is made
        self._helpers: set[threading.Thread] = set()

    @property
    def limit(self) -> int:
        """Bytes that the programs may take; the last one used is kept whatever its size."""
        if self._limit is not None:
            return self._limit
        return int(float(os.environ.get("GALAPAX_PROGRAMS_MIB", LIMIT_MIB)) * 2**20)

    def statistics(self) -> Statistics:
        with self._lock:
            return Statistics(len(self._kept), self._size, self._compiled)

    def clear(self) -> None:
        """Forget all programs."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    def call(
        self,
        function: Callable[..., Any],
        fixed: tuple[Any, ...],
        *arguments: Any,
        donate: tuple[int, ...] = (),
        options: Options | None = None,
        quick: bool = True,
        clock: CompileTimer | None = None,
    ) -> Any:
        """function(*fixed, *arguments), compiled, with `fixed` part of the program.

        donate: numbers of the arguments whose memory is given away. options: of the compiler. quick: whether compiling
        should rather be quick than good, on a CPU. clock: is told how long compiling took.
        """
        return self.program(function, fixed, arguments, donate, options, quick, clock)(*arguments)

    def program(
        self,
        function: Callable[..., Any],
        fixed: tuple[Any, ...],
        arguments: tuple[Any, ...],
        donate: tuple[int, ...] = (),
        options: Options | None = None,
        quick: bool = True,
        clock: CompileTimer | None = None,
    ) -> Program:
        """What `call` calls, for any arguments of the same kinds. OutOfMemory, if it needs more than there is: on a
        CPU the system would end the process. BeingCompiled, if another thread is making it and the clock does not wait.
        """
        key = _key(function, fixed, arguments, donate, options)
        with self._lock:
            program = self._kept.get(key)
            if program is not None:
                self._kept.move_to_end(key)
            first = key not in self._coming
            if program is None and not first and clock is not None and not clock.waits:
                raise BeingCompiled
            coming = self._coming.setdefault(key, Future()) if program is None else None
            if coming is not None and self._with_another:
                self._later.extend(self._with_another)
                self._with_another.clear()
                self._start_helper()
        if coming is not None:
            start = time.perf_counter()
            if first:
                self._compile(coming, key, lambda: _compiled(function, fixed, arguments, donate, options, quick))
            program = coming.result()
            if clock is not None:
                clock.compile_seconds += time.perf_counter() - start
        assert program is not None
        if program.needs > UNCHECKED_BYTES and program.needs > (free := devices.free_memory()):
            raise OutOfMemory(program.needs, free)
        return program

    def precompile(self, steps: Callable[[], Iterator[object]], with_another: bool = False) -> None:
        """Have another thread make programs, while this one does something else: one at each of these steps, until
        `precompiling` is over. What fails there is tried again, and told, by whoever needs it. A process waits for the
        thread before it ends, as XLA cannot be left in the midst.

        with_another: only once this thread makes a program, too. A call all of whose programs are there has no use for
        a helper, and starting one takes as long as a tenth of such a call.
        """
        if not may_precompile() or devices.count_cores() < 2:
            return
        settings = devices.capture_jax_config()

        def work() -> None:
            with settings(), contextlib.suppress(Exception):
                queue = self._later
                for _ in steps():
                    if queue is not self._later:
                        break

        with self._lock:
            (self._with_another if with_another else self._later).append(work)
            if not with_another:
                self._start_helper()

    def _start_helper(self) -> None:
        """Have a helper at what is to be made ahead. The lock is held."""
        if self._later and len(self._helpers) < min(MAX_HELPERS, devices.count_cores() - 1):
            helper = threading.Thread(target=self._run_queue, name="galapax ahead", daemon=False)
            self._helpers.add(helper)
            helper.start()

    @contextlib.contextmanager
    def precompiling(self) -> Iterator[None]:
        """Programs that are made ahead are of use within; afterwards those that were not begun are not made."""
        try:
            yield
        finally:
            with self._lock:
                self._later, self._with_another = deque(), []

    def _run_queue(self) -> None:
        while True:
            with self._lock:
                if not self._later:
                    self._helpers.discard(threading.current_thread())
                    return
                work = self._later.popleft()
            work()

    def _compile(self, coming: Future[Program], key: Hashable, make: Callable[[], Program]) -> None:
        """Compile a program for which other threads may be waiting."""
        try:
            program = make()
        except BaseException as error:
            with self._lock:
                del self._coming[key]
            coming.set_exception(error)
            return
        with self._lock:
            del self._coming[key]
            self._kept[key] = program
            self._size += program.size
            self._compiled += 1
            while self._size > self.limit and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].size
        coming.set_result(program)


class CompileTimer:
    """Calls functions compiled, and knows how long its caller waited for compilers. waits: also for other threads."""

    def __init__(self, waits: bool = True) -> None:
        self.compile_seconds, self.waits = 0.0, waits

    def begin(self) -> float:
        """Something that is not a program of XLA is compiled from now on."""
        return time.perf_counter()

    def end(self, start: float) -> None:
        self.compile_seconds += time.perf_counter() - start

    def call(
        self,
        function: Callable[..., Any],
        fixed: tuple[Any, ...],
        *arguments: Any,
        donate: tuple[int, ...] = (),
        options: Options | None = None,
        quick: bool = True,
    ) -> Any:
        """As `CompileCache.call`, of the programs that all runs share."""
        return PROGRAMS.call(function, fixed, *arguments, donate=donate, options=options, quick=quick, clock=self)

    def program(
        self,
        function: Callable[..., Any],
        fixed: tuple[Any, ...],
        arguments: tuple[Any, ...],
        donate: tuple[int, ...] = (),
        quick: bool = True,
    ) -> Program:
        """As `CompileCache.program`, of the programs that all runs share."""
        return PROGRAMS.program(function, fixed, arguments, donate, None, quick, self)


def call(function: Callable[..., Any], fixed: tuple[Any, ...], *arguments: Any) -> Any:
    """function(*fixed, *arguments), compiled, for callers who do not mind how long compiling takes."""
    return PROGRAMS.call(function, fixed, *arguments)


def statistics() -> Statistics:
    """Of the programs that all runs share."""
    return PROGRAMS.statistics()


def clear() -> None:
    """Forget the programs that all runs share."""
    PROGRAMS.clear()


def compiled_count() -> int:
    """How many programs have been compiled for all runs since the start."""
    return PROGRAMS.statistics().compiled


def _key(function: Any, fixed: Any, arguments: Any, donate: tuple[int, ...], options: Options | None) -> Hashable:
    leaves, tree = jax.tree.flatten(arguments)
    kinds = tuple(map(program_files.leaf_kind, leaves))
    return function, fixed, tree, kinds, donate, tuple(sorted((options or {}).items())), compile_settings()


def _compiled(
    function: Any, fixed: tuple[Any, ...], arguments: Any, donate: tuple[int, ...], options: Options | None, quick: bool
) -> Program:
    settings = (donate, tuple(sorted((options or {}).items())), quick, bool(CONFIG.jax_enable_x64))
    name = program_files.program_name(function, fixed, arguments, settings)
    loaded = None if name is None else program_files.load(name, arguments)
    if loaded is not None:
        return Program(loaded[0], *loaded[1])

    hits_before = program_files.jax_cache_hits()
    if on_cpu():
        lapack.preload()

    # a new function each time, as JAX keeps what it knows of a function as long as the function lives: this way a
    # program that is forgotten here is forgotten there too
    def program(*arguments: Any) -> Any:
        return function(*fixed, *arguments)

    program.__name__ = program.__qualname__ = getattr(function, "__name__", "program")
    lowered = jax.jit(program, donate_argnums=donate).lower(*arguments)
    compiled = _compile_quickly(lowered) if quick and options is None and on_cpu() else None
    if compiled is None:
        compiled = lowered.compile(dict(options) if options else None)
    sizes = _program_bytes(compiled), _working_bytes(compiled)
    if name is not None and hits_before == program_files.jax_cache_hits():
        program_files.save(name, compiled, sizes)
    return Program(compiled, *sizes)


# XLA's newer way to make kernels on a CPU takes twice as long to compile; it pays in loops of small operations alone
QUICK_COMPILE_OPTIONS: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False}
_unknown_options: set[str] = set()  # options that this XLA does not have


def _compile_quickly(lowered: jax.stages.Lowered) -> jax.stages.Compiled | None:
    """The program, compiled in less time, where this XLA knows how."""
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
    """About how many bytes of memory a program takes.

    On a CPU XLA does not say. Resident memory grew by 23 to 28 bytes for each letter of the program's text, whatever
    the algorithm: 1.4 MiB for a small one, 10 MiB for NSGA-II.
    """
    executable = compiled.runtime_executable()
    code = 0 if executable is None else executable.size_of_generated_code_in_bytes()
    return BYTES_PER_CHARACTER * len(compiled.as_text() or "") + max(0, code)


def _working_bytes(compiled: jax.stages.Compiled) -> int:
    """Bytes of working memory, as the compiler planned them; 0 where it does not say."""
    analysis = compiled.memory_analysis()
    return 0 if analysis is None else int(getattr(analysis, "temp_size_in_bytes", 0))


PROGRAMS = CompileCache()
