"""This tier is what users get: nothing is patched, and with --installed it is the wheel that is tested."""

import inspect
import os
import sys
import sysconfig
from pathlib import Path

import jax
import pytest
from processes import run

import galapax as gx
from galapax.numerics import compile_cache, disk_cache
from galapax.version import TESTED_JAX

ALLOWED = {"GALAPAX_CACHE", "GALAPAX_BROWSER_TESTS", "JAX_PLATFORMS"}  # places, and what the machine is


def test_nothing_is_patched():
    assert jax.config.values["jax_disable_most_optimizations"] is False
    assert compile_cache.may_precompile()
    assert disk_cache.folder() == Path(os.environ["GALAPAX_CACHE"])
    for verb in (gx.minimize, gx.minimax):
        assert inspect.signature(verb).parameters["polish"].default == "auto"
    switches = {name for name in os.environ if name.startswith(("GALAPAX_", "JAX_", "XLA_FLAGS"))}
    assert switches <= ALLOWED, f"unset {', '.join(sorted(switches - ALLOWED))}"


def test_galapax_is_the_installed_wheel(request, tmp_path):
    if not request.config.getoption("--installed"):
        pytest.skip("of a source tree, without --installed")
    module = Path(gx.__file__).resolve()
    assert module.is_relative_to(Path(sysconfig.get_path("purelib")).resolve())
    done = run(sys.executable, "-c", "import galapax; print(galapax.__file__)", cwd=tmp_path)
    assert Path(done.stdout.strip()).resolve() == module


def test_importing_warns_of_a_jax_that_is_not_tested_and_of_nothing_else(tmp_path):
    done = run(sys.executable, "-c", "import galapax", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tested = ".".join(map(str, jax.__version_info__[:2])) in TESTED_JAX
    assert done.stderr.count("Warning") == (not tested), done.stderr
