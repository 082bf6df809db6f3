"""Whatever is given as an argument: a run, or one sentence from galapax, never the traceback of something else."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import inspect
import io
import math
import sys
import traceback
import warnings
from dataclasses import fields
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import galapax as gx
from galapax.core.errors import EvaluationError, OutOfMemory
from galapax.numerics import compile_cache

BOX = [(-1.0, 2.0)] * 2
SOURCES = str(Path(gx.__file__).parent)


def one(x):
    return jnp.sum(x**2)


def two(x):
    return jnp.stack([jnp.sum(x**2), jnp.sum((x - 1) ** 2)])


def pair(x, y):
    return jnp.sum(x * y)


class Colour(enum.Enum):
    RED = 1


class Numb:
    """Not a number, and it says so in its own way."""

    def __float__(self):
        raise RuntimeError("no float")


ODD = [
    None, True, False, np.True_, 0, 1, -1, 2, 7, 2**33, 2**63, 10**400, 0.0, 0.5, -0.5, 1e-320, 1e308,
    math.nan, math.inf, -math.inf, 1 + 2j, "", "x", "auto", "de", "nsga2", "float32", "\ud800", "a\0b", "\n",
    "x" * 10_000, b"", b"de", (), [], {}, set(), [None], [1], [1, 2], [[1, 2], [3]], [math.nan] * 2, ["a", "b"],
    {"a": 1}, {None: None}, (0, 1), [(0, 1)], [(1, 0)] * 2, [(-1, 1)] * 3, np.zeros(0), np.zeros(2), np.zeros((2, 2)),
    np.zeros((2, 2, 2)), np.array(3), np.array(1.5), np.array("a"), np.array([None, 1], object), np.ma.masked,
    np.float32(1), np.int8(3), np.uint64(2**63), np.datetime64("2020-01-01"), np.zeros((2, 2), complex),
    np.dtype("float32"), np.float64, jnp.zeros(2), jnp.float32(1), jax.random.key(0), lambda: 1, lambda x: x,
    lambda x, y: 1.0, len, int, type, object(), Colour.RED, Ellipsis, Numb(), decimal.Decimal("nan"),
    fractions.Fraction(1, 3), datetime.date(2020, 1, 1), Path("x"), Path("/nowhere/x"), io.StringIO("a"), range(3),
    range(0), iter([1, 2]), memoryview(b"ab"), ValueError("x"), gx.DE, gx.DE(population=3), gx.NSGA2(),
    gx.problems.get("zdt1"), gx.problems.get("g06"), gx.Islands(2), slice(1, 2), gx.real(0, 1), [gx.real(0, 1)],
    {"a": gx.integer(0, 3)},
]  # fmt: skip

plain = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
odd = (
    st.sampled_from(ODD)
    | plain
    | st.lists(plain, max_size=3)
    | st.dictionaries(plain, plain, max_size=2)
    | arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)

OPTIONS = {"generations": 2, "population": 8}
VERBS = {
    "minimize": (gx.minimize, {"fun": one, "bounds": BOX, "algorithm": "de", **OPTIONS}),
    "default": (gx.minimize, {"fun": one, "bounds": BOX, "generations": 2}),
    "black box": (gx.minimize, {"fun": one, "bounds": BOX, "algorithm": "de", "blackbox": True, **OPTIONS}),
    "minimax": (gx.minimax, {"fun": pair, "x_bounds": BOX, "y_bounds": BOX, **OPTIONS}),
    "scenarios": (gx.minimax, {"fun": pair, "x_bounds": BOX, "scenarios": [[0.0, 1.0], [1.0, 2.0]], **OPTIONS}),
    "sweep": (gx.sweep, {"fun": one, "bounds": BOX, "algorithm": "de", "weight": [0.3, 0.5], **OPTIONS}),
    "compare": (gx.compare, {"problems": ["branin"], "algorithms": ["de", "ga"], "max_evaluations": 300, "runs": 2}),
    "optimizer": (gx.Optimizer, {"algorithm": "de", "bounds": BOX, "population": 8}),
    "problem": (gx.Problem, {"fun": one, "bounds": BOX}),
}
ARGUMENTS = [(verb, name) for verb, (call, _) in VERBS.items() for name in inspect.signature(call).parameters]
ARGUMENTS = [(verb, name) for verb, name in ARGUMENTS if name != "settings"]
ARGUMENTS += [("sweep", name) for name in inspect.signature(gx.minimize).parameters if ("sweep", name) not in ARGUMENTS]
SETTINGS = [(name, field.name) for name, kind in gx.algorithms.ALGORITHMS.items() for field in fields(kind)]


def is_told(error):
    """Whether an error is galapax's own sentence: one of its classes, or raised by a line of its own."""
    if isinstance(error, gx.InputError | EvaluationError | OutOfMemory):
        return bool(str(error))
    last = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error, TypeError | ValueError) and SOURCES in last.filename and "raise" in (last.line or "")


class Reached(Exception):
    """Nothing was refused."""


def reached(*given, **options):
    raise Reached


@pytest.fixture
def nothing_runs(monkeypatch, tmp_path):
    """Every argument is checked before anything is compiled, so nothing needs to be."""
    for module in ("minimize", "minimax", "experiments"):
        monkeypatch.setattr(sys.modules[f"galapax.api.{module}"], "solve", reached)
    monkeypatch.setattr(compile_cache, "call", reached)
    monkeypatch.chdir(tmp_path)


def try_out(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except Reached:
            pass
        except Exception as error:
            if not is_told(error):
                raise


def with_argument(verb, name, value, **further):
    call, base = VERBS[verb]
    try_out(lambda: call(**{**base, name: value, **further}))


def with_setting(name, setting, value, **further):
    kind = gx.algorithms.ALGORITHMS[name]
    fun = two if kind.traits.multi_objective else one
    try_out(lambda: gx.minimize(fun, BOX, kind(**{setting: value}), generations=2, polish=False, **further))


quiet = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


@settings(max_examples=250, derandomize=True, **quiet)
@given(argument=st.sampled_from(ARGUMENTS), value=odd)
def test_an_odd_argument_is_refused_in_a_sentence_or_meant(nothing_runs, argument, value):
    with_argument(*argument, value)


@settings(max_examples=150, derandomize=True, **quiet)
@given(argument=st.sampled_from(SETTINGS), value=odd)
def test_an_odd_hyper_parameter_is_refused_in_a_sentence_or_meant(nothing_runs, argument, value):
    with_setting(*argument, value)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [ARGUMENTS, SETTINGS], ids=["arguments", "settings"])
def test_every_argument_with_every_odd_value(nothing_runs, pairs):
    for where in pairs:
        for value in ODD:
            (with_argument if pairs is ARGUMENTS else with_setting)(*where, value)


# would start processes, open a port, or run for as long as the numbers say
BUSY = {"live", "workers", "executor", "timeout", "problems", "runs", "max_evaluations", "islands", "threads"}
BUSY |= {"population", "archive"}
REAL = [(verb, name) for verb, name in ARGUMENTS if name not in BUSY and verb not in ("optimizer", "problem")]


@pytest.mark.slow
@settings(max_examples=400, **quiet)
@given(argument=st.sampled_from(REAL), value=odd)
def test_what_is_not_refused_runs(tmp_path_factory, argument, value):
    """Until the first look at it, at which the callback ends it."""
    verb, name = argument
    further = {} if verb == "compare" or name == "callback" else {"callback": lambda progress: True}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("fuzz"))
        with_argument(verb, name, value, **further)
