"""What a release promises: one version everywhere, and a wheel that works in an empty environment."""

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import galapax as gx

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE_FILES = [p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src/galapax/view").rglob("*.*")]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this tree, built as `make wheel` builds it."""
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]
    run(*pip, "--wheel-dir", out, ROOT)
    return next(out.glob("galapax-*.whl"))


def test_the_version_is_the_same_everywhere():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None and cited.group(1) == gx.__version__
    assert gx.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_workflow_tests_the_oldest_python_and_jax_that_are_allowed():
    workflow = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    pythons = re.findall(r'- python: "([\d.]+)"\n\s+jax: "([\d.]+)\.\*"', workflow)
    needs = next(need for need in PROJECT["dependencies"] if need.startswith("jax"))
    oldest, beyond = re.fullmatch(r"jax>=([\d.]+),<([\d.]+)", needs).groups()
    assert pythons[0] == (PROJECT["requires-python"].removeprefix(">="), oldest)
    major, minor = map(int, beyond.split("."))
    assert pythons[-1][1] == f"{major}.{minor - 1}"


def test_every_command_of_the_workflow_is_there():
    """It cannot be run here, but it can be read: its targets, variables and versions are those of the tree."""
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    sources = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").glob("*.py"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    called = {found for step in steps for found in re.findall(r"^make ([a-z-]+)", step.get("run", ""), re.MULTILINE)}
    assert called == {"test", "test-slow", "docs"} <= targets
    assert {name for step in steps for name in step.get("env", {})} <= set(re.findall(r"GALAPAX_[A-Z_]+", sources))
    assert all(("uses" in step) != ("run" in step) for step in steps)
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == [pair["python"] for pair in matrix["include"]] and len(matrix["os"]) == 3


@pytest.mark.slow
def test_a_wheel_works_in_an_empty_environment(wheel, tmp_path):
    """Installed with its dependencies alone, it solves a problem, saves it, and names the extra that is missing."""
    names = zipfile.ZipFile(wheel).namelist()
    for file in PAGE_FILES:
        assert file.endswith(".pyc") or file in names
    assert "galapax/py.typed" in names and not any(name.startswith("tests") for name in names)
    venv.create(tmp_path / "empty", with_pip=True)
    folder = tmp_path / "empty" / ("Scripts" if os.name == "nt" else "bin")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GALAPAX"))}
    install = [folder / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel]
    try:
        run(*install, env=clean)
    except AssertionError as error:
        if os.environ.get("GALAPAX_WHEEL_TESTS") == "required":
            raise
        pytest.skip(f"the dependencies could not be installed: {str(error)[-200:]}")
    code = (
        "import sys, galapax as gx\n"
        "r = gx.minimize(lambda x: (x**2).sum(), [(-1, 2)] * 2, 'de', generations=20, target=1e-3)\n"
        "r.save('run'); assert gx.load('run').fun == r.fun and r.success\n"
        "assert not {'matplotlib', 'typer', 'rich', 'pandas', 'torch'} & set(sys.modules)\n"
        "print(gx.__file__)"
    )
    where = run(folder / "python", "-c", code, cwd=tmp_path, env=clean)
    assert Path(where.strip()).is_relative_to((tmp_path / "empty").resolve())
    told = subprocess.run([folder / "galapax"], capture_output=True, text=True, cwd=tmp_path, env=clean, timeout=60)
    assert told.returncode == 1 and "pip install 'galapax[cli]'" in told.stderr
