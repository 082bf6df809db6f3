"""What the command line says: the claims of its help, completion, and errors in the shell's words."""

import os
import re
import subprocess
import sys
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

import galapax as gx
from galapax import algorithms, papers, problems
from galapax.cli import output as errors
from galapax.cli import parsing
from galapax.cli import shell_options as options
from galapax.cli.app import app
from galapax.core.options import ENGINES, FAILURE_POLICIES, LEAVES, Options, Topology, group_arguments
from galapax.execution.task import MIN_DEFAULT_GENERATIONS
from galapax.results.front import ASK_USER, CHOICE_RULES

COMMANDS = typer.main.get_command(app).commands


def call(*arguments):
    outcome = CliRunner().invoke(app, list(map(str, arguments)))
    return outcome.exit_code, " ".join(outcome.output.split())


def help_of(command, name):
    (option,) = [p for p in COMMANDS[command].params if p.name == name]
    return option.help


# --- help -------------------------------------------------------------------------------------------------------------

CHOICES = {
    "engine": ENGINES,
    "dtype": ("float32", "float64"),
    "restarts": ("none", "auto", *algorithms.RESTARTS),
    "on_failure": FAILURE_POLICIES,
    "devices": ("all",),
}


@pytest.mark.parametrize("name", CHOICES)
def test_help_names_every_value_of_an_option_and_each_of_them_is_accepted(name):
    text = help_of("solve", name)
    for value in CHOICES[name]:
        assert re.search(rf"\b{value}\b", text), value
        if name == "restarts":
            algorithms.parse_restarts(parsing.parse_restarts(options.Arguments(restarts=value, algorithm="de"), "de"))
        else:
            Options.parse(group_arguments({name: value}))


@pytest.mark.parametrize(
    ("command", "name", "values"),
    [
        ("solve", "topology", get_args(Topology)),
        ("solve", "choose", (*CHOICE_RULES, ASK_USER)),
        ("view", "form", ("genome", "variables")),
        ("view", "export", ("csv", "json", "gagpu")),
        ("compare", "suite", tuple(problems.SUITES)),
    ],
)
def test_help_of_an_option_of_the_shell_names_its_values(command, name, values):
    assert all(re.search(rf"\b{value}\b", help_of(command, name)) for value in values)


def test_help_names_the_papers_and_the_lists():
    assert all(re.search(rf"\b{paper}\b", COMMANDS["reproduce"].params[0].help) for paper in papers.PAPERS)
    for what in ("algorithms", "problems", "all"):
        assert what in COMMANDS["list"].params[0].help and call("list", what, "--json")[0] == 0


def test_defaults_in_the_help_are_the_defaults():
    assert f"({MIN_DEFAULT_GENERATIONS};" in help_of("solve", "generations")
    assert f"Default: {Options().n_runs}." in help_of("solve", "runs")
    assert f"Default: {gx.Checkpoint.seconds:g}." in help_of("solve", "checkpoint_every")
    assert options.SUITE_ALGORITHMS in help_of("compare", "algorithm")
    (first, *_) = parsing.load_problems(None, "bbob", None, None)
    assert help_of("compare", "dim").endswith(f"Default with --suite: {first.dim}.")
    assert first.name == parsing.load_problems(None, "bbob", None, 1)[0].name
    assert help_of("compare", "instance").endswith("Default: 1.")


def test_every_option_has_help_and_a_heading():
    for command in ("solve", "sweep", "compare", "resume"):
        for option in COMMANDS[command].params:
            assert option.help or option.hidden or option.param_type_name == "argument", option.name
            if option.param_type_name == "option" and option.name != "help":
                assert option.rich_help_panel in options.PANEL_ORDER, option.name


def test_every_option_of_a_run_has_the_help_that_is_declared_with_it():
    for name in options.run_options():
        assert help_of("solve", name).startswith(LEAVES[name].spec.help)


def test_the_help_tells_every_exit_code():
    codes = {int(code) for code in re.findall(r"\b(\d+) (?=[a-zC])", options.EXIT_CODES)}
    assert codes == {0, errors.FAILED, errors.BAD_INPUT, errors.INTERRUPTED}


def test_examples_in_the_help_are_commands_that_parse(monkeypatch):
    """With nothing run."""
    seen = []
    monkeypatch.setattr("galapax.cli.app.run_sweep", lambda *_, **__: seen.append("sweep") or 1 / 0)
    monkeypatch.setattr("galapax.cli.app.run_compare", lambda *_, **__: seen.append("compare") or 1 / 0)
    for command in ("sweep", "compare"):
        for line in re.findall(r"galapax (\w+ .*)", COMMANDS[command].help):
            CliRunner().invoke(app, line.split())
            assert seen.pop() == command


# --- completion -------------------------------------------------------------------------------------------------------


def completed(words):
    """What the shell offers after these words."""
    environment = os.environ | {
        "_GALAPAX_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    program = "import sys; sys.argv = ['galapax']; from galapax.__main__ import main; main()"
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    return said.stdout.split()


def test_completion_can_be_installed():
    assert "--install-completion" in call("--help")[1]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("galapax solve rosenb", ["rosenbrock"]),
        ("galapax compare -a de,nsga", ["de,nsga2", "de,nsga3"]),
        ("galapax solve branin -a mod", ["model_search"]),
    ],
)
def test_names_of_problems_and_algorithms_are_completed(words, offered):
    assert completed(words) == offered


def test_names_are_completed_from_what_there_is(tmp_path, monkeypatch):
    assert options.complete_name("nsga", algorithms.ALGORITHMS) == ["nsga2", "nsga3"]
    assert options.complete_last_name("", ["b", "a"]) == ["a", "b"]
    (tmp_path / "beam.py").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "spring.py").touch()
    monkeypatch.chdir(tmp_path)
    assert sorted(options.list_python_files("b")) == ["beam.py", "models/"]
    assert options.list_python_files("models/s") == ["models/spring.py"]
    assert options.list_python_files("nowhere/s") == []


# --- the shell's words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        ("pass blackbox=True to run it", "pass --blackbox to run it"),
        ('pass on_failure="worst" to search', "pass --on-failure worst to search"),
        ("as in gx.Workers(4, timeout=30); write max_seconds.", "as in --workers 4 --timeout 30; write --max-seconds."),
        ("keep=gx.Keep(snapshots=[1, 10, 100])", "--snapshots 1,10,100"),
        ('keep=gx.Keep(history="x")', "--history-x"),
        ('write compute=gx.Compute(engine="fused")', "write --engine fused"),
        ("polish=False or restarts=None", "--no-polish or --restarts none"),
        ("runs=range(17, 20)", "--first-run 17 --runs 3"),
        ("give --population or --set population=8", "give --population or --set population=8"),
        ("resume=True, --resume", "--resume, --resume"),
        ("gx.DE(weight=0.5) has x_1=3 in /a/max_seconds.py", "gx.DE(weight=0.5) has x_1=3 in /a/max_seconds.py"),
    ],
)
def test_arguments_are_named_as_options(python, shell):
    assert errors.use_shell_words(python) == shell


@pytest.mark.parametrize("value", [True, False])
def test_switches_that_advice_may_name_exist(value):
    """What `use_shell_words` makes of a boolean is an option of `solve`, where the shell can say it at all."""
    words = {word for option in COMMANDS["solve"].params for word in (*option.opts, *option.secondary_opts)}
    switches = ("polish", "history") if not value else ("polish", "history", "blackbox", "vectorized", "maximize")
    for name in switches:
        assert errors.use_shell_words(f"{name}={value}") in words


def test_advice_of_a_command_is_in_the_shells_words(tmp_path):
    file = tmp_path / "numpy_only.py"
    file.write_text("import numpy as np\ndef fun(x):\n    return np.sin(x[0])\nbounds = [(-1, 1)]\n")
    code, said = call("solve", file)
    assert code == 2 and "--blackbox" in said and "blackbox=True" not in said
    assert said.endswith("numpy_only.py, line 3: return np.sin(x[0])")


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("x = 1\nraise ValueError('broken')\n", "broken.py, line 2: raise ValueError('broken')"),
        ("def fun(x)\n    return 0\n", "broken.py, line 1"),
        ("import jax.numpy as jnp\ndef fun(x):\n    y = x[0]\n    return y + undefined\nbounds = [(0, 1)]\n",
         "broken.py, line 4: return y + undefined"),
    ],
)  # fmt: skip
def test_an_error_in_a_users_file_names_file_and_line(code, place, tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(code)
    status, said = call("solve", file)
    assert status == 2 and said.endswith(place) and "Traceback" not in said


def test_a_warning_is_a_sentence_on_the_command_line(tmp_path):
    file = tmp_path / "many.py"
    file.write_text("def fun(x):\n    return x**2\nbounds = [(-1, 1)] * 3\n")
    command = [sys.executable, "-m", "galapax", "solve", str(file), "-g", "2", "-n", "8", "--quiet"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "galapax: fun of 'many' returns 3 numbers" in said.replace("\n", " ") and "UserWarning" not in said


def test_a_seed_may_be_random_and_is_then_repeatable(monkeypatch):
    result = gx.Result(seed=0)
    monkeypatch.setattr("galapax.cli.app.minimize", lambda *_, **given: result.update(seed=given["seed"]) or 1 / 0)
    for _ in range(2):
        CliRunner().invoke(app, ["solve", "branin", "--seed", "random"])
        first, result["seed"] = result.seed, 0
        assert isinstance(first, int) and first > 0
    assert "neither a whole number nor random" in call("solve", "branin", "--seed", "often")[1]


def test_an_unknown_problem_is_answered_in_one_line():
    code, said = call("solve", "qqqqq")
    assert code == 2 and said.endswith(f"galapax list problems shows all {len(problems.PROBLEMS)}.") and len(said) < 120


@pytest.mark.parametrize("command", [[], ["solve"], ["view"], ["list"]], ids=" ".join)
def test_flags_show_no_type(command):
    code, text = call(*command, "--help")
    assert code == 0 and "--help" in text and "bool" not in text.lower().replace("boolean", "")


def test_common_options_come_first_in_their_panel():
    parameters = {option.name: option for option in COMMANDS["solve"].params}
    names = list(parameters)
    assert names.index("population") < names.index("migrate_every") and names.index("seed") < names.index("first_run")
