"""Programs are kept on disk: a second process loads each of them once, compiles none and gets the same answer."""

import json

import pytest
from processes import run_script

SCRIPT = """
import json
from collections import Counter

import jax.numpy as jnp
import galapax as gx
from galapax.numerics import compile_cache

compile_cache.MAX_STEPPED_SECONDS = float("inf")  # else the clock decides whether whole chunks are compiled, too
loads, misses = Counter(), Counter()
load, save = compile_cache.load, compile_cache.save


def count_load(name, *arguments):
    program = load(name, *arguments)
    if program is not None:
        loads[name] += 1
    return program


def count_save(name, *arguments):
    misses[name] += 1
    save(name, *arguments)


compile_cache.load, compile_cache.save = count_load, count_save
XLA = gx.Compute(engine='xla')
result = CALL
for thread in [*compile_cache.PROGRAMS._threads]:  # what is being compiled ahead is saved, too
    thread.join()
answer = [gx.__version__, float(result.fun).hex(), result.x.tobytes().hex(), result.nfev, result.message]
print(json.dumps({"loads": loads, "misses": misses, "answer": answer}))
"""
CALLS = {
    "default": "gx.minimize(lambda x: jnp.sum(x**2 - 10 * jnp.cos(6 * x)), [(-2.0, 3.0)] * 3, compute=XLA)",
    "constraints": "gx.minimize(gx.problems.get('g06'), generations=60, compute=XLA)",
    "ensemble": "gx.minimize(gx.problems.get('ackley'), 'de', runs=50, generations=60, compute=XLA)",
}


@pytest.mark.parametrize("name", ["default", "ensemble", pytest.param("constraints", marks=pytest.mark.slow)])
def test_a_second_process_finds_every_program_on_disk(name, tmp_path):
    code, folder = SCRIPT.replace("CALL", CALLS[name]), tmp_path / "cache"
    first, second = (json.loads(run_script(code, tmp_path, GALAPAX_CACHE=folder)) for _ in range(2))
    assert not first["loads"] and len(first["misses"]) > 1
    # the first may have compiled ahead what it did not need
    assert not second["misses"] and second["loads"] and set(second["loads"]) <= set(first["misses"])
    assert set(second["loads"].values()) == {1}, "a program was loaded more than once"
    assert second["answer"] == first["answer"]
