"""What every algorithm for several objectives promises, whatever it does inside, and what a result then holds.

Most of it is asked of the black-box engine, whose program depends on sizes alone and is compiled once for many tests.
That the compiled engine makes the same runs is tested first, and in test_engines_agree.py with constraints.
"""

import os
import signal
import warnings
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params
from support.compilations import compilations

import galapax as gx
from galapax.core.algorithm import Budget
from galapax.core.problem import CandidateEvaluation, Shape
from galapax.metrics import indicators
from galapax.numerics import random

NAMES = [name for name, kind in gx.algorithms.ALGORITHMS.items() if kind.traits.multi_objective]
# a generation of each is traced at once, and each is tested by itself too, in a file for a few methods
RELATIVES = {"npga", "moead", "sharing_moea", "sms_emoa"}
EVERY_ALGORITHM = pytest.mark.parametrize("name", params(NAMES, slow=RELATIVES))

BOX = [(1.5, 4.0), (-7.0, -2.0), (-0.5, 9.5)]
LOWER, UPPER = np.array(BOX).T
EDGE = 2.75  # the middle of the first variable: beyond it some objectives fail
REFERENCE = (40.0, 130.0)
N, GENERATIONS = 12, 10
ROUNDING = 1e-9


def two(x):
    """Two bowls apart; of one solution, or of the rows of a NumPy array."""
    xp = np if isinstance(x, np.ndarray) else jnp
    first = (x[..., 0] - 2.0) ** 2 + (x[..., 1] + 2.5) ** 2
    return xp.stack([first, (x[..., 0] - 3.0) ** 2 + (x[..., 2] - 8.0) ** 2], axis=-1)


def solver(name, **settings):
    return gx.algorithms.ALGORITHMS[name](population=N, **settings)


def solve(name, fun=two, problem=None, **settings):
    problem = gx.Problem(fun, BOX, **{"name": "two bowls", "reference_point": REFERENCE, **(problem or {})})
    return gx.minimize(
        problem,
        solver(name),
        polish=False,
        **{"generations": GENERATIONS, "compute": gx.Compute(dtype="float64"), **settings},
    )


def record(name, fun=two, **settings):
    """The result for a NumPy function of the rows of x, and all points (G * n, d) that it was asked about, in order."""
    seen = []

    def recording(x):
        seen.append(x.copy())
        return fun(x)

    # every history with x, since one without would be another program
    keep = gx.Keep(history="x", snapshots=settings.pop("snapshots", ()))
    result = solve(name, recording, **{"blackbox": True, "vectorized": True, "keep": keep, **settings})
    return result, np.concatenate(seen)


@cache
def usual(name, **settings):
    """A run of the compiled engine."""
    return solve(name, seed=5, **settings)


@cache
def recorded(name, **settings):
    return record(name, seed=5, **settings)


def assert_same_run(a, b, rtol=ROUNDING):
    """The same run up to rounding; rtol=0 for bit by bit."""
    assert (a.nit, a.nfev, a.n_failed, a.success, a.message) == (b.nit, b.nfev, b.n_failed, b.success, b.message)
    names = ("x", "fun", "population", "population_fitness", "X", "F", "CV", "hypervolume")
    pairs = [(a[n], b[n]) for n in names]
    pairs += [(getattr(a.history, n), getattr(b.history, n)) for n in ("best", "mean", "worst", "hypervolume")]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def dominates(a, b):
    """Whether rows of a (n, m) dominate rows of b (k, m), (n, k)."""
    a, b = a[:, None], b[None]
    return (a <= b).all(axis=-1) & (a < b).any(axis=-1)


def front_in_numpy(x, objectives, feasible=None):
    """The rows of x (n, d) that a front must hold, each once, in a set of tuples."""
    sound = np.isfinite(objectives).all(axis=1) & (True if feasible is None else feasible)
    x, objectives = x[sound], objectives[sound]
    return set(map(tuple, x[~dominates(objectives, objectives).any(axis=0)].tolist()))


def rows_of(x):
    return set(map(tuple, np.asarray(x).tolist()))


# --- draws and engines ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_run_and_compiles_nothing_again(name):
    first = usual(name)
    with compilations() as compiled:
        again = solve(name, seed=5)
        other = [solve(name, seed=6)]
        solve(
            name,
            seed=7,
            max_evaluations=GENERATIONS * N,
            max_seconds=60.0,
            callback=lambda state: None,
            keep=gx.Keep(history=False),
        )
    assert compiled == []
    assert_same_run(again, first, rtol=0)
    other.append(solve(name, seed=5, runs=range(1, 2)))  # as in an ensemble, which is another program
    for one in other:
        assert not np.any(one.population == first.population)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_black_box_makes_the_same_run(name):
    result, points = recorded(name)
    assert_same_run(result, usual(name))
    assert result.nfev == len(points) == N * GENERATIONS


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ask_and_tell_is_the_same_run_with_the_same_front(name):
    opt = gx.Optimizer(BOX, solver(name), seed=5)
    with pytest.raises(gx.InputError, match="no best point before the first value"):
        _ = opt.best
    for _ in range(GENERATIONS):
        x = opt.ask_generation()
        opt.tell(x, two(x))
    expected = recorded(name)[0]
    for part in ("x", "fun", "X", "F", "CV"):
        np.testing.assert_allclose(opt.best[part], expected[part], rtol=ROUNDING)
    assert opt.best.G is None and opt.best.H is None
    assert opt.best.choose([1, 0]) == 0 and not opt.best.success  # no rule that says "done" was met
    np.testing.assert_allclose(opt.population.x, expected.population, rtol=ROUNDING)
    if name == "nsga2":  # the rest is the same for all
        with pytest.raises(gx.InputError, match="told 3 objectives, and the first one had 2 objectives"):
            opt.tell(opt.ask_generation(), np.zeros((N, 3)))


def test_ask_and_tell_with_objectives_that_do_not_fit_or_that_fail():
    for algorithm, values, why in (("de", np.zeros((N, 2)), "nsga2"), ("nsga2", np.zeros(N), '"de"')):
        opt = gx.Optimizer(BOX, algorithm, population=N)
        with pytest.raises(gx.InputError, match=why):
            opt.tell(opt.ask_generation(), values)
    opt = gx.Optimizer(BOX, "nsga2", population=N, maximize=True)
    opt.tell(opt.ask_generation(), -two(opt.ask_generation()))
    assert (opt.best.F <= 0).all() and rows_of(opt.best.X) == front_in_numpy(
        opt.population.x, -opt.population.objectives
    )
    opt.tell(opt.ask_generation(), np.full((N, 2), np.nan))
    assert opt.n_failed == N and len(opt.best.X) and np.isfinite(opt.best.F).all()
    opt = gx.Optimizer(BOX, "nsga2", population=N)
    opt.tell(opt.ask_generation(), np.full((N, 2), np.nan))
    assert opt.best.X.shape == (0, 3) and np.isnan(opt.best.fun).all() and not opt.best.success


@pytest.mark.parametrize("name", sorted(RELATIVES))
def test_a_generation_has_the_shapes_of_the_one_before(name):
    """Traced and not compiled."""
    algorithm, bounds, shape = solver(name).bind(3, Shape(2), Budget()), gx.Bounds(LOWER, UPPER), Shape(2)

    def first(key):
        state = algorithm.init(key, bounds, shape)
        return algorithm.start(state, told(state), shape)

    def told(state):
        objectives = jax.vmap(two)(state.candidates)
        return CandidateEvaluation(objectives, None, jnp.zeros(len(objectives), bool))

    with jax.enable_x64(True):
        before = jax.eval_shape(first, random.root_key(0))
        after = jax.eval_shape(lambda key, state: algorithm.step(key, state, told(state)), random.root_key(1), before)
    assert before.candidates.shape == (N, 3) and before.parents.objectives.shape[1] == 2
    alike = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), before, after)
    assert all(jax.tree.leaves(alike))


@pytest.mark.parametrize("name", params(NAMES, slow=RELATIVES | {"nsga3"}))
def test_every_point_lies_in_the_box(name):
    result, points = record(name, lambda x: np.stack([x.sum(axis=1), -x[:, 0]], axis=1), generations=25)
    for x in (points, result.population, result.X, result.x):
        assert np.all((x >= LOWER) & (x <= UPPER))


# --- failures and infeasible problems ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", params(NAMES, slow=RELATIVES | {"nsga3"}))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=["NaN", "+inf", "-inf"])
def test_what_failed_in_one_objective_is_never_on_a_front(name, bad):
    def half_bad(x):
        values = two(x)
        values[x[:, 0] > EDGE, 1] = bad
        return values

    result, points = record(name, half_bad, on_failure="worst")
    assert result.n_failed == np.sum(points[:, 0] > EDGE) > 0
    assert len(result.X) and (result.X[:, 0] <= EDGE).all() and np.isfinite(result.F).all()
    assert np.isfinite(result.hypervolume) and result.feasible


@EVERY_ALGORITHM
def test_all_failing_leaves_an_empty_front(name):
    result, _ = record(name, lambda x: np.full((len(x), 2), np.nan), on_failure="worst")
    assert result.X.shape == (0, 3) and result.F.shape == (0, 2) and result.CV.shape == (0,)
    assert np.isnan(result.fun).all() and result.hypervolume == 0 and result.n_failed == result.nfev
    assert not result.success and not result.feasible and "No point has a finite value" in result.message
    assert "front: empty" in repr(result)
    with pytest.raises(gx.InputError, match="front is empty"):
        result.choose()
    stopped, _ = record(name, lambda x: np.full((len(x), 2), np.nan))
    assert 20 <= stopped.nfev < 20 + stopped.nfev // stopped.nit and "every evaluation" in stopped.message


def test_a_compiled_objective_that_fails_everywhere_is_refused_before_compiling():
    with compilations() as compiled, pytest.raises(gx.InputError, match="returned NaN or inf at all"):
        solve("nsga2", lambda x: two(x) * jnp.nan)
    assert "run" not in " ".join(compiled)


def limited(x):
    """Feasible is a corner of the box, about one point in forty."""
    return 5.0 - x[..., 0] + x[..., 1]


def impossible(x):
    return 1.0 + x[..., 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_constraints_hold_on_the_front_and_are_not_called_again_for_it(name):
    asked = []

    def ineq(x):
        asked.append(x.copy())
        return limited(x) - 3.0

    result, points = record(name, problem={"ineq": ineq}, seed=1)
    assert len(np.concatenate(asked)) == len(points)
    assert len(result.X) and result.feasible and not result.success  # no rule says that a front is complete
    np.testing.assert_array_equal(result.G[:, 0], limited(result.X) - 3.0)
    assert (result.G <= 0).all() and result.H is None and (result.CV == 0).all()
    feasible = limited(result.population) - 3.0 <= 0
    assert rows_of(result.X) == front_in_numpy(result.population, result.population_fitness, feasible)
    assert result.history.feasible_share[-1] == feasible.mean() and result.history.violation[-1] == 0


@pytest.mark.parametrize("name", params(NAMES, slow=RELATIVES | {"nsga3"}))
def test_the_message_says_that_a_problem_is_infeasible(name):
    result, points = record(name, problem={"ineq": impossible}, seed=1)
    assert result.X.shape == (0, 3) and result.F.shape == (0, 2) and result.G.shape == (0, 1)
    assert not result.success and not result.feasible and result.hypervolume == 0
    assert "No feasible point was found; the total constraint violation" in result.message
    among = result.population if name == "npga" else points  # which forgets
    assert impossible(result.x) == result.violation == impossible(among).min() == result.ineq[0]
    assert np.isnan(result.fun).all()


# --- how a run ends ---------------------------------------------------------------------------------------------------


@EVERY_ALGORITHM
def test_target_and_stall_are_hypervolumes(name):
    history = recorded(name, generations=40)[0].history.hypervolume
    goal = history[5:].max()
    first = int(np.argmax(history >= goal))
    result, _ = record(name, seed=5, generations=40, target=goal)
    assert result.success and result.nit == first + 1 and "Target reached" in result.message
    assert result.settings["target"] == pytest.approx(goal) and result.hypervolume >= goal
    missed, _ = record(name, seed=5, target=1e6)
    assert not missed.success and missed.nit == GENERATIONS and "not reached" in missed.message
    stalled, _ = record(name, seed=5, generations=200, patience=3)
    # fronts may lose points, and be better again than the last
    best = np.maximum.accumulate(stalled.history.hypervolume)
    assert stalled.nit < 200 and "no improvement for 3 generations" in stalled.message
    assert np.all(best[-4:] == best[-1]) and (len(best) == 4 or best[-5] < best[-1])


@pytest.mark.slow
def test_compiled_runs_of_an_ensemble_reach_their_target_each_in_its_own_generation():
    goal = float(np.median(usual("nsga2").history.hypervolume[4:]))
    ensemble = usual("nsga2", runs=4, target=goal)
    assert len(set(ensemble.runs.nit.tolist())) > 1
    for r in range(4):
        alone, _ = recorded("nsga2", target=goal, runs=range(r, r + 1))
        assert ensemble.runs.nit[r] == alone.nit and ensemble.runs.success[r] == alone.success
        np.testing.assert_allclose(ensemble.runs.hypervolume[r], alone.hypervolume, rtol=ROUNDING)
        np.testing.assert_allclose(ensemble.runs.fronts[r].F, alone.F, rtol=ROUNDING)


@pytest.mark.parametrize("rule", [{"target": 1.0}, {"patience": 5}], ids=["target", "stall"])
@pytest.mark.parametrize("blackbox", [False, True], ids=["compiled", "black box"])
def test_target_and_stall_are_refused_without_a_hypervolume(rule, blackbox):
    with compilations() as compiled, pytest.raises(gx.InputError, match="reference_point, and 'two bowls' has none"):
        solve("nsga2", two, {"reference_point": None}, blackbox=blackbox, **rule)
    assert not any("generation" in program or "chunk" in program for program in compiled)


@EVERY_ALGORITHM
def test_evaluations_time_callback_and_ctrl_c_end_a_run(name):
    assert record(name, max_evaluations=5 * N + 3, generations=None)[0].nfev == 5 * N + 3
    late, _ = record(name, max_seconds=1e-9, generations=None)
    assert late.nit == 1 and late.feasible and not late.success and "time limit" in late.message
    seen = []
    stopped, _ = record(name, callback=lambda state: seen.append(state) or len(seen) == 3)
    assert stopped.nit == 3 and "callback" in stopped.message and not stopped.success
    assert [state.hypervolume for state in seen] == stopped.history.hypervolume.tolist()

    calls = []

    def interrupting(x):
        calls.append(x)
        if len(calls) == 3 * N + 5:
            os.kill(os.getpid(), signal.SIGINT)
        return two(x)

    cut = solve(name, interrupting, blackbox=True, keep=gx.Keep(history="x"))
    assert "Ctrl-C" in cut.message and not cut.success and cut.nit == 4
    assert cut.nfev == 3 * N + 4 and cut.n_failed == 0  # what Ctrl-C cut off counts for nothing
    assert len(cut.X) and np.isfinite(cut.F).all()


# --- what the user means ----------------------------------------------------------------------------------------------


@EVERY_ALGORITHM
def test_maximizing_the_negative_is_the_same_run_with_other_signs(name):
    least = recorded(name)[0]
    most, _ = record(
        name,
        lambda x: -two(x),
        problem={"reference_point": (-40.0, -130.0)},
        maximize=True,
        seed=5,
        snapshots=[4],
    )
    for part in ("x", "X", "population", "hypervolume"):
        np.testing.assert_array_equal(most[part], least[part])
    for part in ("fun", "F", "population_fitness"):
        np.testing.assert_array_equal(most[part], -least[part])
    for part in ("best", "mean", "worst"):
        np.testing.assert_array_equal(getattr(most.history, part), -getattr(least.history, part))
    np.testing.assert_array_equal(most.history.hypervolume, least.history.hypervolume)
    for how in ("knee", "ideal", (1, 0), (0.3, 0.7)):
        assert most.choose(how) == least.choose(how)
    assert most.F[most.choose((1, 0)), 0] == most.F[:, 0].max()
    measured = indicators.by_generation(most, true_front=-np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert measured["hypervolume"][0] == pytest.approx(least.history.hypervolume[3])
    again = indicators.by_generation(
        gx.Result(
            {
                **least,
                "snapshots": {4: most.snapshots[4]._replace(objectives=-most.snapshots[4].objectives)},
            }
        ),
        true_front=np.array([[0.0, 1.0], [1.0, 0.0]]),
    )
    assert measured["igd"] == again["igd"] and measured["igd_plus"] == again["igd_plus"]


@EVERY_ALGORITHM
def test_history_and_snapshots_describe_the_survivors(name):
    result, _ = record(name, seed=5, keep=gx.Keep(snapshots=range(1, GENERATIONS + 1), history="x"))
    assert_same_run(result, recorded(name)[0], rtol=0)
    assert result.history.best.shape == result.history.mean.shape == (GENERATIONS, 2)
    measured = indicators.by_generation(result)
    assert set(measured) == {"generation", "hypervolume"} and measured["generation"].tolist() == [*range(1, 11)]
    np.testing.assert_allclose(measured["hypervolume"], result.history.hypervolume, rtol=1e-12)
    for g, kept in result.snapshots.items():
        np.testing.assert_array_equal(kept.objectives, two(kept.x))
        for part in ("min", "mean", "max"):
            by_hand = getattr(kept.objectives, part)(axis=0)
            mine = getattr(result.history, {"min": "best", "max": "worst"}.get(part, part))[g - 1]
            np.testing.assert_allclose(mine, by_hand, rtol=1e-12)
        assert tuple(result.history.x[g - 1]) in rows_of(kept.x)
    np.testing.assert_array_equal(result.snapshots[GENERATIONS].x, result.population)
    assert rows_of(result.X) == front_in_numpy(result.population, result.population_fitness)
    assert result.hypervolume == pytest.approx(indicators.volume(result.F, np.array(REFERENCE)))
    assert result.fun.tolist() == result.F[result.choose()].tolist()
    assert result.x.tolist() == result.X[result.choose()].tolist()


@EVERY_ALGORITHM
def test_a_run_starts_from_the_points_given(name):
    start = np.array([[2.0, -3.0, 8.0], [3.0, -2.5, 1.0]])
    _, points = record(name, x0=start, generations=2)
    np.testing.assert_array_equal(points[:2], start)


# --- ensembles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", params(NAMES, slow=RELATIVES | {"nsga3"}))
def test_runs_of_an_ensemble_in_batches_are_the_single_runs(name, in_batches):
    in_batches(2)
    ensemble = usual(name, runs=range(1, 4))
    singles = [usual(name, runs=range(number, number + 1)) for number in (1, 2, 3)]
    assert_same_run(ensemble.run(2), singles[1], rtol=0)
    for r, alone in enumerate(singles):
        own = ensemble.runs.fronts[r]
        for mine, theirs in ((own.X, alone.X), (own.F, alone.F), (ensemble.runs.fun[r], alone.fun)):
            np.testing.assert_allclose(mine, theirs, rtol=ROUNDING)
        np.testing.assert_allclose(ensemble.runs.hypervolume[r], alone.hypervolume, rtol=ROUNDING)
        np.testing.assert_allclose(ensemble.runs.history.of_run(r).best, alone.history.best, rtol=ROUNDING)
    fronts = ensemble.runs.fronts
    together = np.concatenate([f.X for f in fronts]), np.concatenate([f.F for f in fronts])
    assert rows_of(ensemble.X) == front_in_numpy(*together)
    best = int(np.argmax(ensemble.runs.hypervolume))
    assert ensemble.hypervolume == ensemble.runs.hypervolume[best] == ensemble.runs.quantiles(1.0)
    np.testing.assert_allclose(ensemble.population, singles[best].population, rtol=ROUNDING)
    np.testing.assert_allclose(ensemble.history.hypervolume, singles[best].history.hypervolume, rtol=ROUNDING)
    assert ensemble.fun.tolist() == ensemble.F[ensemble.choose()].tolist()


# --- sound fronts, problem by problem ---------------------------------------------------------------------------------


def duplicated(x):
    """Steps: many solutions have the same objectives, and some variables do not matter."""
    return np.stack([np.floor(4 * x[..., 0]), 4 - np.floor(4 * x[..., 0]) + np.floor(3 * x[..., 1])], axis=-1)


ZDT = ["zdt1", "zdt2", "zdt3", "zdt4", "zdt6"]
MOEA = [name for name in gx.problems.PROBLEMS if name.startswith("moea_")]
SIX = {"dim": 6}  # of one size, so that they share a program


def builtin(name):
    sized = name not in ("blending", "blending7", "steps")
    return gx.problems.get(name, **(SIX if sized else {}))


# the quick ones share programs, or have three objectives, or both kinds of constraints
ALSO = [pytest.param(name, marks=pytest.mark.slow) for name in ("dtlz1", "blending")]


@pytest.mark.parametrize(
    "name",
    params(
        [*ZDT, *MOEA, "dtlz2", "blending7", "steps", *ALSO],
        quick={"moea_zdt1", "moea_zdt2", "moea_zdt3", "moea_zdt6", "moea_zdt6_6pi", "steps"},
    ),
)
def test_every_front_is_sound(name):
    if name == "steps":
        problem = gx.Problem(duplicated, [(0.0, 1.0)] * 6, name="steps", reference_point=(9.0, 9.0))
        functions = {"fun": duplicated}
    else:
        problem = builtin(name)
        functions = {
            part: jax.jit(jax.vmap(getattr(problem, part)))
            for part in ("fun", "ineq", "eq")
            if getattr(problem, part) is not None
        }
    with jax.enable_x64(True):

        def at(part):
            return lambda x: np.asarray(functions[part](x))

        plain = problem.with_(**{part: at(part) for part in functions})
        result = gx.minimize(
            plain,
            gx.NSGA2(population=20),
            generations=30,
            runs=2 if name.startswith("dtlz") else 1,
            blackbox=True,
            vectorized=True,
            seed=3,
        )
        again = {part: at(part)(result.X) for part in functions} if len(result.X) else {}
    assert len(result.X) > 0 or name == "blending7"  # an equality is hard to meet in so few generations
    assert np.all((problem.bounds.lower <= result.X) & (problem.bounds.upper >= result.X))
    assert np.isfinite(result.F).all() and not dominates(result.F, result.F).any()
    assert len(rows_of(result.X)) == len(result.X)
    assert (np.diff(result.F[:, 0]) >= 0).all() and (result.CV == 0).all()
    for part, mine in (("fun", result.F), ("ineq", result.G), ("eq", result.H)):
        if part in again:
            np.testing.assert_allclose(mine, again[part], rtol=1e-12, atol=1e-12)
    if result.G is not None:
        assert (result.G <= 0).all()
    if result.H is not None:
        assert (np.abs(result.H) <= problem.eq_tolerance).all()
    for name, values in result.get("derived", {}).items():
        assert values.shape == (len(result.X),), name


# --- archives ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_archive_holds_at_most_its_size_and_leaves_the_run_alone():
    result, points = record("nsga2", seed=5, keep=gx.Keep(archive=5))
    plain, _ = recorded("nsga2")
    for part in ("population", "population_fitness"):
        np.testing.assert_array_equal(result[part], plain[part])
    np.testing.assert_array_equal(result.history.mean, plain.history.mean)
    assert result.settings["archive"] == 5 and result.settings["algorithm"] == "nsga2"
    assert 0 < len(result.X) <= 5 and not dominates(result.F, result.F).any()
    assert rows_of(result.X) <= rows_of(points)
    assert result.hypervolume == pytest.approx(indicators.volume(result.F, np.array(REFERENCE)))


@pytest.mark.slow
def test_a_large_archive_holds_all_that_nobody_dominates_even_what_the_run_forgot():
    forgotten = 0
    for seed in range(12):
        settings = {"problem": {"ineq": rarely}, "seed": seed, "generations": 6}
        result, points = record("npga", keep=gx.Keep(archive=200), **settings)
        feasible = rarely(points) <= 0
        assert rows_of(result.X) == front_in_numpy(points, two(points), feasible)
        assert result.feasible == bool(feasible.any()) == (result.violation == 0)
        assert ("No feasible" in result.message) != feasible.any()
        assert (np.diff(result.history.hypervolume) >= 0).all() and (np.diff(result.history.violation) <= 0).all()
        plain, _ = record("npga", **settings)
        np.testing.assert_array_equal(result.population, plain.population)
        forgotten += feasible.any() and not plain.feasible
    assert forgotten  # in some run the last population had no feasible point left


def rarely(x):
    """Feasible is one point in five hundred."""
    return limited(x) + 5.0


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: solve("nsga2", lambda x: x[0], {"reference_point": None}), "one number and NSGA2 is for several"),
        (lambda: solve("npga", lambda x: x[0], {"reference_point": None}, blackbox=True), "NPGA is for several"),
        (lambda: gx.minimize(two, BOX, "de"), "returns 2 numbers.*DE minimises one.*nsga2"),
        (lambda: gx.minimize(two, BOX, "de", blackbox=True), "returns 2 numbers.*DE minimises one.*nsga2"),
        (lambda: solve("nsga2", two, {"reference_point": (1.0, 2.0, 3.0)}), "reference_point must be 2 numbers"),
        (lambda: solve("nsga2", two, {"reference_point": (1.0,)}, blackbox=True), "reference_point must be 2 numbers"),
        (lambda: solve("nsga2", two, {"reference_point": (1.0, np.nan)}), "reference_point must be finite"),
        (lambda: gx.minimize(gx.Problem(two, BOX, reference_point=3.0)), "reference_point must be finite"),
        (
            lambda: gx.minimize(gx.Problem(lambda x: x[0], BOX, reference_point=(1.0, 2.0)), "de"),
            "reference_point applies to several objectives",
        ),
        (
            lambda: gx.minimize(lambda x: x[0], BOX, "de", keep=gx.Keep(archive=10)),
            "archive applies to several objectives, and de",
        ),
        (lambda: solve("nsga2", keep=gx.Keep(archive=0)), "archive must be at least 1"),
        (lambda: solve("nsga2", keep=gx.Keep(archive=2.5)), "archive must be a whole number"),
        (lambda: solve("nsga2", problem={"objectives": ["one"]}), "objectives of problem.*1 names for 2"),
        (lambda: solve("nsga2", problem={"units": {"weight": "kg"}}), "units names 'weight'"),
        (lambda: solve("nsga2", problem={"derived": {"all": lambda x: 2 * x}}), "'all' must be one number.*shape .3,"),
        (
            lambda: solve("nsga2", problem={"derived": {"all": lambda x: 2 * x}}, blackbox=True),
            "'all' must be one number.*shape .3,",
        ),
        (lambda: solve("nsga2", problem={"derived": {"bad": lambda x: x[7].foo}}), "'bad' raised AttributeError"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_sentence(call, why):
    with compilations() as compiled, pytest.raises(gx.InputError, match=f"(?s){why}"):
        call()
    assert not any("chunk" in program for program in compiled)


@pytest.mark.parametrize(
    "how", ["middle", [1.0], [1.0, 2.0, 3.0], [-1.0, 2.0], [0.0, 0.0], ["a", "b"], [np.nan, 1.0], None]
)
def test_choices_that_make_no_sense_are_refused(how):
    with pytest.raises(gx.InputError):
        usual("nsga2").choose(how)


def test_there_is_nothing_to_choose_with_one_objective():
    result = gx.minimize(
        lambda x: np.sum(x**2), [(-1.0, 1.0)], gx.RandomSearch(population=4), generations=1, blackbox=True
    )
    with pytest.raises(gx.InputError, match="one objective"):
        result.choose()
    with pytest.raises(gx.InputError, match="one objective"):
        indicators.by_generation(result)


@pytest.mark.slow  # quick in test_nsga2.py
def test_an_odd_population_is_taken():
    opt = gx.Optimizer(BOX, "sharing_moea", population=7)
    for _ in range(3):
        opt.tell(opt.ask_generation(), two(opt.ask_generation()))
    assert opt.population.x.shape == (7, 3) and len(opt.best.X)


# --- indicators -------------------------------------------------------------------------------------------------------


def test_a_reference_point_inside_the_front_is_warned_of():
    front = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    with pytest.warns(UserWarning, match="2 of 3 points do not dominate the reference point"):
        assert indicators.hypervolume(front, (0.75, 0.75)) == pytest.approx(0.0625)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert indicators.hypervolume(front, (2.0, 2.0)) > 0
    result, _ = record("nsga2", problem={"reference_point": (1e-9, 1e-9)}, seed=5)
    points = len(result.F)
    assert f"{points} of the {points} points on the front lie beyond the reference point" in result.message
    assert result.hypervolume == 0 and result.feasible


@pytest.mark.slow
def test_indicators_by_generation_of_three_objectives_and_of_an_ensemble():
    problem = builtin("dtlz2").with_(reference_point=(2.0, 2.0, 2.0))
    with jax.enable_x64(True):
        fun = jax.jit(jax.vmap(problem.fun))
        plain = problem.with_(fun=lambda x: np.asarray(fun(x)))
        result = gx.minimize(
            plain,
            gx.NSGA2(population=20),
            generations=30,
            blackbox=True,
            vectorized=True,
            runs=2,
            keep=gx.Keep(snapshots=[1, 10, 30]),
        )
    measured = indicators.by_generation(result)
    assert measured["generation"].tolist() == [1, 10, 30]
    for name in ("hypervolume", "igd", "igd_plus"):
        assert measured[name].shape == (2, 3)
    assert (np.diff(measured["igd_plus"], axis=1) < 0).all() and (np.diff(measured["hypervolume"], axis=1) > 0).all()
    true = problem.front(1000)
    for r, front in enumerate(result.runs.fronts):
        assert measured["hypervolume"][r, -1] == pytest.approx(indicators.hypervolume(front.F, (2.0, 2.0, 2.0)))
        assert measured["igd_plus"][r, -1] == pytest.approx(indicators.igd_plus(front.F, true))
        assert measured["igd"][r, -1] == pytest.approx(indicators.igd(front.F, true))
    other = indicators.by_generation(result, reference=(3.0, 3.0, 3.0), true_front=true[:1])
    assert (other["hypervolume"] > measured["hypervolume"]).all() and (other["igd"] != measured["igd"]).all()
    for wrong, why in (
        ({"reference": (1.0, 1.0)}, "3 finite"),
        ({"true_front": true[:, :2]}, "3 objectives and true_front 2"),
    ):
        with pytest.raises(gx.InputError, match=why):
            indicators.by_generation(result, **wrong)


def test_indicators_by_generation_need_snapshots_and_something_to_measure_from():
    with pytest.raises(gx.InputError, match="snapshots="):
        indicators.by_generation(recorded("nsga2")[0])
    result, _ = record("nsga2", keep=gx.Keep(snapshots=[2]))
    nowhere = gx.Result({**result, "problem": result.problem.with_(reference_point=None)})
    with pytest.raises(gx.InputError, match="reference= or true_front="):
        indicators.by_generation(nowhere)
    none, _ = record("nsga2", problem={"ineq": impossible}, seed=1, keep=gx.Keep(snapshots=[2]))
    measured = indicators.by_generation(none, true_front=[[0.0, 0.0]])
    assert measured["hypervolume"].tolist() == [0.0] and np.isnan(measured["igd"]).all()
