"""Names and labels in saved files: any text comes back as it was, and none is a formula."""

import contextlib
import csv
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import params
from support.saved_runs import is_same, random_run, random_study, with_labels

import galapax as gx
from galapax.core import checks
from galapax.storage import atomic, export
from galapax.view import accessor

OLD, NEW = random_run(1), random_run(2, runs=3)


NAMES = ["US$ {net vs AU$", "$\\frac{1}$", "a\rb", "a\nb", "\ud800", "=cmd|' /C calc'!A0", "<script>alert(1)</script>",
         "../../etc/passwd", "nul\x00", "\u202egnp.exe", "mean", "fun", "fun", "généré ✓", "x,y", '"quoted"', "'", "",
         "generation", "x" * 300, "_hidden", "%.17g", "{}", "\\", "#"]  # fmt: skip


@pytest.mark.parametrize(
    "name", params(NAMES, quick={"\"=cmd|' /C calc'!A0\"", "'\\u202egnp.exe'"}, ids=lambda name: ascii(name)[:30])
)
def test_any_text_is_a_name(name, tmp_path):
    about = {"name": name or "nameless", "title": name, "source": name, "variables": [name, name + "2", "c"],
             "objectives": [name, "other"], "constraint_names": [name, "c2"], "derived": None,
             "units": {name + "2": name}}  # fmt: skip
    run = random_run(4, runs=2, m=2, snapshots=True, **about)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the font may lack a letter
        warnings.filterwarnings("error", message=".*could not be drawn.*")
        run.save(tmp_path)
    loaded = gx.load(tmp_path)
    assert is_same(loaded, run) and loaded.problem.variables == run.problem.variable_names()
    for file in tmp_path.glob("*.csv"):
        with file.open(encoding="utf-8", newline="") as lines:
            header = next(csv.reader(lines))
        assert len(set(header)) == len(header) and not any(cell.lstrip().startswith(("=", "+", "@")) for cell in header)
    assert {f.name for f in tmp_path.iterdir()} <= {*atomic.ALL_FILE_NAMES, atomic.MANIFEST}
    assert "<script>alert(1)" not in (tmp_path / "report.html").read_text(encoding="utf-8")


HOSTILE = [["=x", "'=x", "''=x"], ["-1", "'-1", "1"], ["nan", "'nan", "inf", "-inf"], ["", "'", "''"], ["5", 5, "'5"],
           ["auto", 5, 10, 0.5, -1], [" =x", "' =x", "=x"], ['"', '""', ",", "a,b"], ["＝x", "'＝x"],
           ["@a", "+1", "'@a", "'+1"], ["1e3", 1000, "1000.0"], ["\u00a0=x", "'\u00a0=x"]]  # fmt: skip
texts = st.one_of(
    st.text(st.sampled_from("'=+-@ax1 ,\"\n＝"), max_size=4), st.text(max_size=6),
    st.sampled_from(["nan", "inf", "-inf", "'nan", "5", "0", "True"]), st.integers(-9, 9), st.floats(-9, 9),
)  # fmt: skip


def labelled(labels, **about):
    """A run with those labels; None where `choice` refuses them."""
    try:
        return with_labels(random_run(2, runs=2, snapshots=True, n=max(5, len(labels)), **about), *labels)
    except gx.InputError:
        return None


@contextlib.contextmanager
def fresh_folder():
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(accessor, "can_draw", lambda: False)
        yield Path(folder)


def check_labels(labels, **about):
    """Every label comes back from the folder of a run, and none looks like a formula in a table."""
    run = labelled(labels, **about)
    if run is None:
        return
    with fresh_folder() as folder:
        run.save(folder / "run")
        loaded = gx.load(folder / "run")
        assert is_same(loaded, run)
        files = export.write_csv_files(loaded, folder / "tables")
        export.write_json_file(loaded, folder / "all.json")
        data = json.loads((folder / "all.json").read_text())
        variable = run.problem.space.variables[1]
        expected = [variable.value(place) for place in run.population[:, 1]]
        assert list(data["population"].values())[1] == expected
        for file in files:
            with file.open(encoding="utf-8", newline="") as lines:
                rows = list(csv.reader(lines))
            cells = [cell for row in rows for cell in row if not is_number(cell)]
            assert not any(cell.lstrip().startswith(("=", "+", "-", "@", "＝")) for cell in cells), file
            if file.name == "population.csv" and all(isinstance(label, str) for label in variable.labels):
                assert [checks.from_csv(row[1]) for row in rows[1:]] == expected
    if not variable.numeric:
        for table in ("runs", "population"):
            frame = run.to_dataframe(table)
            places = run.runs.x if table == "runs" else run.population
            assert list(frame.iloc[:, -2 if table == "runs" else 1]) == [variable.value(p) for p in places[:, 1]]
            assert is_same(list(loaded.to_dataframe(table).iloc[:, 1]), list(frame.iloc[:, 1]))


def is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("labels", HOSTILE, ids=ascii)
def test_labels_that_look_alike_in_a_table_load_as_they_were(labels, m):
    check_labels(labels, m=m)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(texts, min_size=1, max_size=4), st.text(max_size=3))
def test_any_labels_load_as_they_were(labels, text):
    check_labels([text, *labels])


@given(st.text() | st.text(st.sampled_from("'=+-@ x\n")))
def test_a_cell_gives_the_text_back_and_is_no_formula(text):
    line = checks.clean_name(text, "a cell")
    assert checks.from_csv(checks.escape_csv(text)) == line
    assert not checks.escape_csv(text).lstrip().startswith(("=", "+", "-", "@"))


@pytest.mark.parametrize("name", ["=b", "fun", "generation", "'", "run"])
def test_labels_are_found_by_place_whatever_their_variable_is_called(name):
    check_labels(["=x", "'=x", "y"], variables=["a", name, "c"])


def test_a_missing_value_in_a_column_of_labels_stays_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(accessor, "can_draw", lambda: False)
    run = with_labels(random_run(1), "nan", "inf", "x")
    run.population[:4, 1] = np.nan, np.inf, -np.inf, 0
    run.save(tmp_path)
    assert is_same(gx.load(tmp_path), run)


def test_labels_that_are_the_same_on_one_line_are_refused():
    with pytest.raises(gx.InputError, match=r"'a\\nb' and 'a b', which are the same on one line of text"):
        gx.choice("a\nb", "a b")


def test_a_dollar_in_a_name_is_drawn_as_one():
    run = random_run(4, name="US$ {net vs AU$", variables=["a$", "b$", "c"])
    axes = run.plot.convergence().axes[0]
    assert axes.get_title(loc="left").startswith(r"US\$ {net vs AU\$")
    run.plot.parallel().canvas.draw()


def test_labels_of_a_study_are_safe_as_cells(tmp_path):
    of = random_study()
    of = gx.Study("comparison", {"problem": ["made"], "algorithm": ["=1+1", "US$ {a$"]},
                  [{"problem": "made", "algorithm": a} for a in ("=1+1", "US$ {a$")], of.results, [None, None],
                  "Done.")  # fmt: skip
    of.save(tmp_path)
    with (tmp_path / "summary.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["algorithm"] for row in rows] == ["'=1+1", "US$ {a$"]
    assert gx.load(tmp_path).axes == of.axes


@pytest.mark.parametrize("reserved", ["violation", "hypervolume", "feasible_share"])
@pytest.mark.parametrize("argument", ["variables", "objectives"])
def test_names_of_our_own_columns_are_refused_when_the_problem_is_made(reserved, argument):
    with pytest.raises(
        gx.InputError, match=f"{argument} has '{reserved}', which is a reserved column name in saved tables"
    ):
        gx.Problem(lambda x: x, gx.box(0, 1, 2), **{argument: [reserved, "b"]})


@pytest.mark.parametrize(
    "about",
    [{"variables": [1, 2]}, {"name": 5}, {"title": b"bytes"}, {"source": None}, {"objectives": ["a", None]},
     {"constraint_names": [0.5]}, {"units": {"x1": 3}}, {"derived": {3: abs}}],
    ids=str,
)  # fmt: skip
def test_a_name_that_is_no_text_is_refused_when_the_problem_is_made(about):
    with pytest.raises(gx.InputError, match="must be text, got "):
        gx.Problem(lambda x: x[0], gx.box(0, 1, 2), **about)


@pytest.mark.parametrize("about", [{"name": 5}, {"title": 5}])
def test_a_min_max_problem_takes_text_for_names_too(about):
    with pytest.raises(gx.InputError, match="must be text, got 5"):
        gx.MinMaxProblem(lambda x, y: x[0], gx.box(0, 1, 2), gx.box(0, 1, 2), **about)
