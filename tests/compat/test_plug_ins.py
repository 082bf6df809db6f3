"""The page of the plug-ins and their examples run with the real packages, and say what they claim."""

import importlib.util
import os
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/plug-ins.md").read_text(encoding="utf-8")
REQUIRED = os.environ.get("GALAPAX_PLUG_IN_TESTS") == "required"
PACKAGES = ("optuna", "openmdao", "optimagic", "sklearn", "mlflow", "tensorboard", "wandb")
SECTIONS = {
    "Optuna": (["optuna"], r"\d"),
    "OpenMDAO": (["openmdao"], r"True \[0\.05[34]"),
    "optimagic": (["optimagic"], r"-2\.99|-3\.0"),
    "scikit-learn": (["sklearn"], r"'C': "),
    "MLflow, TensorBoard, W&B and logging": (["mlflow", "tensorboard"], r""),
}
EXAMPLES = {
    "optuna_sampler.py": ("optuna", r"^1\.[78]\d kg/m .*timber"),
    "openmdao_driver.py": ("openmdao", r"error [\d.]+e-(09|1\d)"),
    "optimagic_algorithm.py": ("optimagic", r"'frequency': 5\.2,"),
    "sklearn_search.py": ("sklearn", r"accuracy 0\.8[89]\d rbf"),
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs.db'}")


def skip_without(*packages):
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is in the extra plugins")


@pytest.mark.skipif(not REQUIRED, reason="only where the plug-ins' packages must be there, as in `make test`")
@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_is_installed_where_it_must_be(package):
    assert importlib.util.find_spec(package) is not None


def test_every_section_of_the_page_is_tested():
    assert set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == set(SECTIONS)
    assert {file.name for file in (ROOT / "examples/plug_ins").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_block_of_a_section_runs(heading, capsys):
    packages, expected = SECTIONS[heading]
    skip_without(*packages)
    (code,) = re.findall(rf"^## {re.escape(heading)}\n```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(code, heading, "exec"), {"__name__": "page"})
    assert re.search(expected, capsys.readouterr().out)


@pytest.mark.parametrize("file", EXAMPLES)
def test_an_example_says_what_it_claims(file, capsys):
    package, expected = EXAMPLES[file]
    skip_without(package)
    runpy.run_path(str(ROOT / "examples/plug_ins" / file), run_name="__main__")
    assert re.search(expected, capsys.readouterr().out, re.MULTILINE)
