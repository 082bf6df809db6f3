"""Points whose values are known before a run: they cost nothing, come in many forms, and are never forgotten."""

import numpy as np
import pytest

import galapax as gx

BOX = [(-4.0, 5.0)] * 3
MIXED = {"rate": gx.real(1e-4, 1.0, log=True), "layers": gx.integer(1, 6), "kind": gx.choice("=tanh", "relu, soft")}
KNOWN = np.random.default_rng(5).uniform(-4, 5, (25, 3))


class Counted:
    """A black box that remembers where it was called."""

    def __init__(self, fun):
        self.fun, self.x = fun, []

    def __call__(self, x):
        self.x.append(np.array(x) if not isinstance(x, dict) else dict(x))
        return self.fun(x)


def valley(x):
    return float(10 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2 + (x[2] - 0.5) ** 2)


def known_values(points=KNOWN):
    return gx.Evaluated(points, [valley(x) for x in points])


def train(v):
    loss = abs(np.log10(v["rate"]) + 2) + (v["layers"] - 4) ** 2 + (v["kind"] == "=tanh")
    return {"fun": loss, "ineq": v["layers"] - 5}


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (None, {"max_evaluations": 40}),
        (None, {"max_evaluations": 400, "restarts": "ipop"}),
        ("cmaes", {"population": 6, "generations": 4}),
        ("de", {"population": 10, "max_evaluations": 33}),
        ("lshade", {"population": 40, "max_evaluations": 60}),
        ("pso", {"population": 8, "generations": 3, "runs": 3}),
    ],
)
def test_known_points_cost_no_calls_and_the_answer_is_never_worse(algorithm, options):
    fun, known = Counted(valley), known_values()
    result = gx.minimize(fun, BOX, algorithm, initial=known, blackbox=True, **options)
    assert len(fun.x) == result.nfev and not (np.array(fun.x)[:, None] == KNOWN).all(axis=2).any()
    if "max_evaluations" in options:
        assert result.nfev == options["max_evaluations"] == result.history.nfev[-1]
    assert result.fun <= min(known.F) and result.history.best[0] <= min(known.F)
    assert (
        len(result.evaluations) == result.nfev + 25
        and (result.evaluations.known == (np.arange(len(result.evaluations)) < 25)).all()
    )
    assert np.array_equal(result.evaluations.x[:25], KNOWN) and np.array_equal(result.evaluations.fun[:25], known.F)


def test_a_whole_population_of_known_values_makes_the_first_generation_free():
    result = gx.minimize(valley, BOX, "de", population=25, generations=3, initial=known_values(), blackbox=True)
    assert result.history.nfev.tolist() == [0, 25, 50] and result.nfev == 50


@pytest.mark.parametrize("limit", [12, 320])
def test_a_run_that_goes_on_from_another_is_as_good_as_one_run_of_both(limit):
    """Fewer evaluations than a start from nothing would take, in the median of some seeds."""
    ends = []
    for seed in range(3):
        first = gx.minimize(valley, BOX, blackbox=True, max_evaluations=40, seed=seed)
        more = gx.minimize(valley, BOX, blackbox=True, max_evaluations=limit, seed=seed, initial=first)
        alone = gx.minimize(valley, BOX, blackbox=True, max_evaluations=limit, seed=seed)
        assert more.fun <= first.fun and (more.nfev == limit or more.success)
        ends.append((more.fun, alone.fun))
    more, alone = np.median(ends, axis=0)
    assert more <= max(alone, 1e-25)  # both are exact but for rounding


@pytest.mark.parametrize(
    "options", [{"max_evaluations": 40}, {"population": 10, "max_evaluations": 45}], ids=["models", "de"]
)
def test_a_run_with_known_values_resumes_to_the_bit_and_refuses_other_ones(options, tmp_path):
    algorithm = None if "population" not in options else "de"

    def solve(last, initial, **checkpoint):
        calls = []

        def fun(x):
            calls.append(x)
            if len(calls) > last:
                raise KeyboardInterrupt
            return valley(x)

        return gx.minimize(fun, BOX, algorithm, initial=initial, blackbox=True, **options, **checkpoint)

    whole = solve(1000, known_values())
    for last in (3, 17):
        file = tmp_path / f"{last}.ckpt"
        assert solve(last, known_values(), checkpoint=file).nfev == last
        resumed = solve(1000, known_values(), resume=file)
        assert np.array_equal(resumed.evaluations.x, whole.evaluations.x) and resumed.fun == whole.fun
        assert np.array_equal(resumed.history.best, whole.history.best) and resumed.nfev == whole.nfev
    with pytest.raises(gx.InputError, match="initial"):
        solve(1000, known_values(KNOWN[:9]), resume=file)


def test_every_form_of_an_earlier_run_is_the_same_beginning(tmp_path):
    first = gx.minimize(train, MIXED, blackbox=True, max_evaluations=50)
    folder = first.save(tmp_path / "first")
    pandas = pytest.importorskip("pandas")
    frame = first.to_dataframe("evaluations")
    calls = first.evaluations
    forms = [first, calls, folder, str(folder / "evaluations.csv"), frame, pandas.read_csv(folder / "evaluations.csv")]
    forms.append(gx.Evaluated(calls.params, calls.fun, ineq=calls.ineq))
    results = [
        gx.minimize(train, MIXED, blackbox=True, max_evaluations=30, initial=form) for form in forms[:5] + forms[6:]
    ]
    for result in results:
        assert result.fun <= first.fun and result.feasible and result.nfev == 30
        assert np.array_equal(result.evaluations.x, results[0].evaluations.x)
        assert np.array_equal(result.evaluations.x[:50], calls.x)


def test_known_failures_are_points_where_no_search_begins():
    values = np.array([valley(x) for x in KNOWN])
    values[np.argmin(values)] = np.nan
    for options in ({"max_evaluations": 30}, {"population": 30, "generations": 2}):
        result = gx.minimize(valley, BOX, initial=gx.Evaluated(KNOWN, values), blackbox=True, **options)
        assert result.fun <= np.nanmin(values) and result.n_failed == 0 and result.evaluations.failed.sum() == 1
    nothing = gx.Evaluated(KNOWN, [None] * 25)
    for options in ({"max_evaluations": 30}, {"population": 8, "generations": 2}):
        assert np.isfinite(gx.minimize(valley, BOX, initial=nothing, blackbox=True, **options).fun)


def test_constraints_and_maximisation_are_as_the_function_returns_them():
    def profit(x):
        return {"fun": 10 - (x[0] - 2) ** 2 - x[1] ** 2 - x[2] ** 2, "ineq": x[0] - 1, "eq": x[1] - x[2]}

    points = KNOWN.copy()
    points[:, 2] = points[:, 1]
    values = [profit(x) for x in points]
    known = gx.Evaluated(points, *([v[name] for v in values] for name in ("fun", "ineq", "eq")))
    feasible = [v["fun"] for v in values if v["ineq"] <= 0]
    result = gx.minimize(profit, BOX, initial=known, maximize=True, blackbox=True, max_evaluations=60)
    assert result.feasible and max(feasible) <= result.fun and result.fun == pytest.approx(9, abs=1e-4)


def test_a_known_front_begins_a_run_with_several_objectives():
    def two(x):
        return [float(x[0] ** 2 + x[1] ** 2 + x[2] ** 2), float((x[0] - 2) ** 2 + x[1] ** 2 + x[2] ** 2)]

    points = np.zeros((30, 3))
    points[:, 0] = np.linspace(0, 2, 30)
    fun = Counted(two)
    known = gx.Evaluated(points, [two(x) for x in points])
    result = gx.minimize(fun, BOX, population=20, generations=3, initial=known, blackbox=True)
    assert len(fun.x) == result.nfev == 40 and result.settings["algorithm"] == "nsga2"
    alone = gx.minimize(two, BOX, population=20, generations=3, blackbox=True)
    is_known = (result.X[:, None] == points).all(axis=2).any(axis=1)
    assert is_known.sum() >= 10 and result.F.sum(axis=1).max() < alone.F.sum(axis=1).max()


@pytest.mark.parametrize("algorithm", [None, "cmaes", "de"])
def test_points_that_are_told_without_being_asked_for_do_the_same(algorithm):
    known, options = known_values(), {"max_evaluations": 48} | ({} if algorithm is None else {"population": 8})
    result = gx.minimize(valley, BOX, algorithm, initial=known, blackbox=True, **options)
    opt = gx.Optimizer(BOX, algorithm, **options)
    opt.tell(known.X, known.F)
    while opt.nfev < 48:
        trial = opt.ask()
        opt.tell(trial, valley(trial.x))
    assert np.array_equal(opt.evaluations.x, result.evaluations.x) and opt.best.fun == result.fun


def test_models_learn_from_values_that_come_later():
    opt = gx.Optimizer(BOX, max_evaluations=60)
    for place in range(30):
        trial = opt.ask()
        opt.tell(trial, valley(trial.x))
        if place in (3, 4, 9):
            opt.tell(KNOWN[place], valley(KNOWN[place]))
    opt.tell([1.0, 1.0, 0.5], 0.0)
    trial = opt.ask()
    opt.tell(trial, valley(trial.x))
    assert opt.best.fun == 0.0 and opt.nfev == 31 and opt.evaluations.known.sum() == 4
    assert float(opt.population.fitness[0]) == 0.0


def test_an_exception_in_the_first_new_call_is_still_raised_and_other_sizes_are_refused():
    def broken(x):
        raise NameError("gone")

    with pytest.raises(gx.EvaluationError, match="NameError: gone"):
        gx.minimize(broken, BOX, initial=known_values(), blackbox=True, max_evaluations=20)
    with pytest.raises(gx.InputError, match="those of initial"):
        gx.minimize(lambda x: [1.0, x[0]], BOX, "de", initial=known_values(), blackbox=True, generations=2)


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        (KNOWN, "(?s)points with their values: .*Points without values are x0"),
        (gx.Evaluated(KNOWN[:, :2], [1.0] * 25), r"one row of 3 numbers .* got shape \(25, 2\)"),
        (gx.Evaluated(KNOWN, [1.0, 2.0]), r"one row for each of the 25 points of X; got shape \(2,\)"),
        (gx.Evaluated(KNOWN * 3, [1.0] * 25), r"inside the bounds, and \d+ of 25 points do not: x\d of point"),
        (gx.Evaluated(KNOWN, ["a"] * 25), "F of initial must be numbers"),
        ("nowhere/evaluations.csv", "there is no such file or folder"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value[:20],
)
def test_what_cannot_be_known_values_is_refused(initial, message):
    with pytest.raises(gx.InputError, match=message):
        gx.minimize(valley, BOX, initial=initial, blackbox=True, max_evaluations=20)


def test_known_points_between_the_values_of_an_integer_are_refused():
    known = gx.Evaluated([[0.01, 4, 0], [0.01, 4.5, 0]], [1.0, 2.0])
    with pytest.raises(
        gx.InputError, match=r"1 of 2 points do not: layers of point 1 is 4.5, and its nearest value is 4"
    ):
        gx.minimize(train, MIXED, initial=known, blackbox=True, max_evaluations=8)


def test_columns_are_found_by_name_or_missed_by_name(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text('note,kind,layers,rate,fun,ineq 1\nfirst,"relu, soft",4,0.1,1.5,-1\nlost,\'=tanh,2,0.01,,\n')
    result = gx.minimize(train, MIXED, initial=file, blackbox=True, max_evaluations=8)
    assert result.evaluations.params[0] == {
        "rate": pytest.approx(0.1),
        "layers": 4,
        "kind": "relu, soft",
    }
    assert result.evaluations.failed[:2].tolist() == [False, True]
    file.write_text("layers,rate,fun\n4,0.1,1.5\n")
    with pytest.raises(gx.InputError, match="no column for kind"):
        gx.minimize(train, MIXED, initial=file, blackbox=True, max_evaluations=8)
    file.write_text("layers,rate,kind,loss\n4,0.1,'=tanh,1.5\n")
    with pytest.raises(gx.InputError, match='no column for the objective, "fun"; its columns are layers, rate'):
        gx.minimize(train, MIXED, initial=file, blackbox=True, max_evaluations=8)


def test_options_that_cannot_go_with_known_values_say_so():
    with pytest.raises(gx.InputError, match="initial is for functions that are called"):
        gx.minimize(lambda x: x @ x, BOX, initial=known_values())
    with pytest.raises(gx.InputError, match="leave x0 out"):
        gx.minimize(valley, BOX, initial=known_values(), x0=[0, 0, 0], blackbox=True)
