"""The disk cache: of everything that is compiled, only what this user wrote is loaded, whole, and from no link."""

import contextlib
import os
import pickle
import stat
import subprocess
import sys
import warnings
from functools import wraps
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.execution import compiled
from galapax.fused import backend, cpu_kernel, cuda, graph, kernel, kernel_source
from galapax.numerics import compile_cache, devices, disk_cache
from galapax.numerics.compile_cache import CompileCache

needs_owners = pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system tells no owners")
KINDS = [pytest.param("library", marks=pytest.mark.skipif(cpu_kernel.find_compiler() is None, reason="no C compiler")),
         "program", "kernel", "cubin"]  # fmt: skip


def sorted_example(factor, x):
    return factor * jnp.sort(x)[::-1]


sorted_example.__module__ = "galapax.execution.search"  # counts as ours


class Compiler:
    """Makes an artifact of one kind as a process does that begins, and counts how often it had to be compiled."""

    def __init__(self, kind, patch):
        self.kind, self.patch, self.compiled = kind, patch, 0
        self.make = getattr(self, f"_make_{kind}")
        self.factor = 2.0

    def __call__(self):
        """What was made, and whether it was compiled now."""
        before = self.compiled
        return self.make(), self.compiled > before

    def _count(self, module, name):
        real = getattr(module, name)

        @wraps(real)
        def counted(*arguments):
            self.compiled += 1
            return real(*arguments)

        self.patch.setattr(module, name, counted)

    def _make_program(self):
        with pytest.MonkeyPatch.context() as patch:
            real = compile_cache.load

            def load(*arguments):
                program = real(*arguments)
                self.compiled += program is None
                return program

            patch.setattr(compile_cache, "load", load)
            return CompileCache().call(sorted_example, (self.factor,), jnp.arange(3.0)).tolist()

    def _make_library(self):
        with pytest.MonkeyPatch.context() as self.patch:
            self._count(cpu_kernel, "_compile_library")
            cpu_kernel._load_library.cache_clear()
            text = kernel_source.lower_function(
                jax.make_jaxpr(lambda x: self.factor * x + 1)(1.0), kernel_source.LaunchShape(for_cpu=True)
            )
            x, y = np.ones(1, np.float32), np.zeros(1, np.float32)
            cpu_kernel.CpuKernel(text)([x], [y])
            return y.tolist()

    def _make_kernel(self):
        with pytest.MonkeyPatch.context() as self.patch:
            self._count(kernel, "_trace_and_lower")
            self.patch.setattr(backend, "build_kernel", lambda digest, text, for_cpu: text)
            backend._kernel_cache.clear()
            with contextlib.suppress(AttributeError):  # a text is no kernel, but was made
                minimize_natively()
            (text,) = backend._kernel_cache.values()
            backend._kernel_cache.clear()
            return text.source

    def _make_cubin(self):
        with pytest.MonkeyPatch.context() as self.patch:
            self.patch.setattr(cuda, "_load_nvrtc", lambda: SimpleNamespace(nvrtcVersion=lambda *numbers: 0))
            self.patch.setattr(cuda, "_run_nvrtc", lambda library, source, options: f"{options} {source}".encode())
            self._count(cuda, "_run_nvrtc")
            return cuda.compile_cubin("source of a kernel", (9, 0))


def minimize_natively(engine="native", **options):
    compute = gx.Compute(engine=engine, dtype="float64")
    common = {"population": 8, "generations": 3, "polish": False, "compute": compute}
    return gx.minimize(lambda x: jnp.sum(x**2), [(-1.0, 2.0)] * 2, "de", **(common | options))


@pytest.fixture
def folder(tmp_path, monkeypatch, without_jax_cache):
    """This process uses the cache here."""
    monkeypatch.setattr(disk_cache, "_chosen", tmp_path / "cache")
    return tmp_path / "cache" / disk_cache.FOLDER


@pytest.fixture(params=KINDS)
def compiler(request, folder, monkeypatch):
    return Compiler(request.param, monkeypatch)


def entry(folder, kind):
    (file,) = folder.glob(f"*.{kind}")
    return file


def test_everything_is_compiled_once(compiler, folder):
    first, second = compiler(), compiler()
    assert (first[1], second[1]) == (True, False) and first[0] == second[0]
    assert entry(folder, compiler.kind).read_bytes().startswith(disk_cache.MARK)


@needs_owners
def test_files_and_their_folder_are_the_users_alone_whatever_the_umask(compiler, folder):
    before = os.umask(0)
    try:
        compiler()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, entry(folder, compiler.kind))]
    assert modes == [0o700, 0o600] and not compiler()[1]


def make_foreign(file, monkeypatch):
    if os.getuid() == 0:
        os.chown(file, 12345, -1)
        return
    real, inode = os.fstat, file.stat().st_ino  # an ordinary user can give no file away

    def fstat(handle):
        status = real(handle)
        return os.stat_result((*status[:4], status.st_uid + (status.st_ino == inode), *status[5:10]))

    monkeypatch.setattr(disk_cache.os, "fstat", fstat)


def link(file, monkeypatch):
    outside = file.parent.parent / "outside"
    file.rename(outside)
    file.symlink_to(outside)


def link_hard_to_a_foreign_file(file, monkeypatch):
    make_foreign(file, monkeypatch)
    os.link(file, file.parent.parent / "outside")


def become_pipe(file, monkeypatch):
    file.unlink()
    os.mkfifo(file, 0o600)


def flip(file, monkeypatch):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


TAMPERINGS = {
    "another owner": make_foreign,
    "a hard link": link_hard_to_a_foreign_file,
    "group-writable": lambda file, patch: file.chmod(0o620),
    "writable by all": lambda file, patch: file.chmod(0o602),
    "a link": link,
    "a pipe": become_pipe,
    "one bit": flip,
    "truncated": lambda file, patch: file.write_bytes(file.read_bytes()[:-1]),
    "longer": lambda file, patch: file.write_bytes(file.read_bytes() + b"x"),
    "empty": lambda file, patch: file.write_bytes(b""),
    "a header alone": lambda file, patch: file.write_bytes(disk_cache.MARK),
    "noise": lambda file, patch: file.write_bytes(os.urandom(1000)),
}


@needs_owners
@pytest.mark.parametrize("tamper", TAMPERINGS.values(), ids=TAMPERINGS)
def test_a_file_that_may_be_somebody_elses_is_compiled_again(tamper, compiler, folder, monkeypatch):
    answer, _ = compiler()
    file = entry(folder, compiler.kind)
    with monkeypatch.context() as patch:
        tamper(file, patch)
        assert compiler() == (answer, True)
    assert entry(folder, compiler.kind).is_file() and not file.is_symlink()
    assert compiler() == (answer, False)  # what was compiled has taken its place


@needs_owners
def test_the_file_of_another_key_is_not_loaded(compiler, folder):
    compiler()
    file = entry(folder, compiler.kind)
    content = b"another program"
    key = disk_cache.key_of("another")
    disk_cache.save(key, compiler.kind, content)
    assert disk_cache.load(key, compiler.kind) == content
    os.replace(folder / f"{key}.{compiler.kind}", file)
    assert compiler()[1]


def open_to_all(folder, monkeypatch):
    folder.chmod(0o777)


def open_to_the_group(folder, monkeypatch):
    folder.chmod(0o770)


def link_folder(folder, monkeypatch):
    folder.rename(folder.parent / "outside")
    folder.symlink_to(folder.parent / "outside", target_is_directory=True)


@needs_owners
@pytest.mark.parametrize("tamper", [open_to_all, open_to_the_group, link_folder, make_foreign])
def test_a_folder_that_may_be_somebody_elses_is_not_used(tamper, compiler, folder, monkeypatch):
    answer, _ = compiler()
    before = entry(folder, compiler.kind).stat().st_mtime_ns
    tamper(folder, monkeypatch)
    assert [compiler(), compiler()] == [(answer, True)] * 2
    assert entry(folder, compiler.kind).stat().st_mtime_ns == before  # nor written


class Payload:
    """A pickle that leaves a trace where it is loaded."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


@needs_owners
@pytest.mark.parametrize("kind", ["program", "kernel"])
@pytest.mark.parametrize("tamper", [make_foreign, link, TAMPERINGS["group-writable"]])
def test_a_planted_pickle_is_not_unpickled(tamper, kind, folder, tmp_path, monkeypatch):
    make, trace = Compiler(kind, monkeypatch), tmp_path / "trace"
    make()
    key = entry(folder, kind).stem
    disk_cache.save(key, kind, pickle.dumps(Payload(trace)))  # with the right checksum
    tamper(entry(folder, kind), monkeypatch)
    assert make()[1] and not trace.exists()


@needs_owners
def test_every_file_is_refused_when_another_user_runs_the_process(compiler, monkeypatch):
    compiler()
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert compiler()[1]


def test_switched_off_nothing_is_loaded_or_saved(compiler, folder):
    disk_cache.disable()
    assert compiler()[1] and compiler()[1] and not folder.exists()


def test_switched_off_nothing_that_is_there_is_loaded(compiler, folder):
    compiler()
    files = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    gx.cache.disable()
    assert compiler()[1]
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == files


def test_the_environment_switches_everything_off(compiler, folder, monkeypatch):
    compiler()
    monkeypatch.setattr(disk_cache, "_chosen", disk_cache._DEFAULT)
    monkeypatch.setenv("GALAPAX_CACHE", str(folder.parent))
    assert not compiler()[1]
    monkeypatch.setenv("GALAPAX_CACHE", "off")
    assert compiler()[1] and gx.cache.enable() is None and compiler()[1]


def test_without_owners_files_are_loaded_all_the_same(compiler, monkeypatch):
    """As on Windows, which has neither owners nor opened folders."""
    monkeypatch.delattr(os, "getuid", raising=False)
    monkeypatch.setattr(os, "supports_dir_fd", set())
    assert (compiler()[1], compiler()[1]) == (True, False)


def test_without_opened_folders_links_are_refused(compiler, folder, monkeypatch):
    monkeypatch.setattr(os, "supports_dir_fd", set())
    compiler()
    link(entry(folder, compiler.kind), monkeypatch)
    assert compiler()[1]


def test_a_folder_that_cannot_be_made_costs_nothing(compiler, folder):
    folder.parent.write_text("a file")
    assert compiler()[1] and compiler()[1]
    assert gx.cache.enable(folder.parent) is None


def fill(count, size):
    for i in range(count):
        disk_cache.save(f"{i:064}", "cubin", bytes(size))
        file = disk_cache.folder() / disk_cache.FOLDER / f"{i:064}.cubin"
        os.utime(file, (1000 + i, 1000 + i))


def test_the_files_used_last_stay_in_the_cache(folder, monkeypatch):
    monkeypatch.setenv("GALAPAX_CACHE_MIB", "1")
    fill(4, 250_000)
    (folder / "notes.txt").write_bytes(bytes(2**20))  # not the cache's
    (folder / "0123.part").write_bytes(b"of a process that was killed")
    os.utime(folder / "0123.part", (1, 1))
    assert disk_cache.load(f"{0:064}", "cubin") is not None  # is the last that was used from now on
    disk_cache._written.clear()
    disk_cache.save("f" * 64, "library", bytes(250_000))
    names = {file.name for file in folder.iterdir()}
    assert names == {"notes.txt", *(f"{i:064}.cubin" for i in (0, 2, 3)), f"{'f' * 64}.library"}


def test_one_process_that_writes_much_keeps_to_the_limit(folder, monkeypatch):
    monkeypatch.setenv("GALAPAX_CACHE_MIB", "1")
    for i in range(64):
        disk_cache.save(f"{i:064}", "library", bytes(2**16))
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 1.25 * 2**20


def test_a_limit_that_is_no_number_is_the_default(monkeypatch):
    monkeypatch.setenv("GALAPAX_CACHE_MIB", "much")
    assert disk_cache.size_limit() == disk_cache.DEFAULT_LIMIT_MIB * 2**20


def test_keys_hold_what_everything_depends_on(monkeypatch):
    first = disk_cache.key_of("cubin", 1)
    assert first == disk_cache.key_of("cubin", 1) != disk_cache.key_of("cubin", 2)
    changes = [(disk_cache, "__version__", "9"), (disk_cache, "code_version", lambda: "edited"),
               (disk_cache, "processor", lambda: "another"), (jax, "__version__", "9"),
               (disk_cache.jaxlib, "__version__", "9")]  # fmt: skip
    for module, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert disk_cache.key_of("cubin", 1) != first


def test_a_cubin_has_a_key_by_architecture_source_and_version(folder, monkeypatch):
    version = [13, 0]

    def tell_version(major, minor):
        major._obj.value, minor._obj.value = version

    monkeypatch.setattr(cuda, "_load_nvrtc", lambda: SimpleNamespace(nvrtcVersion=tell_version))
    monkeypatch.setattr(cuda, "_run_nvrtc", lambda *about: b"code")
    cuda.compile_cubin("a", (9, 0)), cuda.compile_cubin("a", (8, 0)), cuda.compile_cubin("b", (9, 0))
    version[1] = 1
    cuda.compile_cubin("a", (9, 0))
    assert len(list(folder.glob("*.cubin"))) == 4


@pytest.mark.skipif(cpu_kernel.find_compiler() is None, reason="no C compiler")
def test_a_library_has_a_key_by_compiler_flags_and_source(folder, monkeypatch):
    monkeypatch.setattr(cpu_kernel.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(cpu_kernel, "_compile_library", lambda *given: given[-1].write_bytes(b"code"))
    cpu_kernel._load_library.cache_clear()
    for about in (("a", cpu_kernel.SCALAR_FLAGS), ("b", cpu_kernel.SCALAR_FLAGS), ("a", cpu_kernel.VECTOR_FLAGS)):
        cpu_kernel._load_library(*about)
    monkeypatch.setattr(cpu_kernel, "_describe_compiler", lambda path: "another")
    cpu_kernel._load_library.cache_clear()
    cpu_kernel._load_library("a", cpu_kernel.SCALAR_FLAGS)
    cpu_kernel._load_library.cache_clear()
    assert len(list(folder.glob("*.library"))) == 4


# --- errors of the compiler of kernels --------------------------------------------------------------------------------


ERRORS = [
    AssertionError(),
    KeyError("op"),
    IndexError("9"),
    RecursionError(),
    TypeError("no rule"),
    ValueError("shape"),
]


@pytest.fixture
def no_kernels():
    backend._kernel_cache.clear()
    yield
    backend._kernel_cache.clear()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_the_compiler_is_reported_and_never_remembered(error, folder, monkeypatch, no_kernels):
    def fail(*about):
        raise error

    fail.__module__, fail.__qualname__ = kernel._trace_and_lower.__module__, "_trace_and_lower"
    monkeypatch.setattr(kernel, "_trace_and_lower", fail)
    with (
        pytest.warns(UserWarning, match=rf"failed \({type(error).__name__}: .*bug in galapax: please report it"),
        pytest.raises(gx.InputError, match="the compiler of fused kernels failed"),
    ):
        minimize_natively()
    assert not list(folder.glob("*.kernel"))
    monkeypatch.undo()
    monkeypatch.setattr(disk_cache, "_chosen", folder.parent)
    backend._kernel_cache.clear()
    if cpu_kernel.find_compiler() is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert minimize_natively().nit == 3


def test_xla_makes_the_run_after_an_error_of_the_compiler(monkeypatch, no_kernels):
    plain = minimize_natively(engine="xla")

    def fail(*about):
        raise KeyError("op")

    fail.__module__, fail.__qualname__ = kernel._trace_and_lower.__module__, "_trace_and_lower"
    monkeypatch.setattr(kernel, "_trace_and_lower", fail)
    device = SimpleNamespace(platform="gpu", device_kind="a GPU", local_hardware_id=0)
    gpu = {"platform": lambda: "gpu", "local_devices": lambda: [device]}
    monkeypatch.setattr(compiled, "devices", SimpleNamespace(**vars(devices) | gpu))
    for module in (cuda, backend):
        fake = SimpleNamespace(choose_shape=lambda work, runs: kernel_source.LaunchShape())
        monkeypatch.setattr(module, "current_device", lambda fake=fake: fake)
    with pytest.warns(UserWarning, match="please report it"):
        result = minimize_natively(engine="auto")
    assert result.engine.startswith("xla: the compiler of fused kernels failed (KeyError")
    np.testing.assert_array_equal(result.x, plain.x)


def test_that_a_run_cannot_be_fused_is_remembered(folder, monkeypatch, no_kernels):
    calls = []

    def refuse(*about):
        calls.append(1)
        raise graph.NotFusible("the primitive fft")

    refuse.__module__, refuse.__qualname__ = kernel._trace_and_lower.__module__, "_trace_and_lower"
    monkeypatch.setattr(kernel, "_trace_and_lower", refuse)
    for _ in range(2):
        backend._kernel_cache.clear()
        with pytest.raises(gx.InputError, match="the primitive fft"):
            minimize_natively()
    assert calls == [1] and len(list(folder.glob("*.kernel"))) == 1


# --- what users call --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(cpu_kernel.find_compiler() is None, reason="no C compiler")
def test_no_cache_on_the_command_line_reaches_every_kind(tmp_path):
    own = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"GALAPAX_CACHE": str(tmp_path)}
    command = [
        sys.executable,
        *["-m", "galapax", "solve", "branin", "-a", "de", "-g", "3", "--engine", "native", "--json"],
    ]
    subprocess.run([*command, "--no-cache"], env=own, check=True, capture_output=True)
    assert not list(tmp_path.rglob("*"))
    subprocess.run(command, env=own, check=True, capture_output=True)
    assert {file.suffix for file in (tmp_path / disk_cache.FOLDER).iterdir()} >= {".program", ".kernel", ".library"}
