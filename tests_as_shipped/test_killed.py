"""A process killed with SIGKILL and resumed comes to the same end as one that nobody killed, to the bit."""

import os

import pytest
from support.killed_runs import KINDS, compare_with_killed

from galapax.numerics import devices

QUICK = ("ensemble", "restarts", "black box", "islands", "front")  # the other kinds are slow tests

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in sorted(KINDS)]
)
def test_a_killed_run_resumes_to_the_bit(name, tmp_path):
    kills = compare_with_killed(name, tmp_path, times=1, seed=1)
    assert kills == 1 or not devices.on_cpu()  # a GPU may make all generations before the first checkpoint


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_run_killed_again_and_again_resumes_to_the_bit(name, tmp_path):
    kills = compare_with_killed(name, tmp_path, times=6, seed=7)
    assert kills >= 1 or not devices.on_cpu()
