"""Where things lie in the source tree."""

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DATA = TESTS / "support" / "data"


def with_test_modules():
    """The environment of a process that finds the tests' own modules."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
