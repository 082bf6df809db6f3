"""NVRTC and the CUDA driver through ctypes: both come with `jax[cuda13]`, so that no other package is needed.

Kernel sources are compiled to cubins of the device's own architecture, which the disk cache keeps by source,
architecture and version of NVRTC.
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

from galapax.fused.array_ir import NotFusible
from galapax.fused.cost_model import (
    MAX_CLUSTER_BLOCKS,
    MAX_CLUSTER_WORK,
    MAX_EXCLUSIVE_RUNS,
    MIN_CLUSTER_WORK,
    WORK_PER_BLOCK,
)
from galapax.fused.kernel_source import KernelSource
from galapax.fused.schedule import LaunchShape
from galapax.numerics import devices, disk_cache

WARMUP_BYTES = 2**28  # zeroed before a timed launch, which takes 0.1 ms
MIN_COMPUTE_CAPABILITY = (7, 0)  # independent thread scheduling
_MAJOR, _MINOR, _SHARED_BYTES, _SM_COUNT = 75, 76, 97, 16  # CUdevice_attribute
_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 14  # CUfunction_attribute
Handle = ctypes.c_void_p  # of a module, a function or an event


class CudaDevice:
    """One device, through the CUDA driver, in the primary context that JAX uses too."""

    def __init__(self, ordinal: int) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise NotFusible("the CUDA driver (libcuda.so.1) was not found") from None
        self._check(self._driver.cuInit(0))
        device = ctypes.c_int()
        self._check(self._driver.cuDeviceGet(ctypes.byref(device), ordinal))
        self._device, self._context = device, ctypes.c_void_p()
        self._warmup_buffer: ctypes.c_void_p | None = None
        self._check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), device))
        self.capability = (self._attribute(_MAJOR), self._attribute(_MINOR))
        self.shared_bytes, self.n_sms = self._attribute(_SHARED_BYTES), self._attribute(_SM_COUNT)
        if self.capability < MIN_COMPUTE_CAPABILITY:
            capability, minimum = (".".join(map(str, version)) for version in (self.capability, MIN_COMPUTE_CAPABILITY))
            raise NotFusible(f"the GPU has compute capability {capability}, and fused kernels need {minimum}")

    def _check(self, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"CUDA: {(text.value or b'unknown error').decode()} ({code})")

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self._check(self._driver.cuDeviceGetAttribute(ctypes.byref(value), which, self._device))
        return value.value

    def activate(self) -> None:
        """Make the context current in this thread."""
        self._check(self._driver.cuCtxSetCurrent(self._context))

    def load_module(self, cubin: bytes) -> Handle:
        self.activate()
        module = ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), cubin))
        return module

    def read_symbol(self, module: Handle, name: str, count: int) -> list[int]:
        """Read the first elements of a module's global array of unsigned 64-bit integers."""
        self.activate()
        address, size, values = ctypes.c_void_p(), ctypes.c_size_t(), (ctypes.c_ulonglong * count)()
        self._check(self._driver.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module, name.encode()))
        self._check(self._driver.cuMemcpyDtoH_v2(values, address, ctypes.c_size_t(ctypes.sizeof(values))))
        return list(values)

    def load_function(self, module: Handle, name: str, shared_bytes: int, is_cluster: bool) -> Handle:
        function = ctypes.c_void_p()
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        if shared_bytes > 48 * 1024:
            self._check(self._driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes))
        if is_cluster:
            self._check(self._driver.cuFuncSetAttribute(function, _NON_PORTABLE_CLUSTER, 1))
        return function

    def launch(self, function: Handle, grid: int, text: KernelSource, stream: int, *arguments: Any) -> None:
        """Launch a kernel; arguments: ctypes values, passed as they are."""
        self.activate()
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        common = (function, grid, 1, 1, text.block_threads, 1, 1, text.shared_bytes, ctypes.c_void_p(stream), pointers)
        if text.blocks_per_run <= MAX_CLUSTER_BLOCKS:
            self._check(self._driver.cuLaunchKernel(*common, None))
        else:  # refused, rather than hanging, where not all blocks are resident
            self._check(self._driver.cuLaunchCooperativeKernel(*common))

    def zero_memory(self, address: int, size: int, stream: int) -> None:
        self.activate()
        self._check(
            self._driver.cuMemsetD8Async(
                ctypes.c_void_p(address), ctypes.c_ubyte(0), ctypes.c_size_t(size), ctypes.c_void_p(stream)
            )
        )

    def occupy(self, stream: int) -> None:
        """Keep the device busy for as long as the host takes to launch a kernel, about 0.1 ms."""
        if self._warmup_buffer is None:
            self._warmup_buffer = ctypes.c_void_p()
            self._check(self._driver.cuMemAlloc_v2(ctypes.byref(self._warmup_buffer), ctypes.c_size_t(WARMUP_BYTES)))
        self.zero_memory(self._warmup_buffer.value or 0, WARMUP_BYTES, stream)

    def record_event(self, stream: int) -> Handle:
        event = ctypes.c_void_p()
        self._check(self._driver.cuEventCreate(ctypes.byref(event), 0))
        self._check(self._driver.cuEventRecord(event, ctypes.c_void_p(stream)))
        return event

    def elapsed_ms(self, start: Handle, end: Handle) -> float:
        """Wait for two events, and return the milliseconds between them."""
        milliseconds = ctypes.c_float()
        self._check(self._driver.cuEventSynchronize(end))
        self._check(self._driver.cuEventElapsedTime(ctypes.byref(milliseconds), start, end))
        for event in (start, end):
            self._driver.cuEventDestroy_v2(event)
        return milliseconds.value

    def choose_shape(self, work: int, runs: int) -> LaunchShape:
        """Choose how many blocks share a run, or how many runs share an SM.

        A cluster of a few blocks where a run has work for them and the device has room; a grid of all SMs for a single
        run of a large population.
        """
        if runs == 1 and work > MAX_CLUSTER_WORK:
            return LaunchShape(self.n_sms)
        n_blocks = min(MAX_CLUSTER_BLOCKS, work // WORK_PER_BLOCK, self.n_sms // runs)
        if work >= MIN_CLUSTER_WORK and n_blocks >= 2 and self.capability >= (9, 0):
            return LaunchShape(_floor_power_of_two(n_blocks))
        if runs <= MAX_EXCLUSIVE_RUNS * self.n_sms:
            return LaunchShape()
        # rather too many resident runs than a second wave of a few
        return LaunchShape(1, _floor_power_of_two(min(32.0, runs / self.n_sms) * math.sqrt(2)))


def _floor_power_of_two(count: float) -> int:
    """Return the largest power of two that is no more, so that not every number of runs has its own kernel."""
    return 2 ** int(math.log2(count))


@lru_cache(maxsize=8)
def open_device(ordinal: int) -> CudaDevice:
    return CudaDevice(ordinal)


def current_device() -> CudaDevice:
    """Return the CUDA device that JAX computes on, or raise NotFusible with the reason."""
    if not sys.platform.startswith("linux"):
        raise NotFusible("fused kernels need Linux")
    device = devices.default_device()
    if device.platform not in ("cuda", "gpu"):
        raise NotFusible(f"fused kernels need an NVIDIA GPU, and JAX runs on {device.device_kind}")
    _load_nvrtc()
    return open_device(int(device.local_hardware_id or 0))


@lru_cache(maxsize=1)
def _load_nvrtc() -> ctypes.CDLL:
    """Load NVRTC: that of the packages that JAX brings, or of the system."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else ()), *sys.path]
    patterns = [f"{folder}/nvidia/*/lib/libnvrtc.so.1*" for folder in dict.fromkeys(folders)]
    candidates = [file for pattern in patterns for file in glob.glob(pattern)]
    for name in [*sorted(candidates, reverse=True), "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotFusible("NVRTC was not found: install jax[cuda13], which brings it")


def compile_cubin(source: str, capability: tuple[int, int]) -> bytes:
    """Compile a source to machine code, or load it from the disk cache."""
    library = _load_nvrtc()
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "--std=c++17", "-default-device",
               # division and square root to 2 ulp, as XLA
               "--prec-div=false", "--prec-sqrt=false"]  # fmt: skip
    key = disk_cache.key_of("cubin", major.value, minor.value, options, source)
    cubin = disk_cache.load(key, "cubin")
    if cubin is None:
        cubin = _run_nvrtc(library, source, options)
        disk_cache.save(key, "cubin", cubin)
    return cubin


def _run_nvrtc(library: ctypes.CDLL, source: str, options: list[str]) -> bytes:
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"galapax.cu", 0, None, None)
    try:
        arguments = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        size = ctypes.c_size_t()
        if library.nvrtcCompileProgram(program, len(options), arguments):
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
    """A kernel on the current GPU. times: a list, for benchmarks, that receives the milliseconds of each launch."""

    times: ClassVar[list[float] | None] = None

    def __init__(self, text: KernelSource) -> None:
        self.text, self.device = text, current_device()
        if text.shared_bytes > self.device.shared_bytes:
            raise NotFusible(
                f"a run needs {text.shared_bytes // 1024} KiB of memory that a block shares, and the GPU has "
                f"{self.device.shared_bytes // 1024}"
            )
        self._module = self.device.load_module(compile_cubin(text.source, self.device.capability))
        is_cluster = 1 < text.blocks_per_run <= MAX_CLUSTER_BLOCKS
        self._function = self.device.load_function(self._module, "galapax_run", text.shared_bytes, is_cluster)
        self._lock = threading.Lock()

    def read_symbol(self, name: str, count: int) -> list[int]:
        """Read a global array of the kernel, for benchmarks that instrument its source."""
        return self.device.read_symbol(self._module, name, count)

    def call(self, context: Any, outputs: list[Any], *inputs: Any) -> None:
        """Launch the kernel; called by `buffer_callback`. The last output is scratch memory."""
        *results, scratch = outputs
        runs = results[-1].shape[-1]
        arrays = [*inputs, *results]
        addresses = [a.__cuda_array_interface__["data"][0] for a in arrays]
        pointers = (ctypes.c_void_p * len(arrays))(*addresses)
        scratch_address = scratch.__cuda_array_interface__["data"][0]
        times = CudaKernel.times
        with self._lock:
            if times is not None:  # else the device would idle between the events
                self.device.occupy(context.stream)
            start_event = None if times is None else self.device.record_event(context.stream)
            if self.text.blocks_per_run > MAX_CLUSTER_BLOCKS:
                self.device.zero_memory(scratch_address, self.text.cleared_bytes, context.stream)
            self.device.launch(
                self._function, runs * self.text.blocks_per_run, self.text, context.stream,
                pointers, ctypes.c_int(runs), ctypes.c_void_p(scratch_address),
            )  # fmt: skip
            if times is not None and start_event is not None:
                times.append(self.device.elapsed_ms(start_event, self.device.record_event(context.stream)))
