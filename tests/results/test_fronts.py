"""Fronts saved and loaded, on the command line, and compared: several objectives beyond a single result."""

import csv
import json
from dataclasses import fields
from functools import cache
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import galapax as gx
from galapax.cli import app as cli
from galapax.cli import output
from galapax.metrics import indicators
from galapax.results.study import curve_rows, curves, has_curves, scores
from galapax.view import accessor, plots, summary_tables

BOX = [(0.7, 1.1), (-7.0, -2.0), (-0.5, 9.5)]  # the first two limits are no float32 numbers
N, RUNS, BUDGET = 12, 3, 120


def two(x):
    xp = np if isinstance(x, np.ndarray) else jnp
    first = (x[..., 0] - 0.8) ** 2 + (x[..., 1] + 2.5) ** 2
    return xp.stack([first, (x[..., 0] - 1.0) ** 2 + (x[..., 2] - 8.0) ** 2], axis=-1)


def three(x):
    return jnp.append(two(x), jnp.sum((x + 1.0) ** 2))


TWO = gx.Problem(two, BOX, name="two", reference_point=(30.0, 90.0), hypervolume=2700.0)
THREE = gx.Problem(three, BOX, name="three", reference_point=(30.0, 90.0, 200.0))


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("GALAPAX_CACHE", "off")


@cache
def black_box(constrained, runs, possible=True):
    """A saved run's worth: names, units, derived quantities, snapshots."""
    problem = gx.Problem(
        two,
        BOX,
        ineq=(lambda x: x[..., :1] - (0.9 if possible else 0.0)) if constrained else None,
        name="named",
        reference_point=(30.0, 90.0),
        variables=["mass", "shift", "length"],
        objectives=["price", "loss"],
        units={"mass": "kg", "price": "€", "double": "m"},
        derived={"double": _double},
    )
    return gx.minimize(
        problem,
        gx.NSGA2(population=N),
        generations=6,
        runs=runs,
        blackbox=True,
        vectorized=True,
        keep=gx.Keep(snapshots=[2, 6]),
    )


def _double(x):
    return 2 * x[2]


# --- saved ------------------------------------------------------------------------------------------------------------


def assert_same(a, b):
    """Equal in all that a folder keeps."""
    for name in ("X", "F", "G", "H", "CV", "x", "fun", "population", "population_fitness", "ineq", "hypervolume"):
        one, other = a[name], b[name]
        assert (one is None) == (other is None), name
        if one is not None:
            assert np.shape(one) == np.shape(other), name
            np.testing.assert_array_equal(np.asarray(one, float), np.asarray(other, float), err_msg=name)
    for name, values in a.derived.items():
        np.testing.assert_array_equal(b.derived[name], values)
    assert list(a.derived) == list(b.derived)
    assert (a.message, a.success, a.feasible, a.nfev) == (b.message, b.success, b.feasible, b.nfev)
    pairs = [(a.history, b.history)]
    if a.runs is not None:
        pairs.append((a.runs.history, b.runs.history))
        for field in ("number", "x", "fun", "violation", "nit", "nfev", "n_failed", "success", "hypervolume"):
            np.testing.assert_array_equal(getattr(a.runs, field), getattr(b.runs, field), err_msg=field)
        for one, other in zip(a.runs.fronts, b.runs.fronts, strict=True):
            np.testing.assert_array_equal(one.X, other.X)
            np.testing.assert_array_equal(one.F, other.F)
            assert one.X.shape == other.X.shape and one.F.shape == other.F.shape
    for one, other in pairs:
        for field in fields(gx.History):
            if getattr(one, field.name) is not None:
                np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)
            else:
                assert getattr(other, field.name) is None


CASES = {
    "single": (False, 1),
    "ensemble": (False, 2),
    "constrained": (True, 1),
    "nothing feasible": (True, 1, False),
    "nothing feasible, ensemble": (True, 2, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_saved_run_is_loaded_as_it_was(case, tmp_path, monkeypatch):
    monkeypatch.setattr(accessor, "can_draw", lambda: case == "nothing feasible")
    result = black_box(*CASES[case])
    assert (len(result.X) == 0) == ("nothing" in case)
    loaded = gx.load(result.save(tmp_path))
    assert_same(result, loaded)
    assert loaded.problem.units == result.problem.units
    for g, kept in result.snapshots.items():
        np.testing.assert_array_equal(loaded.snapshots[g].objectives, kept.objectives)
    with (tmp_path / "front.csv").open(encoding="utf-8") as lines:
        names, *rows = list(csv.reader(lines))
    assert names == ["mass", "shift", "length", "double", "price", "loss"] + ["ineq 1"] * CASES[case][0]
    assert len(rows) == len(result.X)
    if "nothing" not in case:
        assert loaded.choose((0.5, 0.5)) == result.choose((0.5, 0.5))
        np.testing.assert_array_equal(
            indicators.by_generation(loaded)["hypervolume"], indicators.by_generation(result)["hypervolume"]
        )


# --- the command line -------------------------------------------------------------------------------------------------


def call(*arguments):
    with patch.object(output, "console", Console(width=160)):
        outcome = CliRunner().invoke(cli.app, list(arguments))
    return outcome.exit_code, outcome.output


@pytest.mark.slow
def test_solving_the_blend_shows_ends_knee_choice_and_recipe_and_can_be_viewed_again(tmp_path):
    options = ("solve", "blending", "-a", "nsga2", "-g", "60", "-n", "40", "-s", "mutation_rate=0.2")
    code, text = call(*options, "--choose", "0.7,0.3", "--archive", "50", "-o", str(tmp_path))
    assert code == 0, text
    shown = [
        "points on the front",
        "least cost",
        "least octane",
        "giveaway",
        "knee",
        "chosen:",
        "0.7, 0.3",
        "at the knee",
    ]
    shown += ["MTBE", "reformate", "fraction", "RON", "antiknock index >= 88.1", "front.csv", "front.png"]
    for part in shown:
        assert part in text, part
    code, again = call("view", str(tmp_path))
    assert code == 0
    for part in ("least cost", "chosen:", "0.7, 0.3", "reformate"):
        assert part in again, part
    result = gx.load(tmp_path)
    assert result.settings["hyperparameters"]["mutation_rate"] == 0.2 and result.settings["archive"] == 50
    fractions = result.X.sum(axis=1) + result.derived["reformate"]
    np.testing.assert_allclose(fractions, 1.0, rtol=1e-12)
    code, text = call(*options, "--archive", "50", "--json")
    assert code == 0
    plain = json.loads(text)
    assert plain["fun"] == result.fun.tolist() and plain["hypervolume"] == result.hypervolume
    assert plain["front"]["cost"] == result.F[:, 0].tolist() and len(plain["front"]["reformate"]) == len(result.X)
    code, _ = call("view", str(tmp_path), "--export", "json")
    everything = json.loads((tmp_path / "export.json").read_text(encoding="utf-8"))
    assert code == 0 and len(everything["front"]["reformate"]) == len(result.X)
    for wrong in ("middle", "1,2,3"):
        code, text = call(*options, "--archive", "50", "--choose", wrong)
        assert code == 2 and "weight" in text


# --- compared ---------------------------------------------------------------------------------------------------------


@cache
def study():
    """In float32, and two problems that are one program."""
    return gx.compare(
        [TWO, TWO.with_(name="twin", hypervolume=None)],
        [gx.SharingMOEA(population=N), gx.NPGA(population=N)],
        max_evaluations=BUDGET,
        runs=RUNS,
        within={"two": 1000.0},
        compute=gx.Compute(dtype="float32"),
    )


@pytest.mark.slow
def test_float32_is_what_the_runs_computed_in_and_their_box_holds():
    for result in study().results:
        assert result.population.dtype == result.population_fitness.dtype == np.float32
        assert result.X.dtype == result.F.dtype == result.x.dtype == np.float64
        for x in (result.X, result.population.astype(float)):
            assert np.all((x >= np.array(BOX)[:, 0]) & (x <= np.array(BOX)[:, 1]))


@pytest.mark.slow
def test_runs_with_several_objectives_are_compared_by_hypervolume():
    assert study().axes["algorithm"] == ["sharing_moea", "npga"] and study().value == "hypervolume"
    values = study().values()
    for labels, result in study():
        where = tuple(study().axes[axis].index(value) for axis, value in labels.items())
        own = np.array([indicators.volume(front.F, np.array([30.0, 90.0])) for front in result.runs.fronts])
        np.testing.assert_allclose(values[where], own, rtol=1e-5)
        np.testing.assert_array_equal(scores(result), -values[where])
        np.testing.assert_array_equal(curves(result)[:, -1], scores(result))
    for row, result in zip(study().summary(), study().results, strict=True):
        assert row["hypervolume_best"] == result.runs.hypervolume.max() == result.hypervolume
        assert row["hypervolume_worst"] == result.runs.hypervolume.min()
        assert row["hypervolume_median"] == np.median(result.runs.hypervolume)
        assert ("success" in row) == (row["problem"] == "two") and "best" not in row
    for row in study().rows():
        assert "fun" not in row and row["hypervolume"] > 0
    with pytest.raises(gx.InputError, match="hypervolume"):
        study().values("fun")
    better = "sharing_moea" if np.median(values[0, 0]) > np.median(values[0, 1]) else "npga"
    table, times, _ = summary_tables.build_tables(study())
    assert table.title == "Final hypervolumes" and "larger is better" in table.note
    bold = [name for name, cell in zip(table.header, table.rows[0], strict=True) if cell.bold]
    assert bold == [better] and times.title == "Running times"
    (pair,) = study().tests("two")
    assert (pair.effect > 0.5) == (better == "sharing_moea")


@pytest.mark.slow
def test_success_is_counted_by_the_first_generation_that_reached_the_hypervolume():
    for i, (labels, result) in enumerate(study()):
        if labels["problem"] == "two":
            reached = (result.runs.history.hypervolume >= 1000.0).any(axis=1)
            assert study().success(i)["success"] == reached.mean()
    assert sum(study().success(i)["success"] for i in range(2)) > 0


@pytest.mark.slow
def test_a_saved_comparison_of_fronts_is_loaded_as_it_was(tmp_path):
    files = {f.name for f in study().save(tmp_path).iterdir()}
    assert {"convergence.png", "ecdf.png", "report.html", "summary.md"} <= files
    loaded = gx.load(tmp_path)
    assert loaded.summary() == study().summary() and loaded.rows() == study().rows()
    for mine, theirs in zip(loaded.results, study().results, strict=True):
        for part in ("X", "F", "CV", "hypervolume", "x", "fun"):
            np.testing.assert_array_equal(mine[part], theirs[part])
        for one, other in zip(mine.runs.fronts, theirs.runs.fronts, strict=True):
            np.testing.assert_array_equal(one.F, other.F)
        np.testing.assert_array_equal(mine.history.hypervolume, theirs.history.hypervolume)
    assert summary_tables.markdown(loaded) == summary_tables.markdown(study())
    with (tmp_path / "curves.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["algorithm"] == "npga" and row["problem"] == "two"]
    history = study().cell(problem="two", algorithm="npga").runs.history.hypervolume
    assert [float(row["mean"]) for row in rows] == pytest.approx(history.mean(axis=0).tolist(), rel=1e-6)
    assert float(rows[-1]["best"]) >= float(rows[-1]["worst"])


@pytest.mark.slow
def test_pictures_of_a_comparison_say_what_is_measured():
    labels = [axes.get_ylabel() for axes in plots.study_convergence(study()).axes]
    assert labels[0] == "hypervolume below the best found"  # the twin has no known one
    assert plots.running_times(study()).axes[0].get_title(loc="left") == "2 problems, 51 targets each"


@pytest.mark.slow
def test_a_sweep_over_three_objectives_measures_fronts_by_generation(tmp_path):
    swept = gx.sweep(
        THREE, gx.SharingMOEA(population=N), radius=[0.3, 0.9], runs=2, max_evaluations=BUDGET, keep=gx.Keep(archive=20)
    )
    for _, result in swept:
        own = [indicators.volume(front.F, np.array(THREE.reference_point)) for front in result.runs.fronts]
        np.testing.assert_allclose(scores(result), [-v for v in own], rtol=1e-5)
        assert result.hypervolume == -scores(result).min() > 0
        assert result.settings["archive"] == 20 and max(len(front) for front in result.runs.fronts) <= 20
        assert has_curves(result) and curves(result).shape[0] == 2
    assert "Hypervolume" in summary_tables.build_tables(swept)[0].note
    assert curve_rows(swept)
    loaded = gx.load(swept.save(tmp_path))
    assert loaded.summary() == swept.summary()


@pytest.mark.parametrize(
    ("study", "why"),
    [
        (lambda: gx.compare([TWO], ["nsga2", "de"]), "returns 2 numbers.*DE minimises one"),
        (lambda: gx.compare(["ackley", "zdt1"], ["de"]), "returns 2 numbers.*DE minimises one"),
        (lambda: gx.compare(["zdt1", "ackley"], ["nsga2"]), "returns one number and NSGA2 is for several"),
        (lambda: gx.compare([TWO.with_(reference_point=None)], ["nsga2"]), "no reference_point.*with_"),
        (lambda: gx.sweep(TWO.with_(reference_point=None), gx.NSGA2, crossover_rate=[0.5, 0.9]), "no reference_point"),
        (lambda: gx.sweep(TWO, gx.DE, weight=[0.5, 0.9]), "returns 2 numbers.*DE minimises one"),
        (lambda: gx.sweep(gx.problems.get("ackley"), gx.NPGA, radius=[0.5, 0.9]), "NPGA is for several"),
        (
            lambda: gx.sweep(gx.problems.get("ackley"), gx.DE, weight=[0.5, 0.9], keep=gx.Keep(archive=5)),
            "archive applies to several",
        ),
        (lambda: gx.compare([THREE], ["nsga2"], within=0.1), "with_.hypervolume="),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(study, why):
    with pytest.raises(gx.InputError, match=f"(?s){why}"):
        study()


def test_a_distance_to_the_known_hypervolume_is_a_target():
    from galapax.api.experiments import _target

    assert _target(TWO, 700.0) == 2000.0 and _target(TWO, {"two": 5.0}) == 5.0
