"""Long use: many calls, threads, processes and a cache of compiled programs that somebody spoilt."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest
from support.memory import resident

import galapax as gx
from galapax.numerics import disk_cache
from galapax.numerics.compile_cache import PROGRAMS, clear

BOX = [(-1.0, 1.0)] * 3
OPTIONS = {"generations": 15, "tolerance": 0, "polish": False}


def moved(shift):
    """A fresh function each time, with a fresh array and a fresh number in it."""
    where, scale = jnp.asarray(np.full(3, shift)), 1.0 + shift
    return lambda x: scale * jnp.sum((x - where) ** 2)


def many_calls(count, first=0):
    for i in range(first, first + count):
        gx.minimize(moved(i / 1000), BOX, "de", population=20, **OPTIONS)


def many_rounds(count):
    optimizer = gx.Optimizer(BOX, "de", population=20, seed=0)
    for _ in range(count):
        x = optimizer.ask_generation()
        optimizer.tell(x, (x**2).sum(axis=1))
    return optimizer


@pytest.mark.slow
def test_fresh_functions_with_fresh_numbers_compile_once():
    many_calls(2)
    before = PROGRAMS.statistics().compiled
    many_calls(10, first=2)
    assert PROGRAMS.statistics().compiled == before


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "and on disk"])
def test_two_hundred_calls_and_a_thousand_rounds_do_not_grow(tmp_path, monkeypatch, without_jax_cache, stored):
    if stored:
        monkeypatch.setattr(disk_cache, "_chosen", tmp_path)
        clear()
    many_calls(30)
    many_rounds(50)
    gc.collect()
    programs, memory, files = PROGRAMS.statistics().compiled, resident(), sorted(tmp_path.rglob("*"))
    assert bool(files) == stored
    many_calls(170, first=30)
    assert many_rounds(1000).generation == 1000
    gc.collect()
    assert PROGRAMS.statistics().compiled <= programs + 1  # of whole chunks, where stepping has taken a while by then
    assert resident() - memory < 40 * 2**20
    assert sorted(tmp_path.rglob("*")) == files


@pytest.mark.slow
def test_threads_with_different_precisions_do_not_mix():
    def run(dtype):
        return gx.minimize(moved(0.25), BOX, "de", population=20, compute=gx.Compute(dtype=dtype), **OPTIONS)

    kinds = ["float32", "float64"] * 3
    alone = {kind: run(kind) for kind in kinds[:2]}
    with ThreadPoolExecutor(4) as pool:
        for kind, result in zip(kinds, pool.map(run, kinds), strict=True):
            assert np.array_equal(result.x, alone[kind].x) and result.settings["dtype"] == kind


def in_a_process(seed):
    return gx.minimize(lambda x: jnp.sum(x**2), BOX, "de", population=20, seed=seed, **OPTIONS).x


@pytest.mark.slow
def test_processes_that_are_spawned_make_the_same_runs():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for seed, x in enumerate(pool.map(in_a_process, range(4))):
            assert np.array_equal(x, in_a_process(seed))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_says_so_instead_of_hanging():
    program = """
import os, warnings
warnings.simplefilter("ignore")
import galapax as gx, jax.numpy as jnp
run = lambda: gx.minimize(lambda x: jnp.sum(x**2), [(-1.0, 1.0)], "de", generations=2, polish=False)
run()
if not os.fork():
    try:
        run()
    except gx.InputError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert "forked after JAX had started" in done.stdout


CACHED = [sys.executable, "-m", "galapax", "solve", "branin", "-a", "de", "-g", "30", "--json"]


@pytest.mark.slow
def test_two_processes_share_the_cache_and_garbage_in_it_does_no_harm(tmp_path):
    own = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"GALAPAX_CACHE": str(tmp_path / "cache")}

    def start():
        return subprocess.Popen(CACHED, env=own, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def answers(processes):
        told = [process.communicate(timeout=300)[0] for process in processes]
        assert all(process.returncode == 0 for process in processes)
        return {text.split('"timings"')[0] for text in told}

    first = answers([start(), start()])
    assert len(first) == 1
    files = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert {"programs"} <= {file.parent.name for file in files}  # ours beside those of JAX
    rng = random.Random(5)
    for file in files:
        file.write_bytes(rng.randbytes(200))
    assert answers([start(), start()]) == first
