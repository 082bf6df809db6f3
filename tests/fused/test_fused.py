# ruff: noqa: E501 (tables of expressions)
"""The fused engine's compiler, by the host's C compiler against JAX; and the engine itself, on the host and on a GPU.

What is generated for a GPU can be built for the host, too, so most can be tested without one. The text of the native
engine has other loops, for vectors.
"""

from functools import wraps

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import galapax as gx
from galapax.fused import backend, cpu_kernel, cuda, kernel, kernel_source, passes
from galapax.fused import loop_ir as ir
from galapax.fused.array_ir import NotFusible
from galapax.numerics import devices, disk_cache, random

needs_cc = pytest.mark.skipif(
    cpu_kernel.find_compiler() is None or not devices.on_cpu(), reason="needs a C compiler and JAX on a CPU"
)
DRAWS = np.random.default_rng(3)
TABLE = DRAWS.normal(size=(40, 3))
WHOLE = DRAWS.integers(-50, 50, size=(40,)).astype(np.int32)
# every sum may be made in another order, and the C library rounds otherwise than XLA's polynomials
CLOSE = {"float32": 3e-5, "float64": 1e-11}


def emulate(blocks_per_run=1, runs_per_sm=1):
    """A GPU's schedule, in C for the host."""
    return kernel_source.LaunchShape(blocks_per_run, runs_per_sm, is_emulated=True)


TEXTS = emulate(), kernel_source.LaunchShape(for_cpu=True)  # for a GPU, and for a CPU's vectors


def made(function, form, *arguments):
    """What the generated C makes of a function."""
    closed = jax.make_jaxpr(function)(*arguments)
    out = [np.full(a.shape, 77).astype(a.dtype) for a in closed.out_avals]
    cpu_kernel.CpuKernel(kernel_source.lower_function(closed, form))([np.ascontiguousarray(a) for a in arguments], out)
    return out


def agree(function, *arguments, close=3e-5):
    """What the generated C makes of a function is what JAX does."""
    wanted = [np.asarray(a) for a in jax.tree.leaves(jax.jit(function)(*arguments))]
    for form in TEXTS:
        for number, (got, want) in enumerate(zip(made(function, form, *arguments), wanted, strict=True)):
            got, want = got.astype(np.float64), want.astype(np.float64)
            scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
            about = f"output {number}, {form}"
            np.testing.assert_allclose(got, want, rtol=close, atol=close * scale, err_msg=about)


def elementwise(x, i):
    u = i.astype(jnp.uint32)
    y, positive = x[:, 0], jnp.abs(x[:, 0]) + 0.1
    return [
        jnp.sin(y), jnp.cos(y), jnp.tan(y), jnp.exp(y), jnp.log(positive), jnp.sqrt(positive), jnp.tanh(y),
        jnp.arctan2(y, x[:, 1]), y**3, y**-2, positive**1.7, jnp.expm1(y), jnp.log1p(positive), jnp.floor(y),
        jnp.round(y * 3), jnp.sign(y), jnp.maximum(y, jnp.nan), jnp.minimum(y, x[:, 1]), jnp.clip(y, -0.5, 0.5),
        jax.scipy.special.erf(y), jax.scipy.special.erfinv(y / 5), jax.nn.sigmoid(y), 1 / (y * 0), jnp.isfinite(1 / (y * 0)),
        jnp.where(y > 0, y, jnp.inf), y % 0.3, jnp.cbrt(y), jnp.hypot(y, y), jax.lax.rsqrt(positive),
        i // 7, i % 7, i * 1_000_003 * 2_000_003, -i, abs(i), i << 3, i >> 2, i ^ 21, ~i, u >> 5, u * u * u, i**3,
        i.astype(x.dtype) / 3, (y * 10).astype(jnp.int32), jnp.array([jnp.nan, 1e30, -1e30]).astype(jnp.int32),
        jax.lax.bitcast_convert_type(y.astype(jnp.float32), jnp.uint32), i > 3, (i > 3) & ~(y > 0), jax.lax.population_count(u),
    ]  # fmt: skip


def moving(x, i):
    rows = jnp.abs(i[:7]) % 40
    return [
        x[rows], x[3], x[:, ::2], x[::-1], x.T, x.reshape(20, 6), x.reshape(-1), x[5:9, 1:], x.at[4].set(0.0),
        x.at[rows[0]].set(x[0] * 2), x.at[jnp.arange(40) * 2].set(x, mode="drop"), x.at[jnp.arange(20)].set(x[20:]),
        jnp.concatenate([x, x[:2] + 1]), jnp.stack([x[:, 0], x[:, 2]]), jnp.pad(x, ((1, 2), (0, 1)), constant_values=4.0),
        jnp.roll(x, 3, axis=0), jnp.tile(x[:2], (2, 2)), x[:, None, :] - x[None, :3, :], jnp.repeat(x[:3], 2, axis=1),
        jax.lax.dynamic_slice(x, (rows[1], jnp.int32(1)), (4, 2)), jax.lax.dynamic_update_slice(x, x[:2] * 5, (rows[2], jnp.int32(0))),
        x.at[rows].get(mode="fill", fill_value=9.0), x[jnp.array([-1, 45]), :], jnp.arange(9) * 2, jnp.eye(4), jnp.zeros((0, 3)) + 1,
    ]  # fmt: skip


def crossing(x, i):
    values = jnp.where(x[:, 0] < 1, x[:, 0], jnp.inf)
    joined = jnp.concatenate([jnp.sort(x[:, 1]), jnp.cumsum(x[:, 0])])  # both in memory, and others are read of them
    return [
        jnp.sum(x), jnp.sum(x, axis=0), jnp.sum(x, axis=1), jnp.prod(x, axis=1), jnp.max(x, axis=0), jnp.min(x), jnp.mean(x),
        jnp.any(x > 2, axis=0), jnp.all(x < 9), jnp.argmin(x[:, 0]), jnp.argmax(x, axis=0), jnp.argmin(x, axis=1),
        jnp.argmin(jnp.where(x[:, 0] > 0, jnp.nan, 1.0)), x[jnp.argmin(x[:, 1])], jnp.cumsum(x, axis=0), jnp.cumsum(i),
        jnp.cumsum(x, axis=1), jax.lax.cummax(x, axis=0), jax.lax.cumsum(x, axis=0, reverse=True), jnp.sort(x, axis=0), jnp.argsort(x[:, 2]),
        jnp.lexsort((x[:, 0], i // 10)), x.T @ x, x @ x[:3].T, jnp.einsum("ij,ij->i", x, x), jnp.sum(x[:, None] < x[None], axis=1),
        jnp.sum(jnp.tile(x[:, 0], 12)[None, :] >= jnp.arange(-2.0, 2.0, 0.4)[:, None], axis=1), jnp.max(jnp.tile(x, (9, 1)), axis=0),
        jnp.zeros(5).at[jnp.abs(i) % 5].add(1.0), jnp.median(x[:, 0]), x - jnp.mean(x, axis=0), jnp.max(jnp.abs(x)),
        jnp.linalg.cholesky(x.T @ x), jax.vmap(lambda r: jnp.linalg.cholesky(jnp.eye(3) + jnp.outer(r, r)))(x[:4]),
        jnp.isnan(jnp.linalg.cholesky(x[:3])), jnp.diagonal(x[:3]), jnp.trace(x), jnp.sum(values), joined[(i * 7) % 80],
        jnp.min(values), jnp.argmin(values), jnp.argmax(-values), jnp.max(-values), jnp.min(jnp.where(i > 9, jnp.nan, values)),
    ]  # fmt: skip


def looping(x, i):
    halved = jax.lax.while_loop(lambda c: jnp.sum(jnp.abs(c)) > 1, lambda c: c * 0.5, x)
    rounds = jax.lax.fori_loop(0, 4, lambda k, c: (c[0] * 0.9 + jnp.roll(c[0], 1, axis=0) * k, c[1] + 1), (x, 0))
    branch = jax.lax.cond(x[0, 0] > 0, lambda a: jnp.cumsum(a, axis=0), lambda a: 3 * a, x)
    chosen = jax.lax.switch(jnp.abs(i[0]) % 3, [lambda a: a, lambda a: a + 1, lambda a: jnp.sort(a, axis=0)], x)
    rows = jax.lax.scan(lambda c, row: (c + row, c * row), x[0], x)
    back = jax.lax.scan(lambda c, row: (c * 0.5 + row, c), x[0], x, reverse=True)
    inner = jax.vmap(
        lambda r: jax.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1 + r[0] ** 2, c[1] + 1), (r[0], 0))
    )(x)
    swapped = jax.lax.fori_loop(0, 3, lambda k, c: (c[1], c[0]), (x, 2 * x))
    return [halved, rounds, branch, chosen, rows, back, inner, swapped]


@needs_cc
@pytest.mark.parametrize("functions", [elementwise, moving, pytest.param(crossing, marks=pytest.mark.slow), looping])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_the_generated_c_computes_what_jax_does(functions, dtype):
    with jax.enable_x64(dtype == "float64"):
        agree(functions, TABLE.astype(dtype), WHOLE, close=CLOSE[dtype])


@needs_cc
def test_the_bits_of_long_numbers_are_two_words():
    with jax.enable_x64(True):
        agree(lambda x: jax.lax.bitcast_convert_type(x, jnp.uint32), TABLE, close=0)


def evaluations_of(names, dtype):
    """One function for several problems, all of whose functions are evaluated at a few points of their boxes."""
    problems = [gx.problems.get(name) for name in names]
    points = [p.bounds.lower + p.bounds.span * DRAWS.random((12, p.bounds.dim)) for p in problems]

    def every(*xs):
        return [
            jax.vmap(f)(x) for p, x in zip(problems, xs, strict=True) for f in (p.fun, p.ineq, p.eq) if f is not None
        ]

    return every, [x.astype(dtype) for x in points]


SINGLE = [name for name in gx.problems.PROBLEMS if isinstance(gx.problems.get(name), gx.Problem)]


@needs_cc
def test_some_problems_are_evaluated_as_by_jax():
    every, points = evaluations_of(["rastrigin", "ackley", "hartmann6", "g02", "g07", "blending", "zdt3"], "float32")
    agree(every, *points)


@needs_cc
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SINGLE)
def test_every_problem_is_evaluated_as_by_jax(name, dtype):
    with jax.enable_x64(dtype == "float64"):
        every, points = evaluations_of([name], dtype)
        agree(every, *points, close=CLOSE[dtype])


UNARY = [jnp.sin, jnp.tanh, jnp.abs, jnp.negative, lambda a: a * a, lambda a: jnp.roll(a, 1, axis=0), lambda a: a[::-1],
         lambda a: jnp.cumsum(a, axis=0) / 12, lambda a: jnp.sort(a, axis=0), lambda a: a - jnp.mean(a, axis=0),
         lambda a: jnp.where(a > 0, a, 0.1 * a), lambda a: jnp.broadcast_to(jnp.max(a, axis=1, keepdims=True), a.shape),
         lambda a: a[jnp.argsort(a[:, 0])], lambda a: a.at[1].set(a[2]), lambda a: jnp.broadcast_to(a[jnp.argmin(a[:, 1])], a.shape),
         lambda a: jax.lax.fori_loop(0, 3, lambda k, c: 0.5 * c + jnp.cos(a), a), lambda a: a @ jnp.ones((2, 2)) / 2]  # fmt: skip
BINARY = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, lambda a, b: a / (2 + b * b),
          lambda a, b: jnp.where(a < b, a, b * 0.3), lambda a, b: jnp.concatenate([a[:20], b[20:]])]  # fmt: skip


def expression(steps):
    """A function of one array (30, 2) from a list of (operation, operand, operand)."""

    def function(x):
        known = [x]
        for operation, i, j in steps:
            a, b = known[i % len(known)], known[j % len(known)]
            if operation < len(UNARY):
                known.append(UNARY[operation](a))
            else:
                known.append(BINARY[operation - len(UNARY)](a, b))
        return known[1:]

    return function


STEPS = st.lists(
    st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=12,
)


def random_expression(steps):
    with jax.enable_x64(True):  # where rounding does not decide who comes before whom
        agree(expression(steps), DRAWS.normal(size=(30, 2)), close=1e-8)


@needs_cc
@settings(max_examples=6, deadline=None, derandomize=True)
@given(STEPS)
def test_random_expressions(steps):
    random_expression(steps)


@needs_cc
@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(STEPS)
def test_many_random_expressions(steps):
    random_expression(steps)


def test_what_has_no_rule_is_named():
    with pytest.raises(NotFusible, match="fft"):
        kernel_source.lower_function(jax.make_jaxpr(lambda x: jnp.abs(jnp.fft.fft(x)))(TABLE[:, 0].astype("f")))


def test_indices_are_checked_only_where_they_may_lie_outside():
    def drawn(key, x):
        return x[random.integers(key, (10,), 40)]

    def given(i, x):
        return x[i]

    inside = kernel_source.lower_function(jax.make_jaxpr(drawn)(np.zeros(2, np.uint32), TABLE))
    outside = kernel_source.lower_function(jax.make_jaxpr(given)(WHOLE, TABLE))
    assert "< 0" not in inside.body
    assert "< 0" in outside.body


# whole runs


def bowl(x):
    return jnp.sum((x - jnp.array([0.3, -0.2])) ** 2)


BOX = [(-1.0, 2.0), (-3.0, 1.0)]


def run(engine, algorithm="de", fun=bowl, dtype="float64", threads=None, **options):
    compute = gx.Compute(engine=engine, dtype=dtype, threads=threads)
    options = {"generations": 12, "population": 8, "seed": 3, "tolerance": 0, "compute": compute} | options
    if isinstance(fun, gx.Problem):
        return gx.minimize(fun, algorithm, polish=False, **options)
    return gx.minimize(fun, BOX, algorithm, polish=False, **options)


@needs_cc
def test_a_run_is_the_one_that_xla_makes():
    xla, native = run("xla"), run("native")
    np.testing.assert_allclose(native.x, xla.x, rtol=1e-9)
    np.testing.assert_allclose(native.history.mean, xla.history.mean, rtol=1e-9)
    assert native.nfev == xla.nfev == 96
    assert native.engine == "native: as asked"
    assert xla.engine == "xla: as asked"


@needs_cc
def test_an_objective_of_few_candidates_is_written_once(monkeypatch):
    """Short sums over candidates, such as how many failed, are every thread's own; what they add up is not."""
    texts, generate_source = [], backend.kernels.generate_source
    monkeypatch.setattr(
        backend.kernels, "generate_source", lambda *given: texts.append(generate_source(*given)) or texts[-1]
    )
    run("native", "cmaes", lambda x: jnp.sum(jnp.cbrt(jnp.array([[1.0, 2.0], [3.0, 4.0]] * 9) @ x)), population=8)
    assert texts[0].body.count("cbrt(") == 1


@needs_cc
def test_runs_of_an_ensemble_are_those_made_alone():
    alone, several = run("native", runs=range(2, 3)), run("native", runs=3)
    np.testing.assert_array_equal(several.runs.x[2], alone.x)
    np.testing.assert_array_equal(several.run(1).x, several.runs.x[1])


@needs_cc
@pytest.mark.parametrize("runs", [60, pytest.param(4200, marks=pytest.mark.slow)])  # a slice, and two of them
def test_native_runs_are_the_same_to_the_bit_for_any_number_of_threads(runs):
    one, three = (run("native", runs=runs, threads=threads, dtype="float32") for threads in (1, 3))
    for name in ("x", "fun", "nfev"):
        np.testing.assert_array_equal(getattr(three.runs, name), getattr(one.runs, name))
    np.testing.assert_array_equal(three.runs.history.mean, one.runs.history.mean)
    assert len(np.unique(one.runs.fun)) == runs


@needs_cc
def test_native_machine_code_is_cached_on_disk(tmp_path, monkeypatch):
    built = []
    real = cpu_kernel._compile_library
    monkeypatch.setattr(cpu_kernel, "_compile_library", lambda *about: (built.append(1), real(*about)))
    monkeypatch.setattr(disk_cache, "_chosen", tmp_path)
    text = kernel_source.lower_function(jax.make_jaxpr(lambda x: x + 1)(1.0), kernel_source.LaunchShape(for_cpu=True))
    for _ in range(2):
        cpu_kernel._load_library.cache_clear()
        (x, y) = np.ones(1, np.float32), np.zeros(1, np.float32)
        cpu_kernel.CpuKernel(text)([x], [y])
        assert y[0] == 2
    assert built == [1]


@needs_cc
def test_a_run_stops_at_its_target_whatever_others_do():
    xla, native = (run(engine, runs=3, target=1e-3, generations=60) for engine in ("xla", "native"))
    np.testing.assert_array_equal(native.runs.nit, xla.runs.nit)
    np.testing.assert_array_equal(native.runs.nfev, xla.runs.nfev)
    assert len(set(native.runs.nit)) > 1
    assert native.runs.success.all()


@needs_cc
def test_callbacks_snapshots_and_checkpoints_go_with_it(tmp_path):
    seen = []
    whole = run(
        "native", callback=lambda p: seen.append(p.generation), checkpoint=tmp_path / "run", keep=gx.Keep(snapshots=[5])
    )
    assert seen[-1] == 12
    assert whole.snapshots[5].x.shape == (8, 2)
    stopped = run(
        "native", callback=lambda p: p.generation >= 5, checkpoint=tmp_path / "other", keep=gx.Keep(snapshots=[5])
    )
    assert stopped.nit == 5
    went_on = run("native", checkpoint=tmp_path / "other", resume=True, keep=gx.Keep(snapshots=[5]))
    np.testing.assert_array_equal(went_on.x, whole.x)
    np.testing.assert_array_equal(went_on.history.best, whole.history.best)


@needs_cc
def test_each_cell_of_a_sweep_has_its_hyper_parameters():
    cells = [gx.sweep(bowl, BOX, gx.DE(population=8), weight=[0.3, 0.9], generations=12, tolerance=0,
                      compute=gx.Compute(dtype="float64", engine=engine)) for engine in ("xla", "native")]  # fmt: skip
    for xla, native in zip(cells[0].results, cells[1].results, strict=True):
        np.testing.assert_allclose(native.x, xla.x, rtol=1e-9)


CONSTRAINED = {"cde": {"x_generations": 3, "y_generations": 2}, "epsilon_de": {}, "de": {}}
WHOLE_RUNS = [
    *((name, "rastrigin", dtype) for name in ("ga", "de", "ep", "fep", "pso", "cmaes", "random") for dtype in CLOSE),
    *((name, problem, "float64") for name in CONSTRAINED for problem in ("g05", "g07", "g11")),
    ("de", "g07", "float32"),
    ("lsrtde", "ackley", "float64"),
    ("lshade", "rastrigin", "float64"),
    ("jso", "g07", "float64"),
    *((name, problem, "float64") for name in ("epsilon_de", "ga") for problem in ("gear_train", "pressure_vessel")),
]


@pytest.mark.slow
@needs_cc
@pytest.mark.parametrize(
    ("name", "problem", "dtype"),
    WHOLE_RUNS,
)
def test_every_algorithm_makes_the_run_that_xla_makes(name, problem, dtype):
    """A few generations, over which rounding does not grow into another run."""
    algorithm = gx.algorithms.ALGORITHMS[name](population=20, **CONSTRAINED.get(name, {}))
    options = {"algorithm": algorithm, "fun": gx.problems.get(problem), "dtype": dtype, "generations": 7, "runs": 3}
    xla, native = (run(engine, population=None, **options) for engine in ("xla", "native"))
    close = 2e-3 if dtype == "float32" else 1e-5  # normal and Cauchy numbers have seven digits in either
    scale = np.max(np.abs(xla.runs.x))
    np.testing.assert_allclose(native.runs.x, xla.runs.x, rtol=close, atol=close * scale)
    np.testing.assert_allclose(native.runs.history.best, xla.runs.history.best, rtol=close, atol=1e-6)
    np.testing.assert_allclose(native.runs.history.mean, xla.runs.history.mean, rtol=close, atol=1e-6)


@needs_cc
@pytest.mark.slow
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("name", ["nsga2", "moead", "sms_emoa"])
def test_a_front_is_the_one_that_xla_finds(name, dtype):
    options = {
        "algorithm": gx.algorithms.ALGORITHMS[name](population=24),
        "fun": gx.problems.get("zdt1"),
        "dtype": dtype,
    }
    xla, native = (run(e, population=None, **options, generations=7, runs=2) for e in ("xla", "native"))
    close = 2e-3 if dtype == "float32" else 1e-5
    np.testing.assert_allclose(native.population, xla.population, rtol=close, atol=close)
    np.testing.assert_allclose(native.runs.history.hypervolume, xla.runs.history.hypervolume, rtol=close)


def rounds(step):
    """What five rounds make of two arrays."""
    return lambda a, b: jax.lax.scan(lambda both, _: (step(*both), both[0][3]), (a, b), None, length=5)


CHANGES = {
    "its own elements": lambda a, b: (jnp.where(b > 0, a, b + 1), b * 0.5 - a),
    "others of itself": lambda a, b: (a[::-1] * 0.5 + a, b),
    "others that are changed besides": lambda a, b: (jnp.where(b > 0, a, b), a[::-1] + b),
    "sums": lambda a, b: (a - jnp.mean(a) + b, jnp.minimum(b, jnp.max(a))),
    "both in turn": lambda a, b: (b, a + 0.5),
    "drawn ones": lambda a, b: (a[jnp.argsort(b)] + 0.1, jnp.where(a > b, a, b)),
}


@needs_cc
@pytest.mark.parametrize("step", CHANGES.values(), ids=CHANGES)
def test_what_is_changed_where_it_is_was_read_before(step):
    agree(rounds(step), *(DRAWS.normal(size=(2, 50)).astype(np.float32)))


def generation_loop(monkeypatch, algorithm, population, *form):
    """The statements of a kernel's loop over generations, where so many blocks share a run; and the run."""
    kernels, print_statements = [], kernel_source.print_statements
    with monkeypatch.context() as patched:
        patched.setattr(
            kernel_source, "print_statements", lambda *about: kernels.append(about[0]) or print_statements(*about)
        )
        patched.setattr(kernel.compile_cache, "program_name", lambda *about: None)
        patched.setattr(backend, "CPU_SHAPE", emulate(*form))
        patched.setattr(backend, "_kernel_cache", type(backend._kernel_cache)())
        rastrigin = gx.problems.get("rastrigin", dim=32)
        result = run("native", algorithm, rastrigin, generations=4, population=population, dtype="float32")
    loops = [s for s in kernels[-1] if isinstance(s, ir.For) and s.axis is ir.Axis.GENERATION]
    return list(passes.walk(loops[0].body)), result


def count_run_barriers(statements):
    return sum(s == ir.Barrier(ir.BarrierScope.RUN) for s in statements)


@needs_cc
def test_a_large_population_of_de_waits_twice_in_a_generation(monkeypatch):
    """Whoever reads a parent finds out himself whether its child has taken its place."""
    loop, native = generation_loop(monkeypatch, "de", 1000, 16)
    assert count_run_barriers(loop) == 2
    rastrigin = gx.problems.get("rastrigin", dim=32)
    xla = run("xla", "de", rastrigin, generations=4, population=1000, dtype="float32")
    np.testing.assert_allclose(native.history.mean, xla.history.mean, rtol=1e-5)
    np.testing.assert_allclose(native.population, xla.population, rtol=1e-4, atol=1e-4)


@needs_cc
def test_what_was_fetched_is_added_up_by_the_same_steps(monkeypatch):
    """A sum that is needed in branches only is made there, by each thread alone."""

    def fun(x):
        s = jnp.sum(x * x)
        a = jnp.where(x[0] > 0, jnp.exp(jnp.sin(s)) * jnp.tan(s) + jnp.sinh(s), 0.0)
        b = jnp.where(x[1] > 0, jnp.log1p(jnp.cos(s) ** 2) * jnp.tan(2 * s) + jnp.cosh(s), 1.0)
        return a + b + jnp.sum(jnp.abs(x))

    kernels, print_statements = [], kernel_source.print_statements
    monkeypatch.setattr(
        kernel_source, "print_statements", lambda *about: kernels.append(about[0]) or print_statements(*about)
    )
    monkeypatch.setattr(kernel.compile_cache, "program_name", lambda *about: None)
    monkeypatch.setattr(backend, "CPU_SHAPE", emulate(16))
    gx.minimize(
        fun,
        [(-1.0, 1.0)] * 64,
        "de",
        population=1000,
        generations=1,
        compute=gx.Compute(engine="native", dtype="float32"),
        polish=False,
    )
    tiled = [s for s in passes.walk(kernels[-1]) if isinstance(s, ir.For) and s.folds and s.variable.startswith("k")]
    is_used = [any(isinstance(getattr(s, "value", None), ir.ByTarget) for s in loop.body) for loop in tiled]
    assert any(is_used) and not all(is_used)


@needs_cc
def test_atomic_slots_are_cleared_in_each_generation(monkeypatch):
    """On the host no blocks share a run, so it is the loop IR that tells."""
    loop, _ = generation_loop(monkeypatch, "fep", 5000, 132)
    slots = [s.slot for s in loop if isinstance(s, ir.Reduce) and s.phase is ir.Phase.ATOMIC]
    assert len(slots) > 5
    cleared = [int(s.arguments[0]) for s in loop if isinstance(s, ir.Call) and s.function == "CLEAR_ATOMIC_SLOT"]
    assert sorted(slots) == sorted(cleared)


FORMS = {"cluster": (16, 1), "grid": (132, 1), "many": (1, 32)}


@needs_cc
def test_a_large_population_of_fep_waits_three_times_in_a_generation(monkeypatch):
    """Every block finds out for itself who stays; what only the history needs is not waited for."""
    loop, _ = generation_loop(monkeypatch, "fep", 5000, 132)
    assert count_run_barriers(loop) == 3


@pytest.mark.slow
@needs_cc
@pytest.mark.parametrize(
    ("form", "population"),
    [
        pytest.param(FORMS["grid"], 20, id="grid"),
        pytest.param(FORMS["cluster"], 20, id="cluster", marks=pytest.mark.slow),
        pytest.param(FORMS["many"], 20, id="many", marks=pytest.mark.slow),
        pytest.param((1, 1), 2100, id="several elements a turn", marks=pytest.mark.slow),
    ],
)
def test_however_runs_are_spread_over_blocks_they_are_the_same(form, population, monkeypatch):
    """The text differs in what each block makes itself, which sums threads share and what is computed only if chosen."""
    options = {"fun": gx.problems.get("rastrigin"), "dtype": "float32", "generations": 5, "population": population}
    xla = run("xla", "fep", **options)
    monkeypatch.setattr(backend, "CPU_SHAPE", emulate(*form))
    native = run("native", "fep", **options)
    np.testing.assert_allclose(native.history.mean, xla.history.mean, rtol=2e-3)
    np.testing.assert_allclose(native.history.best, xla.history.best, rtol=2e-3)


@needs_cc
@pytest.mark.slow
def test_over_many_runs_the_outcomes_are_distributed_alike():
    """Ranks of 200 + 200 final values of different seeds: the sum is normal, and three deviations are 1 in 370."""
    seeds = {"xla": 1, "native": 2}
    final = [run(e, "fep", gx.problems.get("rastrigin"), runs=200, population=20, generations=60, seed=s, dtype="float32").runs.fun
             for e, s in seeds.items()]  # fmt: skip
    ranks = np.argsort(np.argsort(np.concatenate(final)))[:200] + 1
    deviation = np.sqrt(200 * 200 * 401 / 12)
    assert abs(ranks.sum() - 200 * 401 / 2) < 3 * deviation


@needs_cc
def test_a_function_of_the_user_is_not_taken_for_one_of_the_library_s():
    @jax.jit
    def mixed(x):
        return x + jnp.uint32(1)

    agree(mixed, np.arange(5, dtype=np.uint32))


@needs_cc
def test_exponentials_less_one_are_right_to_the_last_digits():
    x = np.concatenate([np.linspace(-90, 88.3, 4001), np.linspace(-1, 1, 2001), 10.0 ** np.arange(-30, 1)])
    want = np.expm1(x.astype(np.float32).astype(np.float64))
    odd = np.array([np.nan, np.inf, -np.inf, -1e30, 88.6, 88.8], np.float32)
    for form in TEXTS:
        (got,) = made(jnp.expm1, form, x.astype(np.float32))
        assert np.max(np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))) < 2
        (got,) = made(jnp.expm1, form, odd)
        np.testing.assert_allclose(got, [np.nan, np.inf, -1, -1, np.expm1(np.float64(odd[4])), np.inf], rtol=1e-5)


def test_what_is_drawn_is_one_operation():
    def drawn(key):
        numbers = [random.normal(key, (40,), "float32"), random.cauchy(key, (40,), "float32")]
        return [*numbers, random.integers(key, (40,), 7), random.integers(key, (40,), 70_000), random.fold_in(key, 3)]

    key = random.run_keys(5, 0, 1)[0]
    with devices.tracing_for("gpu"):
        text = kernel_source.lower_function(jax.make_jaxpr(drawn)(key))
        agree(drawn, key)
    with devices.tracing_for("gpu"):  # of several runs at once, too, whose limit is one for all
        several = kernel_source.lower_function(jax.make_jaxpr(jax.vmap(drawn))(random.run_keys(5, 0, 2)))
    assert several.body.count("= high_product(") == 4 and "& 65535u" not in several.body
    for name in ("drawn_word(", "normal_number(", "cauchy_number(", "high_product(", "mixed("):
        assert f" = {name}" in text.body


# which engine


def test_fused_says_why_it_cannot_be():
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    with pytest.raises(gx.InputError, match="need an NVIDIA GPU, and JAX runs on"):
        run("fused")


def test_an_engine_that_does_not_exist_is_refused():
    with pytest.raises(gx.InputError, match="engine must be one of 'auto', 'xla', 'fused'"):
        run("warp")


def test_functions_that_are_called_cannot_be_fused():
    with pytest.raises(gx.InputError, match="called as plain Python"):
        run("fused", fun=lambda x: float(np.sum(x)), blackbox=True)


def test_islands_are_not_fused():
    with pytest.raises(gx.InputError, match="islands exchange individuals"):
        run("fused", islands=2)


@needs_cc
def test_a_primitive_without_a_rule_is_named_to_the_user():
    with pytest.raises(
        gx.InputError, match=r'engine="native" cannot make this run: the primitive fft.*engine="auto" can'
    ):
        run("native", fun=lambda x: jnp.abs(jnp.fft.fft(x))[0])


@needs_cc
@pytest.mark.parametrize(
    "fun", [lambda x: jnp.sum(x**2), lambda x: jnp.abs(jnp.fft.fft(x))[0]], ids=["made", "refused"]
)
def test_another_process_finds_the_text_or_why_there_is_none(monkeypatch, tmp_path, fun):
    made, written = [], kernel._trace_and_lower
    monkeypatch.setattr(disk_cache, "_chosen", tmp_path)
    monkeypatch.setattr(kernel, "_trace_and_lower", wraps(written)(lambda *given: made.append(1) or written(*given)))
    answers = []
    for _ in range(2):
        backend._kernel_cache.clear()  # as in a process that begins
        try:
            answers.append(run("native", fun=fun).x.tobytes())
        except gx.InputError as error:
            answers.append(str(error))
    assert made == [1] and answers[0] == answers[1]


@needs_cc
def test_the_seconds_of_its_compiler_are_counted_once():
    told = []
    result = run("native", fun=lambda x: jnp.sum((x - 0.123) ** 2), callback=told.append)
    assert 0 < told[-1].overhead < told[-1].seconds and result.timings["run"] > 0


@needs_cc
def test_a_formula_with_a_random_key_is_refused_in_words():
    key = jax.random.key(1)
    with pytest.raises(
        gx.InputError, match=r'engine="native" cannot make this run: an array of type key.*engine="auto" can'
    ):
        run("native", fun=lambda x: jnp.sum(x**2) + jax.random.normal(key))


def on_a_gpu():
    try:
        cuda.current_device()
    except NotFusible as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["ga", "de", "fep", "cmaes", "cde", "epsilon_de"])
def test_on_a_gpu_the_fused_run_is_the_one_that_xla_makes(name):
    on_a_gpu()
    constrained = name in ("cde", "epsilon_de")
    problem = gx.problems.get("g07" if constrained else "rastrigin")
    options = {"runs": 5, "population": None, "generations": 25, "dtype": "float64" if constrained else "float32"}
    xla, fused = (run(e, gx.algorithms.ALGORITHMS[name](population=40), problem, **options) for e in ("xla", "fused"))
    assert fused.engine == "fused: as asked"
    np.testing.assert_allclose(fused.runs.history.best[:, :5], xla.runs.history.best[:, :5], rtol=1e-3)


@needs_cc
def test_kernels_compile_for_gpus_old_and_new(monkeypatch):
    try:
        cuda._load_nvrtc()
    except NotFusible as error:
        pytest.skip(str(error))
    searches, generate_source = [], kernel.generate_source
    monkeypatch.setattr(kernel, "generate_source", lambda *about: searches.append(about[0]) or generate_source(*about))
    monkeypatch.setattr(backend, "_kernel_cache", type(backend._kernel_cache)())
    run("native", "fep", gx.problems.get("rastrigin"), generations=1, population=5000, dtype="float32")
    for form, capability in (((132,), (7, 5)), ((132,), (9, 0)), ((16,), (9, 0)), ((1, 32), (8, 0))):
        source = generate_source(searches[-1], 1, kernel_source.LaunchShape(*form)).source
        assert cuda.compile_cubin(source, capability)[:4] == b"\x7fELF"
    text = kernel_source.lower_function(jax.make_jaxpr(crossing)(TABLE.astype("f"), WHOLE))
    for capability in ((7, 5), (8, 0), (9, 0)):
        assert cuda.compile_cubin(text.source, capability)[:4] == b"\x7fELF"
