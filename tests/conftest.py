"""What several test modules share."""

from __future__ import annotations

import os
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    """A real Chromium, driven by playwright; without one the test is skipped, or fails if the environment asks so."""

    def missing(what):
        if os.environ.get("GALAPAX_BROWSER_TESTS") == "required":
            pytest.fail(f"GALAPAX_BROWSER_TESTS=required, but there is no {what}.")
        pytest.skip(f"needs {what}")

    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("playwright")
    if CHROMIUM is None:
        missing("Chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield made
        made.close()
