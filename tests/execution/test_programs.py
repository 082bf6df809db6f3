"""Programs are compiled once, whatever numbers and arrays an objective closes over, and nothing else is kept."""

import contextlib
import gc
import threading
import time
import warnings
import weakref
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params, product
from support.compilations import compilations

import galapax as gx
from galapax.numerics import compile_cache, devices
from galapax.numerics.compile_cache import CompileCache, CompileTimer, ProgramCall
from galapax.objective.hoist_constants import HoistedPrograms, call
from galapax.objective.traced import trace

BOX = [(-3.0, 4.0)] * 3
SHORT = {"algorithm": gx.RandomSearch(population=12), "generations": 4, "polish": False}  # what compiles soonest
FLOATS = np.linspace(0.13, 2.71, 6).tolist()


# --- numbers are data -------------------------------------------------------------------------------------------------


def clipped(c):
    return lambda x: jnp.sum(jnp.where(x > c, jnp.clip(x, -c, c), c) ** 2)


def nested(c):
    inner = jax.jit(lambda y: jnp.sum(y * c) + jax.jit(lambda z: z / c)(y[0]))
    return lambda x: inner(x) + jnp.sum(x**2)


WITH_A_NUMBER = {
    "plain": lambda c: lambda x: jnp.sum((x - c) ** 2),
    "factor": lambda c: lambda x: c * jnp.sum(jnp.cos(c * x)),
    "divisor": lambda c: lambda x: jnp.sum(x / c),
    "where and clip": clipped,
    "under jit": nested,
    "exponent": lambda c: lambda x: jnp.sum(jnp.abs(x) ** (c + 0.001)),
    "base": lambda c: lambda x: jnp.sum((c + 3.001) ** x),
    "full": lambda c: lambda x: jnp.sum(jnp.full(3, c) * x),
    "NumPy's": lambda c: lambda x: jnp.sum(x * np.float64(c)),
    "JAX's": lambda c: lambda x: jnp.sum(x * jnp.asarray(c)),
    "with an array": lambda c: lambda x: jnp.sum(x * (c * np.arange(3.0))),
    "before a loop": lambda c: lambda x: jax.lax.fori_loop(0, 3, lambda i, t: t * x[i], c * x[0]),
    "into a loop": lambda c: lambda x: jax.lax.fori_loop(0, 3, lambda i, t: t + x[i], c + 0.0),
}


@pytest.mark.parametrize("name", params(WITH_A_NUMBER, quick={"with an array"}))
def test_a_formula_with_other_numbers_compiles_once(name):
    make = WITH_A_NUMBER[name]
    first = gx.minimize(make(FLOATS[0]), BOX, **SHORT)
    with compilations() as compiled:
        runs = [gx.minimize(make(c), BOX, **SHORT) for c in FLOATS[1:]]
    assert compiled == []
    assert len({run.fun for run in [first, *runs]}) == len(FLOATS)  # and the numbers do make a difference
    for c, run in zip(FLOATS, [first, *runs], strict=True):
        with jax.enable_x64(True):
            rtol = 1e-12 if run.settings["dtype"] == "float64" else 1e-5
            np.testing.assert_allclose(run.fun, float(make(c)(jnp.asarray(run.x))), rtol=rtol)


@pytest.mark.parametrize("kind", [np.array, pytest.param(jnp.array, marks=pytest.mark.slow)])
def test_arrays_and_numbers_together_compile_once(kind):
    def run(c):
        data = kind([c, 2 * c, -c])
        return gx.minimize(lambda x: jnp.sum((x - data) ** 2) + c, BOX, ineq=lambda x: c - x[0], **SHORT)

    run(0.3)
    with compilations() as compiled:
        values = {run(c).fun for c in (0.4, 0.5, 0.6)}
    assert compiled == []
    assert len(values) == 3


@pytest.mark.slow
def test_a_game_with_other_numbers_compiles_once():
    def run(c):
        return gx.minimax(
            lambda x, y: (x[0] - c * y[0]) ** 2 + c * x[0], [(-1, 2)], [(-1, 1)], generations=20, polish=False
        )

    run(0.3)
    with compilations() as compiled:
        values = {run(c).worst_case for c in (0.4, 0.5)}
    assert compiled == []
    assert len(values) == 2


def test_numbers_that_make_faster_programs_stay_in_them():
    def numbers(fun):
        return sum(map(len, trace(gx.Problem(fun, BOX), "float32").consts.numbers.values()))

    assert numbers(lambda x: jnp.sum(x**2.0 + jnp.abs(x) ** 0.5 + jnp.abs(x) ** -1.5)) == 0
    assert numbers(lambda x: jnp.sum(2.0**x)) == 0
    assert numbers(lambda x: jnp.sum(jnp.where(x > 0, 1.0, jnp.inf))) == 0
    assert numbers(lambda x: jnp.sum(x) + jnp.sqrt(2.5)) == 0  # computed in compiling, as it reads no data
    assert numbers(lambda x: jnp.sum(x * 2.5) + jnp.sum(x * 2.5)) == 1  # equal, to be computed once
    assert numbers(lambda x: jnp.sum(x * 2.5) + jnp.sum(x * 3.5)) == 2


def test_objective_and_constraints_share_what_they_read():
    data = jnp.arange(3.0)
    problem = gx.Problem(lambda x: jnp.sum(data * x * 2.5), BOX, ineq=lambda x: jnp.max(data * x * 2.5))
    _, consts = trace(problem, "float32")
    assert len(consts.arrays) == 1
    assert [len(column) for column in consts.numbers.values()] == [1]


# --- and mean what they meant -----------------------------------------------------------------------------------------

TRICKY = {
    "comparisons": lambda x: jnp.sum(jnp.where((x > 0.3) & (x <= 2.7), 1.5, -0.5) + (x == 0.25)),
    "powers": lambda x: jnp.sum(jnp.abs(x) ** 1.3 + x**3 + 1.7**x + jnp.abs(x) ** 2.5),
    "rounding": lambda x: jnp.sum(jnp.round(x * 3.3) + jnp.floor(x / 0.7) + jnp.fmod(x, 0.9)),
    "loops": lambda x: jax.lax.fori_loop(0, 5, lambda i, t: t * 0.9 + x[0] * 1.1, 2.5),
    "while": lambda x: jax.lax.while_loop(lambda t: t < 7.5, lambda t: t * 1.7, jnp.abs(x[0]) + 0.3),
    "cond": lambda x: jax.lax.cond(x[0] > 0.5, lambda t: t * 2.5, lambda t: t - 3.5, x[1]),
    "own derivative": lambda x: jnp.sum(jax.nn.relu(x - 0.4) + jnp.logaddexp(x, 0.7) + jax.nn.gelu(1.3 * x)),
    "single precision": lambda x: jnp.sum(x * np.float32(0.1)) + jnp.sum((x.astype(jnp.float32) * 0.1) ** 2),
    "half precision": lambda x: jnp.sum(x.astype(jnp.bfloat16) * 0.1).astype(jnp.float32),
    "whole numbers": lambda x: jnp.sum(x * 3 + jnp.arange(3) * 7) + jnp.sum(x.astype(jnp.int32) * 5),
    "a tuple": lambda x: (2.5, jnp.sum(x) * 1.5, jnp.sqrt(3.5)),
    "extremes": lambda x: jnp.sum(x / 1e-310 + x / 1e307 + x * 5e-324 + jnp.minimum(x, 1e308)),
    "callback": lambda x: jax.pure_callback(
        np.float64, jax.ShapeDtypeStruct((), "float64"), x[0] * 2.5, vmap_method="sequential"
    ),
    "repeated": lambda x: jnp.sum(jnp.sin(x * 2.5)) * jnp.sum(jnp.sin(x * 2.5) * 2.5),
    "nothing of x": lambda x: jnp.asarray(4.5),
    "sorting": lambda x: (
        jnp.sort(jnp.concatenate([x, jnp.array([0.5, 1.5])]))[2] + jnp.interp(x[0], jnp.arange(3.0), x)
    ),
    "random": lambda x: jnp.sum(x * jax.random.normal(jax.random.key(3), (3,)) * 1.5),
}


@pytest.mark.parametrize(
    "name",
    params(
        TRICKY,
        quick={"comparisons", "powers", "rounding", "while", "cond", "single precision", "a tuple", "nothing of x"},
    ),
)
def test_a_lifted_program_gives_what_the_function_does(name):
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(lambda x: TRICKY[name](x))(jax.ShapeDtypeStruct((3,), "float64"))
        lifted = HoistedPrograms([closed])
        (program,), consts = lifted.programs(), lifted.constants
        points = np.random.default_rng(0).uniform(-3, 4, (40, 3))
        wanted = jax.jit(jax.vmap(lambda x: jax.tree.leaves(TRICKY[name](x))))(points)
        got = jax.jit(jax.vmap(lambda k, x: call(program, k, x), in_axes=(None, 0)))(consts, points)
        for one, other in zip(wanted, got, strict=True):
            assert one.dtype == other.dtype
            # a GPU may add float32 numbers in another order
            np.testing.assert_allclose(one, other, rtol=1e-5 if name == "single precision" else 1e-12, atol=1e-300)


@pytest.mark.slow
@pytest.mark.parametrize("name", gx.problems.PROBLEMS)
def test_every_problem_has_the_values_of_its_functions(name):
    problem = gx.problems.get(name)
    if not isinstance(problem, gx.Problem):
        return
    with jax.enable_x64(True):
        share = np.random.default_rng(0).random((16, problem.dim))
        points = np.asarray(problem.bounds.lower) + share * np.asarray(problem.bounds.span)
        formulas, consts = trace(problem, "float64")
        functions = [f for f in (problem.fun, problem.ineq, problem.eq) if f is not None]

        @jax.jit
        def both(consts, points):
            out = formulas(consts, points)
            return [v for v in (out.objectives, out.ineq, out.eq) if v is not None], [
                jax.vmap(f)(points) for f in functions
            ]

        for got, plain in zip(*both(consts, points), strict=True):
            wanted = np.asarray(plain).reshape(got.shape)
            scale = np.maximum(1, np.abs(wanted).max(axis=0))
            np.testing.assert_allclose(got / scale, wanted / scale, rtol=1e-12, atol=1e-12)


def test_failures_are_seen_as_before():
    result = gx.minimize(lambda x: jnp.log(x[0] - 0.5) + x[1] / 0.3, BOX, **SHORT, on_failure="worst")
    assert result.n_failed > 0 and np.isfinite(result.fun)
    with pytest.raises(gx.InputError, match="NaN or inf at all"):
        gx.minimize(lambda x: jnp.sum(x) * jnp.nan + 2.5, BOX, **SHORT)
    with pytest.raises(gx.InputError, match="NaN or inf at all"):
        gx.minimize(lambda x: jnp.sum(x) / 0.0, BOX, **SHORT)


# --- several objectives as a list -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("join", [list, tuple, jnp.stack], ids=lambda join: join.__name__)
@pytest.mark.parametrize("vectorized", [False, True])
def test_objectives_in_a_list_are_several(join, vectorized):
    def fun(x):
        return join([jnp.sum(x**2, axis=-1), jnp.sum((x - 1) ** 2, axis=-1)])

    def as_columns(x):
        out = fun(x)
        return out.T if isinstance(out, jax.Array) else out

    result = gx.minimize(
        as_columns if vectorized else fun, BOX, population=12, generations=3, vectorized=vectorized, polish=False
    )
    assert result.settings["algorithm"] == "nsga2"
    assert result.F.shape[1] == 2


# --- nothing of the user's is kept ------------------------------------------------------------------------------------


def plain_array(data, **settings):
    gx.minimize(lambda x: jnp.sum((x - data) ** 2, axis=-1), BOX, **SHORT, **settings)


def array_under_jit(data):
    inner = jax.jit(lambda x: x - data)
    gx.minimize(lambda x: jnp.sum(inner(x) ** 2), BOX, **SHORT)


def array_in_a_repaired_constraint(data):
    gx.minimize(lambda x: jnp.sum(x**2), BOX, eq=lambda x: jnp.sum(data * x) - 0.4, generations=4, polish=False)


def array_in_a_game(data):
    gx.minimax(lambda x, y: jnp.sum(data) * (x[0] - y[0]) ** 2, [(-1, 2)], [(-1, 1)], generations=20, polish=False)


USES = [
    plain_array,
    pytest.param(partial(plain_array, vectorized=True), id="plain_array, vectorized"),
    array_under_jit,
]
LONG = [array_in_a_repaired_constraint, array_in_a_game]


@pytest.mark.parametrize(
    ("use", "library"),
    params(
        product([*USES, *LONG], [np, jnp]),
        quick={"array_under_jit-numpy", "array_under_jit-jax.numpy"},
    ),
)
def test_a_closed_over_array_is_freed(use, library):
    data = library.linspace(-0.5, 1.0, 3)
    use(data)
    watched = weakref.ref(data)
    del data
    gc.collect()
    assert watched() is None


# --- the cache --------------------------------------------------------------------------------------------------------


def scaled(factor, x):
    return factor * x


def test_the_cache_of_programs_is_limited_in_bytes_and_the_least_recently_used_goes_first():
    roomy = CompileCache(limit=2**30)
    for factor in (2, 3, 4):
        roomy.call(scaled, (factor,), np.ones(3))
    one = roomy.statistics().size // 3
    cache = CompileCache(limit=int(2.5 * one))
    for factor in (2, 3, 2, 4):  # 4 drives out 3, as 2 was used again
        assert np.array_equal(cache.call(scaled, (factor,), np.ones(3)), [factor] * 3)
    assert cache.statistics().programs == 2 and cache.statistics().compiled == 3
    assert cache.statistics().size <= cache.limit
    cache.call(scaled, (2,), np.ones(3))
    assert cache.statistics().compiled == 3
    cache.call(scaled, (3,), np.ones(3))
    assert cache.statistics().compiled == 4


def test_a_program_larger_than_the_limit_stays_while_it_is_the_last():
    cache = CompileCache(limit=1)
    for _ in range(2):
        cache.call(scaled, (2,), np.ones(3))
    assert cache.statistics().compiled == 1
    cache.call(scaled, (3,), np.ones(3))
    assert cache.statistics().programs == 1


def test_the_environment_sets_the_limit(monkeypatch):
    assert CompileCache().limit == 512 * 2**20
    monkeypatch.setenv("GALAPAX_PROGRAMS_MIB", "1.5")
    assert CompileCache().limit == 1.5 * 2**20


def test_what_is_forgotten_is_freed():
    class Fixed:
        pass

    cache, fixed = CompileCache(limit=2**30), Fixed()
    cache.call(lambda fixed, x: x + 1, (fixed,), np.ones(3))
    watched = weakref.ref(fixed)
    del fixed
    gc.collect()
    assert watched() is not None
    cache.clear()
    gc.collect()
    assert watched() is None
    assert cache.statistics().size == 0


def test_shapes_precision_donation_and_options_make_another_program():
    cache = CompileCache(limit=2**30)

    def count(*arguments, **settings):
        cache.call(scaled, (2,), *arguments, **settings)
        return cache.statistics().compiled

    assert count(jnp.ones(3)) == 1
    assert count(jnp.ones(3)) == 1
    assert count(jnp.ones(4)) == 2
    assert count(jnp.ones(3), donate=(0,)) == 3
    assert count(jnp.ones(3), options={"xla_llvm_disable_expensive_passes": True}) == 4
    with jax.enable_x64(True):
        assert count(np.ones(3)) == 5
    assert count(np.ones(3)) == 6  # rounded to single precision


def test_two_threads_compile_a_program_once():
    def slow(x):
        time.sleep(0.2)  # while it is traced
        return x + 1

    cache, answers, clocks = CompileCache(limit=2**30), [], [CompileTimer(), CompileTimer()]

    def work(clock):
        answers.append(cache.call(slow, (), np.ones(3), timer=clock))

    threads = [threading.Thread(target=work, args=(clock,)) for clock in clocks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.statistics().compiled == 1
    assert all(np.array_equal(answer, [2, 2, 2]) for answer in answers) and len(answers) == 2
    assert all(clock.compile_seconds > 0.1 for clock in clocks)  # both had to wait


def test_other_threads_make_programs_step_by_step_while_they_are_of_use(monkeypatch):
    monkeypatch.delenv("GALAPAX_PRECOMPILE")
    monkeypatch.setattr(devices, "count_cores", lambda: 2)
    own, made, begun, may = CompileCache(), [], threading.Event(), threading.Event()

    def steps(name, count):
        for i in range(count):
            begun.set()
            may.wait()
            own.call(lambda i, x: x + i, (i,), 1.0)
            made.append((name, i, threading.current_thread().name))
            yield

    def fails():
        raise ValueError("nobody hears of it")
        yield

    with contextlib.suppress(ZeroDivisionError), own.precompiling():
        own.precompile(fails)
        own.precompile(partial(steps, "first", 2))
        own.precompile(partial(steps, "second", 1))
        assert begun.wait(60)
        raise ZeroDivisionError  # the step that has begun is done, and no other
    may.set()
    for helper in list(own._threads):
        helper.join()
    assert made == [("first", 0, "galapax precompile")]
    own.precompile(partial(steps, "third", 2))
    for helper in list(own._threads):
        helper.join()
    assert [step[:2] for step in made[1:]] == [("third", 0), ("third", 1)]
    monkeypatch.setattr(devices, "count_cores", lambda: 1)  # nothing can be made meanwhile
    own.precompile(partial(steps, "fourth", 1))
    assert not own._threads and len(made) == 3


def test_a_call_whose_programs_are_there_starts_no_other_thread(monkeypatch):
    monkeypatch.delenv("GALAPAX_PRECOMPILE")
    monkeypatch.setattr(devices, "count_cores", lambda: 2)
    own, made = CompileCache(), []

    def steps():
        made.append(threading.current_thread().name)
        yield

    def double(x):
        return 2 * x

    for expected in ([], ["galapax precompile"], ["galapax precompile"]):
        with own.precompiling():
            own.precompile(steps, when_compiling=True)
            assert made == expected[:1]
            own.call(double, (), 1.0)
            for helper in list(own._threads):
                helper.join()
        assert made == ["galapax precompile"]  # when `double` was compiled, in the first round
    with own.precompiling():
        own.precompile(steps, when_compiling=True)
    own.call(lambda x: x + 3, (), 1.0)  # what was to be made ahead is of no use any more
    assert len(made) == 1 and not own._threads


def test_a_thread_that_does_not_wait_leaves_programs_to_others(monkeypatch):
    begun, may = threading.Event(), threading.Event()

    def slow(x):
        begun.set()
        may.wait()
        return x + 1.0

    thread = threading.Thread(target=compile_cache.call, args=(slow, (), 1.0))
    thread.start()
    assert begun.wait(60)
    with pytest.raises(compile_cache.BeingCompiled):
        CompileTimer(waits=False).program(ProgramCall(slow, (), (1.0,)))
    may.set()
    thread.join()
    assert CompileTimer(waits=False).program(ProgramCall(slow, (), (1.0,)))(2.0) == 3.0


def test_a_function_that_cannot_be_compiled_raises_each_time():
    def broken(x):
        raise ValueError("no")

    cache = CompileCache(limit=2**30)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            cache.call(broken, (), np.ones(3))
    assert cache.statistics().programs == 0


def test_a_run_counts_the_seconds_of_its_own_programs():
    fun = lambda x: jnp.sum((x - 0.3) ** 4) + jnp.max(x)  # noqa: E731
    before = compile_cache.count_compiled()
    assert gx.minimize(fun, BOX, **SHORT).timings["compile"] > 0
    made = compile_cache.count_compiled()
    assert made > before
    assert gx.minimize(fun, BOX, **SHORT).timings["compile"] == 0
    assert compile_cache.count_compiled() == made


# --- the device -------------------------------------------------------------------------------------------------------


def test_the_platform_is_that_of_the_default_device():
    assert devices.platform() == jax.devices()[0].platform
    with jax.default_device(jax.devices("cpu")[0]):
        assert devices.on_cpu()
    with jax.default_device("cpu"):
        assert devices.platform() == "cpu"


def test_float32_made_outside_a_float64_run_is_warned_of():
    root, twice = jnp.sqrt(2.0), np.sqrt(2.0)
    with (
        jax.enable_x64(True),
        pytest.warns(UserWarning, match="fun uses float32 arrays made outside it in a float64 run"),
    ):
        trace(gx.Problem(lambda x: jnp.sum(x) * root, BOX), "float64")
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(gx.Problem(lambda x: jnp.sum(x) * twice, BOX), "float64")
        trace(gx.Problem(lambda x: jnp.sum(x) * root, BOX), "float32")
