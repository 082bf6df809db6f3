"""Functions that draw or read the clock while they are traced: the user is warned, and only then."""
# ruff: noqa: NPY002 (what users still write)

import datetime
import functools
import random
import time
import types
import warnings
from datetime import datetime as stamp
from random import gauss
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.random import normal

import galapax as gx
from galapax.objective.traced import trace

BOX = [(-1.0, 2.0)] * 2
SETTINGS = types.SimpleNamespace(random=0.5, time=2.0, now=3.0)
generator = np.random.default_rng(3)


def noise():
    return np.random.rand()


def noise_of_noise():
    return noise() + 1.0


class Noisy:
    def __init__(self):
        self.rng = np.random.default_rng(1)

    def __call__(self, x):
        return jnp.sum(x) + self.rng.normal()

    def method(self, x):
        return self(x)


def captured(rng):
    return lambda x: jnp.sum(x) + rng.random()


def imports_inside(x):
    import time as clock

    return jnp.sum(x) + clock.time()


def with_default(x, rng=np.random.default_rng(2)):
    return jnp.sum(x) + rng.normal()


def with_helper(x):
    return jnp.sum(x) * noise_of_noise()


IMPURE = {
    "np.random.rand": (lambda x: jnp.sum(x) + np.random.rand(), "np.random"),
    "np.random.normal of its shape": (lambda x: jnp.sum(x * np.random.normal(size=2)), "np.random"),
    "from numpy.random": (lambda x: jnp.sum(x) + normal(), "np.random"),
    "random.random": (lambda x: jnp.sum(x) + random.random(), "random"),
    "random.choice of two": (lambda x: jnp.sum(x) + random.choice([0, 1]), "random"),
    "from random": (lambda x: jnp.sum(x) + gauss(0, 1), "random"),
    "a generator without a seed": (lambda x: jnp.sum(x) + np.random.default_rng().normal(), "without a seed"),
    "a global generator": (lambda x: jnp.sum(x) + generator.normal(), "generator"),
    "a generator in a closure": (captured(np.random.default_rng(0)), "rng"),
    "an old generator in a closure": (captured(np.random.RandomState(0)), "rng"),
    "a Random in a closure": (captured(random.Random(0)), "rng"),
    "a generator as default": (with_default, "rng"),
    "an object": (Noisy(), "rng"),
    "a method": (Noisy().method, "rng"),
    "a partial": (
        functools.partial(lambda rng, x: jnp.sum(x) + rng.normal(), np.random.default_rng(0)),
        "of a partial",
    ),
    "jitted": (jax.jit(lambda x: jnp.sum(x) + time.time()), "time.time"),
    "time.time": (lambda x: jnp.sum(x) + time.time(), r"time.time\(\)"),
    "perf_counter": (lambda x: jnp.sum(x) + perf_counter(), "perf_counter"),
    "datetime.now": (lambda x: jnp.sum(x) + datetime.datetime.now().hour, "datetime.now"),
    "from datetime": (lambda x: jnp.sum(x) + stamp.now().minute, "datetime.now"),
    "date.today": (lambda x: jnp.sum(x) + datetime.date.today().day, "date.today"),
    "an import inside": (imports_inside, "time.time"),
    "a helper's helper": (with_helper, "np.random"),
}


@pytest.mark.parametrize("name", IMPURE)
def test_a_draw_or_a_clock_in_a_traced_function_is_warned_of_once(name):
    function, source = IMPURE[name]
    with pytest.warns(UserWarning, match=f"fun uses .*{source}.*blackbox=True"):
        trace(gx.Problem(function, BOX), "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(gx.Problem(function, BOX), "float32")


def same_noise(x):
    return jnp.sum(x * np.random.default_rng(7).normal(size=2))


def seeds_first(x):
    np.random.seed(3)
    return jnp.sum(x) + np.random.rand()


def with_key(x):
    return jnp.sum(x) + jax.random.normal(jax.random.key(0))


def named_like_one(x, time=2.0):
    random, now = 0.5, SETTINGS.now
    return jnp.sum(x) * random + time + now + SETTINGS.random + SETTINGS.time


def holds_one(x, rng=np.random.default_rng(2)):
    return jnp.sum(x) if rng is not None else 0.0


def sleeps(x):
    return jnp.sum(x) if callable(time.sleep) else 0.0


PURE = [same_noise, seeds_first, with_key, named_like_one, holds_one, sleeps, lambda x: jnp.sum(x) * np.pi]


@pytest.mark.parametrize("function", PURE, ids=lambda f: f.__name__)
def test_nobody_is_warned_of_what_is_the_same_each_time(function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(gx.Problem(function, BOX), "float32")


@pytest.mark.parametrize("name", list(gx.problems.PROBLEMS))
def test_no_problem_of_ours_raises_an_alarm(name):
    problem = gx.problems.get(name)
    if isinstance(problem, gx.Problem):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trace(problem, "float64" if jax.config.jax_enable_x64 else "float32")


def test_the_warning_points_at_the_call():
    def fun(x):
        return jnp.sum(x**2) + np.random.rand()

    with pytest.warns(UserWarning, match="np.random") as seen:
        gx.minimize(fun, BOX, "de", population=8, generations=2, polish=False)
    drawn = [each for each in seen if "np.random" in str(each.message)]
    assert len(drawn) == 1 and drawn[0].filename == __file__


def test_a_black_box_may_draw():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gx.minimize(lambda x: np.random.rand(), BOX, "de", population=8, generations=2, blackbox=True)
