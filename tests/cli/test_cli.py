"""The command line does what the library does, and says clearly what it cannot do."""

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from support.cases import params
from support.paths import ROOT
from typer.testing import CliRunner

import galapax as gx
from galapax import algorithms
from galapax.__main__ import main
from galapax.api.minimax import default_coevolution
from galapax.cli import app as cli
from galapax.cli import output
from galapax.cli.app import app
from galapax.core.options import GROUPS, LEAVES, Options
from galapax.core.stop import Stop
from galapax.execution.observers import observers
from galapax.execution.task import prepare_task, resolve_options
from galapax.numerics import disk_cache


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("GALAPAX_CACHE", "off")


def call(*arguments: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(app, list(arguments))
    return outcome.exit_code, outcome.output


def test_solve_prints_the_answer_and_saves_the_run(tmp_path):
    code, text = call("solve", str(ROOT / "examples" / "spring.py"), "-g", "300", "--out", str(tmp_path / "run"))
    assert code == 0
    for part in ("Tension/compression spring", "0.012665", "wire diameter", "shear stress", "active", "slack"):
        assert part in text
    files = {f.name for f in (tmp_path / "run").iterdir()}
    assert files == {
        "result.json",
        "arrays.npz",
        "history.csv",
        "population.csv",
        "convergence.png",
        "report.html",
        "manifest.json",
    }
    assert (tmp_path / "run" / "convergence.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Tension/compression spring" in page and "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")  # nothing is fetched from anywhere
    assert gx.load(tmp_path / "run").fun == pytest.approx(0.0126652327883, rel=1e-6)


def test_minima_lists_them_all_and_saves_them(tmp_path):
    code, text = call("minima", "branin", "--seed", "3", "--global-only", "--out", str(tmp_path / "run"))
    assert code == 0 and "Found 3 minima" in text and text.count("0.397887") == 3
    saved = gx.load(tmp_path / "run")
    assert len(saved.minima) == 3 and saved.command == "galapax minima branin --global-only --seed 3"
    assert "<h2" in (page := (tmp_path / "run" / "report.html").read_text(encoding="utf-8")) and "Minima" in page
    assert call("view", str(tmp_path / "run"))[1].count("0.397887") == 3
    code, text = call("minima", "branin", "--runs", "2", "--max-evaluations", "500", "--unseen", "0", "--json")
    assert code == 0 and 1000 - 2 * 15 < json.loads(text)["nfev"] <= 1000  # a sample of the basins takes 15
    assert call("minima", "branin", "--unseen", "2") == (2, "galapax: unseen must lie between 0 and 1, got 2.\n")


def test_the_table_of_minima_has_as_many_variables_as_fit_and_says_how_many_are_missing(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, text = call("minima", "ackley", "--max-evaluations", "3000")
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "value" in line)
    head, best = lines[at], lines[at + 2]
    assert head.split()[:4] == ["value", "share", "found", "x1"] and "…" not in head and "…" not in best
    n_shown = head.split()[-1].removeprefix("x")
    assert f"{10 - int(n_shown)} more variables in --json" in text
    assert "more variable" not in call("minima", "branin", "--max-evaluations", "3000")[1]


def test_minima_of_several_objectives_are_refused_without_naming_an_option_that_it_lacks():
    code, text = call("minima", "zdt1")
    text = " ".join(text.split())
    assert code == 2 and "minima takes one objective, and fun of 'zdt1' returns 2 numbers" in text
    assert "nsga2" not in text


def test_illuminate_takes_measures_from_a_file_and_saves_the_map(tmp_path):
    file = tmp_path / "beams.py"
    file.write_text("fun = lambda x: x[0]**2\nbounds = [(-1, 1)] * 2\nmeasures = lambda x: x\nranges = bounds\n")
    options = ("--cells", "6,5", "-g", "20", "--checkpoint", str(tmp_path / "file"), "--out", str(tmp_path / "run"))
    code, text = call("illuminate", str(file), "-a", "map_elites", *options)
    assert code == 0 and "30 of 30 cells have an elite" in text
    assert (tmp_path / "run" / "elites.png").read_bytes()[:4] == b"\x89PNG"
    assert gx.Illumination(gx.load(tmp_path / "run")).cells == (6, 5)
    code, text = call("resume", str(tmp_path / "file"), str(file))
    assert code == 2 and "repeat the command that wrote it, with --resume" in " ".join(text.split())
    code, text = call("illuminate", "branin")
    assert code == 2 and "takes FILE.py, which defines `fun`, `bounds`, `measures`" in " ".join(text.split())
    file.write_text("fun, bounds = abs, [(-1, 1)]\n")
    assert "does not define measures, ranges" in " ".join(call("illuminate", str(file))[1].split())


def test_a_sweep_takes_a_distance_and_workers():
    settings = ("-a", "de", "--set", "weight=0.5,0.7", "-g", "20", "--runs", "2", "--json")
    code, text = call("sweep", "branin", *settings, "--within", "0.1")
    targets = gx.problems.get("branin").optimum + 0.1
    assert code == 0 and json.loads(text)["targets"] == [targets] * 2
    code, text = call("sweep", "branin", *settings, "--within", "0.1", "--target", "1")
    assert code == 2 and "give one of them" in " ".join(text.split())
    assert call("sweep", "branin", *settings, "--workers", "0")[0] == 2


@pytest.mark.slow
def test_solve_equals_minimize():
    settings = ("--json", "-g", "40", "-n", "12", "-s", "weight=0.7", "--seed", "5", "--no-polish")
    code, text = call("solve", "branin", "-a", "de", *settings)
    assert code == 0
    expected = gx.minimize(
        gx.problems.get("branin"), gx.DE(population=12, weight=0.7), generations=40, seed=5, polish=False
    )
    assert json.loads(text)["fun"] == expected.fun
    assert json.loads(text)["x"] == expected.x.tolist()


def test_solve_takes_every_option_of_minimize():
    options = set(signature(gx.minimize).parameters) - set(GROUPS) | {
        name for name, leaf in LEAVES.items() if leaf.group
    }
    # the problem itself, and what is a Python object
    given_otherwise = {"fun", "bounds", "ineq", "eq", "eq_tolerance", "callback", "progress", "memoize", "asynchronous"}
    assert options - given_otherwise <= set(signature(app.registered_commands[0].callback).parameters)


def test_set_chooses_the_mutation_by_name():
    code, text = call("solve", "sphere", "-a", "de", "--dim", "3", "--json", "-g", "20", "-s", "mutation=best_1")
    assert code == 0
    assert json.loads(text)["settings"]["hyperparameters"]["mutation"] == "best_1"


@pytest.mark.slow
def test_ensembles_show_how_the_runs_spread():
    code, text = call("solve", "branin", "--runs", "20", "-g", "60", "-n", "20", "--target", "0.3979")
    assert code == 0
    assert "over 20 runs" in text and "median" in text and "evaluations per success" in text


def test_only_what_was_found_gets_a_tick():
    shown = ("solve", "branin", "-a", "de", "-n", "20")
    code, text = call(*shown, "-g", "5")
    assert code == 0 and "• Stopped: generation limit (5) reached." in text and "✓" not in text and "✗" not in text
    code, text = call(*shown, "-g", "5", "--target", "-1")
    assert code == 1 and "✗ Stopped: generation limit (5) reached. The target was not reached." in text
    code, text = call(*shown, "--target", "0.5")
    assert code == 0 and "✓ Target reached" in text
    code, text = call(*shown, "--tolerance", "1e-3")
    assert code == 0 and "✓ Converged" in text


@pytest.mark.slow
def test_runs_that_nothing_judges_are_not_called_successful():
    shown = ("solve", "branin", "-a", "de", "-n", "20", "--runs", "3")
    code, text = call(*shown, "-g", "5")
    assert code == 0 and "median" in text and "successful" not in text and "success" not in text
    code, text = call(*shown, "--tolerance", "1e-3")
    assert code == 0 and "converged" in text and "100.0%" in text and "per success" not in text


@pytest.mark.slow
def test_file_with_fun_and_bounds(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("bounds = [(-1, 2)] * 2\ndef fun(x):\n    return ((x - 0.5) ** 2).sum()\n")
    code, text = call("solve", str(file), "--json", "-g", "60", "-n", "20")
    assert code == 0 and json.loads(text)["fun"] < 1e-8


@pytest.mark.slow
def test_quiet_prints_nothing():
    assert call("solve", "branin", "-g", "5", "-q") == (0, "")


def test_searches_by_models_are_solvers_in_the_shell_too():
    code, text = call("solve", "branin", "-a", "ModelSearch", "--max-evaluations", "40", "--json")
    assert code == 0 and json.loads(text)["settings"]["algorithm"] == "model_search"


def test_list_names_every_algorithm_and_problem():
    code, text = call("list", "--json")
    assert code == 0
    names = set(text.split('"'))
    every_algorithm = gx.algorithms.ALGORITHMS | gx.algorithms.MODEL_ALGORITHMS
    assert set(every_algorithm) | set(gx.problems.PROBLEMS) <= names
    code, text = call("list", "problems")
    assert code == 0 and "rastrigin" in text and "-6961.814" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("solve", "rastrgin"), "did you mean rastrigin"),
        (("solve", "sphere", "-a", "ed"), "no algorithm called 'ed'"),
        (("solve", "nowhere.py"), "File not found"),
        (("solve", "sphere", "-s", "weight=1"), "NAME one of population, samples, sigma0"),
        (("solve", "sphere", "-s", "sigma0=wide"), "--set sigma0 takes a number"),
        (("solve", "sphere", "-a", "de", "-s", "wieght=1"), "NAME one of population, mutation, weight"),
        (("solve", "sphere", "-a", "de", "-s", "mutation=none"), "rand_1 or best_1"),
        (("solve", "branin", "--dim", "3"), "dim"),
        (("sweep", "cde_p1", "--set", "fr=1,2"), "min-max"),
        (("solve", "zdt1", "-a", "de"), "minimises one"),
        (("solve", "sphere", "-a", "nsga2"), "for several objectives"),
        (("solve", "sphere", "-g", "0"), "generations must be at least 1"),
        (("list", "everything"), "algorithms, problems or all"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments, message):
    code, text = call(*arguments)
    assert code == 2
    assert message in " ".join(text.split())
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\n", "neither `problem`"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError"),
        ("fun = 3\nbounds = [(0, 1)]\n", "fun must be a function"),
    ],
)
def test_files_that_define_no_problem(tmp_path, code, message):
    file = tmp_path / "broken.py"
    file.write_text(code)
    status, text = call("solve", str(file))
    assert status == 2 and message in " ".join(text.split())


def tiny(**changes) -> gx.Result:
    """What `minimize` could have returned, without running anything."""
    settings = {"target": None, "maximize": False, "runs": 1, "first_run": 0}
    usual = {"feasible": True, "success": True, "violation": 0.0, "message": "Stopped: generation limit (5) reached."}
    return gx.Result({**usual, **changes, "settings": {**settings, **changes.get("settings", {})}})


@pytest.fixture
def not_run(monkeypatch):
    """Whoever runs anything fails the test."""

    def run(*_, **__):
        raise AssertionError("this was to be refused before anything is computed")

    for verb in ("minimize", "minimax", "run_sweep", "run_compare"):
        monkeypatch.setattr(cli, verb, run)


@pytest.fixture
def asked(monkeypatch):
    """The options with which the library was called; it runs nothing."""
    options = {}

    def note(problem, **given):
        options.update(given)
        raise gx.InputError("noted")

    monkeypatch.setattr(cli, "minimize", note)
    monkeypatch.setattr(cli, "minimax", note)
    return options


# --- suites -----------------------------------------------------------------------------------------------------------


def test_compare_takes_a_suite(monkeypatch):
    calls, names = [], []

    def note(chosen, algorithms, **given):
        names.append([type(algorithm).__name__ for algorithm in algorithms])
        calls.append(([problem.name for problem in chosen], {problem.dim for problem in chosen}, given["within"]))
        raise gx.InputError("noted")

    monkeypatch.setattr(cli, "run_compare", note)
    call("compare", "--suite", "bbob")
    call("compare", "--suite", "bbob", "--dim", "3", "--instance", "2", "-a", "de", "--within", "0.1")
    assert calls == [
        ([f"bbob_f{i}_i1" for i in range(1, 25)], {10}, 1e-8),
        ([f"bbob_f{i}_i2" for i in range(1, 25)], {3}, 0.1),
    ]
    assert names == [["CMAES", "LSHADE", "EpsilonDE", "DE"], ["DE"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--suite", "bob"), "There is no suite called 'bob'; did you mean bbob?"),
        (("--suite", "bbob", "-p", "ackley"), "give --problems or --suite, not both"),
        (("--suite", "bbob", "--dim", "1"), "dim must be at least 2"),
        (("-p", "ackley", "--target", "3"), "use --within DISTANCE"),
        (("-p", "ackley", "--instance", "3"), "--instance applies only with --suite"),
        ((), "compare needs problems"),
    ],
)
def test_a_suite_that_cannot_be_had_is_refused(not_run, arguments, message):
    code, said = call("compare", "-a", "de", *arguments)
    assert code == 2 and message in " ".join(said.split())


def test_named_problems_are_not_compared_without_algorithms(not_run):
    code, said = call("compare", "-p", "ackley")
    assert code == 2 and "compare needs algorithms: --algorithms de,ga." in said


def test_what_cannot_be_printed_is_saved(monkeypatch, tmp_path):
    def broken(outcome, **_):
        raise gx.InputError("no table")

    monkeypatch.setattr(output.terminal, "result_table", broken)
    code, said = call("solve", "branin", "-a", "de", "-g", "2", "--out", str(tmp_path / "run"))
    assert code == 2 and "no table" in said and gx.load(tmp_path / "run").nit == 2


@pytest.mark.slow
def test_compare_runs_a_suite():
    code, said = call("compare", "--suite", "bbob", "--dim", "2", "-a", "random", "-r", "2", "--max-evaluations", "200")
    assert code == 1, "no run of random search comes within 1e-8"
    assert "bbob_f1_i1" in said and "bbob_f24_i1" in said


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "setting", "expected"),
    [
        ("sphere", "sigma0=0.3", gx.CMAES(sigma0=0.3)),
        ("g07", "weight=0.7", gx.EpsilonDE(weight=0.7)),
        ("g07", "population=64", gx.EpsilonDE(population=64)),
        ("g07", "patience=300", gx.EpsilonDE(patience=300.0)),
        ("zdt1", "population=64", gx.NSGA2(population=64)),
        ("zdt1", "differences=0.5", gx.NSGA2(differences=0.5)),
    ],
)
def test_a_setting_belongs_to_the_default_algorithm_of_the_problem(problem, setting, expected, asked):
    assert "noted" in call("solve", problem, "--set", setting)[1]
    assert asked["algorithm"] == expected


def test_a_setting_of_a_min_max_problem_belongs_to_its_coevolution(asked):
    assert "noted" in call("solve", "minmax_saddle", "--set", "weight=0.6")[1]
    assert asked["algorithm"] == dataclasses.replace(default_coevolution(gx.problems.get("minmax_saddle")), weight=0.6)


@pytest.mark.parametrize("text", ["game=3", "arena=1", "several_objectives=true", "population", "=3", "", "weight"])
def test_what_is_no_hyperparameter_is_not_set(text, not_run):
    code, said = call("solve", "g07", "-a", "cde", "--set", text)
    assert code == 2 and "--set takes NAME=VALUE with NAME one of population, mutation" in " ".join(said.split())
    assert "game" not in said.split("got")[0]


def test_operators_that_have_no_name_are_not_set_from_the_shell(not_run):
    code, said = call("solve", "zdt1", "-a", "nsga2", "--set", "crossover=rand_1")
    assert code == 2 and "NAME one of population, crossover_rate" in " ".join(said.split())
    assert " mutation," not in " ".join(said.split())


@pytest.mark.parametrize(
    ("algorithm", "text", "message"),
    [
        ("de", "weight=", "--set weight takes a number; got ''"),
        ("de", "population=6.5", "--set population takes a whole number; got '6.5'"),
        ("de", "mutation=sum", "--set mutation takes rand_1 or best_1"),
        ("ga", "bounds_at_start_only=1", "takes true or false; got '1'"),
        ("de", "population=8", "give --population or --set population=, not both"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(algorithm, text, message, not_run):
    code, said = call("solve", "sphere", "-a", algorithm, "--set", text, "-n", "8")
    assert code == 2 and message in " ".join(said.split())


# --- options that do not fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    ["--maximize", "--choose knee", "--vectorized", "--blackbox", "--workers 2", "--archive 9",
     "--x0 points.csv", "--history-x", "--snapshots 1", "--target 0", "--patience 5", "--max-evaluations 100"],
)  # fmt: skip
def test_options_that_minimax_does_not_take_are_refused(given, not_run):
    code, said = call("solve", "minmax_saddle", *given.split())
    assert code == 2
    assert f"{given.split()[0]} does not apply to min-max problems such as minmax_saddle" in " ".join(said.split())


def test_options_that_minimax_takes_reach_it(asked):
    call("solve", "minmax_saddle", "--no-history", "-g", "7", "-n", "9", "-r", "2", "--dtype", "float32")
    told = {name: asked[name] for name in ("generations", "population", "runs", "keep", "compute")}
    assert told == {
        "generations": 7,
        "population": 9,
        "runs": 2,
        "keep": gx.Keep(history=False),
        "compute": gx.Compute(dtype="float32"),
    }


@pytest.mark.parametrize(
    ("problem", "choice", "message"),
    [
        ("branin", "knee", "has one: remove it"),
        ("zdt1", "elbow", "--choose takes knee, ideal or 2 weights"),
        ("zdt1", "1,2,3", "--choose takes knee, ideal or 2 weights"),
        ("zdt1", "0,0", "not all 0"),
        ("zdt1", "nan,1", "2 weights"),
        ("dtlz2", "1,2", "--choose takes knee, ideal or 3 weights"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused_before_the_run(problem, choice, message, not_run):
    code, said = call("solve", problem, "--choose", choice)
    assert code == 2 and message in " ".join(said.split())


def test_of_a_black_box_without_names_the_word_of_a_choice_is_checked_at_least(tmp_path, not_run):
    (tmp_path / "mine.py").write_text("bounds = [(-1, 2)]\ndef fun(x):\n    return [x[0], -x[0]]\n")
    code, said = call("solve", str(tmp_path / "mine.py"), "--blackbox", "-a", "nsga2", "--choose", "elbow")
    assert code == 2 and "one weight per objective" in " ".join(said.split())


# --- folders ----------------------------------------------------------------------------------------------------------

COMMANDS = (("solve", "branin"), ("sweep", "ackley", "-s", "fr=1,2"), ("compare", "-p", "ackley", "-a", "de,ga"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_cannot_be_written_is_refused_before_the_run(command, tmp_path, not_run):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/x"), tmp_path / ("x" * 300)):
        code, said = call(*command, "--out", str(folder))
        assert code == 2 and "--out needs a writable folder" in " ".join(said.split())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["result.json", "study.json", "thesis.tex"])
def test_a_folder_that_is_not_empty_is_refused_before_the_run(command, name, tmp_path, not_run):
    (tmp_path / name).write_text("{}")
    code, said = call(*command, "--out", str(tmp_path))
    said = " ".join(said.split())
    assert code == 2 and name in said and "another folder" in said and "--force" in said
    assert ("saved run" in said) == name.endswith(".json")


@pytest.mark.slow
def test_force_replaces_a_saved_run_and_leaves_other_files(tmp_path):
    folder = tmp_path / "new" / "run"
    solve = ("solve", "branin", "-n", "6", "-q", "-o", str(folder))
    assert call(*solve, "-g", "3") == (0, "")
    (folder / "notes.txt").write_text("mine")
    assert call(*solve, "-g", "4")[0] == 2 and gx.load(folder).nit == 3
    assert call(*solve, "-g", "4", "--force") == (0, "")
    assert gx.load(folder).nit == 4 and (folder / "notes.txt").read_text() == "mine"


def test_looking_whether_a_folder_can_be_written_leaves_nothing_behind(tmp_path):
    output.check_folder(tmp_path / "a" / "b", force=False)
    output.check_folder(tmp_path, force=False)
    assert not list(tmp_path.iterdir())


# --- exit codes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (tiny(), 0),
        (tiny(success=False), 0),
        (tiny(success=False, message="Stopped: time limit (1 s) reached after generation 3."), 0),
        (tiny(settings={"target": 1.0}), 0),
        (tiny(settings={"target": 1.0}, success=False), 1),
        (tiny(feasible=False, violation=0.3, success=False), 1),
        (tiny(feasible=False, violation=float("inf"), success=False), 1),
        (tiny(success=False, stop=Stop.INTERRUPT), 130),
        (tiny(success=False, stop="interrupt", feasible=False), 130),
        (tiny(stop=Stop.TARGET), 0),
    ],
)
def test_the_exit_code_says_how_a_run_ended(result, code):
    assert output.exit_code(result) == code


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([tiny(), tiny(feasible=False, violation=0.1)], 0),
        ([tiny(feasible=False, violation=0.1)] * 2, 1),
        ([tiny(), tiny(feasible=False, violation=float("inf"))], 1),
        ([tiny(), tiny(stop="interrupt")], 130),
    ],
)
def test_the_exit_code_says_how_a_study_ended(results, code):
    study = gx.Study("sweep", {"fr": [1, 2]}, [{"fr": 1}, {"fr": 2}], results, [None, None], "")
    assert output.exit_code(study) == code


def test_runs_end_with_the_code_of_how_they_ended(tmp_path):
    branin = ("solve", "branin", "-n", "6", "-g", "3")
    code, said = call(*branin, "--target", "0.1", "-o", str(tmp_path / "run"))
    assert code == 1 and "target was not reached" in said and gx.load(tmp_path / "run").nit == 3
    file = tmp_path / "fails.py"
    file.write_text("bounds = [(-1, 2)]\ndef fun(x):\n    return float('nan') if x[0] > 0 else 1.0\n")
    code, said = call("solve", str(file), "--blackbox", "--on-failure", "raise", "-g", "3")
    assert code == 1 and "galapax: fun returned nan, at x = [" in said and "Traceback" not in said


@pytest.mark.slow
def test_a_file_is_solved_by_workers(tmp_path):
    file = tmp_path / "simulator.py"
    file.write_text(
        "bounds = [(-1, 2)] * 2\ndef fun(x):\n    if x[0] > 1.5:\n        raise ValueError('no mesh')\n"
        "    return float((x**2).sum())\n"
    )
    asked = ("solve", str(file), "-a", "random", "-n", "30", "-g", "2", "--retries", "1")
    code, said = call(
        *asked, "--workers", "1", "--timeout", "60", "--workers-timeout", "90", "-o", str(tmp_path / "run")
    )
    run = gx.load(tmp_path / "run")
    assert code == 0 and "failed: fun raised ValueError: no mesh, at x = [" in said
    assert 0 < run.n_failed < run.nfev == 60 and run.settings["workers"] == 1 and run.settings["timeout"] == 60.0
    assert run.settings["workers_timeout"] == 90.0 and call(*asked, "--workers-timeout", "soon")[0] == 2
    assert call(*asked, "--timeout", "1")[0] == 2  # nobody could end it


@pytest.mark.slow
def test_an_interrupted_run_is_shown_and_saved(tmp_path, monkeypatch):
    def interrupted(problem, **options):
        result = gx.minimize(gx.problems.get("branin"), population=6, generations=3, polish=False)
        result.success, result.stop = False, Stop.INTERRUPT
        result.message = "Stopped by Ctrl-C after generation 3; this is the best result so far."
        return result

    monkeypatch.setattr(cli, "minimize", interrupted)
    code, said = call("solve", "branin", "-o", str(tmp_path / "run"))
    assert code == 130 and "best result so far" in said
    assert gx.load(tmp_path / "run").nit == 3


def test_ctrl_c_before_there_is_a_result_is_one_line(monkeypatch):
    def pressed(*_, **__):
        raise KeyboardInterrupt

    for verb, command in zip(("minimize", "run_sweep", "run_compare"), COMMANDS, strict=True):
        monkeypatch.setattr(cli, verb, pressed)
        code, said = call(*command)
        assert code == 130 and said == "galapax: stopped by Ctrl-C before a result was available.\n"


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
@pytest.mark.usefixtures("ctrl_c_raises")
def test_ctrl_c_while_the_command_loads_is_one_line(tmp_path):
    """JAX, which takes longest to load, is one here that never comes to an end."""
    (tmp_path / "jax").mkdir()
    ready = tmp_path / "ready"
    (tmp_path / "jax" / "__init__.py").write_text(f"import time\nopen({str(ready)!r}, 'w')\ntime.sleep(120)")
    found = os.pathsep.join([str(tmp_path), str(Path(gx.__file__).parents[1])])
    command = [sys.executable, "-m", "galapax", "list"]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": found}, stderr=subprocess.PIPE, text=True)
    while not ready.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert said == "galapax: stopped by Ctrl-C before a result was available.\n" and process.returncode == 130


@pytest.mark.parametrize("code", [0, 2, 130])
def test_the_command_waits_for_nobody_after_ctrl_c(monkeypatch, code):
    """Threads that still compile would crash an orderly end."""
    left = []
    monkeypatch.setattr(cli, "app", lambda: sys.exit(code))
    monkeypatch.setattr(os, "_exit", left.append)
    with pytest.raises(SystemExit) if code != 130 else nullcontext():
        main()
    assert left == ([130] if code == 130 else [])


def test_help_tells_the_exit_codes():
    code, said = call("solve", "--help")
    assert code == 0 and "130" in said and "Exit codes" in said


# --- odd values -------------------------------------------------------------------------------------------------------

ODD = ("", " ", "-1", "0", "nan", "inf", "1e400", "[/]", "[red]", "é☃", "a\0b", "9" * 30, "{}", "%s", ",", ":", "=")


OPTIONS = [
    "--algorithm", "--set", "--dim", "--generations", "--population", "--runs", "--seed", "--first-run", "--target",
     "--max-evaluations", "--max-seconds", "--patience", "--dtype", "--on-failure", "--snapshots", "--x0",
     "--archive", "--choose", "--gagpu-config", "--port", "--host",
]  # fmt: skip


@pytest.mark.parametrize("option", params(OPTIONS, quick={"--dim", "--first-run", "--patience", "--x0"}))
def test_odd_values_show_no_traceback(option, monkeypatch):
    monkeypatch.setattr(cli, "minimize", prepared)
    for value in ODD:
        outcome = CliRunner().invoke(app, ["solve", "ackley", "-q", option, value])
        assert outcome.exit_code in (0, 2), (value, outcome.exception)
        assert outcome.exception is None or isinstance(outcome.exception, SystemExit), (value, outcome.exception)


def prepared(problem, *, algorithm, progress, live, checkpoint, resume, **arguments):
    """As `minimize`, but for the run itself."""
    observers(None, progress, live, checkpoint, resume)
    solver = gx.DE() if algorithm is None else algorithms.resolve_algorithm(algorithm)
    options = resolve_options(problem, Options.parse(arguments | {"restarts": None}))
    population = options.population
    prepare_task(
        problem, (solver if population is None else dataclasses.replace(solver, population=population),), options
    )
    return tiny(x=np.zeros(2), fun=0.0)


@pytest.mark.parametrize("value", params([v for v in ODD if v.strip()], quick={"nan", "é☃", "a\0b", ":", "="}))
def test_odd_names_show_no_traceback(value):
    for arguments in (("solve", value), ("sweep", value, "-s", "fr=1"), ("compare", "-p", value, "-a", value),
                      ("view", value), ("list", value), ("reproduce", value)):  # fmt: skip
        outcome = CliRunner().invoke(app, list(arguments))
        assert outcome.exit_code == 2 and isinstance(outcome.exception, SystemExit), (arguments, outcome.exception)


def test_brackets_of_the_user_are_shown_as_they_are(not_run):
    assert "not found: [/]." in call("solve", "[/]")[1] and "'[red]'" in call("list", "[red]")[1]


@pytest.mark.slow
def test_module_and_cache_on_disk(tmp_path):
    """`python -m galapax`, twice in fresh processes: the second finds what the first compiled."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    environment["GALAPAX_CACHE"] = str(tmp_path / "cache")
    command = [sys.executable, "-m", "galapax", "solve", "branin", "-g", "30", "--json"]

    def solve():
        out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        return json.loads(out)["fun"], {file.name for file in (tmp_path / "cache").rglob("*.program")}

    first, second = solve(), solve()
    assert first == second and first[1]


def test_cache_can_be_switched_off_and_moved(tmp_path, monkeypatch):
    assert disk_cache.default_folder() is None
    monkeypatch.setenv("GALAPAX_CACHE", str(tmp_path))
    assert disk_cache.default_folder() == tmp_path
    monkeypatch.delenv("GALAPAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert disk_cache.default_folder() == tmp_path / "galapax" / "compiled"
    (tmp_path / "file").write_text("")
    assert disk_cache.enable(tmp_path / "file" / "below") is None


@pytest.mark.slow
def test_importing_galapax_imports_nothing_heavy():
    """The core needs jax, numpy and scipy alone, and switches nothing in JAX."""
    code = (
        "import sys, jax; before = dict(jax.config.values); import galapax; "
        "assert dict(jax.config.values) == before; "
        "heavy = {'typer', 'rich', 'matplotlib', 'PIL', 'plotly', 'torch', 'cupy'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version():
    code, said = call("--version")
    assert code == 0 and said.startswith(f"galapax {gx.__version__}, jax ")


def test_compare_takes_the_size_of_named_problems(monkeypatch):
    sizes = []

    def note(chosen, algorithms, **given):
        sizes.extend(problem.dim for problem in chosen)
        raise gx.InputError("noted")

    monkeypatch.setattr(cli, "run_compare", note)
    call("compare", "-p", "sphere,ackley", "--dim", "4", "-a", "de,ga")
    assert sizes == [4, 4]


def test_within_is_a_distance_from_the_best_known_value(monkeypatch):
    asked = []

    def note(problem, **given):
        asked.append(given["target"])
        raise gx.InputError("noted")

    monkeypatch.setattr(cli, "minimize", note)
    call("solve", "branin", "--within", "0.1")
    assert asked == [pytest.approx(gx.problems.get("branin").optimum + 0.1)]
    for arguments, message in (
        (("branin", "--within", "0.1", "--target", "1"), "give one of them"),
        (("g20", "--within", "1"), "g20 has none: use --target"),
        (("branin", "--within", "-1"), "greater than 0"),
    ):
        code, said = call("solve", *arguments)
        assert code == 2 and message in " ".join(said.split())


@pytest.mark.slow
def test_a_run_says_how_to_repeat_it_and_exports_its_answer(tmp_path):
    folder = tmp_path / "run"
    arguments = ["machines", "-a", "de", "--set", "weight=0.6", "-n", "10", "-g", "4", "-r", "2", "--no-polish"]
    _, said = call("solve", *arguments, "--json", "-o", str(folder))
    told = json.loads(said)
    words = told["command"].split()
    assert words[:3] == ["galapax", "solve", "machines"]
    long = {"-a": "--algorithm", "-n": "--population", "-g": "--generations", "-r": "--runs"}
    assert sorted(words[3:]) == sorted(long.get(word, word) for word in arguments[1:])
    assert len(told["runs"]["fun"]) == 2 and set(told["success_rate"]) == {"rate", "low", "high"}
    assert json.loads((folder / "result.json").read_text())["command"] == told["command"]
    assert "galapax solve machines" in (folder / "report.html").read_text()
    assert gx.load(folder).command == told["command"]
    again = json.loads(call(*shlex.split(told["command"])[1:], "--json")[1])
    assert again["runs"] == told["runs"]
    call("view", str(folder), "--export", "csv")
    answer = (folder / "answer.csv").read_text().splitlines()
    assert answer[0] == "name,value,unit" and answer[-1].split(",")[1] == str(told["params"]["x5"])


def test_a_comparison_is_resumed_from_its_checkpoint(tmp_path):
    command = ("compare", "-p", "branin,ackley", "-a", "random,de", "-r", "2", "--max-evaluations", "200", "--json")
    file = tmp_path / "comparison.ckpt"
    code, first = call(*command, "--checkpoint", file)
    assert code == 0 and file.exists()
    code, again = call(*command, "--checkpoint", file, "--resume")
    values = [[cell["median"] for cell in json.loads(text)["cells"]] for text in (first, again)]
    assert code == 0 and values[0] == values[1]
    code, said = call(*command, "--seed", "1", "--checkpoint", file, "--resume")  # the file is read
    assert code == 2 and "different" in said
    code, said = call(*command, "--resume")
    assert code == 2 and "--resume needs --checkpoint FILE" in said
