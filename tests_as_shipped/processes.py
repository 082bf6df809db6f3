"""Programs of a user's own, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from galapax.version import __version__

TIMEOUT = 600  # seconds
UNTESTED_JAX = f"ignore:galapax {__version__} is tested with JAX"  # test_defaults.py checks that warning


def run(*command, cwd, **variables) -> subprocess.CompletedProcess[str]:
    """Run a command with some more environment variables, and return what it printed."""
    words = [str(word) for word in command]
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT)


def run_script(code: str, cwd: Path, **variables) -> str:
    """Run Python code as a script and return what it printed; it must end well, and warn only of an untested JAX."""
    script = cwd / "script.py"
    script.write_text(code, encoding="utf-8")
    done = run(sys.executable, "-W", UNTESTED_JAX, script, cwd=cwd, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


def run_galapax(*arguments, cwd) -> subprocess.CompletedProcess[str]:
    """Run the `galapax` command of this environment."""
    command = Path(sys.executable).with_name("galapax.exe" if os.name == "nt" else "galapax")
    return run(*([command] if command.exists() else [sys.executable, "-m", "galapax"]), *arguments, cwd=cwd)
