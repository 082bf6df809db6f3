"""Functions that need not be traced again: those that can read nothing that changes, and no others."""

import functools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.objective import traced
from galapax.objective.function_identity import NotHashable, closure_fingerprint

BOX = [(-1.0, 2.0)] * 2
CALL = {"algorithm": "de", "population": 8, "generations": 3, "polish": False}
LEVEL = 1.0
WEIGHTS = np.ones(2)


def helper(x):
    return jnp.sum(x**2) * math.pi


def plain(x):
    return helper(x) + LEVEL


def made(shift, power=2):
    return lambda x: jnp.sum((x - shift) ** power)


class Model:
    offset = 1.0

    def __call__(self, x):
        return jnp.sum(x) + self.offset

    def method(self, x):
        return self(x)


settings = types.ModuleType("settings")
settings.level = 1.0

UNSURE = [
    lambda x: jnp.sum(x * WEIGHTS),
    lambda x: jnp.sum(x) + settings.level,
    lambda x: jnp.sum(x) + np.random.default_rng().random(),
    lambda x: jnp.sum(x) + len(BOX),
    made(np.zeros(2)),
    made([0.0, 1.0]),
    made(jnp.zeros(2)),
    made(np.poly1d([1.0])),
    made(np.vectorize(math.sin)),
    made(jax.jit(plain)),
    Model(),
    Model().method,
    functools.partial(plain),
]


@pytest.mark.parametrize("function", UNSURE, ids=range(len(UNSURE)))
def test_what_may_change_is_not_remembered(function):
    with pytest.raises(NotHashable):
        closure_fingerprint(function)


def test_equal_functions_are_equal_and_others_are_not():
    assert closure_fingerprint(made(0.5)) == closure_fingerprint(made(0.5)) == closure_fingerprint(made(0.5, power=2))
    reads = [
        made(0.5),
        made(0.25),
        made(0),
        made(0.0),
        made(-0.0),
        made(False),
        made(0.5, 3),
        plain,
        helper,
        made(jnp.sum),
    ]
    assert len({closure_fingerprint(function) for function in reads}) == len(reads)


def test_a_changed_global_is_seen_also_through_other_functions(monkeypatch):
    before = closure_fingerprint(plain)
    monkeypatch.setitem(globals(), "LEVEL", 2.0)
    assert closure_fingerprint(plain) != before
    monkeypatch.setitem(globals(), "LEVEL", 1.0)
    assert closure_fingerprint(plain) == before
    monkeypatch.setitem(globals(), "helper", lambda x: jnp.sum(x))
    assert closure_fingerprint(plain) != before


@pytest.fixture
def traces(monkeypatch):
    """The functions that were traced."""
    seen = []
    own = traced.trace_one
    monkeypatch.setattr(traced, "trace_one", lambda name, *given: seen.append(name) or own(name, *given))
    return seen


def test_a_function_is_traced_once_and_again_when_what_it_reads_has_changed(traces, monkeypatch):
    first = gx.minimize(plain, BOX, **CALL)
    count = len(traces)
    assert gx.minimize(plain, BOX, **CALL).fun == first.fun and len(traces) == count
    monkeypatch.setitem(globals(), "LEVEL", 5.0)
    assert gx.minimize(plain, BOX, **CALL).fun == pytest.approx(first.fun + 4.0) and len(traces) > count
    count = len(traces)
    gx.minimize(plain, BOX, **CALL, maximize=True)
    gx.minimize(plain, BOX, **CALL, ineq=lambda x: x[0])
    assert len(traces) == count + 3


def test_an_array_that_was_written_to_counts(traces):
    weights = np.ones(2)
    both = []
    for factor in (1.0, 3.0):
        weights[:] = factor
        both.append(gx.minimize(lambda x: jnp.sum(weights * x**2) + weights[0], BOX, **CALL).fun)
    assert both[1] == pytest.approx(3 * both[0]) and len(traces) == 2


def test_a_problem_that_fails_everywhere_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(gx.InputError, match="NaN or inf at all"):
            gx.minimize(lambda x: jnp.sum(x) * jnp.nan, BOX, **CALL)
