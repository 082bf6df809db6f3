"""NVRTC and the CUDA driver, called directly: both are there wherever `jax[cuda13]` is, so this takes no package more.

Texts become cubins of the device's own architecture, which the disk cache keeps by source, architecture and version.
"""

from __future__ import annotations

import ctypes
import glob
import math
import site
import sys
import threading
from functools import lru_cache
from typing import Any, ClassVar

from galapax.engines.fused.graph import NotFusible
from galapax.engines.fused.kernel_source import KernelSource, LaunchShape
from galapax.engines.fused.loop_codegen import MAX_CLUSTER_BLOCKS
from galapax.numerics import devices, disk_cache

SHARED_WORK = 2**13  # numbers of a population from which on a run is worth more than one block
EACH = 512  # of them for each block
GRID = 2**17  # more of them are worth the whole device
MANY = 4  # runs for each processor, from which on they are many
SPARE = 2**28  # bytes, of which a tenth of a millisecond is filled when kernels are timed
OLDEST = (7, 0)  # compute capability: threads of a warp are independent from here on
_MAJOR, _MINOR, _SHARED, _PROCESSORS = 75, 76, 97, 16  # CUdevice_attribute
_DYNAMIC_SHARED, _ANY_CLUSTER = 8, 14  # CUfunction_attribute


class Cuda:
    """The driver on one device: its primary context, which JAX uses too."""

    def __init__(self, ordinal: int) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise NotFusible("the CUDA driver (libcuda.so.1) was not found") from None
        self._check(self._driver.cuInit(0))
        device = ctypes.c_int()
        self._check(self._driver.cuDeviceGet(ctypes.byref(device), ordinal))
        self._device, self._context = device, ctypes.c_void_p()
        self._spare: ctypes.c_void_p | None = None
        self._check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), device))
        self.capability = (self._attribute(_MAJOR), self._attribute(_MINOR))
        self.shared, self.processors = self._attribute(_SHARED), self._attribute(_PROCESSORS)
        if self.capability < OLDEST:
            own, oldest = (".".join(map(str, version)) for version in (self.capability, OLDEST))
            raise NotFusible(f"the GPU has compute capability {own}, and fused kernels need {oldest}")

    def _check(self, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"CUDA: {(text.value or b'unknown error').decode()} ({code})")

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self._check(self._driver.cuDeviceGetAttribute(ctypes.byref(value), which, self._device))
        return value.value

    def enter(self) -> None:
        """Make the context that of this thread."""
        self._check(self._driver.cuCtxSetCurrent(self._context))

    def module(self, cubin: bytes) -> Any:
        self.enter()
        module = ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), cubin))
        return module

    def numbers(self, module: Any, name: str, count: int) -> list[int]:
        """The first of an array of unsigned 64-bit numbers that a module has."""
        self.enter()
        address, size, found = ctypes.c_void_p(), ctypes.c_size_t(), (ctypes.c_ulonglong * count)()
        self._check(self._driver.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module, name.encode()))
        self._check(self._driver.cuMemcpyDtoH_v2(found, address, ctypes.c_size_t(ctypes.sizeof(found))))
        return list(found)

    def function(self, module: Any, name: str, shared: int, clustered: bool) -> Any:
        function = ctypes.c_void_p()
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        if shared > 48 * 1024:
            self._check(self._driver.cuFuncSetAttribute(function, _DYNAMIC_SHARED, shared))
        if clustered:
            self._check(self._driver.cuFuncSetAttribute(function, _ANY_CLUSTER, 1))
        return function

    def launch(self, function: Any, grid: int, text: KernelSource, stream: int, *arguments: Any) -> None:
        """Start a kernel; arguments: ctypes values, passed as they are."""
        self.enter()
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        common = (function, grid, 1, 1, text.block_threads, 1, 1, text.shared_bytes, ctypes.c_void_p(stream), pointers)
        if text.blocks_per_run <= MAX_CLUSTER_BLOCKS:
            self._check(self._driver.cuLaunchKernel(*common, None))
        else:  # refused, rather than hanging, where not all blocks are resident
            self._check(self._driver.cuLaunchCooperativeKernel(*common))

    def clear(self, address: int, size: int, stream: int) -> None:
        self.enter()
        self._check(
            self._driver.cuMemsetD8Async(
                ctypes.c_void_p(address), ctypes.c_ubyte(0), ctypes.c_size_t(size), ctypes.c_void_p(stream)
            )
        )

    def occupy(self, stream: int) -> None:
        """Give the device something to do for as long as the host takes to start a kernel."""
        if self._spare is None:
            self._spare = ctypes.c_void_p()
            self._check(self._driver.cuMemAlloc_v2(ctypes.byref(self._spare), ctypes.c_size_t(SPARE)))
        self.clear(self._spare.value or 0, SPARE, stream)

    def event(self, stream: int) -> Any:
        made = ctypes.c_void_p()
        self._check(self._driver.cuEventCreate(ctypes.byref(made), 0))
        self._check(self._driver.cuEventRecord(made, ctypes.c_void_p(stream)))
        return made

    def between(self, start: Any, end: Any) -> float:
        """Milliseconds between two events, which it waits for."""
        taken = ctypes.c_float()
        self._check(self._driver.cuEventSynchronize(end))
        self._check(self._driver.cuEventElapsedTime(ctypes.byref(taken), start, end))
        for event in (start, end):
            self._driver.cuEventDestroy_v2(event)
        return taken.value

    def form(self, work: int, runs: int) -> LaunchShape:
        """How many blocks make a run together: a few, in a cluster, where it has work for them and the device room;
        all of them for one run of a large population.
        """
        if runs == 1 and work > GRID:
            return LaunchShape(self.processors)
        wanted = min(MAX_CLUSTER_BLOCKS, work // EACH, self.processors // runs) if work >= SHARED_WORK else 1
        if self.capability < (9, 0) or wanted < 2:
            each = min(32.0, runs / self.processors)
            # rather too many at a time than a second time for a few
            return LaunchShape(1, _power(each * math.sqrt(2)) if runs > MANY * self.processors else 1)
        return LaunchShape(_power(wanted))


def _power(count: float) -> int:
    """The largest power of two that is no more, so that not every number has a kernel of its own."""
    return 2 ** int(math.log2(count))


@lru_cache(maxsize=8)
def cuda(ordinal: int) -> Cuda:
    return Cuda(ordinal)


def present() -> Cuda:
    """The device that computations run on, or NotFusible with the reason."""
    if not sys.platform.startswith("linux"):
        raise NotFusible("fused kernels need Linux")
    here = devices.default_device()
    if here.platform not in ("cuda", "gpu"):
        raise NotFusible(f"fused kernels need an NVIDIA GPU, and JAX runs on {here.device_kind}")
    _nvrtc()
    return cuda(int(here.local_hardware_id or 0))


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    """The library that compiles: of the packages that JAX brings, or of the system."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else ()), *sys.path]
    found = [f for folder in dict.fromkeys(folders) for f in glob.glob(f"{folder}/nvidia/*/lib/libnvrtc.so.1*")]
    for name in [*sorted(found, reverse=True), "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotFusible("NVRTC was not found: install jax[cuda13], which brings it")


def cubin_of(source: str, capability: tuple[int, int]) -> bytes:
    """Machine code, from the disk if it was compiled before."""
    library = _nvrtc()
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "--std=c++17", "-default-device",
               # quotients and roots to two units in the last place, as XLA's
               "--prec-div=false", "--prec-sqrt=false"]  # fmt: skip
    key = disk_cache.key_of("cubin", major.value, minor.value, options, source)
    cubin = disk_cache.load(key, "cubin")
    if cubin is None:
        cubin = _compiled(library, source, options)
        disk_cache.save(key, "cubin", cubin)
    return cubin


def _compiled(library: Any, source: str, options: list[str]) -> bytes:
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"galapax.cu", 0, None, None)
    try:
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        size = ctypes.c_size_t()
        if library.nvrtcCompileProgram(program, len(options), given):
            library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            library.nvrtcGetProgramLog(program, log)
            raise NotFusible(f"NVRTC refused it: {log.value.decode(errors='replace')[:2000]}")
        library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        cubin = ctypes.create_string_buffer(size.value)
        library.nvrtcGetCUBIN(program, cubin)
        return cubin.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


class CudaKernel:
    """A text on the present GPU. times: a list, for benchmarks, gets the milliseconds of each kernel."""

    times: ClassVar[list[float] | None] = None

    def __init__(self, text: KernelSource) -> None:
        self.text, self.cuda = text, present()
        if text.shared_bytes > self.cuda.shared:
            raise NotFusible(
                f"a run needs {text.shared_bytes // 1024} KiB of memory that a block shares, and the GPU has "
                f"{self.cuda.shared // 1024}"
            )
        self._module = self.cuda.module(cubin_of(text.source, self.cuda.capability))
        self._function = self.cuda.function(
            self._module, "galapax_run", text.shared_bytes, 1 < text.blocks_per_run <= MAX_CLUSTER_BLOCKS
        )
        self._lock = threading.Lock()

    def numbers(self, name: str, count: int) -> list[int]:
        """See `Cuda.numbers`: what a text that was changed for it has counted."""
        return self.cuda.numbers(self._module, name, count)

    def call(self, context: Any, outputs: list[Any], *inputs: Any) -> None:
        """As `buffer_callback` calls it: the last output is scratch."""
        *results, scratch = outputs
        runs = results[-1].shape[-1]
        arrays = [*inputs, *results]
        addresses = [a.__cuda_array_interface__["data"][0] for a in arrays]
        packed = (ctypes.c_void_p * len(arrays))(*addresses)
        memory = scratch.__cuda_array_interface__["data"][0]
        times = CudaKernel.times
        with self._lock:
            if times is not None:  # else the device would wait for the host between the events
                self.cuda.occupy(context.stream)
            start = None if times is None else self.cuda.event(context.stream)
            if self.text.blocks_per_run > MAX_CLUSTER_BLOCKS:
                self.cuda.clear(memory, self.text.cleared_bytes, context.stream)
            self.cuda.launch(
                self._function, runs * self.text.blocks_per_run, self.text, context.stream,
                packed, ctypes.c_int(runs), ctypes.c_void_p(memory),
            )  # fmt: skip
            if times is not None:
                times.append(self.cuda.between(start, self.cuda.event(context.stream)))
