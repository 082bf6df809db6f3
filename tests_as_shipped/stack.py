"""Run the tier as shipped with every supported Python on this machine: `make test-stack`.

Builds a wheel, installs it with its extras into an environment for each pair of Python and JAX below, and runs the
tests of this folder there, with the installed package and without the source tree. Environments lie in `.stack/` and
serve again until pyproject.toml changes; pip caches what it downloads. Interpreters are looked for on PATH and in
~/.pyenv/versions; PYTHONS="python3.12 /opt/python/bin/python3" or arguments name others. Needs the standard library
alone.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".stack"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OLDEST = "oldest"  # every lower bound of pyproject.toml: JAX, NumPy and SciPy
STACKS = {  # JAX for each Python; JAX 0.11 needs Python 3.12
    "3.11": (OLDEST,),
    "3.12": ("0.11",),
    "3.13": ("0.11",),
    "3.14": ("0.11",),
}
TOOLS = ["pytest>=8", "pytest-xdist>=3.7", "playwright>=1.49"]
SWITCHES = ("PYTHON", "GALAPAX_", "JAX_", "XLA_", "PYTEST_", "VIRTUAL_ENV")  # variables that would change the tests
PLACES = ("GALAPAX_BROWSER_TESTS", "JAX_PLATFORMS", "XLA_PYTHON_CLIENT_PREALLOCATE")


class Outcome(NamedTuple):
    """A row of the table."""

    python: str
    jax: str
    numpy: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    note: str = ""


def find_interpreters(names: list[str]) -> dict[str, str]:
    """Return the path of an interpreter for each minor version, those of STACKS where no names are given."""
    if not names:
        names = [sys.executable]
        for minor in STACKS:
            names.append(f"python{minor}")
            names += map(str, sorted(Path.home().glob(f".pyenv/versions/{minor}.*/bin/python{minor}"), reverse=True))
    interpreters: dict[str, str] = {}
    code = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2], sys.executable)"
    for name in names:
        path = shutil.which(name)
        if path is None:
            continue
        done = subprocess.run([path, "-c", code], capture_output=True, text=True)  # a shim may lead nowhere
        if done.returncode == 0:
            minor, executable = done.stdout.strip().split(" ", 1)
            interpreters.setdefault(minor, executable)
    return interpreters


def list_constraints(jax: str) -> list[str]:
    """Return pip's constraints for a version of JAX, or for the lower bounds of all dependencies."""
    if jax != OLDEST:
        return [f"jax=={jax}.*"]
    bounds = [re.match(r"([\w-]+)>=([\d.]+)", need) for need in PROJECT["dependencies"]]
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound is not None]


def clean_environment() -> dict[str, str]:
    """Return the environment variables without those that would change what is tested."""
    return {k: v for k, v in os.environ.items() if k in PLACES or not k.startswith(SWITCHES)}


def run(*command: object, quiet: bool = True) -> None:
    """Run a command, and show what it printed only if it fails."""
    done = subprocess.run([str(word) for word in command], env=clean_environment(), cwd=ROOT, capture_output=quiet,
                          text=True)  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout or ''}{done.stderr or ''}")


def build_wheel(interpreter: str) -> Path:
    """Build a wheel of a copy of this tree: setuptools would take files that are gone from an old build folder."""
    source, wheels = FOLDER / "source", FOLDER / "wheel"
    for folder in (source, wheels):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    python = make_environment(interpreter, FOLDER / "build")
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, source)
    return next(wheels.glob("galapax-*.whl"))


def make_environment(interpreter: str, folder: Path) -> Path:
    """Make a virtual environment unless it is there, and return its interpreter."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        run(interpreter, "-m", "venv", "--clear", folder)
    return python


def prepare_environment(interpreter: str, minor: str, jax: str, wheel: Path) -> Path:
    """Return the interpreter of an environment with this wheel, and with its dependencies at these versions."""
    folder, constraints = FOLDER / f"python{minor}-jax-{jax}", list_constraints(jax)
    contents = [(ROOT / "pyproject.toml").read_text("utf-8"), *TOOLS, *constraints, interpreter]
    stamp, digest = folder / "installed", hashlib.sha256("\n".join(contents).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
    python = make_environment(interpreter, folder)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not stamp.exists():
        (folder / "constraints.txt").write_text("\n".join(constraints) + "\n")
        run(*pip, "--constraint", folder / "constraints.txt", f"{wheel}[all]", *TOOLS)
        stamp.write_text(digest)
    else:
        run(*pip, "--no-deps", "--force-reinstall", wheel)
    return python


def run_tier(python: Path, options: list[str]) -> tuple[int, dict[str, int], float]:
    """Run the tests of this folder; return the exit code, how many passed, failed or were skipped, and the seconds."""
    command = [python, "-m", "pytest", "tests_as_shipped", "--installed", "-m", "not slow", "-n", "2",
               "--dist", "worksteal", "-rs", *options]  # fmt: skip
    began, lines = time.perf_counter(), [""]
    with subprocess.Popen(
        [str(word) for word in command], cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
    ) as process:  # fmt: skip
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    summary = next((line for line in reversed(lines) if re.search(r"\d+ (passed|failed|error|skipped)", line)), "")
    counts = {
        word.removesuffix("s"): int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", summary)
    }
    return process.returncode, counts, time.perf_counter() - began


def run_stack(interpreter: str, minor: str, jax: str, wheel: Path, options: list[str]) -> Outcome:
    """Run the tier with one Python and one JAX."""
    print(f"\n== Python {minor}, JAX {jax}", flush=True)
    try:
        python = prepare_environment(interpreter, minor, jax, wheel)
    except RuntimeError as error:
        print(error)
        return Outcome(minor, jax, "-", 0, 1, 0, 0.0, "could not be installed")
    code = "import platform, jax, numpy; print(platform.python_version(), jax.__version__, numpy.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env=clean_environment())
    status, counts, seconds = run_tier(python, options)
    failed = counts.get("failed", 0) + counts.get("error", 0)
    note = "" if status == 0 or failed else f"pytest ended with {status}"
    return Outcome(
        *done.stdout.split(), counts.get("passed", 0), failed + bool(note), counts.get("skipped", 0), seconds, note
    )


def print_table(outcomes: list[Outcome], missing: list[str]) -> None:
    print(f"\n{'Python':10}{'JAX':10}{'NumPy':10}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}")
    for row in outcomes:
        counts = f"{row.passed:8}{row.failed:8}{row.skipped:8}{row.seconds:9.0f}"
        print(f"{row.python:10}{row.jax:10}{row.numpy:10}{counts}  {row.note}".rstrip())
    for minor in missing:
        print(f"{minor:10}not tested: there is no such interpreter on this machine")


def main() -> int:
    """Test all stacks; words that begin with a dash are pytest's, the others are interpreters."""
    words = sys.argv[1:]
    options = [word for word in words if word.startswith("-")]
    names = [word for word in words if not word.startswith("-")] or os.environ.get("PYTHONS", "").split()
    interpreters = find_interpreters(names)
    supported = {minor: path for minor, path in interpreters.items() if minor in STACKS}
    if not supported:
        print(f'None of Python {", ".join(STACKS)} was found: name interpreters by PYTHONS="...".', file=sys.stderr)
        return 2
    FOLDER.mkdir(exist_ok=True)
    wheel = build_wheel(next(iter(supported.values())))
    pairs = [(minor, jax) for minor in STACKS if minor in supported for jax in STACKS[minor]]
    outcomes = [run_stack(supported[minor], minor, jax, wheel, options) for minor, jax in pairs]
    print_table(outcomes, [] if names else [minor for minor in STACKS if minor not in supported])
    return int(any(row.failed for row in outcomes))


if __name__ == "__main__":
    sys.exit(main())
