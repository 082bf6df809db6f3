"""Every option is declared once: signatures, settings, fingerprints and the shell follow from it."""

import dataclasses
import inspect
import json

import jax.numpy as jnp
import pytest

import galapax as gx
from galapax.cli.shell_options import run_options
from galapax.core.options import GROUPS, LEAVES, Options, group_arguments, read

PROBLEM = {"fun", "bounds", "algorithm", "ineq", "eq", "eq_tolerance"}
OBSERVERS = {"callback", "progress", "live", "checkpoint", "resume"}


def test_minimize_has_the_options_with_their_defaults():
    parameters = inspect.signature(gx.minimize).parameters
    fields = {field.name: field.default for field in dataclasses.fields(Options)}
    assert set(parameters) - PROBLEM - OBSERVERS == set(fields)
    assert {name: parameters[name].default for name in fields} == fields
    assert all(f"{name}:" in gx.minimize.__doc__ or f"{name}," in gx.minimize.__doc__ for name in parameters)


@pytest.mark.parametrize("verb", [gx.minimax, gx.compare])
def test_other_verbs_have_only_options_of_minimize(verb):
    own = {"x_bounds", "y_bounds", "scenarios", "problems", "algorithms", "within", "paired"}
    assert set(inspect.signature(verb).parameters) - PROBLEM - OBSERVERS - own <= set(Options.__dataclass_fields__)


def test_settings_record_every_option():
    options = {"max_evaluations": 600, "patience": 50, "runs": 2, "x0": [0.5, 0.5], "seed": 3, "polish": False}
    groups = {"keep": gx.Keep(history="x", snapshots=[2]), "compute": gx.Compute(engine="xla", threads=1)}
    result = gx.minimize(lambda x: jnp.sum(x**2), [(-1.0, 2.0)] * 2, "de", population=10, **options, **groups)
    assert set(LEAVES) <= set(result.settings)
    asked = {"max_evaluations": 600, "patience": 50, "runs": 2, "seed": 3, "history": "x", "snapshots": [2]}
    asked |= {"engine": "xla", "threads": 1, "x0": [[0.5, 0.5]], "population": 10}
    assert {name: result.settings[name] for name in asked} == asked
    json.dumps(result.settings)


def test_options_of_the_shell_are_grouped_for_the_library():
    arguments = group_arguments({"seed": 1, "workers": 2, "timeout": 3.0, "dtype": "float32", "retries": 0})
    assert arguments == {"seed": 1, "workers": gx.Workers(2, timeout=3.0), "compute": gx.Compute(dtype="float32")}
    assert set(run_options()) <= set(LEAVES)


def test_leaves_are_read_by_their_name():
    options = Options(workers=3, keep=gx.Keep(archive=9), patience=4)
    assert (read(options, "workers"), read(options, "archive"), read(options, "patience")) == (3, 9, 4)
    assert options.workers == gx.Workers(3) and set(GROUPS) == {"workers", "keep", "compute"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Options(keep={"history": "x"}), r"keep must be a gx\.Keep, such as gx\.Keep\(history=\"x\"\); got"),
        (lambda: Options(compute="float32"), r"compute must be a gx\.Compute"),
        (lambda: gx.Compute(devices=2), r'devices must be "all"'),
        (lambda: gx.Compute(engine="cuda"), "engine must be one of 'auto', 'xla', 'fused', 'native', got 'cuda'"),
        (lambda: gx.Keep(history=3), "history must be True, False or"),
        (lambda: gx.Workers(memoize=1), "memoize must be True or False, got 1"),
        (lambda: Options(runs=range(5, 2)), r"runs as a range names consecutive runs"),
    ],
)
def test_a_value_that_cannot_be_meant_is_named(make, message):
    with pytest.raises(gx.InputError, match=message):
        make()


def test_a_range_of_runs_is_those_of_the_ensemble():
    call = {
        "fun": lambda x: jnp.sum(x**2),
        "bounds": [(-1.0, 2.0)] * 2,
        "algorithm": "de",
        "generations": 5,
        "polish": False,
    }
    every, some = gx.minimize(runs=6, **call), gx.minimize(runs=range(2, 5), **call)
    assert some.runs.number.tolist() == [2, 3, 4] and (some.runs.x == every.runs.x[2:5]).all()
