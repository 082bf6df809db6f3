"""The x whose worst case is least: known answers, NumPy grids, and a worst case that does not believe the search."""

import json
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.coevolution_in_numpy import evolve
from support.compilations import compilations
from typer.testing import CliRunner

import galapax as gx
from galapax import CoevolutionaryDE
from galapax.algorithms.minmax_cde import Arena, GameCDE, judge
from galapax.cli.app import app
from galapax.core.algorithm import Shared
from galapax.core.problem import Bounds, CandidateEvaluation, Shape
from galapax.core.stop import Stop
from galapax.local.minmax_refinement import MAX_GENERATIONS, POPULATION_SIZE, SEARCHES_PER_X
from galapax.numerics import random
from galapax.objective.game import trace_game
from galapax.problems import get

SADDLE = np.array([-29 / 60, -19 / 60, 1 / 12, -1 / 12])
UNIT = [(0.0, 1.0)]


@cache
def solved(name, algorithm=None, **settings):
    return gx.minimax(get(name), algorithm=algorithm, polish=False, **{"generations": 200, **settings})


def saddle(x, y):
    cross = x[0] * (-y[0] + y[1] + 5) + x[1] * (y[0] - y[1] + 3)
    return 5 * (x[0] ** 2 + x[1] ** 2) - (y[0] ** 2 + y[1] ** 2) + cross


def cosine(x, y):
    far = np.sqrt(x[0] ** 2 + y[0] ** 2)
    return np.cos(far) / (far + 10)


def planes(x, y):
    return np.minimum(3 - 0.2 * x[0] + 0.3 * y[0], 3 + 0.2 * x[0] - 0.1 * y[0])


def highest(fun, x, low=0.0, high=10.0):
    """The largest value over y on a fine grid, for one variable y."""
    return fun(x, np.linspace(low, high, 1_000_001)[None]).max()


# --- known answers ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_saddle_off_the_centre_is_found():
    for seed in (0, 1):
        result = solved("minmax_saddle", seed=seed)
        np.testing.assert_allclose([*result.x, *result.y], SADDLE, atol=1e-4)
        assert result.worst_case == pytest.approx(-101 / 60, abs=1e-8) and result.feasible
        assert result.stop is Stop.BUDGET and not result.success  # a game has no rule that says it is over
        assert result.fun == pytest.approx(-101 / 60, abs=1e-6)


@pytest.mark.slow
def test_the_worst_case_at_a_saddle_is_that_of_a_grid():
    result = solved("minmax_saddle", generations=20)  # x is not there yet
    grid = np.stack(np.meshgrid(*[np.linspace(-5, 5, 2001)] * 2))
    values = saddle(result.x, grid)
    assert abs(result.worst_case - values.max()) < 1e-4  # the spacing, squared
    assert result.worst_case >= values.max() - 1e-12 and result.worst_case > -101 / 60


@pytest.mark.slow
def test_planes_without_a_saddle_keep_the_order_of_min_and_max():
    """3 and not the 2.5 of max-min. The paper's rule ends at the other wall, where the worst case is 4."""
    default, paper = (
        solved("minmax_planes", algorithm, generations=4000, runs=6) for algorithm in (None, CoevolutionaryDE())
    )
    assert np.all(default.worst_cases < 3.05) and np.median(default.worst_cases) < 3.005
    assert default.worst_case == pytest.approx(3.0, abs=1e-6) and default.x == pytest.approx(0.0, abs=1e-5)
    assert np.all(paper.worst_cases > 3.5)
    for result in (default, paper):
        exact = [highest(planes, x) for x in result.runs.x]
        np.testing.assert_allclose(result.worst_cases, exact, atol=1e-5)


@cache
def cosines(kind):
    return solved("minmax_damped_cosine", {"default": None, "paper": CoevolutionaryDE()}[kind], generations=400, runs=6)


@pytest.mark.slow
def test_the_damped_cosine_is_solved_by_the_default_and_not_by_the_paper_s_rule():
    default, paper = cosines("default"), cosines("paper")
    np.testing.assert_allclose(default.worst_cases, 0.0424881123, atol=2e-5)
    np.testing.assert_allclose(default.runs.x, 7.0441463, atol=5e-3)
    assert np.mean(paper.worst_cases > 0.06) > 0.5  # one of them may be lucky


# --- the worst case ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["default", "paper"])
def test_the_worst_case_is_that_of_a_grid_whatever_the_search_believes(kind):
    result = cosines(kind)
    np.testing.assert_allclose(result.worst_cases, [highest(cosine, x) for x in result.runs.x], atol=2e-5)
    assert np.all(result.worst_cases >= result.runs.fun)
    assert result.worst_case == pytest.approx(cosine(result.x, result.y), abs=1e-12)
    deluded = result.worst_cases > result.runs.fun + 1e-2
    assert deluded.mean() > 0.5 if kind == "paper" else not deluded.any()


@pytest.mark.slow
def test_no_worst_case_is_below_the_min_max_value():
    assert np.all(cosines("default").worst_cases >= 0.0424881123 - 1e-9)


@pytest.mark.slow
def test_a_deluded_answer_says_so():
    result = cosines("paper")
    assert f"An independent search found a worse case ({result.worst_case:.6g}) than" in result.message
    assert "independent" not in solved("minmax_saddle").message


@pytest.mark.slow
def test_of_several_runs_the_one_with_the_least_worst_case_is_returned():
    result = cosines("paper")
    best = int(np.argmin(result.worst_cases))
    assert best != np.argmin(result.runs.fun)  # or this would show nothing
    assert result.worst_case == result.worst_cases.min() and result.worst_cases.shape == (6,)
    assert np.array_equal(result.x, result.runs.x[best]) and result.fun == pytest.approx(result.runs.fun[best])
    np.testing.assert_allclose(result.history.best, result.runs.history.best[best], rtol=1e-9)
    assert result.x.tolist() in result.population.tolist()


def needle(x, y):
    return x[0] ** 2 + y[0] + 5 * jnp.exp(-(((y[0] - 0.3) / 1e-4) ** 2))


@cache
def with_needle():
    """Rare enough to be missed by the check, and met by a search that draws new rivals in every cycle."""
    result = gx.minimax(needle, [(-1.0, 1.0)], UNIT, generations=4000, polish=False)
    assert result.fun > 5  # or this would show nothing
    return result


@pytest.mark.slow
def test_a_worse_y_that_only_the_search_met_counts():
    assert with_needle().worst_case == pytest.approx(with_needle().fun, rel=1e-12)  # of two programs


@pytest.mark.slow
def test_y_attains_a_worst_case_that_only_the_search_met():
    result = with_needle()
    assert float(needle(result.x, result.y)) == pytest.approx(result.worst_case, rel=1e-3)


def broken(edge, side, bad, peak=0.3, bend=1.0, near=np.inf):
    """A game whose value is `bad` for x below the edge, or with side=-1 above it, and y as near as that to 0.5.

    Its numbers are one array, so that all these games are one program.
    """
    numbers = np.array([edge, side, bad, peak, bend, near])

    def fun(x, y):
        edge, side, bad, peak, bend, near = jnp.asarray(numbers, x.dtype)
        fails = (side * (x[0] - edge) < 0) & (jnp.abs(y[0] - 0.5) < near)
        return jnp.where(fails, bad, (x[0] - peak) ** 2 + x[0] * y[0] - bend * (y[0] - 0.4) ** 2)

    return fun


def play(game, **settings):
    # as run 0 of an ensemble, whose program is that of several runs
    return gx.minimax(
        game, UNIT, UNIT, polish=False, **{"population": 8, "generations": 40, "runs": range(1), **settings}
    )


@pytest.mark.slow
def test_an_infinite_value_is_a_worst_case():
    result = play(broken(0.5, 1.0, np.inf, near=0.1), generations=1000)
    assert result.x[0] >= 0.5 or np.isinf(result.worst_case)


@pytest.mark.slow
def test_an_x_that_fails_against_every_y_is_never_chosen():
    result = play(broken(0.4, -1.0, np.nan, 0.6, 0.0), generations=300)
    # against y = 1: x^2 - 0.2 x + 0.36, least at 0.1
    assert result.x == pytest.approx(0.1, abs=1e-3) and result.worst_case == pytest.approx(0.35, abs=1e-5)
    assert np.all(result.population <= 0.4)


# --- a cycle of a game ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0, 3])
def test_a_cycle_is_that_of_a_reference_in_numpy(memory):
    """Without memory y is judged by its least value over all x, with memory by that of the best x alone."""
    n, low, high = 8, np.array([-2.0, -1.0]), np.array([1.0, 3.0])
    y_box = Bounds(low, high)
    with jax.enable_x64(True):
        game, consts = trace_game(saddle, 2, 2, "float64")
        arena = Shared(Arena(y_box, consts))
        solver = GameCDE(game, arena, population=n, y_generations=3, memory=memory)
        key = random.run_keys(1, 0, 1)[0]
        state = solver.init(random.fold_in(key, 0), Bounds(np.array([-5.0, -4.0]), np.array([3.0, 5.0])), Shape())
        step, cycled = jax.jit(solver.step), jax.jit(partial(solver.cycle, shape=Shape()))
        for cycle in range(2):
            for _ in range(2):
                worst, failed = judge(game, consts, state.candidates, state.opponents)
                state = step(random.fold_in(key, 7), state, CandidateEvaluation(worst[:, None], None, failed))
            before = jax.device_get(state)
            own = random.fold_in(key, random.Stream.CYCLE + cycle)
            state = cycled(own, state)
            after, x = jax.device_get(state), np.asarray(state.parents.x)
            judges = x[[before.parents.fitness.argmin()]] if memory else x
            rivals = before.rivals.T.copy()
            if memory:
                fresh = np.asarray(random.uniform(random.fold_in(own, 3), (n, 2), "float64"))
                rivals[::2] = (low + fresh * (high - low))[::2]
            y, worth = evolve(solver, own, rivals, low, high, lambda y, x=judges: min(saddle(row, y) for row in x))
            np.testing.assert_allclose(after.rivals.T, y, rtol=1e-9, atol=1e-9)
            kept = before.archive.T.copy()
            if memory:
                kept[cycle % memory] = y[worth.argmax()]
            np.testing.assert_allclose(after.archive.T, kept, rtol=1e-9, atol=1e-9)
            worst = [max(saddle(row, rival) for rival in [*y, *kept]) for row in x]
            np.testing.assert_allclose(np.asarray(state.parents.fitness), worst, rtol=1e-9)
    assert after.archive.shape == (2, memory) and np.any(after.rivals != before.rivals)


# --- scenarios --------------------------------------------------------------------------------------------------------

SCENARIOS = np.array([[0.2, 1.0], [0.9, 0.5], [0.5, 2.0], [0.35, 1.3]])
X_BOX = [(-1.0, 2.0), (0.5, 3.0)]


def distance(x, y):
    return y[1] * abs(x[0] - y[0]) + (x[1] - y[1]) ** 2 + 0.5 * x[0] * y[0]


@cache
def over_scenarios(**settings):
    return gx.minimax(
        distance,
        X_BOX,
        scenarios=SCENARIOS,
        polish=False,
        **{"algorithm": "de", "generations": 300, "population": 30, "runs": 2, **settings},
    )


@pytest.mark.slow
def test_scenarios_are_those_of_brute_force():
    result = over_scenarios()
    grid = np.stack(np.meshgrid(*(np.linspace(low, high, 1501) for low, high in X_BOX)))
    worst = np.max([distance(grid, y) for y in SCENARIOS], axis=0)
    row = np.unravel_index(worst.argmin(), worst.shape)
    assert worst[row] - 0.02 < result.fun <= worst[row] + 1e-9  # the grid's spacing of 0.002, times the slope
    np.testing.assert_allclose(result.x, grid[:, *row], atol=0.02)
    here = [distance(result.x, y) for y in SCENARIOS]
    assert result.fun == result.worst_case == pytest.approx(max(here), rel=1e-12)
    assert result.y.tolist() in SCENARIOS.tolist()
    assert distance(result.x, result.y) == pytest.approx(result.worst_case, rel=1e-6)


@pytest.mark.slow
def test_the_scenario_named_is_the_worst_one_in_double_precision():
    def far_from_zero(x, y):
        return 1e9 + abs(x[0] - 0.3) * (1 + y[0])

    result = gx.minimax(
        far_from_zero, [(0.5, 1.0)], scenarios=[0.0, 1.0, 0.5], generations=3, population=12, polish=False
    )
    assert result.y == 1.0


@pytest.mark.slow
def test_several_runs_over_scenarios_have_their_worst_cases():
    result = over_scenarios()
    assert result.worst_cases.shape == (2,) and result.worst_case == result.worst_cases.min()


def test_an_algorithm_given_with_scenarios_is_refused_or_used():
    with pytest.raises(gx.InputError, match="algorithm"):
        over_scenarios(algorithm="nonsense")


# --- the run ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_seeds_reproduce_and_differ():
    once, again, other = solved("minmax_saddle"), solved.__wrapped__("minmax_saddle"), solved("minmax_saddle", seed=1)
    for name in ("x", "y", "population"):
        assert np.array_equal(once[name], again[name]) and not np.array_equal(once[name], other[name])
    assert (once.fun, once.worst_case, once.nfev) == (again.fun, again.worst_case, again.nfev)


@pytest.mark.slow
def test_single_precision():
    result = around(np.array([0.25, 1.5]), "float32")
    assert result.population.dtype == np.float32 and result.settings["dtype"] == "float32"
    np.testing.assert_allclose([*result.x, *result.y], [0.25, 1.5], atol=5e-3)
    assert result.worst_case == pytest.approx(0.0, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one run", "several runs"])
def test_what_is_saved_is_read_back(kind, tmp_path):
    result = solved("minmax_saddle") if kind == "one run" else cosines("paper")
    result.save(tmp_path / "run")
    again = gx.load(tmp_path / "run")
    assert again.worst_case == result.worst_case and again.fun == result.fun
    assert (again.nfev, again.worst_case_nfev) == (result.nfev, result.worst_case_nfev)
    assert np.array_equal(again.y, result.y) and np.array_equal(again.x, result.x)
    assert ("worst_cases" in again) == (kind == "several runs")
    if kind == "several runs":
        assert np.array_equal(again.worst_cases, result.worst_cases)


def around(place, dtype="float64"):
    """min-max of a function that closes over an array: x at the first number, y at the second."""

    def fun(x, y):
        both = jnp.concatenate([x, y]) - place
        return both[0] ** 2 - both[1] ** 2

    return gx.minimax(
        fun, [(-1.0, 3.0)], [(-1.0, 3.0)], population=12, generations=200, compute=gx.Compute(dtype=dtype), polish=False
    )


@pytest.mark.slow
def test_other_data_in_a_closed_over_array_compiles_nothing():
    first = around(np.array([0.25, 1.5]))
    with compilations() as compiled:
        second = around(np.array([2.0, 0.75]))
    assert compiled == []
    np.testing.assert_allclose([*first.x, *first.y], [0.25, 1.5], atol=1e-3)
    np.testing.assert_allclose([*second.x, *second.y], [2.0, 0.75], atol=1e-3)


def test_compilations_are_noticed():
    with compilations() as compiled:
        jax.jit(lambda x: x * 3.25 - 7.75)(np.float32(1.0)).block_until_ready()
    assert compiled


@pytest.mark.slow
def test_an_array_changed_in_place_is_seen():
    place = np.array([0.25, 1.5])
    first = around(place, "float32")  # kept, as an array lives as long as a result that can replay
    place[:] = [2.0, 1 / 3]
    np.testing.assert_allclose(around(place, "float32").x, 2.0, atol=1e-2)
    assert first.x == pytest.approx(0.25, abs=1e-2)


@pytest.mark.slow
def test_an_array_used_in_single_precision_is_exact_in_double():
    place = np.array([0.75, 1 / 3])
    first = around(place, "float32")
    assert around(place).y == pytest.approx(1 / 3, abs=2e-9)
    assert first.y == pytest.approx(1 / 3, abs=1e-2)


@pytest.mark.slow
def test_the_command_line_solves_a_min_max_problem(monkeypatch):
    monkeypatch.setenv("GALAPAX_CACHE", "off")
    outcome = CliRunner().invoke(app, ["solve", "minmax_saddle", "--generations", "200", "--json"])
    assert outcome.exit_code == 0, outcome.output
    told, known = json.loads(outcome.output), solved("minmax_saddle")
    assert told["x"] == known.x.tolist() and told["y"] == known.y.tolist()
    assert (told["fun"], told["worst_case"]) == (known.fun, known.worst_case)


# --- bad input --------------------------------------------------------------------------------------------------------


def fine(x, y):
    return x[0] ** 2 - y[0] ** 2


BAD = {
    "one argument": ((lambda x: x[0], UNIT, UNIT), {}, r"fun must take two arguments, x and y; it is defined as \(x\)"),
    "vector": ((lambda x, y: jnp.stack([x[0], y[0]]), UNIT, UNIT), {}, "fun must return one number.*it returned 2"),
    "NaN everywhere": ((lambda x, y: jnp.nan * x[0], UNIT, UNIT), {}, "NaN or inf at all 64 pairs"),
    "no function": ((3, UNIT, UNIT), {}, "fun must be a function of x and y, got 3"),
    "no bounds": ((fine,), {}, "x_bounds is missing"),
    "no y_bounds": ((fine, UNIT), {}, "y_bounds is missing"),
    "shape of y_bounds": ((fine, UNIT, [1.0, 2.0, 3.0]), {}, r"y_bounds must be one \(lower, upper\) pair"),
    "y_bounds upside down": ((fine, UNIT, [(1.0, 0.0)]), {}, "y_bounds"),
    "y_bounds and scenarios": ((fine, UNIT, UNIT), {"scenarios": [[1.0]]}, "give y_bounds or scenarios, not both"),
    "no scenarios": ((fine, UNIT), {"scenarios": []}, "scenarios must be finite numbers, one scenario per row"),
    "NaN scenario": ((fine, UNIT), {"scenarios": [[0.5], [np.nan]]}, "scenarios must be finite numbers"),
    "words as scenarios": ((fine, UNIT), {"scenarios": ["low", "high"]}, "scenarios must be numbers"),
    "vector over scenarios": ((lambda x, y: x * y, UNIT * 2), {"scenarios": [[1.0, 2.0]]}, "must return one number"),
    "DE": ((fine, UNIT, UNIT), {"algorithm": gx.DE()}, "minimax needs a gx.CoevolutionaryDE.*got DE"),
    "name of an algorithm": ((fine, UNIT, UNIT), {"algorithm": "de"}, "minimax needs a gx.CoevolutionaryDE.*got 'de'"),
    "problem with bounds": ((get("minmax_saddle"), UNIT), {}, "has its own bounds"),
    "problem with scenarios": ((get("minmax_saddle"),), {"scenarios": [[0.0, 1.0]]}, "has bounds for y"),
    "population": ((fine, UNIT, UNIT), {"population": 3}, "population must be at least 4"),
    "generations": ((fine, UNIT, UNIT), {"generations": 0}, "generations must be at least 1"),
    "half precision": (
        (fine, UNIT, UNIT),
        {"compute": lambda: gx.Compute(dtype="float16")},
        'dtype must be "float32" or "float64"',
    ),
    "unknown precision": ((fine, UNIT, UNIT), {"compute": lambda: gx.Compute(dtype="double64")}, "dtype must be"),
}


@pytest.mark.parametrize(("arguments", "settings", "message"), BAD.values(), ids=BAD)
def test_what_cannot_work_is_refused_in_a_sentence(arguments, settings, message):
    def call():
        made = {name: value() if name == "compute" else value for name, value in settings.items()}
        gx.minimax(*arguments, polish=False, **{"generations": 5, **made})

    with pytest.raises(gx.InputError, match=message):
        call()


def test_minimize_refuses_a_min_max_problem():
    with pytest.raises(gx.InputError, match=r"minmax_saddle is a min-max problem: use gx.minimax\."):
        gx.minimize(get("minmax_saddle"))


# --- what it says of itself -------------------------------------------------------------------------------------------


valley = broken(-1.0, 1.0, np.nan)  # fails nowhere


@cache
def three_runs(**settings):
    return play(valley, runs=3, **settings)


@pytest.mark.slow
def test_evaluations_are_pairs_and_add_up():
    res = three_runs()
    assert res.nfev == res.runs.nfev.sum() == 3 * res.history.nfev[-1] + res.worst_case_nfev
    assert np.all(np.diff(res.history.nfev) > 0)
    alone = res.run(1)
    assert alone.nfev == res.runs.nfev[1] and 0 < alone.worst_case_nfev < res.worst_case_nfev


def test_a_search_for_the_worst_case_ends_when_it_has_converged():
    """Where every y is as bad as any other, half of the searches, those that follow no best y, go on until the end."""
    flat = play(lambda x, y: jnp.sum(x**2) + 0 * y[0])
    every = SEARCHES_PER_X * POPULATION_SIZE * (1 + MAX_GENERATIONS)
    assert every / 2 < flat.worst_case_nfev < every
    smooth = play(lambda x, y: 1 + jnp.sum(x**2) - (y[0] - 0.3) ** 2)
    assert smooth.worst_case_nfev < every / 4 and smooth.worst_case_sure == 1
    assert smooth.worst_case == pytest.approx(1 + smooth.x[0] ** 2, rel=1e-15)


@pytest.mark.slow
def test_a_replayed_run_has_its_worst_case():
    res = three_runs()
    for number in range(3):
        alone = res.run(number)
        assert alone.worst_case == res.worst_cases[number] and alone.x == res.runs.x[number]
        with jax.enable_x64(True):
            assert float(valley(alone.x, alone.y)) == pytest.approx(alone.worst_case, rel=1e-9)


def test_pairs_that_fail_are_counted():
    res = play(broken(0.5, 1.0, np.nan))
    assert 0 < res.n_failed < res.nfev and res.x[0] >= 0.5 and np.isfinite(res.worst_case)


def test_minus_infinity_does_not_win():
    res = play(broken(0.25, 1.0, -np.inf))
    assert res.x[0] >= 0.25 and np.isfinite(res.fun) and np.isfinite(res.worst_case) and res.n_failed > 0


def test_the_message_of_an_ensemble_is_not_that_of_a_replayed_run():
    res = three_runs(callback=lambda state: True, generations=3000)
    assert res.stop is Stop.CALLBACK and res.message.startswith("Stopped by the callback") and not res.success


@pytest.mark.slow
def test_a_worst_case_on_which_searches_disagree_is_reported_as_uncertain():
    """One needle in ten variables: each search ends on another of many local maxima."""

    def rugged(x, y):
        return x[0] ** 2 - jnp.sum(y**2 - 10 * jnp.cos(2 * jnp.pi * y) + 10) / 20

    res = gx.minimax(rugged, [(-1.0, 2.0)], [(-5.0, 4.0)] * 20, population=8, generations=40, polish=False)
    sure = res.worst_case_sure
    assert 0 < sure <= 1
    if res.worst_case < -0.05:  # the truth is 0
        assert sure < 0.5 or "do not agree" in res.message


def test_first_run_and_on_failure_are_taken():
    alone = play(valley, runs=range(2, 3))
    assert np.array_equal(alone.x, three_runs().runs.x[2])
    with pytest.raises(gx.EvaluationError, match="NaN or inf"):
        play(broken(0.5, 1.0, np.nan), on_failure="raise")
