"""Where things lie in the source tree."""

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DATA = TESTS / "support" / "data"


def with_test_modules(*folders):
    """The environment of a process that finds the tests' own modules, and the test files of these folders."""
    paths = [str(TESTS), *map(str, folders), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
