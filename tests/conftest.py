"""The configuration of the tests, and the fixtures that several modules share.

Nearly all of the suite's time goes into compiling, and most of its programs run for milliseconds. So the tests differ
from a user's session in these settings, and in nothing else:

- XLA compiles quickly rather than well (compiler flags, JAX_DISABLE_MOST_OPTIMIZATIONS), unless
  GALAPAX_TESTS_XLA=full is set, as `make test-slow` and `make test-gpu` do;
- JAX keeps compiled programs in a folder of the session, and galapax's own disk cache is off;
- GALAPAX_TESTS_PRETEND=accelerator gives the defaults and programs of an accelerator, on a CPU;
- no program is compiled before it is needed (GALAPAX_PRECOMPILE=off), since tests count what is compiled.

No default of a function is changed: a test that is about the evolution alone says `polish=False`. `tests_as_shipped/`
runs what users get.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time

import jax
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from support.memory import forget_programs, resident, return_memory

from galapax.execution import arguments
from galapax.numerics import compile_cache, devices, disk_cache

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMIUM_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                    "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip

os.environ["GALAPAX_PRECOMPILE"] = "off"
FULL = os.environ.get("GALAPAX_TESTS_XLA") == "full"
if not FULL:
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # for the processes that tests start
    jax.config.update("jax_disable_most_optimizations", True)
    # programs remember the lines of source that each operation came from; to write that down took a tenth of it all
    os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
    jax.config.update("jax_traceback_in_locations_limit", 0)
    # XLA ends a process whose flags it does not know, so these are given where they were tried. One part for a compiler
    # instead of many takes a sixth less work in all, and workers keep the cores busy anyway.
    if jax.__version_info__[:2] == (0, 10) and "fusion_emitters" not in os.environ.get("XLA_FLAGS", ""):
        quickly = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quickly}".strip()

if os.environ.get("GALAPAX_TESTS_PRETEND") == "accelerator":  # its defaults and programs, on a CPU
    devices.platform = lambda: "accelerator"

# tracing makes millions of objects that live; looking through them all again and again for garbage took a tenth of it
gc.collect()
gc.freeze()
gc.set_threshold(100_000, 20, 50)

MAX_RESIDENT_BYTES = 1.25 * 2**30  # a process that holds more drops its programs when a module ends


def pytest_configure(config):
    """One folder of compiled programs for the workers of a session and the processes that tests start.

    Tests themselves find no programs of runs in it: they change parts of galapax, which no name of a program shows.
    """
    disk_cache.disable()
    if hasattr(config, "workerinput"):  # a worker: the folder is in its environment, and JAX has read it
        return
    folder = tempfile.mkdtemp(prefix="galapax-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    settings = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        os.environ[name.upper()] = str(value)
        jax.config.update(name, value)
    os.environ["GALAPAX_CACHE"] = folder


def pytest_collection_modifyitems(items):
    """Begin with the largest files, which take longest, so that two workers end together."""
    items.sort(key=lambda item: item.path.stat().st_size, reverse=True)  # stable: a file's tests keep their order


@pytest.fixture
def well_compiled():
    """For a test whose programs run longer than they are compiled."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def without_jax_cache():
    """For a test of the disk cache: what JAX takes from its own cache is not saved again."""
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    reset_cache()  # else JAX remembers whether it has one
    yield
    jax.config.update("jax_enable_compilation_cache", before)
    reset_cache()


@pytest.fixture
def ctrl_c_raises():
    """Ctrl-C as in a terminal: a shell that starts pytest in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="module")
def _default_precision():
    """JAX's own: OpenMDAO switches to double precision when it is imported."""
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(autouse=True, scope="module")
def _limit_memory():
    """Drop compiled programs after a module that left too many.

    Programs of runs go first: they are most of it, and modules share few. JAX's own caches go where that is not enough,
    since each module would trace its functions again.
    """
    yield
    if resident() > MAX_RESIDENT_BYTES:
        compile_cache.clear()
        return_memory()
    if resident() > MAX_RESIDENT_BYTES:
        forget_programs()


@pytest.fixture
def in_batches(monkeypatch):
    """in_batches(3): from now on memory holds three runs at once, a slice each."""

    def limit(runs):
        monkeypatch.setattr(arguments, "MAX_CPU_SLICE_RUNS", 1)
        monkeypatch.setattr(arguments, "NEGLIGIBLE_SHARE", 0.0)
        monkeypatch.setattr(arguments, "runs_that_fit", lambda *about: runs)

    return limit


class Clock:
    """Time that passes when somebody looks, a hundredth of a second each time, and when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        self.now += 0.01
        return self.now

    def wait(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """What time.perf_counter reads during the test, however busy the machine is."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


@pytest.fixture(scope="module")
def browser():
    """A real Chromium, driven by playwright; without one the test is skipped, or fails if the environment asks so."""

    def missing(what):
        if os.environ.get("GALAPAX_BROWSER_TESTS") == "required":
            pytest.fail(f"GALAPAX_BROWSER_TESTS=required, but there is no {what}.")
        pytest.skip(f"needs {what}")

    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("playwright")
    if CHROMIUM is None:
        missing("Chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_OPTIONS)
        yield chromium
        chromium.close()
