"""The benchmarks: one table names all scripts, and the harness that they share times and prints what it says."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import galapax as gx

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the benchmarks are part of the repository alone")
if BENCHMARKS.is_dir():
    sys.path.insert(0, str(BENCHMARKS))
    import harness
    import regression

    sys.path.remove(str(BENCHMARKS))

SCRIPTS = [file for file in sorted(BENCHMARKS.glob("*.py")) if "__main__" in file.read_text(encoding="utf-8")]


def read_table():
    """Of each script in benchmarks/README.md the pages that quote it."""
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(\1\.py\) \|(.*)\|$", text, re.MULTILINE)
    return {name: re.findall(r"\]\(\.\./([\w/.-]+)\)", cells) for name, cells in rows}


def test_the_table_has_exactly_the_scripts():
    assert sorted(read_table()) == [script.stem for script in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_pages_that_quote_a_script_name_it(script):
    for page in read_table()[script.stem]:
        assert f"benchmarks/{script.name}" in (ROOT / page).read_text(encoding="utf-8"), page


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_imports_only_names_that_are_there(script):
    """Scripts run for minutes and are not run here; what they import from galapax must not be gone."""
    for line in re.findall(r"^ *(from galapax[\w.]* import [\w, ]+)", script.read_text(encoding="utf-8"), re.MULTILINE):
        exec(line, {})


def test_calls_are_timed_after_one_that_is_not_counted_and_in_turn():
    calls = []
    timings = harness.time_alternately({name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}, 2)
    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert timings["a"].results == [3, 5] and timings["b"].results == [4, 6]
    timing = harness.Timing(9.0, [3.0, 1.0, 2.0], [0.0] * 3, ["x", "y", "z"])
    assert (timing.least, timing.median, timing.fastest) == (1.0, 2.0, "y")


def test_a_table_lines_up_and_is_markdown(capsys):
    table = harness.Table("row", "ms", widths=[6])
    table.add("first", "1.25")
    table.add("second")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines][1] == ["|", "------", "|", "--------:", "|"]
    assert len({len(line) for line in lines}) == 1 and lines[2] == "| first  |      1.25 |"


def test_the_parser_has_the_options_it_is_asked_for():
    options = harness.make_parser("What.", rounds=3, seed=1, only=True, settings=True).parse_args(["--set", "a=0.5"])
    assert (options.rounds, options.seed, options.only) == (3, 1, "")
    assert harness.parse_settings(options.set) == {"a": 0.5}
    assert harness.is_selected("CDE on g07", "cde") and not harness.is_selected("DE", "cde")
    with pytest.raises(SystemExit):
        harness.make_parser("What.").parse_args(["--rounds", "3"])


def test_regression_speaks_to_trees_that_group_options_and_to_those_that_do_not():
    wanted = {"generations": 5, "dtype": "float32", "history": False}
    grouped = regression.translate_options(gx, wanted)
    assert grouped == {"generations": 5, "compute": gx.Compute(dtype="float32"), "keep": gx.Keep(history=False),
                       "tolerance": 0, "polish": False}  # fmt: skip
    older = SimpleNamespace(minimize=lambda fun, bounds, generations=1, dtype=None, history=True: None)
    assert regression.translate_options(older, wanted) == wanted


def test_regression_rows_are_calls_of_this_tree():
    row = regression.list_rows(gpu=False)["DE 64 x 2, 30 runs"]
    assert regression.build_call({**row, "generations": 2, "runs": 2})() >= 0
