"""What a notebook shows: short text, small HTML with a picture that is well-formed and safe, tables for pandas."""

import builtins
import dataclasses
import importlib.util
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from support.paths import ROOT
from support.saved_runs import random_run

import galapax as gx

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.ipynb"))


def made(*given, **options):
    """A run of random numbers that was feasible from the first generation on."""
    result = random_run(*given, **options)
    if result.runs is not None:
        result.runs = dataclasses.replace(result.runs, history=feasible(result.runs.history))
    result.history = feasible(result.history)
    return result


def feasible(history):
    return dataclasses.replace(history, violation=np.zeros_like(history.violation))


def study():
    """A sweep of two settings, of four runs each."""
    labels = [{"weight": 0.5}, {"weight": 0.9}]
    return gx.Study("sweep", {"weight": [0.5, 0.9]}, labels, [made(i, runs=4) for i in range(2)], [None, 0.1], "Done.")


def grid(seed=0):
    """A sweep over two hyper-parameters."""
    axes = {"weight": [0.5, 0.9], "population": [5, 10]}
    labels = [{"weight": w, "population": n} for w in (0.5, 0.9) for n in (5, 10)]
    return gx.Study("sweep", axes, labels, [made(seed + i, runs=4) for i in range(4)], [0.1] * 4, "Done.")


def minmax():
    return gx.Result(made(0)) | {"worst_case": 2.5, "y": np.array([1.0]), "worst_case_sure": 1.0}


SHOWN = {
    "result": lambda: made(0),
    "ensemble": lambda: made(0, runs=4),
    "front": lambda: made(0, m=2),
    "fronts": lambda: made(0, m=2, runs=3),
    "min-max": lambda: gx.Result(minmax()),
    "infeasible": lambda: gx.Result(made(0) | {"feasible": False, "success": False, "ineq": np.array([1.0, -1.0])}),
    "runs": lambda: made(0, runs=4).runs,
    "histories": lambda: made(0, runs=4).runs.history,
    "history of a front": lambda: made(0, m=2).history,
    "study": study,
    "grid": grid,
    "problem": lambda: gx.problems.get("spring"),
    "problem with a front": lambda: gx.problems.get("zdt1"),
    "min-max problem": lambda: gx.problems.get("minmax_saddle"),
    "odd names": lambda: made(0, name="<b>&", title="<script>alert(1)</script>", variables=["<i>", "a&b", '"c"']),
    "history": lambda: made(0).history,
}


@pytest.mark.parametrize("kind", SHOWN)
def test_a_notebook_shows_a_few_lines_and_a_small_picture(kind):
    shown = SHOWN[kind]()
    text = shown._repr_html_()
    assert len(text) < 16_000 and "<script" not in text
    parsed = ET.fromstring(text.replace("<br>", "<br/>"))  # raises if tags or entities are not well-formed
    drawn = parsed.findall(".//svg")
    assert len(drawn) == 1 and len(list(drawn[0])) > 2, "one picture, with something in it"
    assert len(repr(shown).splitlines()) <= 14 and len(repr(shown)) < 1500


def test_an_empty_result_is_shown_too():
    assert gx.Result()._repr_html_().startswith("<div")


def test_a_min_max_result_shows_its_worst_case():
    result = gx.Result(minmax())
    assert "worst_case: 2.5" in repr(result) and "y: [1.]" in repr(result)
    text = result._repr_html_()
    assert "2.5" in text and text.index("worst case, checked") < text.index("worst value found")


def test_a_problem_is_shown_in_a_line():
    many = gx.Problem(lambda x: (x**2).sum(), [(-1, 1)] * 1000, ineq=lambda x: x[:2], name="many")
    assert repr(many) == "Problem('many', 1000 variables, ineq)"
    assert repr(gx.problems.get("g06")) == "Problem('g06', 2 variables, ineq, optimum=-6961.81387558015)"
    assert repr(gx.MinMaxProblem(lambda x, y: x[0] * y[0], [(0, 1)], [(0, 1)], name="game")) == (
        "MinMaxProblem('game', 1 variable)"
    )


def test_short_reprs_say_what_there_is():
    runs = made(0, runs=4).runs
    assert repr(runs).startswith("Runs(4 runs: fun between ") and "success 4 of 4" in repr(runs)
    assert repr(runs.history) == (
        "History(6 generations, 4 runs: generation, nfev, best, mean, worst, violation, feasible_share, x)"
    )
    assert repr(made(0).history).startswith("History(6 generations: ")


def test_tables_for_pandas_hold_the_numbers_under_the_names_of_the_problem():
    pytest.importorskip("pandas")
    names = {"variables": ["width", "nit", "depth"]}  # one is called as a column is
    ensemble = made(0, runs=4, **names)
    runs = ensemble.to_dataframe()
    assert list(runs["run"]) == [0, 1, 2, 3] and np.array_equal(runs["fun"], ensemble.runs.fun)
    assert runs["nit"].dtype == np.int64 and runs["success"].dtype == bool
    assert np.array_equal(runs[["width", "nit (2)", "depth"]], ensemble.runs.x)
    assert np.array_equal(ensemble.runs.to_dataframe()[["x1", "x2", "x3"]], ensemble.runs.x)
    history = ensemble.to_dataframe("history")
    assert len(history) == 4 * 6 and np.array_equal(history["best"], ensemble.runs.history.best.ravel())
    assert list(history.columns[:3]) == ["run", "generation", "nfev"] and history["generation"].dtype == np.int64
    single = made(0, **names)
    assert np.array_equal(single.to_dataframe()[["width", "nit", "depth"]], single.population)
    assert np.array_equal(single.history.to_dataframe()["best"], single.history.best)
    front = made(0, m=2)
    assert np.array_equal(front.to_dataframe()[["cost 0", "cost 1"]], front.F)
    assert np.array_equal(front.history.to_dataframe()[["best f1", "best f2"]], front.history.best)
    assert len(study().to_dataframe()) == 8 and len(study().to_dataframe("summary")) == 2
    for ask in (lambda: single.to_dataframe("front"), lambda: study().to_dataframe("front")):
        with pytest.raises(gx.InputError, match="table must be"):
            ask()


def test_declared_variables_are_shown_as_they_were_declared():
    pytest.importorskip("pandas")
    result = made(0, runs=3)
    space = {"length": gx.real(0, 1), "teeth": gx.integer(0, 9), "material": gx.choice("steel", "wood")}
    problem = gx.Problem(lambda v: v["length"] + v["teeth"], space, name="gear")
    result.problem, result.x = problem, np.array([0.5, 3.0, 1.0])
    result.runs = dataclasses.replace(result.runs, x=np.tile(result.x, (3, 1)))
    table = result.to_dataframe()
    assert list(table["material"]) == ["wood"] * 3 and list(table["teeth"]) == [3] * 3
    assert table["teeth"].dtype.kind == "i" and table["length"].dtype.kind == "f"
    assert "wood" in result._repr_html_() and "steel" in problem._repr_html_()


def test_without_pandas_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **options):
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pandas: pip install \"galapax\[notebook\]\""):
        made(0).to_dataframe()


def test_every_figure_can_be_drawn_into_the_users_axes():
    """With ax= nothing new is made: the figure is the user's, and only the axes given are drawn into."""
    from matplotlib.figure import Figure

    figures = {
        "convergence": lambda ax: made(0, runs=4).plot.convergence(ax=ax),
        "front": lambda ax: made(0, m=2).plot.front(ax=ax),
        "parallel": lambda ax: made(0).plot.parallel(ax=ax),
        "choice": lambda ax: made(0).plot(ax=ax),
        "landscape": lambda ax: made(0).plot.landscape(points=5, ax=ax),
        "study convergence": lambda ax: study().plot.convergence(ax=ax),
        "running times": lambda ax: study().plot.running_times(ax=ax),
        "final": lambda ax: study().plot.final(ax=ax),
        "heatmap": lambda ax: grid().plot.heatmap(ax=ax),
        "choice of a study": lambda ax: grid().plot(ax=ax),
    }
    own = Figure(figsize=(20, 8))
    axes = own.subplots(2, len(figures) // 2).ravel()
    for place, (name, draw) in enumerate(figures.items()):
        assert draw(axes[place]) is own, name
        assert axes[place].get_title(loc="left") and axes[place].has_data(), name
        assert not any(later.has_data() for later in axes[place + 1 :]), name
    own.canvas.draw()


def test_axes_that_do_not_fit_are_refused():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    with pytest.raises(gx.InputError, match="2 panels: give ax as a list of 2 axes; got 1"):
        made(0, m=2).plot.convergence(ax=ax)
    with pytest.raises(gx.InputError, match='projection="3d"'):
        made(0, m=3).plot.front(ax=ax)
    with pytest.raises(gx.InputError, match="two hyper-parameters"):
        study().plot.heatmap()


def test_a_heat_map_shows_the_median_of_each_cell():
    from galapax.view import figure_data

    swept = grid()
    drawn = figure_data.study_heat_map(swept)
    least = min(result.runs.fun.min() for result in swept.results)
    for place, result in enumerate(swept.results):
        assert drawn.values[place // 2, place % 2] == pytest.approx(np.median(result.runs.fun) - least, abs=1e-12)
    assert (drawn.up, drawn.across) == ("weight", "population") and drawn.columns == ["5", "10"]


# --- tutorials --------------------------------------------------------------------------------------------------------


def code_cells(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", TUTORIALS, ids=lambda file: file.stem)
def test_a_tutorial_is_saved_as_it_ran(notebook):
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = [output["output_type"] for cell in cells for output in cell["outputs"]]
    assert kinds and "error" not in kinds
    assert notebook.stat().st_size < 400_000


def test_the_first_tutorial_runs(tmp_path, monkeypatch):
    """Its code with fewer runs, in this process; `make test-slow` executes all of them as notebooks."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in code_cells(TUTORIALS[0]):
        code = "".join(cell["source"]).replace("runs=100", "runs=20")
        exec(compile(code, TUTORIALS[0].name, "exec"), names)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="nbclient is not installed")
@pytest.mark.parametrize("notebook", TUTORIALS, ids=lambda file: file.stem)
def test_a_tutorial_runs_as_a_notebook(notebook, tmp_path):
    import nbclient
    import nbformat

    nbclient.NotebookClient(
        nbformat.read(notebook, as_version=4), timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
