"""What figures and pages must not get wrong: labels, marks, the knee, the search that ran."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.metrics import indicators
from galapax.view import figure_data, plots, report, summary_tables
from galapax.view.live import server

BOWL = gx.problems.get("rosenbrock", dim=4)


def run_values(result) -> dict[str, float]:
    return {name.removesuffix(" hypervolume"): text for name, text in summary_tables.run_rows(result)}


@pytest.mark.parametrize(
    "result",
    [
        gx.minimize(BOWL, "random", generations=3, population=10, runs=9, polish=False),
        gx.minimize(BOWL, "random", generations=3, population=10, runs=9, polish=False, maximize=True),
        gx.minimize(gx.problems.get("zdt1", dim=5), "nsga2", generations=30, population=20, runs=9),
    ],
    ids=["minimised", "maximised", "hypervolume"],
)
def test_the_lower_quartile_is_the_lesser_one(result):
    values, rows = result.runs.final_values(), run_values(result)
    assert float(rows["lower quartile"]) == pytest.approx(np.quantile(values, 0.25))
    assert float(rows["upper quartile"]) == pytest.approx(np.quantile(values, 0.75))
    is_less_better = result.runs.fronts is None and not result.settings["maximize"]
    assert float(rows["best"]) == pytest.approx(values.min() if is_less_better else values.max())


def spherical_front(rng, m, n, reach):
    """Points of a concave front, of which the ends may be missing. reach: share of the arc towards each end."""
    points = np.abs(rng.normal(size=(n, m)))
    points /= np.linalg.norm(points, axis=1)[:, None]
    return points[points.max(axis=1) <= reach]


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("reach", [1.0, 0.99])
def test_the_knee_of_a_concave_front_is_no_corner(m, reach):
    for seed in range(20):
        front = spherical_front(np.random.default_rng(seed), m, 200, reach)
        scaled = (front - front.min(axis=0)) / np.ptp(front, axis=0)
        assert scaled[indicators.knee(front)].min() > 0.2, seed


def test_the_knee_of_a_convex_front_bulges_most():
    front = 1.0 - spherical_front(np.random.default_rng(0), 3, 500, 1.0)
    assert np.ptp(front[indicators.knee(front)]) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize(("name", "generations"), [("dtlz2", 80), ("wfg4", 250), ("zdt2", 100)])
def test_the_knee_of_a_run_is_no_corner(name, generations):
    for seed in range(3):
        result = gx.minimize(gx.problems.get(name), generations=generations, seed=seed)
        scaled = (result.fun - result.F.min(axis=0)) / np.ptp(result.F, axis=0)
        assert scaled.min() > 0.2 and scaled.max() < 0.8


def test_settings_name_the_models_of_a_black_box_with_few_evaluations():
    result = gx.minimize(lambda x: float(np.sum(x**2)), [(-1, 1)] * 3, blackbox=True, max_evaluations=60)
    assert (result.settings["algorithm"], result.settings["restarts"]) == ("model_search", None)
    assert "model_search" in report.render_result(result) and "model_search" in result._repr_html_()
    long = gx.minimize(lambda x: float(np.sum(x**2)), [(-1, 1)] * 2, blackbox=True, max_evaluations=301)
    assert long.settings["algorithm"] == "cmaes"


def charts_of(page: str):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))


def test_a_gradient_refinement_is_marked_in_every_figure():
    single = gx.minimize(BOWL, "de", generations=40, population=10, polish="auto")
    ensemble = gx.minimize(BOWL, "de", generations=40, population=10, runs=3, polish="auto")
    for result in (single, ensemble):
        assert result.refinements == [41] == figure_data.refinement_generations(result)
        legend = plots.convergence(result).axes[0].get_legend()
        assert figure_data.REFINEMENT_NAME in {text.get_text() for text in legend.get_texts()}
        chart = charts_of(report.render_result(result))["charts"]["c0"]
        assert chart["events"] == [{"name": "gradient refinement", "at": [41]}]
        assert "gradient refinement" in result._repr_html_()
    without = gx.minimize(BOWL, "de", generations=40, population=10, polish=False)
    assert "refinements" not in without and figure_data.refinement_generations(without) == []


def test_every_descent_of_a_run_that_restarts_is_marked(tmp_path):
    result = gx.minimize(lambda x: jnp.sum(x**2), [(-1, 1)] * 30, max_evaluations=20000, polish="auto")
    values = result.history.best
    assert result.refinements and result.refinements[-1] <= len(values)
    assert values[result.refinements[0] - 1] < 1e-3 * values[result.refinements[0] - 2]
    result.save(tmp_path / "run")
    assert gx.load(tmp_path / "run").refinements == result.refinements


def test_points_are_numbered_as_the_rows_of_the_result():
    result = gx.minimize(gx.problems.get("zdt1", dim=4), "nsga2", generations=20, population=20)
    front = charts_of(report.render_result(result))["tables"]["front"]
    place = next(int(i) for i, text in front["labels"].items() if "knee" in text)
    assert front["number"][place] == result.knee
    assert [front["data"][k][place] for k in range(2)] == pytest.approx(result.F[result.knee], rel=1e-6)


@pytest.fixture
def live_run(monkeypatch):
    monkeypatch.setattr(server, "_servers", {})

    def run(*arguments, **options):
        live = gx.Live(open_browser=False, slow_start=False, say=lambda _: None)
        result = gx.minimize(*arguments, live=live, **options)
        return result, next(iter(server._servers.values())).session.message(-1, 0)[0]

    return run


def test_the_live_page_is_sent_the_best_so_far_and_every_restart(live_run):
    _, message = live_run(gx.problems.get("rastrigin", dim=2), max_evaluations=4000)
    searches = message["searches"]
    assert searches[0] == (0, "cmaes") and len(searches) > 1
    best = [row[1] for row in message["points"] if row[1] is not None]
    assert best == sorted(best, reverse=True)  # though each search begins anew
    assert all(row[2] >= row[1] for row in message["points"] if None not in (row[1], row[2]))


@pytest.mark.parametrize("runs", [1, 5])
def test_the_live_page_ends_where_the_result_does(live_run, runs):
    result, message = live_run(BOWL, "de", generations=40, population=10, runs=runs, polish="auto")
    assert message["after_search"] == (41, "gradient refinement") and message["points"][-1][0] == 41
    assert (message["best"], message["nfev"]) == (result.fun, result.nfev)
    assert message["points"][-1][1] == result.fun
    if runs > 1:
        np.testing.assert_array_equal(message["points"][-1][-5:], result.runs.quantiles())


@pytest.mark.parametrize("runs", [1, 5])
def test_the_live_page_ends_with_the_estimate_of_the_mean_and_its_interval(live_run, runs):
    def noisy(x, key):
        return -jnp.sum(x**2) + 0.1 * jax.random.normal(key)

    result, message = live_run(noisy, [(-1, 1)] * 2, max_evaluations=200, runs=runs, maximize=True)
    assert message["after_search"] == (message["points"][-1][0], "estimate of the mean")
    assert (message["best"], message["nfev"]) == (result.fun, result.nfev)
    assert message["points"][-1][1] == result.fun
    assert message["interval"] == result.fun_interval.tolist()


def test_report_and_live_page_have_the_same_charts():
    from galapax.view import web

    charts = web.read_asset("charts.js")
    for page in ("report", "live"):
        assert charts in web.page_script(page) and web.read_asset("charts.css") in web.page_style(page)
    defined = set(re.findall(r"^(?:function|const) (\w+)", charts, re.M))
    names = {
        page: set(re.findall(r"^(?:function|const) (\w+)", web.page_script(page).replace(charts, ""), re.M))
        for page in web.SCRIPTS
    }
    assert not defined & (names["report"] | names["live"])  # one function for one thing
    drawing = {"createChart", "drawAxes", "drawCurve", "drawBand", "drawDots", "drawEvent", "drawImage", "formatNumber"}
    for page in names:
        script = web.page_script(page).replace(charts, "")
        assert all(f"{name}(" in script for name in drawing), page


def test_the_report_marks_where_a_run_restarted(tmp_path):
    result = gx.minimize(lambda x: jnp.sum(x**2 - 10 * jnp.cos(6 * x)), [(-5, 5)] * 2, max_evaluations=2500, seed=1)
    assert result.restarted and result.restarted[0] > 1 and result.restarted[-1] <= result.nit
    assert result.restarted == sorted(set(result.restarted))
    result.save(tmp_path / "run")
    assert gx.load(tmp_path / "run").restarted == result.restarted
    page = (tmp_path / "run" / "report.html").read_text()
    assert charts_of(page)["charts"]["c0"]["events"][0] == {"name": "restart", "at": result.restarted}
    ensemble = gx.minimize(lambda x: jnp.sum(x**2), [(-5, 5)] * 2, "de", generations=5, runs=2)
    assert "restarted" not in ensemble and figure_data.restart_generations(ensemble) == []
