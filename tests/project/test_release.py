"""What a release promises: one version everywhere, and a wheel that works in an empty environment."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import venv
import warnings
import zipfile
from pathlib import Path

import pytest
from support.paths import ROOT

import galapax as gx
from galapax.version import TESTED_JAX, warn_of_untested_jax

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DATA = [*(ROOT / "src/galapax/view").rglob("*.*"), *(ROOT / "src/galapax/fused/c").iterdir()]
DATA_FILES = [p.relative_to(ROOT / "src").as_posix() for p in DATA]


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


def load_stacks():
    """The pairs of Python and JAX that `make test-stack` runs."""
    spec = importlib.util.spec_from_file_location("stack", ROOT / "tests_as_shipped/stack.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["stack"] = module  # where its NamedTuple looks for annotations
    spec.loader.exec_module(module)
    return module.STACKS, module.OLDEST


def test_pyproject_workflow_script_and_page_name_the_same_versions():
    pythons = re.findall(r":: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    for need in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cuda"]]:
        if need.startswith("jax"):
            assert re.search(r">=([\d.]+)", need)[1] == TESTED_JAX[0]
    major, minor = map(int, TESTED_JAX[-1].split("."))
    assert f"jax<{major}.{minor + 1}" in PROJECT["optional-dependencies"]["dev"]  # `make test` is of tested versions
    stacks, oldest = load_stacks()
    assert list(stacks) == pythons
    tested = {TESTED_JAX[0] if jax == oldest else jax for versions in stacks.values() for jax in versions}
    assert tested == set(TESTED_JAX) and oldest in stacks[pythons[0]]
    workflow = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    pairs = re.findall(r'- python: "([\d.]+)"\n\s+jax: "([\d.]+)\.\*"', workflow)
    assert [python for python, _ in pairs] == pythons and {jax for _, jax in pairs} == set(TESTED_JAX)
    every_python = re.search(r"python-version: \|\n((?:\s+3\.\d+\n)+)", workflow)
    assert every_python is not None and every_python[1].split() == pythons
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    assert f"Python {', '.join(pythons[:-1])} and {pythons[-1]}" in page
    assert f"JAX {' and '.join(TESTED_JAX)}" in page


def test_a_jax_newer_than_tested_warns_once_by_name():
    code = (
        "import jax, sys\n"
        "jax.__version__ = sys.argv[1]\n"
        "import galapax, galapax.version\n"
        "galapax.minimize(lambda x: float(x[0]), [(0, 1)], 'de', blackbox=True, generations=2, workers=2)\n"
    )

    def stderr_with(version):
        command = [sys.executable, "-W", "default", "-c", code, version]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stderr

    newest = TESTED_JAX[-1]
    said = stderr_with("7.3.1")
    assert said.count("is tested with JAX") == 1
    assert f"is tested with JAX {' and '.join(TESTED_JAX)}, and this is JAX 7.3.1" in said
    assert f'pip install "jax=={newest}.*"' in said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for version in (*TESTED_JAX, f"{newest}.9"):
            warn_of_untested_jax(version)
        with pytest.raises(UserWarning, match=r"this is JAX 1\.0"):
            warn_of_untested_jax("1.0.0.dev3")


def load_workflow(name):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / f".github/workflows/{name}").read_text(encoding="utf-8"))


def list_steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", sorted(file.name for file in (ROOT / ".github/workflows").glob("*.yml")))
def test_every_command_of_a_workflow_is_there(name):
    """It cannot be run here, but it can be read: its targets, variables and files are those of the tree."""
    steps = list_steps(load_workflow(name))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py"))
    commands = "\n".join(step.get("run", "") for step in steps)
    assert set(re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE)) <= targets
    assert all((ROOT / path).exists() for path in re.findall(r"(?:tests|src)/[\w/.]+", commands))
    variables = {name for step in steps for name in step.get("env", {})} - {"GH_TOKEN"}
    assert variables <= set(re.findall(r"GALAPAX_[A-Z_]+", sources))
    assert all(("uses" in step) != ("run" in step) for step in steps)
    pinned = r"actions/[a-z-]+@v\d+|pypa/gh-action-pypi-publish@release/v1"
    assert all(re.fullmatch(pinned, step["uses"]) for step in steps if "uses" in step)
    assert "permissions" in load_workflow(name)


def test_the_workflow_runs_every_tier_of_tests_on_every_system():
    workflow = load_workflow("test.yml")
    commands = "\n".join(step.get("run", "") for step in list_steps(workflow))
    assert set(re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE)) == {
        "test",
        "test-stack",
        "test-slow",
    }
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == [pair["python"] for pair in matrix["include"]] and len(matrix["os"]) == 3


@pytest.mark.slow
def test_a_wheel_works_in_an_empty_environment(wheel, tmp_path):
    """Installed with its dependencies alone, it solves a problem, saves it, and names the extra that is missing."""
    names = zipfile.ZipFile(wheel).namelist()
    for file in DATA_FILES:
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
