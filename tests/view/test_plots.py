"""Every figure has a title, names on its axes and something in it; what a result lacks is said; view exports."""

import builtins
import csv
import io
import json
import webbrowser
from dataclasses import replace
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from support.report_runs import make_result
from typer.testing import CliRunner

import galapax as gx
from galapax.cli.app import app
from galapax.metrics import indicators
from galapax.results.result import Result
from galapax.view import figure_data, plots


def crescent() -> gx.Problem:
    """Two variables with names, a curve to stay on one side of, and a title."""
    return gx.Problem(
        lambda x: jnp.sum((x - 0.3) ** 2),
        [(-1, 2), (0, 3)],
        ineq=lambda x: 0.2 - x[0] * x[1],
        name="crescent",
        title="Two numbers and their product",
        variables=["width", "height"],
        objectives=["area"],
    )


@pytest.fixture(scope="module")
def single():
    return gx.minimize(
        crescent(), gx.DE(population=20), generations=40, seed=1, keep=gx.Keep(snapshots=[1, 5, 20, 40]), polish=False
    )


@pytest.fixture(scope="module")
def ensemble():
    problem = gx.problems.get("rastrigin", dim=5)
    return gx.minimize(
        problem, gx.DE(population=20), generations=30, runs=4, seed=1, keep=gx.Keep(snapshots=[1, 30]), polish=False
    )


def with_front(name: str, objectives: int | None = None) -> Result:
    """A result of several objectives, made of points of the true front moved away from it a little."""
    problem = gx.problems.get(name)
    rng = np.random.default_rng(0)
    F = problem.front(40) + rng.uniform(0, 0.02, (1, 1))
    if objectives:
        F = np.hstack([F] * objectives)[:, :objectives]
    X = rng.uniform(problem.bounds.lower, problem.bounds.upper, (len(F), problem.dim))
    knee = indicators.knee(F)
    return Result(
        problem=problem, X=X, F=F, G=None, H=None, CV=np.zeros(len(F)), x=X[knee], fun=F[knee], nit=10, runs=None,
        history=None, snapshots={}, population=X, population_fitness=F[:, 0],
        settings={"algorithm": "nsga2", "maximize": False, "blackbox": False, "vectorized": False, "first_run": 0},
    )  # fmt: skip


def drawn(figure) -> np.ndarray:
    """The picture, and that it is more than a white page."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=50)
    pixels = np.asarray(Image.open(file).convert("L"), int)
    assert (pixels < 200).mean() > 0.01
    return pixels


def words(figure) -> str:
    parts = [figure.get_suptitle(), figure.get_supxlabel()]
    for axes in figure.axes:
        parts += [axes.get_title(), axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
        parts += [text.get_text() for text in axes.get_xticklabels()]
    return "\n".join(parts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convergence", "maps", "parallel", "landscape"])
def test_figures_name_problem_algorithm_and_axes(single, ensemble, name):
    for result in (single, ensemble):
        figure = getattr(result.plot, name)()
        drawn(figure)
        text = words(figure)
        assert result.problem.name in text and result.problem.title in text and "· de" in text
        first = figure.axes[0]
        assert first.get_ylabel() and (first.get_xlabel() or first.get_title())
    assert "4 runs" in text


def test_variables_objectives_and_units_are_named(single):
    for figure in (single.plot.landscape(), single.plot.parallel(), single.plot.maps(form="variables")):
        assert "width" in words(figure) and "height" in words(figure)
        assert "area" in words(figure)
    measured = single.problem.with_(units={"width": "mm"})
    assert plots.labels(measured) == ["width [mm]", "height"]


def test_a_result_chooses_its_figure(single):
    assert single.plot().axes[0].get_xlabel() == "generation"
    assert with_front("zdt1").plot().axes[0].get_xlabel() == "f1"


def test_notebooks_show_a_figure_by_itself(single):
    assert single.plot()._repr_png_()[:4] == b"\x89PNG"


def test_front_of_two_objectives_shows_truth_knee_and_ends():
    result = with_front("zdt1")
    axes = result.plot.front().axes[0]
    series = {group.get_label(): np.asarray(group.get_offsets()) for group in axes.collections}
    assert set(series) == {"true front", "found, 40 points", "best of each", "knee"}
    assert np.array_equal(series["knee"][0], result.fun)
    assert np.array_equal(series["found, 40 points"], result.F)
    assert sorted(series["best of each"][:, 0]) == [result.F[:, 0].min(), result.F[:, 0].max()]
    drawn(axes.figure)


def test_front_of_three_objectives_is_in_space_and_of_more_on_parallel_axes():
    space = with_front("dtlz2").plot.front()
    assert space.axes[0].name == "3d" and space.axes[0].get_zlabel() == "f3"
    drawn(space)
    lines = with_front("zdt1", objectives=5).plot.front()
    assert [t.get_text() for t in lines.axes[0].get_xticklabels()] == ["f1", "f2", "f3", "f4", "f5"]
    drawn(lines)
    drawn(with_front("zdt1").plot.parallel())


def test_convergence_of_several_objectives_has_a_panel_for_each():
    result = with_front("blending")
    best = np.column_stack([np.linspace(9, 5, 20), np.linspace(3, 1, 20)])
    result["history"] = gx.History(np.arange(1, 21), 10 * np.arange(1, 21), best, best + 1, best + 2)
    panels = result.plot.convergence().axes
    assert [axes.get_ylabel() for axes in panels] == ["best cost [per unit]", "best octane giveaway [RON]"]
    for k, axes in enumerate(panels):
        assert np.array_equal(axes.get_lines()[0].get_ydata(), best[:, k])
    assert "nsga2" in panels[0].get_title(loc="left")


def test_attainment_surfaces_are_what_a_share_of_the_runs_dominates():
    result = gx.minimize(gx.problems.get("zdt1"), "nsga2", generations=5, runs=4, population=20)
    fronts = [front.F for front in result.runs.fronts]
    for maximize, fronts_of_it in ((False, fronts), (True, [-front for front in fronts])):
        pairs = zip(result.runs.fronts, fronts_of_it, strict=True)
        runs = replace(result.runs, fronts=[replace(front, F=F) for front, F in pairs])
        mirrored = Result(result, settings={**result.settings, "maximize": maximize}, runs=runs)
        surfaces = figure_data.attainment({"": mirrored}, (0.25, 0.5, 1.0))
        assert [s.label for s in surfaces] == ["25% of the runs", "50% of the runs", "100% of the runs"]
        for surface, needed in zip(surfaces, (1, 2, 4), strict=True):
            assert (np.diff(surface.x) > 0).all()  # so that steps lead the right way
            sign = -1 if maximize else 1
            for corner in sign * np.column_stack([surface.x, surface.y]):
                dominating = sum(bool((front <= corner + 1e-12).all(axis=1).any()) for front in fronts)
                nearer = sum(bool((front <= corner - 1e-9).all(axis=1).any()) for front in fronts)
                assert dominating >= needed > nearer
    axes = result.plot.attainment().axes[0]
    assert axes.get_xlabel() == "f1" and len(axes.get_lines()) == 3


def test_ranks_have_a_bar_over_what_does_not_differ():
    study = gx.compare(["branin", "ackley", "levy"], ["random", "de", "cmaes"], runs=3, max_evaluations=1500)
    data = figure_data.study_ranks(study)
    assert data.names[-1] == "random" and data.ranks[-1] == 3 and data.ranks.sum() == pytest.approx(6)
    assert data.difference == pytest.approx(2.343 * (3 * 4 / (6 * 3)) ** 0.5, abs=1e-3)
    for first, last in data.groups:
        assert data.ranks[last] - data.ranks[first] <= data.difference
    texts = [text.get_text() for text in study.plot.critical_difference().axes[0].texts]
    assert "3.00  random" in texts and "1" in texts
    for lone in (gx.compare(["branin"], ["random", "de"], runs=2, max_evaluations=100), replace(study, kind="sweep")):
        with pytest.raises(gx.InputError, match="at least two algorithms on at least two problems"):
            lone.plot.critical_difference()
    with pytest.raises(gx.InputError, match="every algorithm on every problem"):
        replace(study, results=study.results[:4], labels=study.labels[:4]).plot.critical_difference()


def test_importances_are_bars_with_the_most_important_on_top():
    result = gx.minimize(lambda x: float(x[1] ** 2), [(-1, 1)] * 3, "de", blackbox=True, max_evaluations=60)
    axes = result.plot.importances().axes[0]
    assert axes.get_yticklabels()[0].get_text() == "x2" and axes.yaxis_inverted()
    assert axes.patches[0].get_width() > 80


def test_maps_are_side_by_side_and_labelled(single, ensemble):
    figure = single.plot.maps()
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["generation 1", "generation 5", "generation 20", "generation 40"]
    assert [a.get_title() for a in single.plot.maps([5]).axes if a.get_title()] == ["generation 5"]
    assert "run 2" in words(ensemble.plot.maps(run=2))
    many = gx.minimize(
        crescent(), gx.DE(population=20), generations=60, keep=gx.Keep(snapshots=range(1, 61)), polish=False
    )
    assert [a.get_title().split()[-1] for a in many.plot.maps().axes if a.get_title()] == [
        "1",
        "2",
        "5",
        "12",
        "26",
        "60",
    ]


def test_an_infeasible_individual_is_orange_in_the_fitness_map(single):
    figure = single.plot.maps([1])
    pixels = np.asarray(figure.axes[1].images[0].get_array()).reshape(-1, 4)[:20]
    infeasible = single.snapshots[1].violation > 0
    assert infeasible.any() and not infeasible.all()
    assert ((pixels[:, 0] != pixels[:, 2]) == infeasible).all()
    assert "orange: infeasible" in words(figure)


def test_landscape_takes_names_and_a_window_and_marks_the_best(single):
    axes = single.plot.landscape(("height", "width"), window=[(0.2, 1), (0, 1)]).axes[0]
    assert axes.get_xlabel() == "height" and axes.get_xlim() == (0.2, 1.0)
    best = next(line for line in axes.get_lines() if line.get_label() == "best")
    assert (best.get_xdata()[0], best.get_ydata()[0]) == (single.x[1], single.x[0])
    shades = np.ptp(drawn(single.plot.landscape()))
    assert shades > 150


@pytest.mark.slow
def test_landscape_of_one_variable_of_a_black_box_and_of_an_equality():
    curve = gx.minimize(
        lambda x: jnp.sum(x**2),
        [(-1, 2)],
        gx.DE(population=8),
        generations=5,
        keep=gx.Keep(snapshots=[1]),
        polish=False,
    )
    assert curve.plot.landscape().axes[0].get_ylabel() == "objective"

    def box(x):
        if x[0] > 1:
            raise ValueError
        return float(np.abs(x).sum())

    black = gx.minimize(box, [(-1, 2)] * 2, gx.DE(population=8), generations=5, blackbox=True)
    drawn(black.plot.landscape(points=11))
    ring = gx.minimize(
        lambda x: x[0] + x[1],
        [(-2, 2)] * 2,
        gx.DE(population=8),
        eq=lambda x: x[0] ** 2 + x[1] ** 2 - 1,
        generations=5,
        polish=False,
    )
    assert "equality holds" in [t.get_text() for t in ring.plot.landscape().legends[0].get_texts()]


def test_a_figure_that_a_result_cannot_have_is_an_error(single):
    bare = gx.minimize(
        lambda x: jnp.sum(x**2),
        [(-1, 2)] * 2,
        gx.DE(population=8),
        generations=3,
        keep=gx.Keep(history=False),
        polish=False,
    )
    with pytest.raises(gx.InputError, match="history=True"):
        bare.plot.convergence()
    with pytest.raises(gx.InputError, match=r"snapshots=\[1, 10, 100\]"):
        bare.plot.maps()
    with pytest.raises(gx.InputError, match="several objectives"):
        bare.plot.front()
    with pytest.raises(gx.InputError, match="no feasible solution"):
        Result({**with_front("zdt1"), "F": np.zeros((0, 2))}).plot.front()
    with pytest.raises(gx.InputError, match="form must be"):
        single.plot.maps(form="rgb")
    for wrong in ((0, 0), (0, 2), ("width", "depth"), (0,)):
        with pytest.raises(gx.InputError, match=r"two names \(width, height\)"):
            single.plot.landscape(wrong)
    with pytest.raises(gx.InputError, match="window must be two"):
        single.plot.landscape(window=[(1, 0), (0, 1)])
    with pytest.raises(gx.InputError, match="min-max result"):
        Result({**bare, "y": np.zeros(1)}).plot.landscape()


def test_without_matplotlib_a_sentence_says_what_to_install(single, monkeypatch):
    real = builtins.__import__

    def absent(name, *arguments, **more):
        if name == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r'need the package matplotlib: pip install "galapax\[view\]"'):
        single.plot.convergence()


@pytest.mark.parametrize("form", ["genome", pytest.param("variables", marks=pytest.mark.slow)])
def test_a_film_has_a_frame_for_each_population(single, tmp_path, form):
    film = Image.open(single.plot.gif(tmp_path / "deep" / "run.gif", form=form))
    assert film.n_frames == 4 and film.format == "GIF"
    frames = []
    for i in range(4):
        film.seek(i)
        frames.append(np.asarray(film.convert("RGB"), int))
    assert all(np.abs(a - b).mean() > 0.5 for a, b in pairwise(frames))


@pytest.mark.slow
def test_snapshots_are_saved_and_loaded(single, ensemble, tmp_path):
    for name, result in (("one", single), ("many", ensemble)):
        again = gx.load(result.save(tmp_path / name))
        assert list(again.snapshots) == list(result.snapshots)
        for g, kept in result.snapshots.items():
            assert np.array_equal(again.snapshots[g].x, kept.x)
            assert np.array_equal(again.snapshots[g].objectives, kept.objectives)
            assert (again.snapshots[g].violation is None) == (kept.violation is None)
        assert np.array_equal(drawn(again.plot.maps()), drawn(result.plot.maps()))
    file = tmp_path / "one" / "arrays.npz"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(gx.InputError, match=r"arrays\.npz is damaged"):
        gx.load(tmp_path / "one")
    without = gx.minimize(crescent(), gx.DE(population=20), generations=3, polish=False)
    with pytest.warns(UserWarning, match=r"kept as arrays\.changed"):
        without.save(tmp_path / "one")
    assert gx.load(tmp_path / "one").snapshots == {}  # what the earlier run left there is gone


@pytest.mark.slow
def test_a_loaded_run_has_a_landscape_if_its_problem_is_built_in(single, ensemble, tmp_path):
    assert np.array_equal(
        drawn(gx.load(ensemble.save(tmp_path / "a")).plot.landscape()), drawn(ensemble.plot.landscape())
    )
    with pytest.raises(gx.InputError, match="loaded without its objective"):
        gx.load(single.save(tmp_path / "b")).plot.landscape()
    imposter = gx.minimize(
        gx.Problem(lambda x: jnp.sum(x), [(-5.12, 5.12)] * 5, name="rastrigin"),
        gx.DE(population=8),
        generations=2,
        polish=False,
    )
    with pytest.raises(gx.InputError, match="loaded without its objective"):
        gx.load(imposter.save(tmp_path / "c")).plot.landscape()


def call(*arguments) -> tuple[int, str]:
    outcome = CliRunner().invoke(app, list(map(str, arguments)))
    return outcome.exit_code, outcome.output


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "branin"
    code, text = call(
        "solve",
        "branin",
        "-g",
        30,
        "-n",
        12,
        "--snapshots",
        "every:10",
        "--no-polish",
        "--no-cache",
        "-q",
        "-o",
        folder,
    )
    assert code == 0, text
    return folder


@pytest.mark.slow
def test_solve_keeps_the_populations_that_it_is_asked_for(saved):
    assert list(gx.load(saved).snapshots) == [1, 10, 20, 30]
    for text, why in (("soon", "1,10,100"), ("every:0", "every:10"), ("0,5", "at least 1")):
        code, said = call("solve", "branin", "-g", 5, "--snapshots", text)
        assert code == 2 and why in said
    code, said = call("solve", "branin", "--max-seconds", 1, "--snapshots", "every:5")
    assert code == 2 and "--generations" in said


@pytest.mark.slow
def test_view_draws_all_pictures(saved, tmp_path):
    code, text = call("view", saved, "--png", "-o", tmp_path)
    assert code == 0 and "12 files" in text
    names = {"convergence", "maps", "maps-variables", "parallel", "landscape"}
    assert {f.stem for f in tmp_path.glob("*.png")} == names and len(list((tmp_path / "maps").iterdir())) == 12
    bare = tmp_path / "bare"
    gx.minimize(crescent(), gx.DE(population=20), generations=3, polish=False).save(bare)
    code, text = call("view", bare, "--png", "-o", tmp_path)  # over the pictures of the other run
    assert code == 0 and "No maps.png" in text and "No landscape.png" in text
    assert {f.stem for f in tmp_path.glob("*.png")} == {"convergence", "parallel"}
    assert not list((tmp_path / "maps").iterdir())


@pytest.mark.slow
def test_view_makes_a_film(saved, tmp_path):
    code, _ = call("view", saved, "--gif", "--form", "variables", "-o", tmp_path / "film.gif")
    assert code == 0 and Image.open(tmp_path / "film.gif").n_frames == 4


def test_view_exports_tables(saved, tmp_path):
    code, text = call("view", saved, "--export", "csv", "-o", tmp_path)
    assert code == 0 and "history.csv" in text
    assert {f.name for f in tmp_path.iterdir()} == {"answer.csv", "history.csv", "population.csv", "snapshots.csv"}
    with (tmp_path / "snapshots.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    result = gx.load(saved)
    assert len(rows) == 4 * 12 and list(rows[0]) == ["generation", "run", "individual", "x1", "x2", "fun"]
    assert float(rows[12]["x2"]) == result.snapshots[10].x[0, 1] and rows[12]["generation"] == "10"


def test_view_exports_everything_as_one_json(saved, tmp_path):
    code, _ = call("view", saved, "--export", "json", "-o", tmp_path / "all.json")
    data, result = json.loads((tmp_path / "all.json").read_text()), gx.load(saved)
    assert code == 0 and data["fun"] == result.fun
    assert data["history"]["best"] == result.history.best.tolist()
    assert data["population"]["x1"] == result.population[:, 0].tolist()
    assert data["snapshots"]["fun"][:12] == result.snapshots[1].fitness.tolist()


@pytest.mark.slow
def test_view_of_a_study(tmp_path):
    problem = gx.problems.get("sphere", dim=2)
    study = gx.compare([problem], [gx.DE(population=8), gx.RandomSearch()], runs=3, max_evaluations=160, progress=False)
    study.save(tmp_path / "study")
    code, _ = call("view", tmp_path / "study", "--png", "--export", "csv", "-o", tmp_path / "out")
    assert code == 0
    assert {f.name for f in (tmp_path / "out").iterdir()} == {
        "convergence.png", "ecdf.png", "final.png", "runs.csv", "curves.csv", "summary.csv",
    }  # fmt: skip
    code, _ = call("view", tmp_path / "study", "--export", "json")
    data = json.loads((tmp_path / "study" / "export.json").read_text())
    assert code == 0 and data["summary"]["algorithm"] == ["de", "random"] and len(data["cells"]) == 2
    code, said = call("view", tmp_path / "study", "--gif")
    assert code == 2 and "holds a comparison" in said


@pytest.mark.slow
def test_view_opens_the_report_or_says_where_it_is(saved, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    code, said = call("view", saved, "--open")
    assert code == 0 and opened == [(saved / "report.html").as_uri()] and str(saved / "report.html") in said
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert "no browser was found" in call("view", saved, "--open")[1]
    gx.minimize(crescent(), gx.DE(population=20), generations=3, polish=False).save(tmp_path)
    (tmp_path / "report.html").unlink()
    code, said = call("view", tmp_path, "--open")
    assert code == 2 and "has no report.html" in said


def test_view_shows_the_table_by_default_and_refuses_other_exports(saved):
    code, said = call("view", saved)
    assert code == 0 and "30 generations" in said
    code, said = call("view", saved, "--export", "xml")
    assert code == 2 and "csv, json or gagpu" in said


def test_a_curve_that_comes_to_exactly_zero_stays_on_its_logarithmic_scale_and_ends_there():
    best = np.array([60.0, 9.0, 1e-3, 1e-12, 0.0, 0.0])
    result = make_result(gx.Problem(lambda x: x[0], [(0, 1)] * 2, name="plain"), generations=6)
    history = replace(result.history, best=best, mean=best, worst=best)
    result.history = history
    curve = figure_data.convergence(result, history)
    assert curve.log and curve.zero == 5 and curve.events()[figure_data.ZERO_NAME] == [5]
    axes = result.plot.convergence().axes[0]
    assert axes.get_yscale() == "log" and axes.get_ylim()[0] > 1e-14
    assert figure_data.ZERO_NAME in [text.get_text() for text in axes.get_legend().get_texts()]
    for values in (best - 1, np.array([3.0, 0.0])):  # below zero, or over less than a magnitude before it
        assert not figure_data.reaches_zero_on_log_scale(values)
