"""Fixtures of the tests of pages and pictures."""

import pytest


@pytest.fixture
def own_server(monkeypatch):
    """A server of its own for each test: runs at the same place share one."""
    from galapax.view.live import server

    monkeypatch.setattr(server, "_servers", {})
