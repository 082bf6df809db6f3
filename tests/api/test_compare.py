"""A comparison spends the same evaluations on every algorithm, and says no more than its runs show."""

import csv
import dataclasses
import importlib
import io
import math
import re
from functools import cache

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from support.saved_runs import assert_same_study

import galapax as gx
from galapax.algorithms import ALGORITHMS, algorithm_name
from galapax.core.stop import Stop
from galapax.metrics import statistics
from galapax.operators.variation import best_1
from galapax.results.study import curve_rows
from galapax.view import figure_data, report, summary_tables, terminal

BOX = [(1.5, 4.0), (-7.0, -2.0), (-0.5, 9.5)]
RUNS, BUDGET, SEED, NEAR = 5, 100, 4, 0.5
EDGE = (3.9 - 2.0) ** 2  # the least value on the edge of the feasible region


def bowl(x):
    return (x[0] - 2.0) ** 2 + (x[1] + 2.5) ** 2 + (x[2] - 8.0) ** 2


def to_the_right(x):
    """Feasible are four points of a hundred."""
    return 3.9 - x[0]


PROBLEMS = [
    gx.Problem(bowl, BOX, name="bowl", optimum=0.0),
    gx.Problem(bowl, BOX, ineq=to_the_right, name="edge_case", optimum=EDGE),
]
SOLVERS = {"ga": gx.ThreeParentGA(population=10), "random": gx.RandomSearch(population=13)}


def solved():
    return gx.compare(
        PROBLEMS,
        SOLVERS,
        max_evaluations=BUDGET,
        runs=RUNS,
        seed=SEED,
        within=NEAR,
        compute=gx.Compute(dtype="float64"),
    )


study = cache(solved)


# --- what is run ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_pair_is_run_and_named():
    assert study().axes == {"problem": ["bowl", "edge_case"], "algorithm": list(SOLVERS)}
    assert study().labels == [{"problem": p.name, "algorithm": a} for p in PROBLEMS for a in SOLVERS]
    assert study().message == "All 4 pairs of problem and algorithm completed."
    assert study().values().shape == (2, 2, RUNS)


@pytest.mark.slow
def test_the_budget_holds_whatever_the_population():
    spent = {"ga": 100, "random": 91}  # a last generation that does not fit is left out
    for labels, result in study():
        assert result.runs.nfev.tolist() == [spent[labels["algorithm"]]] * RUNS
    assert study().values("nfev").max() <= BUDGET
    assert [row["evaluations"] for row in study().summary()] == list(spent.values()) * 2


@pytest.mark.slow
def test_each_pair_is_a_call_of_minimize():
    for i, problem in enumerate(PROBLEMS):
        for j, (name, solver) in enumerate(SOLVERS.items()):
            alone = gx.minimize(
                problem,
                solver,
                max_evaluations=BUDGET,
                runs=RUNS,
                seed=SEED,
                compute=gx.Compute(dtype="float64"),
                polish=False,
            )
            own = study().cell(problem=problem.name, algorithm=name)
            assert own.settings == alone.settings and own.message == alone.message
            for part in ("x", "fun", "violation", "nit", "nfev", "success"):
                np.testing.assert_array_equal(getattr(own.runs, part), getattr(alone.runs, part))
            np.testing.assert_array_equal(own.runs.history.best, alone.runs.history.best)
            np.testing.assert_array_equal(own.population, alone.population)
            np.testing.assert_array_equal(study().values()[i, j], alone.runs.fun)


def by_hand(result, goal):
    """Evaluations up to the first generation whose best is feasible and at the goal, or all; and whether it was."""
    spent, reached = [], []
    history = result.runs.history
    for run in range(RUNS):
        values = zip(history.nfev, history.best[run], strict=True)
        violations = np.zeros(len(history)) if history.violation is None else history.violation[run]
        first = [n for (n, best), v in zip(values, violations, strict=True) if best <= goal and v <= 0]
        spent.append(first[0] if first else result.runs.nfev[run])
        reached.append(bool(first))
    return spent, reached


def test_success_and_running_time_are_counted_from_the_history():
    assert study().targets == [NEAR] * 2 + [EDGE + NEAR] * 2
    shares = []
    for (labels, result), row in zip(study(), study().summary(), strict=True):
        spent, reached = by_hand(result, NEAR + (EDGE if labels["problem"] == "edge_case" else 0.0))
        assert row["success"] == np.mean(reached)
        assert (row["success_low"], row["success_high"]) == statistics.wilson_interval(sum(reached), RUNS)
        assert row["ert"] == (sum(spent) / sum(reached) if any(reached) else math.inf)
        assert (row["ert_low"], row["ert_high"]) == statistics.ert_interval(spent, reached)
        shares.append(row["success"])
    assert any(0 < share < 1 for share in shares) and 0 in shares
    violation = study().cell(problem="edge_case", algorithm="random").runs.history.violation
    assert violation.max() > 0  # some runs begin infeasible


def test_a_value_that_only_infeasible_points_reach_is_no_success():
    result = study().cell(problem="edge_case", algorithm="random")
    history = result.runs.history
    assert np.any(history.violation[:, 0] > 0)
    too_good = dataclasses.replace(history, best=np.where(history.violation > 0, -9.0, history.best))
    changed = gx.Result(result | {"runs": dataclasses.replace(result.runs, history=too_good)})
    one = dataclasses.replace(study(), results=[changed], labels=study().labels[3:], targets=[-8.0])
    assert one.success(0)["success"] == 0


def test_targets_may_be_given_by_problem():
    own = {"bowl": 2.0}
    told = gx.compare(
        PROBLEMS, SOLVERS, max_evaluations=BUDGET, runs=RUNS, seed=SEED, within=own, compute=gx.Compute(dtype="float64")
    )
    assert told.targets == [2.0] * 2 + [None] * 2
    assert "ert" in told.summary()[0] and "ert" not in told.summary()[2]
    _, times, _ = summary_tables.build_tables(told)
    assert [cell.text for cell in times.rows[1]] == ["edge_case", "–", "–"]


def test_a_target_for_a_problem_that_is_not_there_is_refused():
    with pytest.raises(gx.InputError, match="bwol"):
        gx.compare(PROBLEMS, SOLVERS, max_evaluations=BUDGET, runs=RUNS, seed=SEED, within={"bwol": 2.0})


def test_without_a_target_success_is_not_reported():
    none = dataclasses.replace(study(), targets=[None] * 4)
    assert [table.title for table in summary_tables.build_tables(none)] == ["Final values", "Means"]
    assert "success" not in none.summary()[0]


def test_a_mean_of_zero_has_no_sign():
    """Hypervolumes are compared by their negatives."""
    fronts = gx.compare(["zdt1"], [gx.NSGA2(population=8)], max_evaluations=16, runs=2, seed=SEED)
    _, means = summary_tables.build_tables(fronts)
    assert fronts.summary()[0]["hypervolume_mean"] == 0 and means.rows[0][1].text == "0 ± 0"


# --- names and what is refused ----------------------------------------------------------------------------------------

module = importlib.import_module("galapax.api.experiments")


@pytest.fixture
def nothing_is_run(monkeypatch):
    """Each job gives the first result of the study; what is tested happens before."""
    result = study().results[0]
    monkeypatch.setattr(module, "solve", lambda task, observers: ([result], None))


@pytest.mark.parametrize(
    ("algorithms", "names"),
    [
        (["de", "GA"], ["de", "ga"]),
        ("de", ["de"]),
        (gx.DE(weight=0.7), ["de"]),
        (["de", gx.DE(weight=0.7), "ga"], ["de", "de (weight=0.7)", "ga"]),
        (
            [gx.DE(population=50, mutation=best_1), gx.DE(weight=0.25)],
            ["de (population=50, mutation=best_1)", "de (weight=0.25)"],
        ),
        ({"classic": "de", "greedy": gx.DE(mutation=best_1)}, ["classic", "greedy"]),
        ({"a": "de", "b": "de"}, ["a", "b"]),
    ],
    ids=["names", "a name", "an instance", "repeated", "repeated and changed", "a mapping", "twice the same by name"],
)
def test_algorithms_are_named_by_what_tells_them_apart(algorithms, names, nothing_is_run):
    found = gx.compare(PROBLEMS, algorithms)
    assert found.axes["algorithm"] == names
    assert [labels["algorithm"] for labels in found.labels] == names * 2


@pytest.mark.parametrize("kind", ALGORITHMS.values(), ids=ALGORITHMS)
def test_a_variant_is_named_by_any_number_that_it_changes(kind):
    name, default = algorithm_name(kind()), kind()
    for field in dataclasses.fields(kind):
        if callable(getattr(default, field.name)) or field.name in ("constants", "directions"):
            continue
        variant = dataclasses.replace(default, **{field.name: 8})
        assert list(module._algorithms([default, variant])) == [name, f"{name} ({field.name}=8)"]


def test_a_variant_that_leaves_an_option_to_the_algorithm_is_named_by_it(nothing_is_run):
    found = gx.compare(PROBLEMS, [gx.CRFMNES(), gx.CRFMNES(diagonal=None)])
    assert found.axes["algorithm"] == ["crfmnes", "crfmnes (diagonal=None)"]


def test_what_stops_one_pair_stops_the_rest(monkeypatch):
    result, begun = study().results[0], []

    def solve(task, observers):
        begun.append(observers.title)
        return [result], Stop.INTERRUPT if len(begun) == 3 else None

    monkeypatch.setattr(module, "solve", solve)
    found = gx.compare(PROBLEMS, SOLVERS)
    assert begun == ["[1/4] bowl · ga", "[2/4] bowl · random", "[3/4] edge_case · ga"]
    assert found.message.startswith("Stopped by Ctrl-C: 3 of 4 pairs of problem and algorithm were started")
    assert found.labels == study().labels[:3] and len(found) == len(found.targets) == 3


def test_problems_are_given_by_name_or_alone(nothing_is_run):
    assert gx.compare("sphere", "de").axes["problem"] == ["sphere"]
    assert gx.compare(PROBLEMS[0], "de").axes["problem"] == ["bowl"]
    assert gx.compare(["branin", PROBLEMS[0]], "de").axes["problem"] == ["branin", "bowl"]
    several = [PROBLEMS[0], PROBLEMS[0].with_(name="again")]
    assert gx.compare(several, "de").axes["problem"] == ["bowl", "again"]


@pytest.mark.parametrize(
    ("problems", "algorithms", "settings", "message"),
    [
        (PROBLEMS, SOLVERS, {"runs": 1}, r"runs must be at least 2 \(a single run does not show .*\); got 1"),
        (PROBLEMS, SOLVERS, {"runs": 2.5}, "runs must be a whole number"),
        (["rastrgin"], SOLVERS, {}, "did you mean rastrigin"),
        (PROBLEMS, ["ed"], {}, "no algorithm called 'ed'"),
        (PROBLEMS, {"mine": "ed"}, {}, "no algorithm called 'ed'"),
        (PROBLEMS, [gx.DE], {}, r"algorithm is the class DE; give an instance: DE\(\)"),
        (PROBLEMS, [3], {}, "algorithm must be a name"),
        (["sphere", "sphere"], SOLVERS, {}, "the problem 'sphere' is given twice"),
        ([PROBLEMS[0], PROBLEMS[1].with_(name="bowl")], SOLVERS, {}, "the problem 'bowl' is given twice"),
        (["cde_p1"], SOLVERS, {}, "no min-max problems"),
        ([bowl], SOLVERS, {}, "names or Problem objects"),
        ([], SOLVERS, {}, "at least one problem"),
        (PROBLEMS, [], {}, "at least one algorithm"),
        (PROBLEMS, ["de", gx.DE()], {}, "de is given twice; label them with a mapping"),
        (PROBLEMS, [gx.DE(weight=0.7), gx.DE(weight=0.7)], {}, r"de \(weight=0.7\) is given twice"),
        ([PROBLEMS[0].with_(optimum=None)], SOLVERS, {"within": 1e-3}, "'bowl' has no best known value"),
        (PROBLEMS, SOLVERS, {"within": -1e-3}, "within is a distance to the best known value, at least 0"),
        (PROBLEMS, SOLVERS, {"within": math.inf}, "within must be a finite number"),
        (PROBLEMS, SOLVERS, {"within": math.nan}, "within must be a number, got NaN"),
        (PROBLEMS, SOLVERS, {"within": {"bowl": "low"}}, "within must be a number"),
        (PROBLEMS, SOLVERS, {"max_evaluations": 12}, "max_evaluations must be at least 13 .*population of 13"),
        (PROBLEMS, [gx.ThreeParentGA(sigma=-1.0)], {}, "sigma must be at least 0"),
        (PROBLEMS, SOLVERS, {"seed": -1}, "seed must be a whole number"),
    ],
    ids=["one run", "runs 2.5", "unknown problem", "unknown algorithm", "unknown in a mapping", "a class", "a number",
         "problem twice", "name twice", "min-max", "a function", "no problem", "no algorithm", "algorithm twice",
         "instance twice", "no optimum", "target below 0", "target inf", "target NaN", "target text", "small budget",
         "bad setting", "bad seed"],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused_before_anything_is_run(
    problems, algorithms, settings, message, monkeypatch
):
    def run(job):
        raise AssertionError("something was run")

    monkeypatch.setattr(module, "solve", run)
    with pytest.raises(gx.InputError, match=message):
        gx.compare(problems, algorithms, **settings)


@pytest.mark.parametrize("arguments", [(None, "de"), (3, "de"), ("sphere", None), ("sphere", 3)], ids=repr)
def test_what_is_neither_a_problem_nor_an_algorithm_is_refused(arguments):
    with pytest.raises(gx.InputError, match="compare"):
        gx.compare(*arguments)


def test_an_empty_mapping_of_algorithms_is_refused():
    with pytest.raises(gx.InputError, match="at least one algorithm"):
        gx.compare(PROBLEMS, {})


def test_an_infinite_target_of_a_problem_is_refused(nothing_is_run):
    with pytest.raises(gx.InputError, match="within"):
        gx.compare(PROBLEMS, SOLVERS, within={"bowl": math.inf})


def test_a_problem_of_several_objectives_is_refused_before_anything_is_run(monkeypatch):
    begun = []

    def solve(job):
        begun.append(job.problem.name)
        return importlib.import_module("galapax.execution.solve").solve(job)

    monkeypatch.setattr(module, "solve", solve)
    with pytest.raises(gx.InputError, match="minimises one objective"):
        gx.compare([PROBLEMS[0], "zdt1"], [SOLVERS["random"]], max_evaluations=BUDGET, runs=RUNS)
    assert "bowl" not in begun


# --- tests and ranks --------------------------------------------------------------------------------------------------


def made(values, name="p", violation=None, maximize=False, seconds=1.5, curves=None, nfev=10, **problem):
    """The result of runs that ended with these values."""
    fun = np.asarray(values, np.float64)
    count = len(fun)
    best = fun[:, None] if curves is None else np.asarray(curves, np.float64)
    generation = np.arange(1, best.shape[1] + 1)
    history = gx.History(generation, generation * nfev, best, best, best)
    runs = gx.Runs(
        number=np.arange(count),
        x=np.arange(count)[:, None] * np.ones(3),
        fun=fun,
        violation=np.zeros(count) if violation is None else np.asarray(violation, np.float64),
        nit=np.full(count, best.shape[1]),
        nfev=np.full(count, best.shape[1] * nfev),
        n_failed=np.zeros(count, int),
        success=np.ones(count, bool),
        history=history,
    )
    settings = study().results[0].settings | {"maximize": maximize, "runs": count}
    return gx.Result(
        study().results[0]
        | {"problem": gx.Problem(bowl, BOX, name=name, **problem), "runs": runs, "settings": settings,
           "history": history.of_run(0), "x": runs.x[0], "fun": float(fun[0]), "timings": {"run": seconds}}
    )  # fmt: skip


def of(cells, targets=None, paired=False, algorithms=None):
    """A comparison of made results, {problem: {algorithm: result}}."""
    labels = [{"problem": p, "algorithm": a} for p, found in cells.items() for a in found]
    results = [result for found in cells.values() for result in found.values()]
    names = algorithms or list(next(iter(cells.values())))
    axes = {"problem": list(cells), "algorithm": names}
    return gx.Study("comparison", axes, labels, results, targets or [None] * len(labels), "Made by hand.", paired)


def texts(row):
    return [cell.text for cell in row]


def medians(row):
    """The texts without the interquartile ranges."""
    return [re.sub(r" \([^)]*\)", "", text) for text in texts(row)]


def bolds(row):
    return [cell.bold for cell in row]


TEN = np.arange(10.0)


def test_the_best_is_bold_and_statistical_ties_are_marked():
    cells = {"b": made(TEN + 0.5), "a": made(TEN), "far": made(TEN + 100)}
    assert stats.mannwhitneyu(TEN, TEN + 0.5).pvalue > 0.05 > 3 * stats.mannwhitneyu(TEN, TEN + 100).pvalue
    table, *_ = summary_tables.build_tables(of({"p": cells}))
    assert table.header == ["problem", "b", "a", "far"]
    assert medians(table.rows[0]) == ["p", "5 ≈", "4.5", "104.5"]
    assert bolds(table.rows[0]) == [False, False, True, False]
    assert medians(table.rows[1]) == ["total time", "1.5", "1.5", "1.5"] and len(table.rows) == 2
    assert "Median of 10 runs" in table.note and "Mann-Whitney, Holm's correction, level 0.05" in table.note


@pytest.mark.parametrize("bold", [True, False])
def test_where_nothing_is_bold_a_star_marks_the_best(bold):
    study = of({"p": {"b": made(TEN + 0.5), "a": made(TEN)}})
    console = Console(record=True, width=200, file=io.StringIO(), force_terminal=bold)
    console.print(terminal.study_tables(study, bold=bold))
    text = console.export_text()
    assert ("4.5 (4.5) *" in text and "The best is marked *;" in text) != bold == ("The best is in bold;" in text)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([-15.0, -14.999999998, -12.5], ["-15", "-14.999999998", "-12.5"]),
        ([1.00000012, 1.0, 1.00000012], ["1.0000001", "1", "1.0000001"]),  # the same value twice is the same text
        ([2.0, 2.0 + 4e-14], ["2", "2"]),  # rounding
        ([np.nan, 1 / 3, np.nan], ["none feasible", "0.333333", "none feasible"]),
        ([123456.7, 123456.8], ["123456.7", "123456.8"]),
        ([], []),
    ],
    ids=["optimum", "twice", "rounding", "nothing", "large", "empty"],
)
def test_values_are_printed_to_the_digit_where_they_differ(values, shown):
    assert summary_tables.format_distinct(values) == shown


def test_medians_of_a_comparison_are_told_apart():
    table, *_ = summary_tables.build_tables(of({"p": {"a": made(TEN * 0 - 15), "b": made(TEN * 0 - 14.999999998)}}))
    assert medians(table.rows[0]) == ["p", "-15", "-14.999999998"]


def test_marks_follow_holms_correction():
    """The best differs from its neighbour by p < 0.05, but not when all three pairs are taken together."""
    samples = {"a": TEN, "b": TEN + 3.1, "c": TEN + 1.5}
    p = {pair: stats.mannwhitneyu(samples[pair[0]], samples[pair[1]]).pvalue for pair in ("ab", "ac", "bc")}
    assert p["ab"] < 0.05 < 3 * p["ab"] and min(p, key=p.get) == "ab"
    table, *_ = summary_tables.build_tables(of({"p": {name: made(values) for name, values in samples.items()}}))
    assert [text.endswith("≈") for text in medians(table.rows[0])] == [False, False, True, True]
    table, *_ = summary_tables.build_tables(of({"p": {name: made(samples[name]) for name in "ab"}}))
    assert medians(table.rows[0]) == ["p", "4.5", "7.6"]


def test_paired_runs_are_compared_seed_by_seed():
    cells = {"a": made(10 * TEN), "b": made(10 * TEN + 1)}  # always a little worse, at the same seed
    table, *_ = summary_tables.build_tables(of({"p": cells}))
    assert medians(table.rows[0]) == ["p", "45", "46 ≈"]
    table, *_ = summary_tables.build_tables(of({"p": cells}, paired=True))
    assert medians(table.rows[0]) == ["p", "45", "46"] and "Wilcoxon signed ranks" in table.note
    (pair,) = of({"p": cells}, paired=True).tests("p")
    assert pair.p == pytest.approx(stats.wilcoxon(10 * TEN, 10 * TEN + 1).pvalue) and pair.effect == 1.0
    assert study().paired is False


def test_the_largest_is_best_when_maximizing():
    cells = {"low": made(TEN, maximize=True), "high": made(TEN + 100, maximize=True)}
    table, *_ = summary_tables.build_tables(of({"p": cells}))
    assert medians(table.rows[0]) == ["p", "4.5", "104.5"] and bolds(table.rows[0]) == [False, False, True]
    (pair,) = of({"p": cells}).tests("p")
    assert pair.effect == 0.0  # low is never better
    row = of({"p": cells}).summary()[1]
    assert (row["best"], row["median"], row["worst"]) == (109.0, 104.5, 100.0)


def test_runs_without_a_feasible_point_lose():
    constrained = {"ineq": to_the_right}
    cells = {
        "never": made(TEN - 50, violation=np.ones(10), **constrained),
        "mostly": made(TEN + 7, violation=TEN > 7, **constrained),
    }
    found = of({"p": cells})
    table, *_ = summary_tables.build_tables(found)
    assert medians(table.rows[0]) == ["p", "none feasible", "11.5"] and bolds(table.rows[0]) == [False, False, True]
    never, mostly = found.summary()
    assert math.isnan(never["best"]) and never["feasible"] == 0.0
    assert mostly["best"] == 7.0 and mostly["feasible"] == 0.8 and math.isnan(mostly["worst"])
    assert found.tests("p")[0].p == statistics.mann_whitney([np.nan] * 10, [*(TEN[:8] + 7), np.nan, np.nan])


def test_nothing_is_best_where_nothing_was_found():
    nothing = made(TEN, violation=np.ones(10), ineq=to_the_right)
    table, *_ = summary_tables.build_tables(of({"p": {"a": nothing, "b": nothing}}))
    assert not any(bolds(table.rows[0]))


def test_a_comparison_that_found_nothing_can_be_saved(tmp_path):
    nothing = made(TEN, violation=np.ones(10), ineq=to_the_right)
    history = dataclasses.replace(nothing.runs.history, violation=np.ones((10, 1)), feasible_share=np.zeros((10, 1)))
    nothing["runs"] = dataclasses.replace(nothing.runs, history=history)
    of({"p": {"a": nothing, "b": nothing}}).save(tmp_path)
    assert (tmp_path / "study.json").is_file()


def test_tests_and_ranks_say_which_problems_there_are():
    one_problem = of({"p": {"a": made(TEN), "b": made(TEN + 1)}})
    with pytest.raises(gx.InputError, match="problem is one of p; got 'q'"):
        one_problem.tests("q")
    with pytest.raises(gx.InputError, match=r"at least two problems, .*this study has 1 problem × 2 algorithms"):
        one_problem.plot.critical_difference()
    with pytest.raises(AttributeError, match=r"write plot\.critical_difference\(\)"):
        one_problem.critical_difference()


def test_a_comparison_of_one_pair_says_so(nothing_is_run):
    assert gx.compare("sphere", "de").message == "1 pair of problem and algorithm completed."


def test_all_pairs_are_tested():
    samples = {"a": TEN, "b": TEN**2, "c": TEN + 4.0}
    found = of({"p": {name: made(values) for name, values in samples.items()}}).tests("p")
    assert [(t.first, t.second) for t in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    for t in found:
        expected = stats.mannwhitneyu(samples[t.first], samples[t.second], alternative="two-sided")
        assert t.p == pytest.approx(expected.pvalue)
        assert t.effect == pytest.approx(1 - expected.statistic / 100)
    assert [t.adjusted for t in found] == statistics.holm([t.p for t in found]).tolist()
    (real,) = study().tests("bowl")
    a, b = study().values()[0]
    assert real.p == pytest.approx(stats.mannwhitneyu(a, b, alternative="two-sided").pvalue)


def test_ranks_are_those_of_the_medians():
    rows = {"p": (1, 2, 3), "q": (10, 30, 20), "r": (5, 6, 7), "s": (0, 0, 1)}
    cells = {p: {a: made(TEN + v) for a, v in zip("abc", values, strict=True)} for p, values in rows.items()}
    found = of(cells).ranks()
    assert found.average_ranks.tolist() == [(1 + 1 + 1 + 1.5) / 4, (2 + 3 + 2 + 1.5) / 4, (3 + 2 + 3 + 3) / 4]
    assert found.p == pytest.approx(stats.friedmanchisquare(*zip(*rows.values(), strict=True)).pvalue)
    table, *_ = summary_tables.build_tables(of(cells))
    assert medians(table.rows[4]) == ["average rank", "1.12", "2.12", "2.75"]
    assert f"Friedman's test over the problems: p = {found.p:.3g}." in table.note
    assert medians(table.rows[5]) == ["total time", "6", "6", "6"]


def test_a_study_that_was_stopped_says_what_was_not_run():
    cells = {"p": {"a": made(TEN), "b": made(TEN + 100)}, "q": {"a": made(TEN)}}
    found = of(cells, targets=[3.0] * 3, algorithms=["a", "b"])
    values, times, *_ = summary_tables.build_tables(found)
    assert medians(values.rows[1]) == ["q", "4.5", "not run"] and "Friedman" not in values.note
    assert texts(times.rows[1]) == ["q", "25 (40%)", "–"]
    assert np.isnan(found.values()[1, 1]).all() and not np.isnan(found.values()[1, 0]).any()
    with pytest.raises(gx.InputError, match="stopped before this cell"):
        found.cell(problem="q", algorithm="b")


def test_a_paired_study_that_was_stopped_within_an_algorithm_is_still_summarised():
    cells = {"a": made(TEN), "b": made(TEN[:6])}
    summary_tables.build_tables(of({"p": cells}, paired=True))


def test_running_times_are_those_of_hits_over_all_evaluations():
    curves = np.array([[9.0, 5.0, 1.0], [9.0, 1.0, 0.5], [9.0, 8.0, 7.0], [9.0, 9.0, 9.0]])
    fast, slow, never = curves - 1.0, curves, curves + 100
    cells = {
        name: made(table[:, -1], curves=table, nfev=1000)
        for name, table in (("slow", slow), ("fast", fast), ("never", never))
    }
    _, times, *_ = summary_tables.build_tables(of({"p": cells}, targets=[7.0] * 3))
    # slow: 2000, 2000, 3000 and 3000 in vain, three hits; fast: 2000, 2000, 2000 and 3000 in vain
    assert texts(times.rows[0]) == ["p", "3,333 (75%)", "3,000 (75%)", "∞ (0%)"]
    assert bolds(times.rows[0]) == [False, False, True, False]
    _, times, *_ = summary_tables.build_tables(of({"p": {"never": cells["never"]}}, targets=[7.0]))
    assert bolds(times.rows[0]) == [False, False]


# --- Markdown, LaTeX, HTML --------------------------------------------------------------------------------------------

AWKWARD = "50% a_b & #1"  # special in LaTeX


def named(problem, algorithm):
    return of({problem: {algorithm: made(TEN), "b": made(TEN + 9)}, "q": {algorithm: made(TEN), "b": made(TEN)}})


def markdown_rows(text):
    """The cells of each line of a table: split where a bar is not escaped."""
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize(
    "which",
    [study, lambda: named(AWKWARD, "a_1"), lambda: named("p", AWKWARD)],
    ids=["real", "awkward problem", "awkward algorithm"],
)
def test_markdown_tables_have_a_cell_for_every_column(which):
    grids, text = summary_tables.build_tables(which()), summary_tables.markdown(which())
    rows = markdown_rows(text)
    wanted = [len(grid.header) for grid in grids for _ in range(2 + len(grid.rows))]
    assert [len(row) for row in rows] == wanted
    assert text.count("## ") == len(grids) and all(grid.note in text for grid in grids)
    shown = [cell.strip().strip("*") for row in rows for cell in row]
    for grid in grids:
        for row in grid.rows:
            assert set(texts(row)) <= set(shown)
            for cell in row:
                assert not cell.bold or f"| **{cell.text}** |" in text


@pytest.mark.parametrize("name", ["|x|", "two\nlines"], ids=["bars", "a line break"])
def test_markdown_escapes_what_would_break_a_table(name):
    rows = markdown_rows(summary_tables.markdown(named(name, name)))
    assert len(rows) == 2 + 4 + 2 + 2 and {len(row) for row in rows} == {3}


def latex_rows(text):
    """The cells of each row of the tabulars."""
    bodies = re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL)
    return [
        (len(columns), [re.split(r"(?<!\\)&", line) for line in body.splitlines() if line.endswith(r"\\")])
        for columns, body in bodies
    ]


def specials(text):
    """What LaTeX would not print as it stands: special characters that are neither escaped nor commands of ours."""
    text = re.sub(r"\$-?[\d.]+( \\times 10\^\{-?\d+\})?\$", "", re.sub(r"\\mathbf\{(.*?)\}\$", r"\1$", text))
    for command in (r"\textbf", r"$\approx$", r"$\infty$", r"$\cdot$", r"$\pm$"):
        text = text.replace(command, "")
    text = re.sub(r"\\text\w+(\{\})?|\\[_%&#{}$]", "", text)
    return set(text) & set("_%&#$~^\\")


@pytest.mark.parametrize(
    "which",
    [study, lambda: named(AWKWARD, "a_1"), lambda: named("p", AWKWARD)],
    ids=["real", "awkward problem", "awkward algorithm"],
)
def test_latex_tables_have_a_cell_for_every_column_and_nothing_unescaped(which):
    grids, text = summary_tables.build_tables(which()), summary_tables.latex(which())
    found = latex_rows(text)
    assert len(found) == len(grids)
    for grid, (columns, rows) in zip(grids, found, strict=True):
        assert columns == len(grid.header) and len(rows) == 1 + len(grid.rows)
        for row in rows:
            assert len(row) == columns
            assert not any(specials(cell.removesuffix(r"\\").strip()) for cell in row)
    for caption in re.findall(r"\\caption\{(.*)\}", text):
        assert not specials(caption)
    for opened in ("table", "tabular"):
        assert text.count(rf"\begin{{{opened}}}") == text.count(rf"\end{{{opened}}}") == len(grids)
    assert text.count("{") == text.count("}")
    assert not set("≈∞–·") & set(text)


@pytest.mark.parametrize("letter", list("${}~^\\"))
def test_latex_escapes_every_special_character(letter):
    text = summary_tables.latex(named(f"a{letter}b", "c"))
    ((_, rows), *_) = latex_rows(text)
    assert f"a{letter}b" not in rows[1][0]


def test_tables_have_the_median_with_its_range_and_the_mean_with_its_deviation():
    cells = {"a": made(TEN), "b": made(TEN * 1e-6 - 2e-4)}
    values, means = summary_tables.build_tables(of({"p": cells}))
    assert texts(values.rows[0])[1] == f"4.5 ({np.subtract(*np.quantile(TEN, [0.75, 0.25])):.2g})"
    assert texts(means.rows[0])[1] == f"4.5 ± {np.std(TEN, ddof=1):.2g}"
    row = of({"p": cells}).summary()[0]
    assert row["iqr"] == 4.5 and row["std"] == pytest.approx(np.std(TEN, ddof=1))


def test_means_say_how_many_runs_are_missing():
    infeasible = made(TEN, violation=np.where(TEN < 3, 1.0, 0.0), ineq=lambda x: x[0])
    *_, means = summary_tables.build_tables(of({"p": {"a": infeasible, "b": made(TEN)}}))
    assert texts(means.rows[0])[1] == f"6 ± {np.std(TEN[3:], ddof=1):.2g} (3 missing)"


def test_latex_has_labels_powers_of_ten_and_minus_signs():
    text = summary_tables.latex(of({"1e-5 p": {"a": made(TEN), "b": made(TEN * 1e-9 - 2e-7)}}))
    assert r"\label{tab:final-values}" in text and r"\label{tab:means}" in text
    assert r"$-1.955 \times 10^{-7}$" in text or r"$\mathbf{-1.955 \times 10^{-7}}$" in text
    assert "e-0" not in text and "\n1e-5 p & " in text  # a name is left as it is


def test_the_page_escapes_names():
    page = report.render_study(named("<b>&", '"c"'))
    assert "&lt;b&gt;&amp;" in page and "<td><b>&" not in page and "<td>&lt;b&gt;&amp;" in page


# --- saved and loaded -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return study().save(tmp_path_factory.mktemp("comparison"))


def test_a_saved_comparison_is_loaded_as_it_was(folder):
    loaded = gx.load(folder)
    assert isinstance(loaded, gx.Study)
    assert_same_study(loaded, study())
    for (_, one), (_, other) in zip(loaded, study(), strict=True):
        assert one.problem.optimum == other.problem.optimum and one.problem.name == other.problem.name
    assert summary_tables.build_tables(loaded) == summary_tables.build_tables(study())
    assert loaded.tests("bowl") == study().tests("bowl")


def test_saved_files_are_what_other_tools_read(folder):
    names = {f.name for f in folder.iterdir()}
    assert names == {"study.json", "arrays.npz", "runs.csv", "curves.csv", "summary.csv", "summary.md", "summary.tex",
                     "convergence.png", "ecdf.png", "ranks.png", "report.html", "manifest.json"}  # fmt: skip
    with (folder / "runs.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 4 * RUNS and list(rows[0]) == list(study().rows()[0])
    assert [float(row["fun"]) for row in rows] == study().values().ravel().tolist()
    with (folder / "summary.csv").open(encoding="utf-8", newline="") as lines:
        assert [float(row["ert"]) for row in csv.DictReader(lines)] == [row["ert"] for row in study().summary()]
    assert (folder / "summary.md").read_text(encoding="utf-8") == summary_tables.markdown(study())
    assert (folder / "summary.tex").read_text(encoding="utf-8") == summary_tables.latex(study())
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure data-chart") == 5 and "edge_case" in page and "p, Holm" in page
    for picture in ("convergence.png", "ecdf.png", "ranks.png"):
        assert (folder / picture).read_bytes()[:4] == b"\x89PNG"


def test_runs_may_each_count_evaluations_of_their_own(tmp_path):
    """As those whose populations shrink at times of their own: tables and figures are as if they shared the count."""
    study = solved()
    before = study.summary(), curve_rows(study)
    panels, shares = figure_data.study_convergence(study), figure_data.target_shares(study)
    for result in study.results:
        history = result.runs.history
        vars(history)["nfev"] = np.tile(history.nfev, (RUNS, 1))
    assert (study.summary(), curve_rows(study)) == before
    for label, (steps, share) in figure_data.target_shares(study).items():
        np.testing.assert_array_equal(steps, shares[label][0])
        np.testing.assert_allclose(share, shares[label][1])
    for new, old in zip(figure_data.study_convergence(study)[0].curves, panels[0].curves, strict=True):
        np.testing.assert_array_equal(new.x, old.x)
        np.testing.assert_allclose(new.y, old.y)
    assert (study.save(tmp_path / "study") / "runs.csv").is_file()


def test_hits_and_steps_of_runs_with_their_own_counts():
    histories, nfev = [[3.0, 1.0, 0.5], [2.0, 2.0, 0.1]], [[10, 20, 40], [5, 30, 40]]
    assert statistics.hits(histories, nfev, 1.0).tolist() == [20, 40]
    steps, best = statistics.by_evaluations(histories, nfev)
    assert steps.tolist() == [5, 22, 40] and best.tolist() == [[np.inf, 1.0, 0.5], [2.0, 2.0, 0.1]]
    with pytest.raises(gx.InputError, match="nfev must have the shape of histories"):
        statistics.hits(histories, [[10, 20]], 1.0)
