"""`galapax selftest`: it passes here, and notices what is wrong."""

import json

import pytest
from typer.testing import CliRunner

from galapax.cli import selftest
from galapax.cli.app import app


def test_a_share_is_judged_with_its_confidence():
    assert selftest.at_least(40, 40, 0.99)[0] and selftest.at_least(36, 40, 0.95)[0]
    assert not selftest.at_least(20, 40, 0.9)[0]
    assert 0.75 < selftest.at_least(40, 40, 0.99)[1] < 1.0


def test_a_check_that_fails_or_raises_is_reported_and_the_others_run(monkeypatch):
    def broken():
        raise RuntimeError("no such thing")

    found = {"good": lambda: (True, "fine"), "bad": lambda: (False, "not so"), "broken": broken}
    monkeypatch.setattr(selftest, "CHECKS", found)
    run = CliRunner().invoke(app, ["selftest", "--json"])
    assert run.exit_code == 1
    told = {check["what"]: (check["passed"], check["found"]) for check in json.loads(run.stdout)["checks"]}
    assert told == {"good": (True, "fine"), "bad": (False, "not so"), "broken": (False, "RuntimeError: no such thing")}
    monkeypatch.setattr(selftest, "CHECKS", {"good": found["good"]})
    run = CliRunner().invoke(app, ["selftest"])
    assert run.exit_code == 0 and "all checks passed" in run.stdout


@pytest.mark.parametrize(
    "name", ["random numbers", "operators", pytest.param("CPU and device", marks=pytest.mark.slow)]
)
def test_quick_checks_pass(name):
    passed, found = selftest.CHECKS[name]()
    assert passed, found


@pytest.mark.slow
@pytest.mark.parametrize("name", selftest.CHECKS)
def test_every_check_passes(name):
    passed, found = selftest.CHECKS[name]()
    assert passed, found
