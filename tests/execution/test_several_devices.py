"""One population evaluated by several devices, on CPU devices that XLA pretends to have."""

import json
import os
import subprocess
import sys

import jax.numpy as jnp
import pytest

import galapax as gx

SCRIPT = """
import json, re
import jax, jax.numpy as jnp, numpy as np, galapax as gx
from galapax.numerics import compile_cache

def bumpy(x):
    return jnp.sum(x**2 - 10 * jnp.cos(2 * jnp.pi * x))

def two(x):
    return jnp.stack([jnp.sum(x**2), jnp.sum((x - 1) ** 2)])

out = {"devices": len(jax.local_devices())}
for name, fun, population in (CASE,):
    call = {"algorithm": name, "population": population, "generations": 12, "polish": False}
    compile_cache.clear()
    by_all = gx.minimize(fun, [(-4.0, 5.5)] * 6, compute=gx.Compute(devices="all"), **call)
    texts = [program.compiled.as_text() for program in compile_cache.PROGRAMS._programs.values()]
    alone = gx.minimize(fun, [(-4.0, 5.5)] * 6, **call)
    part = -(-population // 4)
    out[name] = {
        "same draws": bool(np.allclose(by_all.history.mean[:2], alone.history.mean[:2], rtol=1e-12)),
        "nfev": [by_all.nfev, alone.nfev],
        "engine": str(by_all.engine),
        "parts": any(re.search(r"f64\\[(1,)?%d,6\\]" % part, text) and "all-gather" in text for text in texts),
    }
print(json.dumps(out))
"""


@pytest.mark.parametrize(
    "case",
    [
        '"de", bumpy, 50',
        pytest.param('"cmaes", bumpy, 13', marks=pytest.mark.slow),
        pytest.param('"nsga2", two, 24', marks=pytest.mark.slow),
    ],
    ids=["de", "cmaes", "nsga2"],
)
def test_each_device_evaluates_its_part_and_the_run_is_the_same(case):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    code = SCRIPT.replace("CASE", f"({case})")
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    out = json.loads(done.stdout.splitlines()[-1])
    assert out.pop("devices") == 4
    for name, found in out.items():
        assert found["same draws"] and found["parts"], name
        assert found["nfev"][0] == found["nfev"][1] and "4 devices share the population" in found["engine"]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"devices": 1}, 'devices must be "all"'),
        ({"blackbox": True}, "workers="),
        ({"vectorized": True}, "whole population at once"),
        ({"runs": 3}, "anyway"),
        ({"islands": 2, "algorithm": "de"}, "anyway"),
        ({"engine": "native"}, "one device"),
    ],
    ids=["number", "black box", "vectorized", "runs", "islands", "engine"],
)
def test_what_cannot_be_spread_is_refused(given, match):
    def call():
        grouped = {name: given[name] for name in ("devices", "engine") if name in given}
        others = {name: value for name, value in given.items() if name not in grouped}
        compute = gx.Compute(**{"devices": "all"} | grouped)
        gx.minimize(lambda x: jnp.sum(x**2), [(-1.0, 1.0)] * 2, compute=compute, **others)

    with pytest.raises(gx.InputError, match=match):
        call()


def test_on_one_device_it_changes_nothing():
    call = {"algorithm": "de", "population": 10, "generations": 5, "polish": False}
    both = [
        gx.minimize(lambda x: jnp.sum(x**2), [(-1.0, 1.0)] * 2, compute=gx.Compute(devices=devices), **call)
        for devices in (None, "all")
    ]
    assert both[0].fun == both[1].fun and both[1].engine.startswith("xla")
