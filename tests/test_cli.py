"""The command line does what the library does, and says clearly what it cannot do."""

import json
import os
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest
from typer.testing import CliRunner

import galapax as gx
from galapax.cli.app import app
from galapax.numerics import cache

ROOT = Path(__file__).parent.parent


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
    assert files == {"result.json", "history.csv", "population.csv", "convergence.png", "report.html"}
    assert (tmp_path / "run" / "convergence.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Tension/compression spring" in page and "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")  # nothing is fetched from anywhere
    assert gx.load(tmp_path / "run").fun == pytest.approx(0.0126652327883, rel=1e-6)


def test_solve_equals_minimize():
    code, text = call("solve", "branin", "--json", "-g", "40", "-n", "12", "-s", "weight=0.7", "--seed", "5")
    assert code == 0
    expected = gx.minimize(gx.problems.get("branin"), gx.DE(population=12, weight=0.7), generations=40, seed=5)
    assert json.loads(text)["fun"] == expected.fun
    assert json.loads(text)["x"] == expected.x.tolist()


def test_solve_takes_every_option_of_minimize():
    options = set(signature(gx.minimize).parameters)
    # the problem itself, and what is a Python object
    given_otherwise = {"fun", "bounds", "ineq", "eq", "callback", "progress"}
    assert options - given_otherwise <= set(signature(app.registered_commands[0].callback).parameters)


def test_set_chooses_the_mutation_by_name():
    code, text = call("solve", "sphere", "--dim", "3", "--json", "-g", "20", "-s", "mutation=best_1")
    assert code == 0
    assert json.loads(text)["settings"]["hyperparameters"]["mutation"] == "best_1"


def test_ensembles_show_how_the_runs_spread():
    code, text = call("solve", "branin", "--runs", "20", "-g", "60", "-n", "20", "--target", "0.3979")
    assert code == 0
    assert "over 20 runs" in text and "median" in text and "evaluations per success" in text


def test_file_with_fun_and_bounds(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("bounds = [(-1, 2)] * 2\ndef fun(x):\n    return ((x - 0.5) ** 2).sum()\n")
    code, text = call("solve", str(file), "--json", "-g", "60", "-n", "20")
    assert code == 0 and json.loads(text)["fun"] < 1e-8


def test_quiet_prints_nothing():
    assert call("solve", "branin", "-g", "5", "-q") == (0, "")


def test_list_names_every_algorithm_and_problem():
    code, text = call("list", "--json")
    assert code == 0
    names = set(text.split('"'))
    assert set(gx.ALGORITHMS) | set(gx.PROBLEMS) <= names
    code, text = call("list", "problems")
    assert code == 0 and "rastrigin" in text and "-6961.814" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("solve", "rastrgin"), "did you mean rastrigin"),
        (("solve", "sphere", "-a", "ed"), "no algorithm called 'ed'"),
        (("solve", "nowhere.py"), "There is no file"),
        (("solve", "sphere", "-s", "wieght=1"), "NAME one of population, mutation, weight"),
        (("solve", "sphere", "-s", "weight=heavy"), "takes a float"),
        (("solve", "sphere", "-s", "mutation=none"), "rand_1 or best_1"),
        (("solve", "branin", "--dim", "3"), "dim"),
        (("sweep", "cde_p1", "--set", "fr=1,2"), "min-max"),
        (("solve", "zdt1", "-a", "de"), "minimises one"),
        (("solve", "sphere", "-a", "nsga2"), "for several objectives"),
        (("solve", "sphere", "-g", "0"), "generations must be at least 1"),
        (("list", "everything"), "algorithms, problems or all"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(arguments, message):
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


def test_a_folder_that_cannot_be_written_loses_no_answer(tmp_path):
    (tmp_path / "file").write_text("")
    code, text = call("solve", "branin", "-g", "20", "--out", str(tmp_path / "file" / "run"))
    assert code == 2
    assert "0.39" in text  # the answer was printed before saving was tried
    assert "could not be saved" in " ".join(text.split())


def test_module_and_cache_on_disk(tmp_path):
    """`python -m galapax`, twice in fresh processes: the second finds what the first compiled."""
    environment = os.environ | {"GALAPAX_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "galapax", "solve", "branin", "-g", "30", "--json"]
    first, second = (
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
        for _ in range(2)
    )
    assert first["fun"] == second["fun"]
    assert any((tmp_path / "cache").iterdir())
    assert second["timings"]["compile"] < first["timings"]["compile"]


def test_cache_can_be_switched_off_and_moved(tmp_path, monkeypatch):
    assert cache.default_folder() is None
    monkeypatch.setenv("GALAPAX_CACHE", str(tmp_path))
    assert cache.default_folder() == tmp_path
    monkeypatch.delenv("GALAPAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_folder() == tmp_path / "galapax" / "compiled"
    (tmp_path / "file").write_text("")
    assert cache.enable(tmp_path / "file" / "below") is None


def test_importing_galapax_imports_nothing_heavy():
    """The core needs jax, numpy and scipy alone, and switches nothing in JAX."""
    code = (
        "import sys, jax; before = dict(jax.config.values); import galapax; "
        "assert dict(jax.config.values) == before; "
        "heavy = {'typer', 'rich', 'matplotlib', 'PIL', 'plotly', 'torch', 'cupy'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
