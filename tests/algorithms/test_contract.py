"""What every algorithm for one objective promises, whatever it does inside: tested for each one in ALGORITHMS.

test_contract_multi_objective.py has those for several; test_engines_agree.py compares all ways to run one.

Boxes neither start at zero nor centre on the optimum, so that a forgotten offset shows.
"""

import dataclasses
import importlib
import subprocess
import sys
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params, product
from support.compilations import ON_CPU, compilations
from support.paths import ROOT

import galapax as gx
from galapax.core import algorithm as contract
from galapax.core.algorithm import Budget
from galapax.core.problem import CandidateEvaluation, Shape
from galapax.execution import compiled
from galapax.numerics import devices, random

ALIKE = {"ep"}  # fep in all but one draw, and every program takes seconds to compile
SINGLE = [n for n, a in gx.algorithms.ALGORITHMS.items() if not a.traits.multi_objective and n not in ALIKE]
# relatives of what is tested at once, or tested by a file of their own as well
RELATIVES = {"jso", "lsrtde", "ga", "fep", "pso", "epsilon_de", "lshade"}
EVERY = params(SINGLE, slow=RELATIVES)
EVERY_ALGORITHM = pytest.mark.parametrize("name", EVERY)

# of what the engine does, whatever it runs, two examples are enough, one of them with periods; the rest are slow tests
TWO = params(SINGLE, quick={"de", "cde"})
EXAMPLES = pytest.mark.parametrize("name", TWO)

BOX = [(1.5, 4.0), (-7.0, -2.0), (-0.5, 9.5)]
LOWER, UPPER = np.array(BOX).T
OPTIMUM = np.array([2.0, -2.5, 8.0])
N = 12
GENERATIONS = 15
ROUNDING = 1e-9  # relative: batched reductions may round differently


def bowl(x):
    return (x[0] - 2.0) ** 2 + (x[1] + 2.5) ** 2 + (x[2] - 8.0) ** 2


def bowl_in_numpy(x):
    return np.sum((x - OPTIMUM) ** 2, axis=-1)


EDGE = 2.75  # the middle of the first variable: beyond it some objectives fail


def half_failing(x, xp=jnp):
    """Fails in every way there is; of one solution, or with NumPy of the rows of x."""
    kinds = xp.where(x[..., 1] < -5.0, np.nan, xp.where(x[..., 1] < -4.0, np.inf, -np.inf))
    return xp.where(x[..., 0] > EDGE, kinds, (bowl if xp is jnp else bowl_in_numpy)(x))


def solver(name, **settings):
    # populations that shrink keep their size here, so that all can be counted alike; test_lshade.py has the others
    held = {"last_population": N} if hasattr(gx.algorithms.ALGORITHMS[name], "last_population") else {}
    return gx.algorithms.ALGORITHMS[name](population=N, **held, **settings)


def solve(name, fun=bowl, bounds=BOX, **settings):
    settings = {"generations": GENERATIONS, "compute": gx.Compute(dtype="float64"), **settings}
    return gx.minimize(fun, bounds, settings.pop("algorithm", solver(name)), polish=False, **settings)


def record(name, fun, bounds=BOX, **settings):
    """The result for a NumPy function of the rows of x, and all points (G * n, d) that it was asked about, in order."""
    seen = []

    def recording(x):
        seen.append(x.copy())
        return fun(x)

    res = solve(name, recording, bounds, blackbox=True, vectorized=True, **settings)
    return res, np.concatenate(seen)


def assert_same_run(a, b, rtol=ROUNDING):
    """The same run up to rounding; rtol=0 for bit by bit."""
    assert (a.nit, a.nfev, a.n_failed, a.success, a.message) == (b.nit, b.nfev, b.n_failed, b.success, b.message)
    pairs = [(a.x, b.x), (a.fun, b.fun), (a.population, b.population), (a.population_fitness, b.population_fitness)]
    pairs += [(getattr(a.history, part), getattr(b.history, part)) for part in ("best", "mean", "worst")]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def test_compilations_are_noticed():
    with compilations() as compiled:
        jax.jit(lambda x: x * 3.25 - 7.5)(np.float32(1.0)).block_until_ready()
    assert compiled


# --- draws ------------------------------------------------------------------------------------------------------------


@EVERY_ALGORITHM
def test_same_seed_gives_the_same_run_bit_by_bit(name):
    assert_same_run(solve(name, seed=7), solve(name, seed=7), rtol=0)


@pytest.mark.parametrize("name", params(SINGLE, quick={"de"}))
def test_another_seed_or_run_number_gives_another_run(name):
    runs = [
        solve(name, seed=7),
        solve(name, seed=8),
        solve(name, seed=7, runs=range(1, 2)),
        solve(name, seed=7 + 2**32),
    ]
    for i, one in enumerate(runs):
        for other in runs[:i]:
            assert not np.any(one.population == other.population)


def bound_solver(name):
    return solver(name).bind(len(LOWER), Shape(), Budget(None, None))


def first_state(algorithm, key):
    return algorithm.init(random.fold_in(key, 0), gx.Bounds(LOWER, UPPER))


def next_state(algorithm, key, number, state):
    evaluation = CandidateEvaluation(jax.vmap(bowl)(state.candidates)[:, None], None, jnp.zeros(N, bool))
    return algorithm.step(random.fold_in(key, number), state, evaluation)


by_hand = jax.jit(first_state), jax.jit(next_state)


@EXAMPLES
def test_init_and_step_survive_vmap_over_keys_and_numeric_settings(name):
    init, step = by_hand
    own = bound_solver(name)
    three = jax.tree.map(lambda value: np.stack([value] * 3), own)
    keys = random.run_keys(seed=0, first=0, count=3)
    with jax.enable_x64(True):
        together = jax.jit(jax.vmap(lambda algorithm, key: next_state(algorithm, key, 1, first_state(algorithm, key))))
        batched = together(three, keys)
        alone = [step(own, key, 1, init(own, key)) for key in keys]
        for part in ("candidates", "parents"):
            stacked = jax.tree.map(lambda *rows: np.stack(rows), *(getattr(state, part) for state in alone))
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=ROUNDING), getattr(batched, part), stacked)


# --- the box ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sign", "name"),
    params(
        product([pytest.param(1.0, id="to the lower corner"), pytest.param(-1.0, id="to the upper corner")], EVERY),
        slow={"to the lower corner-de"},
    ),
)
def test_every_point_evaluated_and_every_survivor_lies_in_the_box(name, sign):
    res, points = record(name, lambda x: sign * x.sum(axis=1), generations=40, tolerance=0)
    assert len(points) == 40 * N
    for x in (points, res.population, res.x):
        assert np.all((x >= LOWER) & (x <= UPPER))


@pytest.mark.parametrize("name", params(SINGLE, quick={"random"}))
def test_points_in_float32_lie_in_the_box_as_it_was_given(name):
    # neither limit is a float32 number, and the nearest ones lie outside
    lower, upper = 0.7, 1.1
    assert float(np.float32(lower)) < lower and float(np.float32(upper)) > upper
    for seed in range(3):
        res, points = record(
            name, lambda x: -x[:, 0], [(lower, upper)], generations=120, seed=seed, compute=gx.Compute(dtype="float32")
        )
        assert res.population.dtype == res.population_fitness.dtype == np.float32
        for x in (points, res.population.astype(np.float64), res.x):
            assert np.all((x >= lower) & (x <= upper))


# CMA-ES samples a normal distribution around a point that is drawn for each run: test_cmaes.py has its first points
SAMPLES = {"cmaes", "crfmnes"}


@pytest.mark.parametrize(
    "name", params([n for n in SINGLE if n not in SAMPLES], quick={"ga", "lshade", "lsrtde", "random"})
)
def test_first_points_spread_over_the_whole_box(name):
    points = gx.Optimizer(BOX, gx.algorithms.ALGORITHMS[name](population=400)).ask_generation()
    for column, low, high in zip(points.T, LOWER, UPPER, strict=True):
        filled, _ = np.histogram(column, bins=4, range=(low, high))
        assert filled.sum() == 400 and filled.min() > 60


@pytest.mark.parametrize("name", params(SINGLE, quick={"de"}))
def test_the_smallest_population_and_a_single_variable_are_enough(name):
    def accepted(population):
        try:
            gx.algorithms.ALGORITHMS[name](population=population).validate()
        except gx.InputError:
            return False
        return True

    least = next(n for n in range(1, 1000) if accepted(n))
    smallest = gx.algorithms.ALGORITHMS[name](population=least)
    res = solve(name, lambda x: (x[0] - 2.0) ** 2, [(1.5, 4.0)], algorithm=smallest, generations=200, tolerance=0)
    assert res.nfev == 200 * least
    assert res.population.shape in ((least, 1), (least + 1, 1))  # some keep the best beside the population
    assert np.all((res.population >= 1.5) & (res.population <= 4.0)) and res.fun < 0.1


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "name"),
    params(product(["float32", "float64"], TWO), slow={"float32-cde"}),
)
def test_dtype_is_what_the_run_computes_in(name, dtype):
    seen = set()

    def looking(x):
        seen.add(str(x.dtype))
        return bowl(x)

    res = solve(name, looking, compute=gx.Compute(dtype=dtype))
    assert seen == {dtype}
    assert res.population.dtype == res.population_fitness.dtype == dtype
    assert res.x.dtype == np.float64 and isinstance(res.fun, float)
    assert res.settings["dtype"] == dtype


@pytest.mark.parametrize(
    "order", [pytest.param(("float32", "float64"), marks=pytest.mark.slow), ("float64", "float32")], ids=" then ".join
)
def test_one_objective_with_a_numpy_array_runs_in_both_precisions(order):
    place = OPTIMUM + 0.1  # no float32 numbers

    def fun(x):
        return jnp.sum((x - place) ** 2)

    for dtype in order:
        res = solve("de", fun, compute=gx.Compute(dtype=dtype))
        assert res.fun == pytest.approx(np.sum((res.x - place) ** 2), rel=float(1e4 * np.finfo(dtype).eps))


def test_arrays_that_a_run_has_read_are_still_float32_to_jax_afterwards():
    place = OPTIMUM + 0.1

    def fun(x):
        return jnp.sum((x - place) ** 2)

    solve("de", fun, compute=gx.Compute(dtype="float64"))
    assert jnp.asarray(place).dtype == jnp.asarray(place.tolist()).dtype


@EVERY_ALGORITHM
def test_the_default_is_float64_on_a_cpu_and_float32_on_an_accelerator(name):
    default = "float64" if devices.on_cpu() else "float32"
    assert gx.minimize(bowl, BOX, solver(name), generations=GENERATIONS, polish=False).population.dtype == default


@EXAMPLES
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("x64", [False, True])
def test_a_run_leaves_the_precision_of_jax_as_it_was(name, dtype, x64):
    with jax.enable_x64(x64):
        assert solve(name, compute=gx.Compute(dtype=dtype)).population.dtype == dtype
        assert jax.config.jax_enable_x64 == x64
        assert jnp.ones(1).dtype == ("float64" if x64 else "float32")
        with pytest.raises(gx.InputError):
            solve(name, lambda x: x[0] * jnp.nan, compute=gx.Compute(dtype=dtype))
        assert jax.config.jax_enable_x64 == x64


@pytest.mark.slow
def test_importing_changes_no_setting_of_jax():
    script = (
        "import jax; before = dict(jax.config.values); import galapax; "
        "assert dict(jax.config.values) == before; print('unchanged')"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert out.stdout.strip() == "unchanged", out.stderr


# --- compile once -----------------------------------------------------------------------------------------------------


@EVERY_ALGORITHM
def test_a_second_call_compiles_nothing(name):
    solve(name)
    solve(
        name, runs=range(1, 2)
    )  # a run of an ensemble, which a CPU computes in slices: another program than one by itself
    with compilations() as compiled:
        solve(name)
        solve(name, seed=99)
        solve(name, runs=range(3, 4))
        solve(name, max_evaluations=GENERATIONS * N)
        solve(name, callback=lambda state: None, on_failure="worst", max_seconds=60.0, keep=gx.Keep(history=False))
    assert compiled == []


@ON_CPU
@EVERY_ALGORITHM
def test_another_number_of_generations_compiles_nothing(name):
    solve(name)
    with compilations() as compiled:
        solve(name, generations=1)
        solve(name, generations=700)
        solve(name, max_evaluations=5 * N)
    assert compiled == []


@EVERY_ALGORITHM
def test_other_values_of_numeric_hyper_parameters_compile_nothing(name):
    first = solve(name)
    changed = jax.tree.map(lambda value: 0.9 * value, solver(name))
    with compilations() as compiled:
        second = solve(name, algorithm=changed)
    assert compiled == []
    if jax.tree.leaves(changed):
        assert not np.array_equal(first.population, second.population)


@EVERY_ALGORITHM
def test_another_box_compiles_nothing_and_is_another_search(name):
    solve(name, bounds=[(1.0, 3.5), (-3.5, -2.0), (7.0, 8.5)])  # a box that is new, too, so that its function is tried
    with compilations() as compiled:
        res = solve(name, bounds=[(1.0, 3.0), (-3.0, -2.0), (7.5, 8.5)])
    assert compiled == []
    assert np.all((res.population >= [1.0, -3.0, 7.5]) & (res.population <= [3.0, -2.0, 8.5]))


@pytest.mark.parametrize("name", params(SINGLE, quick={"de"}))
def test_other_targets_and_stalls_compile_nothing(name):
    solve(name, half_failing, target=1.0)
    with compilations() as compiled:
        solve(name, half_failing, target=0.5)
        solve(name, half_failing, patience=4)
        solve(name, half_failing, target=2.0, patience=7, seed=3)
    assert compiled == []


def test_the_same_lambda_written_again_compiles_nothing():
    def written_again():
        return lambda x: jnp.sum(jnp.abs(x - 2.25)) + jax.nn.softplus(x[0])

    first = solve("de", written_again())
    with compilations() as compiled:
        second = solve("de", written_again())
    assert compiled == []
    assert_same_run(first, second, rtol=0)


@EVERY_ALGORITHM
def test_a_second_ensemble_compiles_nothing(name):
    solve(name, runs=10)
    with compilations() as compiled:
        solve(name, runs=10, seed=4)
        solve(name, runs=range(100, 110))
    assert compiled == []


@pytest.mark.parametrize("name", params(SINGLE, quick={"de", "random"}))
def test_a_second_black_box_or_optimizer_compiles_nothing(name):
    def both(scale, seed):
        record(name, lambda x: scale * x.sum(axis=1), seed=seed)
        opt = gx.Optimizer(BOX, solver(name), seed=seed)
        opt.tell(opt.ask_generation(), scale * opt.ask_generation().sum(axis=1))
        return opt.best

    both(1.0, seed=1)
    with compilations() as compiled:
        both(2.0, seed=2)
    assert compiled == []


WELL = {"algorithm": gx.DE(population=40), "generations": 100}  # enough to come close, whatever the seed


def test_a_changed_global_is_seen():
    moved = {"to": 2.0}

    def fun(x):
        return (x[0] - moved["to"]) ** 2

    assert solve("de", fun, **WELL).x[0] == pytest.approx(2.0, abs=0.05)
    moved["to"] = 3.0
    with compilations() as compiled:
        res = solve("de", fun, **WELL)
    assert res.x[0] == pytest.approx(3.0, abs=0.05)
    assert compiled == []  # a number is data


def directly(array):
    return lambda x: jnp.sum((x - array) ** 2)


def inside_jit(array):
    inner = jax.jit(lambda x: jnp.sum((x - array) ** 2))
    return lambda x: inner(x)


def inside_loop(array):
    return lambda x: jax.lax.fori_loop(0, 3, lambda i, total: total + (x[i] - jnp.asarray(array)[i]) ** 2, 0.0 * x[0])


def inside_branch(array):
    return lambda x: jax.lax.cond(x[0] > 99.0, lambda: 0.0 * x[0], lambda: jnp.sum((x - array) ** 2))


@pytest.mark.parametrize(
    "closes_over",
    [
        pytest.param(directly, marks=pytest.mark.slow),
        inside_jit,
        pytest.param(inside_loop, marks=pytest.mark.slow),
        pytest.param(inside_branch, marks=pytest.mark.slow),
    ],
)
def test_other_data_in_a_closed_over_array_gives_its_own_answer(closes_over):
    for place in (OPTIMUM.copy(), OPTIMUM + np.array([1.0, -1.0, -3.0])):
        res = solve("de", closes_over(place), **WELL)
        np.testing.assert_allclose(res.x, place, atol=0.1)


def test_python_called_back_from_a_compiled_objective_is_not_mistaken_for_another():
    def calling_back(place):
        def call(x):
            return np.sum((x - place) ** 2, dtype=x.dtype)

        return lambda x: jax.pure_callback(call, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential")

    for place in (OPTIMUM.copy(), OPTIMUM + np.array([1.0, -1.0, -3.0])):
        res = solve("de", calling_back(place), compute=gx.Compute(dtype="float32"))
        assert res.fun == pytest.approx(np.sum((res.x - place) ** 2), rel=1e-3)


@pytest.mark.parametrize("kind", [np.array, jnp.array], ids=["NumPy", "JAX"])
def test_other_data_in_a_closed_over_array_compiles_nothing(kind):
    here, there = kind(OPTIMUM.tolist()), kind((OPTIMUM - 0.25).tolist())
    solve("de", directly(here), **WELL)
    with compilations() as compiled:
        res = solve("de", directly(there), **WELL)
    assert compiled == []
    np.testing.assert_allclose(res.x, OPTIMUM - 0.25, atol=0.1)


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_an_array_changed_in_place_is_seen(dtype):
    place = OPTIMUM.copy()
    fun = directly(place)
    np.testing.assert_allclose(solve("de", fun, compute=gx.Compute(dtype=dtype), **WELL).x, OPTIMUM, atol=0.2)
    place[:] = [3.0, -4.0, 2.0]
    np.testing.assert_allclose(solve("de", fun, compute=gx.Compute(dtype=dtype), **WELL).x, [3.0, -4.0, 2.0], atol=0.2)


@pytest.mark.parametrize("wrapped", [lambda fun: fun, jax.jit], ids=["directly", "inside_jit"])
def test_random_keys_may_be_closed_over(wrapped):
    keys = jax.random.split(jax.random.key(0), 4)

    def noise(x):
        return jnp.mean(jax.vmap(lambda key: jax.random.uniform(key, dtype=x.dtype))(keys))

    inner = wrapped(noise)
    assert 0.0 < solve("de", lambda x: bowl(x) + inner(x), **WELL).fun < 1.1


# --- failures ---------------------------------------------------------------------------------------------------------


def half_bad(bad):
    return lambda x: np.where(x[..., 0] > EDGE, bad, bowl_in_numpy(x))


@EVERY_ALGORITHM
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=["NaN", "+inf", "-inf"])
@pytest.mark.parametrize("maximize", [False, True], ids=["minimize", "maximize"])
def test_half_the_box_failing_is_counted_and_never_chosen(name, bad, maximize):
    res, points = record(name, half_bad(bad), maximize=maximize, on_failure="worst")
    fine = points[points[:, 0] <= EDGE]
    assert 0 < len(fine) < len(points)
    assert res.n_failed == len(points) - len(fine)
    assert res.nfev == len(points)
    values = bowl_in_numpy(fine)
    assert res.fun == (values.max() if maximize else values.min())
    assert res.x[0] <= EDGE and res.feasible and not res.success  # it made its generations, and met no rule


@EXAMPLES
def test_failures_of_a_compiled_objective_are_those_of_the_same_points_in_numpy(name):
    res = solve(name, half_failing, seed=3, patience=10**6)  # never reached, but the program is that of other tests
    recorded, points = record(name, lambda x: half_failing(x, np), seed=3)
    failed = points[points[:, 0] > EDGE]
    assert (failed[:, 1] < -5.0).any() and (failed[:, 1] > -4.0).any()
    assert res.n_failed == recorded.n_failed == len(failed)
    assert res.fun == pytest.approx(bowl_in_numpy(points[points[:, 0] <= EDGE]).min(), rel=ROUNDING)
    np.testing.assert_allclose(res.x, recorded.x, rtol=ROUNDING)


@pytest.mark.parametrize(
    ("bad", "name"),
    params(
        product(
            [pytest.param(np.nan, id="NaN"), pytest.param(np.inf, id="+inf"), pytest.param(-np.inf, id="-inf")], EVERY
        ),
        slow={"NaN-cde", "NaN-cmaes", "+inf-cmaes"},
    ),
)
def test_a_failed_point_never_displaces_one_that_did_not_fail(name, bad):
    opt = gx.Optimizer(BOX, solver(name), seed=2)
    fine_so_far, best_so_far = 0, np.inf
    for _ in range(GENERATIONS):
        x = opt.ask_generation()
        values = half_bad(bad)(x)
        opt.tell(x, values)
        best_so_far = min(best_so_far, values[np.isfinite(values)].min(initial=np.inf))
        fine = np.isfinite(opt.population.fitness)
        assert np.array_equal(opt.population.fitness[fine], bowl_in_numpy(opt.population.x[fine]))
        assert np.all(opt.population.x[fine, 0] <= EDGE)
        # CMA-ES keeps the samples of the last generation, whatever they are, and the best ever beside them
        assert fine.sum() >= (fine_so_far > 0 if name in SAMPLES else fine_so_far)
        assert opt.best.fun == best_so_far
        fine_so_far = fine.sum()
    assert fine_so_far > N / 2


# --- history ----------------------------------------------------------------------------------------------------------


@EVERY_ALGORITHM
def test_history_best_is_the_running_minimum_of_everything_evaluated(name):
    res, points = record(name, bowl_in_numpy, seed=3)
    running = np.minimum.accumulate(bowl_in_numpy(points).reshape(GENERATIONS, N).min(axis=1))
    assert np.array_equal(res.history.best, running)
    assert np.all(np.diff(res.history.best) <= 0)
    assert res.fun == running[-1] and bowl_in_numpy(res.x) == running[-1]
    compiled = solve(name, seed=3)
    # one kernel of a GPU draws normal numbers to seven digits, as XLA does, but not to the same last one
    np.testing.assert_allclose(compiled.history.best, running, rtol=ROUNDING if devices.on_cpu() else 1e-5)
    assert np.all(np.diff(compiled.history.best) <= 0)


@EVERY_ALGORITHM
def test_history_describes_the_survivors(name):
    res = solve(name)
    np.testing.assert_allclose(res.population_fitness, bowl_in_numpy(res.population), rtol=ROUNDING)
    assert res.history.best[-1] == res.population_fitness.min() == res.fun
    assert res.history.worst[-1] == res.population_fitness.max()
    assert res.history.mean[-1] == pytest.approx(res.population_fitness.mean())
    assert res.x.tolist() in res.population.tolist()
    assert res.history.generation.tolist() == list(range(1, GENERATIONS + 1))
    assert res.history.nfev.tolist() == [N * g for g in range(1, GENERATIONS + 1)]


# --- ensembles --------------------------------------------------------------------------------------------------------


@EVERY_ALGORITHM
def test_a_run_of_an_ensemble_is_the_single_run_of_that_number(name):
    ensemble = solve(name, runs=10, seed=6)
    for number in (0, 4, 9):
        alone = solve(name, seed=6, runs=range(number, number + 1))
        # on a GPU a slice is as large as the ensemble, and how sums are rounded depends on that
        assert_same_run(ensemble.run(number), alone, rtol=0 if devices.on_cpu() else ROUNDING)
        np.testing.assert_allclose(ensemble.runs.x[number], alone.x, rtol=ROUNDING)
        np.testing.assert_allclose(ensemble.runs.fun[number], alone.fun, rtol=ROUNDING)
        of_run = ensemble.runs.history.of_run(number)
        for part in ("best", "mean", "worst"):
            np.testing.assert_allclose(getattr(of_run, part), getattr(alone.history, part), rtol=ROUNDING)
    assert ensemble.runs.number.tolist() == list(range(10))
    assert ensemble.fun == ensemble.runs.fun.min()
    best = int(np.argmin(ensemble.runs.fun))
    np.testing.assert_allclose(ensemble.population, ensemble.run(best).population, rtol=ROUNDING)


@EVERY_ALGORITHM
def test_an_ensemble_from_a_later_run_number_continues_the_count(name):
    all_ten, later = solve(name, runs=10), solve(name, runs=range(5, 15))
    assert later.runs.number.tolist() == list(range(5, 15))
    np.testing.assert_allclose(later.runs.fun[:5], all_ten.runs.fun[5:], rtol=ROUNDING)
    assert_same_run(later.run(7), all_ten.run(7), rtol=0)


NEAR = 0.3
RULES = {"target": {"target": NEAR}, "patience": {"patience": 3}}


def first_stall(best, generations):
    """The generation that ends the first so many in a row without a better value; the last one if there is none."""
    better = np.concatenate([[np.isfinite(best[0])], best[1:] < best[:-1]])
    since = np.arange(len(best)) - np.maximum.accumulate(np.where(better, np.arange(len(best)), 0))
    return int(np.argmax(since >= generations)) + 1 if np.any(since >= generations) else len(best)


@cache
def until(name, rule, **settings):
    return solve(name, half_failing, **RULES[rule], generations=200, **settings)


@EXAMPLES
@pytest.mark.parametrize("rule", params(RULES, slow={"target"}))
def test_each_run_of_an_ensemble_stops_at_its_own_generation(name, rule):
    ensemble = until(name, rule, runs=10)
    assert len(set(ensemble.runs.nit)) > 2 and np.sum(ensemble.runs.nit < 200) > 2
    for number in range(10):
        alone = until(name, rule, runs=range(number, number + 1))
        assert ensemble.runs.nit[number] == alone.nit and ensemble.runs.success[number] == alone.success
        assert ensemble.runs.nfev[number] == alone.nfev == alone.nit * N
        assert ensemble.runs.n_failed[number] == alone.n_failed
        np.testing.assert_allclose(ensemble.runs.x[number], alone.x, rtol=ROUNDING)
        np.testing.assert_allclose(ensemble.runs.fun[number], alone.fun, rtol=ROUNDING)
        row = ensemble.runs.history.best[number]
        np.testing.assert_allclose(row[: alone.nit], alone.history.best, rtol=ROUNDING)
        assert np.all(row[alone.nit - 1 :] == row[alone.nit - 1])
        if rule == "target":
            assert np.all(row[: alone.nit - 1] > NEAR) and alone.success == (row[alone.nit - 1] <= NEAR)
        else:
            assert alone.nit == first_stall(alone.history.best, 3)
    assert ensemble.nfev == ensemble.runs.nfev.sum()
    assert len(ensemble.runs.history) == ensemble.runs.nit.max()


@pytest.mark.parametrize("name", params(SINGLE, quick={"de"}))
def test_the_black_box_engine_stops_each_run_at_its_own_generation_too(name):
    ensemble, points = record(name, half_bad(np.nan), runs=10, target=NEAR, generations=200)
    traced = until(name, "target", runs=10)
    assert ensemble.runs.nit.tolist() == traced.runs.nit.tolist()
    assert ensemble.runs.n_failed.tolist() == traced.runs.n_failed.tolist()
    np.testing.assert_allclose(ensemble.runs.x, traced.runs.x, rtol=ROUNDING)
    assert ensemble.nfev == len(points)  # a run that has stopped costs no more calls
    assert ensemble.n_failed == np.sum(points[:, 0] > EDGE)


@pytest.mark.parametrize(
    ("rules", "name"),
    params(
        product(
            [
                pytest.param({}, id="fixed length"),
                pytest.param({"target": NEAR, "generations": 200}, id="own generation"),
            ],
            TWO,
        ),
        slow={"own generation-cde"},
    ),
)
def test_an_ensemble_computed_in_batches_is_the_same(name, rules, in_batches):
    fun = half_failing if rules else bowl
    whole = solve(name, fun, runs=10, **rules)
    in_batches(3)
    split = solve(name, fun, runs=10, **rules)
    assert_same_run(split, whole)
    for field in dataclasses.fields(gx.Runs):
        expected = getattr(whole.runs, field.name)
        if field.name != "history" and expected is not None:  # as what only some runs have
            np.testing.assert_allclose(getattr(split.runs, field.name), expected, rtol=ROUNDING)
    for part in ("best", "mean", "worst", "generation", "nfev"):
        np.testing.assert_allclose(getattr(split.runs.history, part), getattr(whole.runs.history, part), rtol=ROUNDING)


def test_the_population_of_an_ensemble_in_batches_is_that_of_its_best_run(in_batches):
    # one generation and a narrow feasible strip: some runs end infeasible, with lower values than any feasible one
    in_batches(2)
    mixed = 0
    for seed in range(8):
        res = solve("de", lambda x: x[0], ineq=lambda x: 3.8 - x[0], runs=6, seed=seed, generations=1)
        assert res.x.tolist() in res.population.tolist()
        assert res.fun in res.population_fitness
        mixed += 0 < res.runs.feasible.sum() < 6
    assert mixed > 2


@ON_CPU
@pytest.mark.parametrize("name", params(SINGLE, quick={"de"}))
@pytest.mark.parametrize(
    "rules",
    [pytest.param({}, marks=pytest.mark.slow), {"target": 0.3, "patience": 25}],
    ids=["fixed length", "own generation"],
)
def test_the_result_does_not_depend_on_how_the_chunks_fall(name, rules, monkeypatch):
    settings = {"fun": half_failing if rules else bowl, "generations": 100, "runs": 10, **rules}
    long = solve(name, **settings)
    monkeypatch.setattr(compiled, "CHUNK_SECONDS", 0.0)  # one generation at a time
    assert_same_run(solve(name, **settings), long, rtol=0)
    monkeypatch.setattr(compiled, "_max_cpu_chunk", lambda runs, population: 7)  # 100 is no multiple of it
    for seconds in (0.0, 1e9):
        monkeypatch.setattr(compiled, "CHUNK_SECONDS", seconds)
        short = solve(name, **settings)
        assert_same_run(short, long)
        assert short.runs.nit.tolist() == long.runs.nit.tolist()
        np.testing.assert_allclose(short.runs.fun, long.runs.fun, rtol=ROUNDING)


def test_the_algorithm_of_the_documentation_runs(tmp_path, monkeypatch):
    text = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```\n")[0]
    (tmp_path / "evolution_strategy.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    kind = importlib.import_module("evolution_strategy").ES
    result = gx.minimize(
        lambda x: jnp.sum((x - 1) ** 2), [(-5, 5)] * 3, algorithm=kind(), generations=200, seed=1, polish=False
    )
    assert result.fun < 1e-4
    with pytest.raises(ValueError, match="initial_step"):
        kind(first_step=0.1)


def test_traits_and_protocols_describe_the_algorithms():
    bound = gx.CMAES().bind(5, Shape(), Budget())
    assert isinstance(bound, contract.CountsEvaluations) and isinstance(bound, contract.Restartable)
    assert not isinstance(gx.DE(), contract.CountsEvaluations | contract.AcceptsImmigrants | contract.HasArchive)
    assert contract.count_repairs(gx.DE()) == 0 and contract.count_repairs(gx.EpsilonDE(population=40)) == 10
    assert contract.double_population(gx.DE(), 10, 2) == gx.DE(population=40)
    assert contract.scale_spread(gx.CMAES(sigma0=0.4), 0.5).sigma0 == 0.2
    assert {name for name, kind in gx.algorithms.ALGORITHMS.items() if kind.traits.multi_objective} == {
        "moead", "npga", "nsga2", "nsga3", "sharing_moea", "sms_emoa"}  # fmt: skip
