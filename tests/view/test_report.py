"""What report.html contains: figures, tables and numbers, and nothing that a browser would fetch."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from support.report_runs import make_result, numbers_of, solved, study, sweep_of, two_objectives

import galapax as gx
from galapax.core.problem import Problem, box
from galapax.storage import result_folder
from galapax.view import figure_data, plots, report, summary_tables
from galapax.view.report import page as page_module
from galapax.view.report.figures import landscape_image
from galapax.view.report.page import setting_rows


@pytest.mark.parametrize(
    ("fields", "target", "kind", "fact"),
    [
        ({}, None, "message", "runs that converged"),
        ({}, 1e-3, "message", "successful runs"),
        ({"success": False}, None, "message ended", "runs that converged"),  # the best of them did not, others did
        ({"success": False}, 1e-3, "message failed", "successful runs"),
        ({"success": False, "feasible": False, "violation": 2.0}, None, "message failed", "runs that converged"),
    ],
)
def test_a_page_tells_what_was_found_from_what_ended_and_what_failed(fields, target, kind, fact):
    result = make_result(gx.problems.get("branin"), runs=9, **fields)
    result.settings["target"] = target
    text = report.render_result(result)
    assert f'<div class="{kind}">' in text and fact in text
    result.runs.success[:] = False
    assert ("0 of 9" in report.render_result(result)) == (target is not None)  # without a target nothing judged them


def test_a_landscape_is_dark_where_values_are_low_and_calls_no_black_box():
    ground = landscape_image(
        make_result(Problem(lambda x: (x[0] - 1) ** 2 + x[1] ** 2, [(0, 1), (0, 1)], name="corner"))
    )
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(ground["image"].split(",")[1])))).sum(axis=-1)
    assert pixels[-1, -1] == pixels.min() < pixels[0, 0] == pixels.max()  # low at x = (1, 0): lower right

    def refused(x):
        raise AssertionError("called")

    problem = Problem(refused, box(0, 1, 2), name="slow")
    called = make_result(problem)
    called.settings["blackbox"] = True
    assert (
        landscape_image(called) is None and landscape_image(make_result(problem)) is None
    )  # nor does it mind a function that fails


def test_evaluations_until_success_are_those_of_the_runs():
    result = make_result(gx.problems.get("branin"), runs=8, generations=30)
    best = result.runs.history.best
    result.settings["target"] = float(np.median(best[:, 10]))
    soon = figure_data.target_hits(result)
    first = [
        next((n for n, v in zip(result.runs.history.nfev, run, strict=True) if v <= result.settings["target"]), None)
        for run in best
    ]
    reached = sorted(n for n in first if n is not None)
    curve, steps = soon.curves[0], sorted(set(reached))
    assert reached and curve.x[: len(steps)].tolist() == steps
    assert curve.y[: len(steps)].tolist() == [sum(n <= step for n in reached) / 8 for step in steps]
    assert curve.y[-1] == len(reached) / 8
    result.settings["target"] = None
    assert figure_data.target_hits(result).name == "share of targets reached"
    assert figure_data.target_hits(make_result(gx.problems.get("branin"))) is None


def test_runs_that_count_their_own_evaluations_have_a_page():
    """As polished ones do: nfev is then (R, G)."""
    result = make_result(gx.problems.get("branin"), runs=8, generations=30)
    history = result.runs.history
    own = replace(history, nfev=np.tile(history.nfev, (8, 1)) + np.arange(8)[:, None])
    result.runs = replace(result.runs, history=own)
    result.settings["target"] = 1e3
    assert "Evaluations until success" in report.render_result(result)


def test_nothing_else_may_run_or_be_fetched(tmp_path):
    """The page's own rules forbid it, should anything slip in."""
    text = report.render_result(two_objectives())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text).group(1)
    assert "default-src 'none'" in policy and re.search(r"script-src 'sha256-[^']+'$", policy)
    assert "http" not in text.replace("http-equiv", "")
    assert "unsafe-eval" not in policy and "script-src 'unsafe-inline'" not in policy


def test_curves_are_quantiles_over_the_runs_and_thinned_but_whole():
    result = make_result(Problem(lambda x: x[0], box(0, 1, 2), name="plain"), runs=20, generations=9000)
    chart = next(iter(numbers_of(report.render_result(result))["charts"].values()))
    steps = np.array(chart["xs"][0])
    assert len(steps) <= report.MAX_CURVE_POINTS and steps[0] == 1 and steps[-1] == 9000 and (np.diff(steps) > 0).all()
    best = result.runs.history.best[:, steps - 1]
    curve = chart["series"][0]
    assert curve["y"] == pytest.approx(np.median(best, axis=0), rel=1e-6)
    half, every = curve["bands"]
    assert half["low"] == pytest.approx(np.quantile(best, 0.25, axis=0), rel=1e-6)
    assert half["high"] == pytest.approx(np.quantile(best, 0.75, axis=0), rel=1e-6)
    assert every["low"] == pytest.approx(best.min(axis=0), rel=1e-6)
    assert every["high"] == pytest.approx(best.max(axis=0), rel=1e-6)


def test_the_distribution_over_runs_is_the_share_that_is_at_least_as_good():
    result = make_result(Problem(lambda x: x[0], box(0, 1, 2), name="plain"), runs=30)
    charts = numbers_of(report.render_result(result))["charts"].values()
    chart = next(c for c in charts if c["file"] == "final-values")
    for value, share in zip(chart["xs"][0], chart["series"][0]["y"], strict=True):
        assert share == pytest.approx(np.mean(result.runs.fun <= value * (1 + 1e-6)))
    result.settings["maximize"] = True
    charts = numbers_of(report.render_result(result))["charts"].values()
    chart = next(c for c in charts if c["file"] == "final-values")
    for value, share in zip(chart["xs"][0], chart["series"][0]["y"], strict=True):
        assert share == pytest.approx(np.mean(result.runs.fun >= value * (1 - 1e-6)))


def test_points_that_lie_close_together_keep_their_places():
    """Rounded to six digits they would lie on a lattice."""
    rng = np.random.default_rng(2)
    x = np.array([1234.5, -6961.8]) + 1e-6 * rng.random((40, 2))
    result = make_result(Problem(lambda x: x[0], box(-7000, 7000, 2), name="close"), population=x)
    table = numbers_of(report.render_result(result))["tables"]["population"]
    for column, shown in zip(x.T, table["data"], strict=False):
        assert np.abs(column - shown).max() <= 1e-4 * np.ptp(column)
    wide = page_module.json_numbers([1.23456789e-3, 123.456789, 99.0], 6)
    assert wide == [0.00123457, 123.457, 99.0]  # no more digits than asked for, where they suffice
    assert page_module.json_numbers([-1e308, 1e308, np.nan, 0.0], 3) == [-1e308, 1e308, None, 0.0]


def test_a_constraint_close_to_its_limit_is_active_and_the_page_names_the_tolerance():
    problem = Problem(lambda x: x[0], box(0, 1, 2), ineq=lambda x: x, name="limits", constraint_names=["near", "far"])
    result = make_result(problem, ineq=np.array([-5.7e-5, -0.3]))
    assert [(name, state) for name, *_, state in summary_tables.constraint_rows(result)] == [
        ("near", "active"),
        ("far", "slack"),
    ]
    assert "1 active, 1 slack (active: within 1e-4 of its limit)." in report.render_result(result)
    assert summary_tables.ACTIVE_TOLERANCE == 1e-4


def test_the_front_table_has_the_names_of_the_constraints(tmp_path):
    names = {"objectives": ["cost", "time"], "constraint_names": ["strong", "light", "balanced"]}
    problem = Problem(lambda x: x, box(0, 1, 2), ineq=lambda x: x, eq=lambda x: x[:1], name="beam", **names)
    parts_of = {"ineq": np.array([-1.0, -2.0]), "eq": np.zeros(1), "G": -np.ones((40, 2)), "H": np.zeros((40, 1))}
    result = make_result(problem, m=2, **parts_of)
    folder = result_folder.save(result, tmp_path / "named")
    assert (folder / "front.csv").read_text().splitlines()[0] == "x1,x2,cost,time,strong,light,balanced"
    assert np.array_equal(gx.load(folder).G, result.G) and np.array_equal(gx.load(folder).H, result.H)
    result["problem"] = problem.with_(constraint_names=None)
    folder = result_folder.save(result, tmp_path / "nameless")
    assert (folder / "front.csv").read_text().splitlines()[0] == "x1,x2,cost,time,ineq 1,ineq 2,eq 1"


def test_a_min_max_search_shows_what_it_met_and_no_distance():
    """x may have met no bad y yet: a value below the best known one is no success."""
    problem = Problem(lambda x: x[0], box(0, 1, 2), name="game", optimum=5.0)
    game = make_result(problem, runs=4, worst_case=5.5, y=np.ones(2), worst_cases=np.array([5.5, 6.0, 7.0, 5.8]))
    game.runs.history.best[:] -= 1.0  # below the best known value throughout
    axes = game.plot.convergence().axes[0]
    met = np.median(game.runs.history.best, axis=0)
    assert axes.get_ylabel() == "worst value found" and axes.get_yscale() == "linear"
    assert np.array_equal(axes.get_lines()[0].get_ydata(), met)
    charts = list(numbers_of(report.render_result(game))["charts"].values())
    assert charts[0]["y"]["name"] == "worst value found"
    assert charts[0]["series"][0]["y"] == pytest.approx(met, rel=1e-6)
    ends = next(c for c in charts if c["file"] == "final-values")
    assert ends["x"]["name"] == "worst case, checked" and ends["xs"][0] == [5.5, 5.8, 6.0, 7.0]
    assert ("worst of the worst cases", "7") in summary_tables.run_rows(game)
    assert "minimum" not in report.render_result(game).replace("minimumFractionDigits", "")  # the value met is none


def test_picture_and_page_draw_the_same_numbers():
    result = make_result(gx.problems.get("branin"), runs=9)
    axes = result.plot.convergence().axes[0]
    chart = next(iter(numbers_of(report.render_result(result))["charts"].values()))
    assert chart["y"]["name"] == axes.get_ylabel() == "distance to the best known value"
    assert chart["series"][0]["y"] == pytest.approx(axes.get_lines()[0].get_ydata(), rel=1e-6)
    for of in (study(), sweep_of(3)):
        picture = plots.study_convergence(of).axes
        charts = [c for c in numbers_of(report.render_study(of))["charts"].values() if c["file"].startswith("conv")]
        for axes, chart in zip(picture, charts, strict=True):
            assert chart["y"]["name"] == picture[0].get_ylabel() and chart["x"]["name"] == axes.get_xlabel()
            for line, series in zip(axes.get_lines(), chart["series"], strict=True):
                assert line.get_label() == series["name"]
                assert series["y"] == pytest.approx(line.get_ydata(), rel=1e-4)


def test_quantiles_leave_out_runs_that_failed():
    result = make_result(gx.problems.get("branin"), runs=4)
    runs = replace(result.runs, fun=np.array([3.0, np.nan, 1.0, np.inf]))
    assert runs.quantiles().tolist() == [1.0, 1.5, 2.0, 2.5, 3.0]
    none = replace(runs, fun=np.full(4, np.nan))
    assert np.isnan(none.quantiles((0.0, 1.0))).all() and np.isnan(none.quantiles(0.5))
    result["runs"] = runs
    assert ("runs without a valid value", "2 of 4 runs") in summary_tables.run_rows(result)


def test_a_result_knows_its_knee_and_its_direction():
    front = two_objectives()
    assert front.knee == front.choose("knee") and front.sign == 1.0
    assert two_objectives(F=np.zeros((0, 2))).knee is None
    single = make_result(gx.problems.get("branin"))
    assert single.knee is None
    single.settings["maximize"] = True
    assert single.sign == -1.0


def test_storage_writes_what_it_is_given_to_draw_when_the_numbers_are_saved(tmp_path):
    def draw(file):
        assert gx.load(tmp_path).problem.name == "branin"
        file.write_text("drawn")

    (tmp_path / "front.png").write_text("not of a run")
    result_folder.save(make_result(gx.problems.get("branin")), tmp_path, {"convergence.png": draw})
    names = {file.name for file in tmp_path.iterdir()}
    numbers = {"result.json", "arrays.npz", "history.csv", "population.csv", "manifest.json"}
    assert names == {*numbers, "convergence.png", "front.png"}
    assert (tmp_path / "front.png").read_text() == "not of a run"


def test_saved_loaded_and_saved_again(tmp_path):
    first = solved().save(tmp_path / "first") / "report.html"
    again = gx.load(tmp_path / "first").save(tmp_path / "again") / "report.html"
    assert first.read_text(encoding="utf-8") == again.read_text(encoding="utf-8")
    links = re.findall(r'<a href="([^"#]+)">', first.read_text(encoding="utf-8"))
    assert links and all((tmp_path / "first" / link).is_file() for link in links)


@pytest.mark.slow
def test_a_page_needs_neither_rich_nor_plotly():
    code = (
        "import sys; sys.modules |= dict.fromkeys(('rich', 'typer', 'plotly')); from galapax.view import report; "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_settings_have_separators_and_the_population_that_was_used():
    settings = {"generations": 12_000, "seed": 12_000, "blackbox": True, "population": None}
    assert setting_rows(settings) == [("generations", "12,000"), ("seed", "12000"), ("blackbox", "True")]
    result = gx.minimize(lambda x: x[0] ** 2, [(-1, 1)], "de", max_evaluations=1000, polish=False)
    assert result.settings["population"] == len(result.population)
    assert result.message.startswith("Stopped: evaluation limit (1,000) reached")


def test_a_search_without_a_population_shows_its_evaluations_instead():
    def fun(x):
        return {"fun": float(np.sum((x - 1) ** 2)), "ineq": x[0] - 0.5}

    result = gx.minimize(fun, [(-5, 5)] * 3, blackbox=True, max_evaluations=40, seed=0)
    text = report.render_result(result)
    numbers = numbers_of(text)
    assert not re.search(r">(Maps|Last population)</h2>|of the population", text)
    charts = {chart["file"]: chart for chart in numbers["charts"].values()}
    values, places = charts["values"], charts["evaluations"]
    drawn = {series["name"]: np.array(series["y"], float) for series in values["series"]}
    assert list(drawn) == ["evaluation", "infeasible", "best so far"]
    assert np.where(result.evaluations.ineq[:, 0] > 0, drawn["infeasible"], drawn["evaluation"]) == pytest.approx(
        result.evaluations.fun, rel=1e-6
    )
    assert drawn["best so far"] == pytest.approx(np.fmin.accumulate(drawn["evaluation"]), nan_ok=True)
    table, best = numbers["tables"]["evaluations"], places["marks"][0]["row"]
    assert len(table["data"][0]) == 40 and [c[best] for c in table["data"][:3]] == pytest.approx(result.x, rel=1e-5)
    assert "evaluations.csv" in text


def test_importances_that_the_evaluations_do_not_support_are_left_out_with_the_reason():
    options = {"blackbox": True, "max_evaluations": 60, "seed": 0}
    gathered, spread = (
        report.render_result(gx.minimize(lambda x: float(np.sum((x - 1) ** 2)), [(-5, 5)] * 3, *algorithm, **options))
        for algorithm in ((), ("random",))
    )
    assert "Not shown: the importances are uncertain" in gathered and "variable, for objective" not in gathered
    assert "Not shown" not in spread and "variable, for objective" in spread


def test_a_map_is_told_as_a_map_and_not_as_a_front(tmp_path):
    found = gx.illuminate(
        lambda x: x[0] ** 2 + x[2] ** 2, [(-1, 1)] * 3, measures=lambda x: x[:2], ranges=[(-1, 1)] * 2, cells=(6, 5),
        ineq=lambda x: x[0] - 0.9, generations=5,
    )  # fmt: skip
    loaded = gx.load(found.save(tmp_path / "run"))
    page = report.render_result(loaded)
    first, second = found.describe_map()
    assert first == f"{len(found)} of 30 cells have an elite ({100 * found.coverage:.1f} %)" and "best elite" in second
    for text in (repr(loaded), loaded._repr_html_(), page):
        shown = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S).replace("front.csv", "")
        assert first in shown and not re.search(r"\b(front|knee|Front|objectives)\b", shown)
    assert "Minimise fun in each cell of a map of 2 measures (measure1, measure2) over 3 variables" in page
    assert "The best elite</h2>" in page and "At the best elite: " in page and "coverage" in page
    assert [c["y"]["name"] for c in numbers_of(page)["charts"].values() if c["file"].startswith("conv")] == ["best fun"]
    assert [axes.get_ylabel() for axes in loaded.plot.convergence().axes] == ["best fun"]
