"""Variables: integers, choices, switches, logarithmic scales; from what is declared to what is searched and back."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params

import galapax as gx
from galapax.core.space import as_space, variables_from_integrality
from galapax.operators.variation import move_one_code, round_codes, snap_to_grid

VARIABLES = {
    "load": gx.real(1e-3, 10, log=True, unit="kN"),
    "count": gx.integer(-2, 6),
    "metal": gx.choice("steel", "zinc", "brass"),
    "plate": gx.choice(0.5, 1.0, 2.5, unit="mm"),
    "coated": gx.boolean(),
    "angle": (0, 2),
}
SPACE = as_space(VARIABLES)


def cost(v):
    price = jnp.asarray((2.0, 1.0, 3.0))[v["metal"]]
    return jnp.log10(v["load"]) ** 2 + (v["count"] - 3) ** 2 + price + v["plate"] + v["coated"] + (v["angle"] - 1) ** 2


def cost_in_python(v):
    assert isinstance(v["count"], int) and isinstance(v["coated"], bool) and isinstance(v["load"], float)
    price = {"steel": 2.0, "zinc": 1.0, "brass": 3.0}[v["metal"]]
    return np.log10(v["load"]) ** 2 + (v["count"] - 3) ** 2 + price + v["plate"] + v["coated"] + (v["angle"] - 1) ** 2


BEST = {"load": 1.0, "count": 3, "metal": "zinc", "plate": 0.5, "coated": False, "angle": 1.0}


def genes(n, seed=0):
    box = SPACE.genes
    return np.random.default_rng(seed).uniform(box.lower, box.upper, (n, SPACE.dim))


def on_grid(x):
    """Whether every row is made of values that were declared."""
    declared = [range(-2, 7), range(3), (0.5, 1.0, 2.5), range(2)]
    inside = np.all((x >= SPACE.bounds.lower) & (x <= SPACE.bounds.upper))
    return inside and all(np.isin(x[..., 1 + i], list(values)).all() for i, values in enumerate(declared))


def test_decoding_gives_declared_values_and_encoding_takes_them_back():
    x = SPACE.decode(genes(500))
    assert on_grid(x)
    np.testing.assert_array_equal(SPACE.decode(SPACE.encode(x)), x)
    np.testing.assert_allclose(SPACE.encode(x), SPACE.round_codes(genes(500)), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(SPACE.decode(jnp.asarray(genes(500), jnp.float32)), x, rtol=1e-5)


def test_every_code_has_the_same_share_of_the_box():
    x = SPACE.decode(genes(90_000))
    for column, values in ((1, range(-2, 7)), (2, range(3)), (3, (0.5, 1.0, 2.5)), (4, range(2))):
        counts = np.array([(x[:, column] == value).sum() for value in values])
        expected = len(x) / len(counts)
        assert ((counts - expected) ** 2 / expected).sum() < 40  # chi squared, at most 8 degrees: p < 1e-5


def test_log_scale_gives_each_decade_the_same_share():
    load = SPACE.decode(genes(40_000))[:, 0]
    decades, _ = np.histogram(np.log10(load), bins=4, range=(-3, 1))
    assert np.abs(decades - 10_000).max() < 500


def test_functions_get_what_was_declared():
    x = np.array([1.0, 3.0, 1.0, 2.5, 1.0, 0.25])
    assert SPACE.to_arguments(x) == {
        "load": 1,
        "count": 3,
        "metal": "zinc",
        "plate": 2.5,
        "coated": True,
        "angle": 0.25,
    }
    traced = SPACE.to_arguments(jnp.asarray(x))
    assert traced["count"].dtype.kind == "i" and traced["metal"] == 1 and traced["coated"].dtype == bool
    many = SPACE.to_arguments(np.tile(x, (3, 1)))
    assert many["metal"].tolist() == ["zinc"] * 3 and many["count"].dtype.kind == "i"
    assert as_space(list(VARIABLES.values())).to_arguments(x) is x  # a list: a vector


def test_a_problem_is_a_function_of_a_vector_too():
    problem = gx.Problem(cost, VARIABLES)
    assert problem.variable_names() == list(VARIABLES)
    assert problem.with_unit("plate") == "plate [mm]"
    between = np.array([1.0, 3.4, 0.6, 0.6, 0.2, 1.0])  # rounded, as a landscape asks for
    assert float(problem.fun(jnp.asarray(between))) == pytest.approx(1.5)
    assert float(problem.fun(BEST | {"metal": 1})) == pytest.approx(1.5)  # or of the mapping itself
    assert problem.params(SPACE.parse_points(BEST)[0]) == BEST


@pytest.mark.parametrize("algorithm", params([None, "de", "cmaes", "lshade", "random"], quick={"cmaes"}))
def test_every_answer_is_on_the_grid(algorithm):
    own = {
        "runs": 3,
        "keep": gx.Keep(history="x", snapshots=[3]),
        "compute": gx.Compute(dtype="float64"),
        "polish": False,
    }
    made = gx.minimize(cost, VARIABLES, algorithm, generations=15, population=12, **own)
    points = [made.x, made.population, made.runs.x, made.history.x, made.snapshots[3].x]
    assert all(on_grid(np.asarray(x)) for x in points)
    with jax.enable_x64(True):
        again = jax.jit(jax.vmap(made.problem.fun))(jnp.asarray(made.runs.x))
    np.testing.assert_allclose(again, made.runs.fun, rtol=1e-12)


@pytest.mark.slow
def test_black_boxes_get_labels_and_find_the_optimum():
    result = gx.minimize(
        cost_in_python, VARIABLES, "de", generations=60, population=30, blackbox=True, workers=gx.Workers(memoize=True)
    )
    assert result.params == BEST | {k: result.params[k] for k in ("load", "angle")}
    assert result.fun == pytest.approx(1.5, abs=1e-3)
    assert "metal=zinc" in repr(result) and "coated=no" in repr(result)


@pytest.mark.slow
def test_the_same_run_compiled_and_called():
    """The decoding is one for formulas and black boxes: the same points are evaluated."""
    options = {"generations": 8, "population": 10, "seed": 4, "polish": False, "compute": gx.Compute(dtype="float64")}
    compiled = gx.minimize(cost, VARIABLES, "de", **options)
    called = gx.minimize(cost_in_python, VARIABLES, "de", blackbox=True, **options)
    np.testing.assert_allclose(compiled.population, called.population, rtol=1e-9)


@pytest.mark.slow
def test_polish_moves_the_real_variables_alone():
    raw = gx.minimize(cost, VARIABLES, "random", generations=20, population=50, polish=False)
    fine = gx.minimize(cost, VARIABLES, "random", generations=20, population=50, polish=True)
    assert on_grid(fine.x) and fine.fun < raw.fun
    np.testing.assert_array_equal(fine.x[1:5], raw.x[1:5])
    assert fine.x[5] == pytest.approx(1, abs=1e-6) and fine.x[0] == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_starting_points_come_as_mappings_or_rows():
    row = [1.0, 3, "zinc", 0.5, False, 1.0]
    for initial in (BEST, [BEST, BEST | {"count": 2}], row, [row], SPACE.parse_points(BEST)):
        result = gx.minimize(cost, VARIABLES, "de", generations=1, population=10, x0=initial, polish=False)
        assert result.fun == pytest.approx(1.5)
    with pytest.raises(gx.InputError, match="'count' is missing"):
        gx.minimize(cost, VARIABLES, x0={"load": 1})
    with pytest.raises(gx.InputError, match="'lead' is none of the choices 'steel', 'zinc', 'brass'"):
        gx.minimize(cost, VARIABLES, x0=BEST | {"metal": "lead"})


@pytest.mark.slow
def test_integrality_is_scipys_mask():
    def far(x):
        return jnp.sum((x - jnp.array([1.3, 2.6])) ** 2)

    own = {"generations": 60, "population": 20, "compute": gx.Compute(dtype="float64"), "polish": False}
    result = gx.minimize(far, variables_from_integrality([(-5.5, 5.5)] * 2, [True, False]), "de", **own)
    assert result.x[0] == 1 and result.x[1] == pytest.approx(2.6, abs=1e-5)
    with pytest.raises(gx.InputError, match="integrality must be one True or False for each of the 2"):
        variables_from_integrality([(0, 1)] * 2, [1, 0, 1])
    with pytest.raises(gx.InputError, match="contains fewer than two integers"):
        variables_from_integrality([(0.2, 1.5)] * 2, True)


@pytest.mark.slow
def test_saved_runs_show_labels_and_load_again(tmp_path):
    result = gx.minimize(
        cost, VARIABLES, "de", generations=5, population=10, runs=2, keep=gx.Keep(history="x"), polish=False
    )
    result.save(tmp_path / "run")
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    assert told["params"]["metal"] in ("steel", "zinc", "brass") and isinstance(told["params"]["count"], int)
    table = (tmp_path / "run" / "population.csv").read_text().splitlines()
    assert table[0].startswith("load,count,metal,plate") and table[1].split(",")[2] in ("steel", "zinc", "brass")
    again = gx.load(tmp_path / "run")
    assert again.params == result.params and again.problem.space == result.problem.space
    np.testing.assert_array_equal(again.population, result.population)
    np.testing.assert_array_equal(again.runs.x, result.runs.x)
    assert "steel" in (tmp_path / "run" / "report.html").read_text()
    assert result.params["metal"] in result._repr_html_()


@pytest.mark.slow
def test_fronts_are_of_declared_solutions():
    def both(v):
        return jnp.stack([cost(v), 1.0 * v["count"] + v["plate"]])

    result = gx.minimize(both, VARIABLES, generations=20, population=20, polish=False)
    assert on_grid(result.X) and len(np.unique(result.X, axis=0)) == len(result.X)


def test_optimizer_asks_for_declared_values():
    opt = gx.Optimizer(VARIABLES, "de", population=20)
    for _ in range(30):
        x = opt.ask_generation()
        assert on_grid(x)
        opt.tell(x, [cost_in_python(point) for point in opt.params(x)])
    assert on_grid(opt.best.x) and opt.best.fun < 3.5
    assert on_grid(opt.population.x)


# --- operators --------------------------------------------------------------------------------------------------------

KEY = np.array([3, 4], np.uint32)
BOX = SPACE.genes.round_inwards(np.float64)


@pytest.mark.slow
def test_a_step_changes_one_code_by_at_least_one_and_stays_on_the_grid():
    with jax.enable_x64(True):
        x = round_codes(jnp.asarray(genes(4000)), BOX)
        moved = np.asarray(move_one_code(KEY, x, BOX.grid))
    changed = moved != np.asarray(x)
    assert (changed.sum(axis=1) == 1).all() and not changed[:, [0, 5]].any()
    assert on_grid(SPACE.decode(moved))
    share = changed[:, [1, 2, 3, 4]].mean(axis=0)
    assert np.abs(share - 0.25).max() < 0.04  # each discrete variable as often
    steps = np.abs(moved - np.asarray(x))[:, 1]
    assert steps.max() >= 5 and (steps == 1).sum() > (steps >= 4).sum() > 0


@pytest.mark.slow
def test_rounding_at_random_keeps_the_mean_and_choices_are_drawn_anew():
    with jax.enable_x64(True):
        x = jnp.tile(jnp.asarray([0.0, 2.3, 0.4, 1.0, 1.0, 1.0]), (20_000, 1))
        made = np.asarray(snap_to_grid(KEY, x, x[:1], BOX, False))
    still = made[(made[:, 3] == 1) & (made[:, 4] == 1)]  # a fifth has one code moved
    kept = still[np.isin(still[:, 1], (2, 3))]
    assert abs((kept[:, 1] == 3).mean() - 0.3) < 0.03
    assert np.abs(np.bincount(still[:, 2].astype(int), minlength=3) / len(still) - 1 / 3).max() < 0.03
    assert (made[:, [0, 5]] == np.asarray(x)[:, [0, 5]]).all()


@pytest.mark.slow
def test_copies_of_what_is_there_are_moved_where_all_is_discrete():
    space = as_space([gx.integer(0, 9), gx.choice("a", "b", "c")])
    box = space.genes.round_inwards(np.float64)
    with jax.enable_x64(True):
        known = jnp.asarray([[4.0, 1.0]])
        made = np.asarray(snap_to_grid(KEY, jnp.tile(known, (200, 1)), known, box, True))
    assert not (made == np.asarray(known)).all(axis=1).mean() > 0.1


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"a": gx.integer(0, 3), "b": 5}, "bounds has 5 for variable 'b'; give gx.real"),
        ({}, "bounds has no variable"),
        ([gx.real(0, 1, name="x2"), gx.real(0, 1)], "two variables called 'x2'"),
    ],
)
def test_bad_variables_are_refused(variables, message):
    with pytest.raises(gx.InputError, match=message):
        gx.minimize(cost, variables)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gx.real(0, 1, log=True), "needs limits above 0, got 0 and 1"),
        (lambda: gx.real(2, 1), "reversed: lower 2 > upper 1; swap them"),
        (lambda: gx.integer(0.5, 3), "whole numbers as limits, got 0.5 and 3"),
        (lambda: gx.integer(0, 2**60), "up to 2\\*\\*53"),
        (lambda: gx.choice(), "at least one label, got none"),
        (lambda: gx.choice("a", "b", "a"), "'a' twice"),
        (lambda: gx.choice("a", 1j), "True, False, None and tuples of them as labels, got 1j"),
        (lambda: gx.minimax(lambda x, y: x[0] * y[0], [gx.integer(0, 3)], [(0, 1)], polish=False), "takes no integers"),
        (
            lambda: gx.minimize(
                cost, VARIABLES | {"n": gx.integer(0, 2**30)}, compute=gx.Compute(dtype="float32"), polish=False
            ),
            'dtype="float64"',
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(make, message):
    with pytest.raises(gx.InputError, match=message):
        make()


# --- problems with known optima ---------------------------------------------------------------------------------------


def every(problem, *columns):
    """Values, with +inf where infeasible, of all combinations of these columns' values."""
    points = np.array(list(itertools.product(*columns)), np.float64)
    with jax.enable_x64(True):
        values, limits = (np.array(jax.vmap(f)(jnp.asarray(points))) for f in (problem.fun, problem.ineq))
    return np.where((limits > 0).any(axis=1), np.inf, values)


def test_enumeration_finds_the_optimum_of_knapsack_and_machines():
    for name, values in (("knapsack", range(2)), ("machines", range(10))):
        problem = gx.problems.get(name)
        assert every(problem, *[values] * problem.dim).min() == pytest.approx(problem.optimum, rel=1e-12)


def test_enumeration_finds_the_optimum_of_gear_train():
    products = np.unique(np.outer(np.arange(12, 61), np.arange(12, 61)))
    apart = np.abs(1 / 6.931 - products[:, None] / products)
    assert apart.min() ** 2 == pytest.approx(gx.problems.get("gear_train").optimum, rel=1e-9)


def test_enumeration_and_algebra_find_the_optimum_of_beam_and_vessel():
    """The cost grows with depth, and for given plates falls with the radius as far as the plates allow."""
    beam = []
    for steel, width in itertools.product(gx.problems.mixed.BARS, range(28, 41)):
        if steel * width > 180:
            depth = max(5, width / 4, 7.375 * steel**2 / (steel * width - 180))
            beam += [29.4 * steel + 0.6 * width * depth] * (depth <= 10)
    assert min(beam) == pytest.approx(gx.problems.get("reinforced_beam").optimum)
    vessel = []
    for shell, head in itertools.product(0.0625 * np.arange(1, 100), repeat=2):
        radius = min(shell / 0.0193, head / 0.00954, 200)
        length = max(10, (1296000 / np.pi - 4 / 3 * radius**3) / radius**2)
        if radius >= 10 and length <= 200:
            walls = 0.6224 * shell * radius * length + 1.7781 * head * radius**2
            vessel.append(walls + 3.1661 * shell**2 * length + 19.84 * shell**2 * radius)
    assert min(vessel) == pytest.approx(gx.problems.get("pressure_vessel").optimum, rel=1e-9)


def test_linear_programs_find_the_optimum_of_petrol():
    from scipy.optimize import linprog

    stock, best = gx.problems.mixed.STOCK, np.inf
    for s, doses, stabiliser in itertools.product(range(4), range(9), (0, 1)):
        price, octane, sulphur = (stock[name][s] for name in ("cost", "octane", "sulphur"))
        if 0.1 * (doses - 3) > 0.3 * stabiliser + 1e-12:
            continue
        rows = [[octane - 98, octane - 95], [1 - sulphur, 5 - sulphur], [1, 1], [1, 0]]
        gained = octane + 0.8 * doses - 0.04 * doses**2
        found = linprog([610 - price, 660 - price], rows, [gained - 95, 10 - sulphur, 1, 0.45 + 0.3 * stabiliser])
        best = min(best, found.fun + price + 6 * doses + 6 * stabiliser) if found.success else best
    assert best == pytest.approx(gx.problems.get("petrol").optimum)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["speed_reducer", "coil_spring"])
def test_local_searches_for_each_combination_find_the_optimum(name):
    from scipy.optimize import minimize

    problem = gx.problems.get(name)
    with jax.enable_x64(True):
        fun, ineq = jax.jit(jax.value_and_grad(problem.fun)), jax.jit(problem.ineq)
        slopes = jax.jit(jax.jacfwd(problem.ineq))
        limits = {"type": "ineq", "fun": lambda x: -np.asarray(ineq(x)), "jac": lambda x: -np.asarray(slopes(x))}
        best = np.inf
        first = [v.labels or range(int(v.lower), int(v.upper) + 1) for v in problem.space.variables if v.discrete]
        for codes in itertools.product(*(list(values) for values in first)):
            if name == "coil_spring" and (codes[1] < 0.2 or codes[0] > 30):  # too thin, or far too long
                continue
            box = list(zip(problem.bounds.lower, problem.bounds.upper, strict=True))
            for i, value in zip(np.flatnonzero(problem.space.discrete), codes, strict=True):
                box[i] = (value, value)
            low, high = np.array(box).T
            for share in np.random.default_rng(0).random((6, len(box))):
                found = minimize(
                    lambda x: tuple(np.asarray(part) for part in fun(x)), low + share * (high - low), jac=True,
                    bounds=box, method="SLSQP", options={"ftol": 1e-12, "maxiter": 300}, constraints=limits,
                )  # fmt: skip
                if np.asarray(ineq(found.x)).max() < 1e-5:
                    best = min(best, found.fun)
    assert best == pytest.approx(problem.optimum, rel=1e-4)


@pytest.mark.parametrize(
    "fun",
    [
        lambda v: jnp.where(v["metal"] == "zinc", 0.0, 5.0) + v["load"],
        lambda v: (0.0 if v["metal"] == "zinc" else 5.0) + v["load"],
        lambda v: jnp.where(v["metal"] != "zinc", 5.0, 0.0) + v["load"],
    ],
    ids=["where", "if", "unequal"],
)
def test_a_place_is_not_compared_with_a_label_in_silence(fun):
    """It would never be equal, and the answer be wrong."""
    box = {"metal": gx.choice("steel", "zinc"), "load": gx.real(0.1, 10)}
    with pytest.raises(gx.InputError, match=r"compares metal with 'zinc'.*1 for 'zinc'.*blackbox=True"):
        gx.minimize(fun, box)


def test_a_place_is_a_number_that_traced_functions_use_as_they_like():
    box = {"metal": gx.choice("steel", "zinc"), "load": gx.real(0.1, 10)}

    def fun(v):
        return jnp.array([5.0, 0.0])[v["metal"]] + v["metal"].astype(float) + v["load"] + (v["metal"] == 1)

    res = gx.minimize(fun, box, generations=30, polish=False)
    assert res.params["metal"] == "zinc" and res.fun == pytest.approx(2.1, abs=0.1)


def test_a_black_box_with_few_points_is_called_once_with_each():
    """Where all points can be remembered, unless the user wants them again."""
    points = []

    def fun(v):
        points.append((v["n"], v["metal"], v["on"]))
        return -float(v["n"]) + 2.0 * (v["metal"] == "zinc") + v["on"]

    box = {"n": gx.integer(0, 3), "metal": gx.choice("steel", "zinc"), "on": gx.boolean()}
    few = {"algorithm": "de", "population": 8, "blackbox": True, "polish": False}
    res = gx.minimize(fun, box, **few, generations=20)
    assert len(points) == len(set(points)) <= 16 and res.fun == -3.0 and res.n_cached > 0
    assert gx.problems.get("gear_train").space.combinations == 49**4
    points.clear()
    gx.minimize(fun, box, generations=5, workers=gx.Workers(memoize=False), **few)
    assert len(points) == 40
