"""What users get: no patched defaults, no compiler options, programs compiled ahead and kept on disk.

This folder lies beside `tests/`, not in it, since pytest would load the patches of `tests/conftest.py` first. Only the
place of the disk cache is chosen here, so that the user's own is not touched.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # for support.killed_runs, which imports nothing of the tests

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMIUM_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                    "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip


def pytest_addoption(parser):
    parser.addoption("--installed", action="store_true", help="galapax must be an installed wheel, not a source tree")


def pytest_configure(config):
    """Give the session, its workers and all processes that tests start one new disk cache."""
    if hasattr(config, "workerinput"):  # a worker of xdist: the folder is in its environment
        return
    folder = tempfile.mkdtemp(prefix="galapax-as-shipped-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["GALAPAX_CACHE"] = folder


@pytest.fixture(scope="module")
def browser():
    """A Chromium driven by playwright; without one the test is skipped, or fails if the environment requires it."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        sync_playwright = None
    if sync_playwright is None or CHROMIUM is None:
        missing = "Chromium" if sync_playwright else "playwright"
        if os.environ.get("GALAPAX_BROWSER_TESTS") == "required":
            pytest.fail(f"GALAPAX_BROWSER_TESTS=required, but there is no {missing}.")
        pytest.skip(f"needs {missing}")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_OPTIONS)
        yield chromium
        chromium.close()
