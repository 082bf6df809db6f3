"""Where a fused kernel cannot be made the reason is said, and the default makes the run with XLA.

The machine that lacks something is pretended: what is asked of it answers as it would there.
"""

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.options import Options
from galapax.execution import compiled, solve
from galapax.fused import backend, cpu_kernel, cuda
from galapax.fused.kernel_source import KernelSource
from galapax.numerics import devices

CENTRE = np.array([0.3, -0.2])


def bowl(x):
    return jnp.sum((x - CENTRE) ** 2)


def run(engine, fun=bowl, dtype=None, **options):
    common = {"population": 8, "generations": 3, "seed": 1, "polish": False, "progress": False}
    return gx.minimize(
        fun, [(-1.0, 2.0)] * 2, "de", compute=gx.Compute(engine=engine, dtype=dtype), **(common | options)
    )


class Driver:
    """A CUDA driver of a device with these attributes."""

    def __init__(self, **attributes):
        self.attributes = attributes

    def cuDeviceGetAttribute(self, value, which, device):
        names = {75: "major", 76: "minor", 97: "shared", 16: "processors"}
        value._obj.value = self.attributes.get(names[which], 1)
        return 0

    def __getattr__(self, name):
        return lambda *arguments: 0


def machine(monkeypatch, driver=None, nvrtc=True, gpus=1):
    """A machine with GPUs, and these libraries."""

    def load(name):
        if "nvrtc" in name and nvrtc:
            return SimpleNamespace()
        if "libcuda" in name and driver is not None:
            return driver
        raise OSError(name)

    here = SimpleNamespace(platform="gpu", device_kind="a GPU", local_hardware_id=0)
    monkeypatch.setattr(cuda, "devices", SimpleNamespace(default_device=lambda: here))
    gpu = {"platform": lambda: "gpu", "local_devices": lambda: [here] * gpus}

    def select_for_gpu(task, clock):
        with monkeypatch.context() as patched:
            patched.setattr(compiled, "devices", SimpleNamespace(**vars(devices) | gpu))
            return compiled.select_engine(task, clock)

    monkeypatch.setattr(solve, "select_engine", select_for_gpu)
    monkeypatch.setattr(cuda.sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", load)
    cuda._load_nvrtc.cache_clear()
    cuda.open_device.cache_clear()


@pytest.fixture(autouse=True)
def forgotten():
    yield
    cuda._load_nvrtc.cache_clear()
    cuda.open_device.cache_clear()


TROUBLE = {
    "no NVRTC": ({"nvrtc": False}, "NVRTC was not found: install jax[cuda13], which brings it"),
    "no driver": ({}, "the CUDA driver (libcuda.so.1) was not found"),
    "an old GPU": (
        {"driver": Driver(major=6, minor=1)},
        "the GPU has compute capability 6.1, and fused kernels need 7.0",
    ),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_a_message_names_what_a_machine_lacks_and_xla_computes_the_run(name, monkeypatch):
    lacking, reason = TROUBLE[name]
    plain = run("xla")
    machine(monkeypatch, **lacking)
    with pytest.raises(gx.InputError) as refused:
        run("fused")
    assert reason in str(refused.value)
    found = run("auto")
    assert found.engine == f"xla: {reason}"
    np.testing.assert_array_equal(found.x, plain.x)


def test_a_run_that_needs_more_shared_memory_than_there_is(monkeypatch):
    machine(monkeypatch, Driver(major=8, minor=0, shared=48 * 1024, processors=100))
    text = KernelSource("", (), 100 * 1024, 0, 32, 1, 0, 0, False, 0)
    with pytest.raises(cuda.NotFusible, match="a run needs 100 KiB of memory that a block shares, and the GPU has 48"):
        cuda.CudaKernel(text)


def test_an_objective_that_calls_the_host(monkeypatch):
    def called(x):
        like = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(lambda x: np.float32(np.sum(x**2)), like, x, vmap_method="sequential")

    asked = "native" if devices.on_cpu() else "fused"
    with pytest.raises(gx.InputError, match=f'engine="{asked}" cannot make this run: the primitive pure_callback'):
        run(asked, called, blackbox=False, dtype="float32")
    machine(monkeypatch, Driver(major=9, minor=0, shared=227 * 1024, processors=132))
    found = run("auto", called, blackbox=False, dtype="float32")
    assert found.engine == "xla: the primitive pure_callback"


def test_a_large_population_is_not_worth_one_kernel(monkeypatch):
    machine(monkeypatch)
    monkeypatch.setattr(compiled, "MAX_FUSED_SIZE", 15)  # less than 8 individuals of 2 variables
    assert run("auto").engine == "xla: for 16 numbers a generation one kernel is no faster"


def test_the_default_takes_the_kernel_where_it_can(monkeypatch):
    """The kernel itself is compiled where there is a GPU: tests/fused/test_fused_gpu.py."""
    asked = []
    machine(monkeypatch)
    monkeypatch.setattr(compiled, "_compile_fused_kernel", lambda task, engine, clock: asked.append(engine))
    monkeypatch.setattr(compiled, "_compile_kernel", lambda *about: None)
    task = SimpleNamespace(
        engine="auto",
        options=Options(),
        n_devices=0,
        population=8,
        total=1,
        problem=SimpleNamespace(dim=2),
        solvers=[gx.DE()],
    )
    assert str(solve.select_engine(task, None)) == "fused: one kernel is faster"
    assert asked == ["fused"]


def test_black_boxes_are_called_and_islands_exchange(monkeypatch):
    machine(monkeypatch)
    assert run("auto", lambda x: float(np.sum(x)), blackbox=True).engine.startswith("host: ")
    assert run("auto", islands=2).engine == "xla: islands exchange individuals"


def bend(x):
    return jnp.stack([x[0] ** 2, (x[0] - 1) ** 2])


@pytest.mark.parametrize(
    ("options", "is_left_to_xla"),
    [
        pytest.param({}, False, id="two objectives"),
        pytest.param({"algorithm": gx.NSGA2(population=1026)}, True, id="a large population"),
        pytest.param({"algorithm": gx.NSGA2(population=130), "runs": 2}, True, id="large populations of several runs"),
        pytest.param({"ineq": lambda x: x[0] - 2}, True, id="constraints"),
        pytest.param({"fun": lambda x: jnp.append(bend(x), x[0])}, True, id="three objectives"),
        pytest.param({"algorithm": "nsga3"}, True, id="another algorithm"),
    ],
)
def test_fronts_that_xla_ranks_faster_are_left_to_it(monkeypatch, options, is_left_to_xla):
    machine(monkeypatch)
    result = gx.minimize(**{"fun": bend, "bounds": [(-1, 2)], "algorithm": "nsga2", "generations": 2} | options)
    assert (result.engine == "xla: such a front is ranked faster by many kernels") == is_left_to_xla


def test_several_gpus_share_the_runs(monkeypatch):
    machine(monkeypatch, gpus=2)
    assert run("auto", runs=3).engine == "xla: 2 devices share the runs"


def test_on_a_cpu_the_compiler_of_kernels_is_not_even_imported():
    text = (
        "import sys, galapax as gx;"
        "r = gx.minimize(lambda x: (x**2).sum(), [(-1, 1)], 'de', generations=2, polish=False);"
        "print(r.engine, 'galapax.fused' in sys.modules)"
    )
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == "xla: runs on the CPU False"


def test_native_kernels_are_for_a_cpu(monkeypatch):
    monkeypatch.setattr(devices, "on_cpu", lambda: False)
    with pytest.raises(gx.InputError, match=r"native kernels need JAX on a CPU \(JAX_PLATFORMS=cpu\), and JAX runs on"):
        run("native")


def test_no_compiler_no_native_engine(monkeypatch):
    monkeypatch.setattr(devices, "on_cpu", lambda: True)
    monkeypatch.setattr(cpu_kernel, "find_compiler", lambda: None)
    with pytest.raises(gx.InputError, match="no C compiler was found on this machine"):
        run("native")


@pytest.mark.skipif(cpu_kernel.find_compiler() is None or not devices.on_cpu(), reason="needs a C compiler and a CPU")
def test_a_native_kernel_that_computes_something_else_than_xla_is_refused(monkeypatch):
    """As GCC 12 once built: here sums are differences in the machine code alone."""
    compile_library = cpu_kernel._compile_library

    def miscompile(compiler, source, flags, library):
        wrong = source.replace("{ return a + b; }", "{ return a - b; }")
        assert wrong != source
        compile_library(compiler, wrong, flags, library)

    def forget():
        cpu_kernel._load_library.cache_clear()
        backend.build_kernel.cache_clear()
        backend._kernel_cache.clear()

    forget()
    assert run("native").engine == "native: as asked"
    forget()
    monkeypatch.setattr(cpu_kernel, "_compile_library", miscompile)
    with pytest.raises(gx.InputError, match=r"computes something else than XLA.*numbers agree after a generation"):
        run("native", fun=lambda x: jnp.sum(jnp.sin(x) * jnp.arange(2.0)) + jnp.sum(x**2))
    forget()
