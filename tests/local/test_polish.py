"""The polish: the best of each run refined by its gradient."""

import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from support.paths import DATA

import galapax as gx
from galapax.core.options import Options
from galapax.core.problem import Bounds
from galapax.execution import polish
from galapax.execution.polish import why_not_polishable
from galapax.execution.task import prepare_task, resolve_options
from galapax.local import lbfgs, refine
from galapax.numerics import compile_cache, devices
from galapax.objective.traced import trace
from galapax.results.result import all_runs

BOX = [(-2.0, 5.0)] * 4  # neither begins at 0 nor centres on the optimum
FEW = {"generations": 15, "population": 20, "progress": False}


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def walls(x):
    """Two walls of BOX hold at the optimum (1, 1, 5, 5)."""
    return jnp.sum((x[:2] - 1) ** 2) + jnp.sum((x[2:] - 9) ** 2)


def refined(problem, x, limit=20_000, dtype="float64", target=None):
    """What the program makes of points (R, d)."""
    options = Options(target=target, compute=gx.Compute(dtype=dtype))
    with jax.enable_x64(dtype == "float64"):
        task = prepare_task(problem, (gx.DE(),), resolve_options(problem, options))
        out = polish.refine_slice(task, compile_cache.CompileTimer(), np.asarray(x), np.resize(limit, len(x)))
        jax.effects_barrier()
        return out


FUNCTIONS = {
    "rosenbrock": rosenbrock,
    "rastrigin": lambda x: jnp.sum(x**2 - 10 * jnp.cos(2 * jnp.pi * x)),
    "walls": walls,
    "kink": lambda x: jnp.sum(jnp.abs(x - 0.3)),
    "root": lambda x: jnp.sum(jnp.sqrt(jnp.maximum(x - 1, 0))),  # its gradient is not a number at the walls
    "floor": lambda x: jnp.sum(jnp.floor(3 * x) ** 2),
    "largest": lambda x: jnp.argmax(x) + jnp.round(x[0]),
    "stopped": lambda x: jnp.sum((jax.lax.stop_gradient(x) - 1) ** 2) + 0.01 * jnp.sum(x),
}
ROUGH = ("floor", "largest", "stopped")


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_never_worse_and_stays_in_the_box(name):
    """And where the gradient tells nothing, that is found out at little cost."""
    fun = FUNCTIONS[name]
    plain = gx.minimize(fun, BOX, "de", runs=5, polish=False, **FEW)
    result = gx.minimize(fun, BOX, "de", runs=5, polish=True, **FEW)
    assert np.all(result.runs.fun <= plain.runs.fun)
    assert np.all(result.runs.x >= -2) and np.all(result.runs.x <= 5)
    assert np.allclose(result.runs.fun, [fun(x) for x in result.runs.x], rtol=1e-6, atol=1e-6)
    changed = np.any(result.runs.x != plain.runs.x, axis=1)
    assert np.all(result.runs.fun[changed] < plain.runs.fun[changed])  # an answer is changed for a better one alone
    if name in ("rosenbrock", "rastrigin", "walls"):
        assert result.fun < plain.fun and result.polish.startswith("5 of 5 runs refined")
    if name == "walls":
        assert np.allclose(result.x, [1, 1, 5, 5]) and np.all(result.x[2:] == 5)
    if name in ROUGH:
        assert not changed.any() and "does not agree" in result.polish
        assert np.all(result.runs.nfev - plain.runs.nfev == 16)  # the point, one on each side, and a last look


@pytest.mark.slow
def test_rosenbrock_in_many_variables_is_solved_after_a_short_evolution():
    for dim in (100, 500):
        result = gx.minimize(
            rosenbrock,
            [(-5, 10)] * dim,
            gx.DE(population=50),
            generations=20,
            target=1e-8,
            compute=gx.Compute(dtype="float64"),
        )
        assert result.fun <= 1e-8 or abs(result.fun - 3.98662) < 1e-4  # its one other minimum
        assert result.nfev - 1000 < 60 * dim


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_step_by_step_and_as_one_program_it_has_the_same_bits(name, dtype, monkeypatch):
    """Which of them computes a refinement depends on the clock and on what lies on disk."""
    x = np.random.default_rng(0).uniform(*np.transpose(BOX), (3, 4))
    programs = []
    for wanted in (None, compile_cache.CompileTimer()):
        monkeypatch.setattr(compile_cache.STEPS, "program", lambda call, *_: wanted and wanted.program(call))  # noqa: B023
        programs.append(refined(gx.Problem(FUNCTIONS[name], BOX), x, limit=np.array([20_000, 60, 10]), dtype=dtype))
    for stepped, whole in zip(*programs, strict=True):
        assert np.asarray(stepped).tobytes() == np.asarray(whole).tobytes()
    assert programs[0].evaluations[1] <= 60 and programs[0].evaluations[2] == 0


@pytest.mark.slow
def test_an_ill_conditioned_ellipsoid_takes_evaluations_as_scipy_does():
    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 50)))
    weights = (turned * 10 ** (4 * np.arange(50) / 49)) @ turned.T
    x = np.random.default_rng(1).uniform(-2, 2, 50)
    out = refined(gx.Problem(lambda x: x @ weights @ x, [(-5, 5)] * 50), x[None], limit=200_000, target=1e-8)
    taken, calls = out.evaluations[0] / (1 + refine.GRADIENT_COST), []

    def told(x):
        calls.append(x @ weights @ x)
        return calls[-1], 2 * weights @ x

    options = {"maxiter": 30_000, "maxfun": 30_000, "ftol": 0, "gtol": 1e-5}
    scipy.optimize.minimize(told, x, jac=True, method="L-BFGS-B", bounds=[(-5, 5)] * 50, options=options)
    assert out.value[0] <= 1e-8 and taken < 1.5 * np.argmax(np.array(calls) <= 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["g07", "g10", "g05"])
def test_near_answers_of_constrained_problems_come_to_nine_digits(name):
    problem = gx.problems.get(name)
    box = problem.bounds
    near = np.random.default_rng(0).normal(size=(4, problem.dim)) * 1e-3 * box.span
    out = refined(problem, np.clip(problem.solutions[0] + near, box.lower, box.upper))
    assert np.all(out.violation == 0) and np.all(abs(out.value / problem.optimum - 1) <= 1e-9)
    assert np.all((out.x >= box.lower) & (out.x <= box.upper))


def test_quadratic_models_come_to_the_answer_from_anywhere():
    problem = gx.problems.get("g10")
    box = problem.bounds
    out = refined(problem, box.lower + box.span * np.random.default_rng(0).random((4, problem.dim)))
    assert np.all(out.violation == 0) and np.all(abs(out.value / problem.optimum - 1) <= 1e-9)


@pytest.mark.slow
def test_models_that_get_stuck_begin_again_with_another_bend():
    """From the ends of 25 searches (benchmarks/cec2006.py, --seed 2): beginning once, with the bend 1, solves 16."""
    problem = gx.problems.get("g22")
    starts = np.array(json.loads((DATA / "g22_starts.json").read_text()))
    out = refined(problem, starts, limit=13_000)
    solved = (out.violation == 0) & (out.value <= problem.optimum + 1e-4)
    assert solved.sum() >= 22 and np.all(out.evaluations <= 13_000)


def test_a_search_under_constraints_leaves_evaluations_for_the_polish():
    few = {"max_evaluations": 2000, "algorithm": gx.EpsilonDE(population=20), "tolerance": 0}
    result, plain = (gx.minimize(gx.problems.get("g06"), polish=polish, **few) for polish in ("auto", False))
    assert plain.nit == 100 and result.nit == 95 and result.nfev <= 2000 and result.fun < plain.fun


@pytest.mark.slow
def test_constraints_bind_in_the_end_and_feasible_stays_feasible():
    problem = gx.problems.get("g06")
    plain = gx.minimize(problem, generations=60, runs=3, polish=False)
    result = gx.minimize(problem, generations=60, runs=3)
    assert np.all(result.runs.violation == 0) and np.all(result.runs.fun < plain.runs.fun)
    assert abs(result.fun / problem.optimum - 1) <= 1e-9
    early = gx.minimize(problem, generations=1, runs=3, polish=False)
    found = gx.minimize(problem, generations=1, runs=3)
    assert np.all(early.runs.violation > 0) and np.all(found.runs.violation < early.runs.violation)


def test_evaluations_are_what_was_evaluated():
    """Counted at the objective itself: 1 for a value, 5 for a value with its gradient."""
    seen = []

    @jax.custom_vjp
    def counted(x):
        jax.debug.callback(lambda: seen.append(1))
        return rosenbrock(x)

    def forward(x):
        jax.debug.callback(lambda: seen.append(1 + refine.GRADIENT_COST))
        return rosenbrock(x), x

    counted.defvjp(forward, lambda x, cotangent: (cotangent * jax.grad(rosenbrock)(x),))
    out = refined(gx.Problem(counted, BOX), np.full((1, 4), -1.5))
    assert sum(seen[1:]) == out.evaluations[0] and out.value[0] < 1e-12  # the first call is made before the run


@pytest.mark.slow
def test_what_max_evaluations_leaves_is_never_exceeded():
    for most in (300, 310, 340, 400, 1000):
        result = gx.minimize(rosenbrock, BOX, gx.DE(population=20), generations=15, max_evaluations=most)
        assert 300 <= result.nfev <= most
    assert gx.minimize(rosenbrock, BOX, gx.DE(population=20), max_evaluations=300).polish == (
        "not tried, because no evaluations were left"
    )


@pytest.mark.slow
def test_the_history_ends_with_the_polish():
    for runs in (1, 3):
        result = gx.minimize(rosenbrock, BOX, "de", runs=runs, keep=gx.Keep(history="x"), **FEW)
        every = all_runs(result)
        assert np.array_equal(every.history.best[:, -1], every.fun) and len(result.history) == 16
        assert np.array_equal(np.broadcast_to(every.history.nfev, (runs, 16))[:, -1], every.nfev)
        assert np.array_equal(every.history.x[:, -1], every.x) and np.all(every.nit == 15)


def test_runs_that_end_at_different_generations_have_the_polish_last():
    result = gx.minimize(rosenbrock, BOX, gx.DE(population=20), runs=8, generations=40, patience=3)
    assert len(set(result.runs.nit)) > 1
    assert np.array_equal(result.runs.history.best[:, -1], result.runs.fun)
    assert np.array_equal(result.runs.history.nfev[:, -1], result.runs.nfev)


def test_a_run_is_the_same_bits_in_every_ensemble_and_replayed():
    large = gx.minimize(rosenbrock, BOX, "de", runs=70, **FEW)
    small = gx.minimize(rosenbrock, BOX, "de", runs=3, **FEW)
    alone = gx.minimize(rosenbrock, BOX, "de", runs=range(2, 3), **FEW)
    again = large.run(2)
    for other in (small.runs.x[2], alone.x, again.x):
        assert np.array_equal(other, large.runs.x[2])
    assert again.fun == large.runs.fun[2] and again.nfev == large.runs.nfev[2]


def test_a_target_that_the_polish_reaches_is_reached():
    result = gx.minimize(rosenbrock, BOX, "de", target=1e-9, **FEW)
    assert result.stop == "target" and result.success and result.fun <= 1e-9
    assert result.message == "Target reached by the polish after generation 15."


def test_runs_that_are_done_are_left_alone_and_true_insists():
    done = gx.minimize(walls, BOX, gx.DE(population=20), generations=2000)
    assert done.stop == "tolerance" and "converged" in done.polish
    assert gx.minimize(walls, BOX, gx.DE(population=20), generations=2000, polish=True).nfev > done.nfev


@pytest.mark.slow
def test_maximise_vectorized_and_single_precision():
    result = gx.minimize(lambda x: -rosenbrock(x), BOX, "de", maximize=True, **FEW)
    assert -1e-12 < result.fun <= 0
    rows = gx.minimize(jax.vmap(rosenbrock), BOX, "de", vectorized=True, **FEW)
    assert rows.fun < 1e-12
    single = refined(gx.Problem(rosenbrock, BOX), np.full((1, 4), -1.5), dtype="float32")
    assert single.value[0] < 1e-6 and single.x.dtype == np.float32


def test_it_is_not_tried_where_there_is_no_gradient():
    def called(x):
        return jax.pure_callback(lambda x: np.sum(x**2), jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential")

    def endless(x):
        return jax.lax.while_loop(lambda v: v > 1, lambda v: v / 2, jnp.sum(x**2))

    def two(x):
        return jnp.stack([x[0] ** 2, (x[0] - 2) ** 2])

    def why(fun, algorithm=gx.DE(), **options):
        problem = gx.Problem(fun, BOX, **options)
        return why_not_polishable(
            prepare_task(problem, (algorithm,), resolve_options(problem, Options(on_failure="worst")))
        )

    assert (
        why(rosenbrock) is None and why(called) == why(endless) == "JAX cannot differentiate the functions in reverse"
    )
    assert why(two, gx.NSGA2()) == "there are several objectives"
    result = gx.minimize(lambda x: float(x @ x), BOX, "de", blackbox=True, **FEW)
    assert result.polish == "not tried, because a black box has no gradient"
    assert "polish" not in gx.minimize(rosenbrock, BOX, "de", polish=False, **FEW)


def test_what_cannot_be_is_refused():
    with pytest.raises(gx.InputError, match=r"polish must be .* got 'yes'"):
        gx.minimize(rosenbrock, BOX, polish="yes")
    with pytest.raises(gx.InputError, match="polish=True needs gradients of one objective, and a black box has no"):
        gx.minimize(lambda x: float(x @ x), BOX, "de", blackbox=True, polish=True)


@pytest.mark.slow
def test_a_descent_keeps_to_the_box_at_every_trial():
    bounds = Bounds(jnp.full(4, -2.0), jnp.full(4, 0.5))
    descent = lbfgs.begin(jnp.array([-1.5, 0.4, 0.1, -0.7]))
    tell = jax.jit(lambda d, v, g: lbfgs.tell(d, v, g, bounds, -jnp.inf, 0.0))
    values = []
    while descent.status != lbfgs.ENDED and len(values) < 200:
        assert jnp.all((descent.trial >= bounds.lower) & (descent.trial <= bounds.upper))
        descent = tell(descent, *jax.value_and_grad(rosenbrock)(descent.trial))
        values.append(float(descent.value))
    assert len(values) < 100 and values == sorted(values, reverse=True)


def test_formulas_of_smooth_operations_are_differentiable_indeed():
    """What is taken for granted of a formula by its operations, asked of JAX; one with a loop is asked in any case."""
    known = 0
    for name in gx.problems.PROBLEMS:
        problem = gx.problems.get(name)
        if isinstance(problem, gx.Problem) and problem.ineq is None and problem.eq is None and problem.space is None:
            formulas, consts = trace(problem, "float32")
            if formulas.shape.objectives == 1 and formulas.primitives <= polish.DIFFERENTIABLE_PRIMITIVES:
                given = jax.ShapeDtypeStruct((1, problem.dim), "float32")
                jax.eval_shape(jax.grad(lambda x, f=formulas, c=consts: jnp.sum(f.facts(c, x))), given)
                known += 1
    assert known > 15
    loop = trace(
        gx.Problem(lambda x: jax.lax.while_loop(lambda v: v < 3, lambda v: v + 1, x[0]), [(0.0, 1.0)]), "float32"
    )
    assert not loop.formulas.primitives <= polish.DIFFERENTIABLE_PRIMITIVES


def test_its_program_is_made_while_the_generations_are(monkeypatch):
    """By another thread, once: the polish finds it there."""
    made, finished = [], threading.Event()
    compiled = compile_cache._compile_program

    def noted(call):
        made.append((call.function.__name__, threading.current_thread().name))
        try:
            return compiled(call)
        finally:
            if call.function.__name__ == "evaluate_gradients":
                finished.set()

    monkeypatch.delenv("GALAPAX_PRECOMPILE")
    monkeypatch.setattr(compile_cache, "_compile_program", noted)
    monkeypatch.setattr(devices, "count_cores", lambda: 2)
    result = gx.minimize(lambda x: jnp.sum((x - 0.7531) ** 4), BOX, "de", generations=5, tolerance=0)
    assert "1 of 1 runs refined" in result.polish and finished.is_set()
    assert [thread for name, thread in made if name == "evaluate_gradients"] == ["galapax precompile"]
    made.clear()
    gx.minimize(lambda x: jnp.sum(jnp.cosh(x)), BOX, "de", generations=5, target=1e-30)  # may never need it
    assert "galapax precompile" not in [thread for _, thread in made]
