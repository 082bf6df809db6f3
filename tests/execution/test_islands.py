"""Islands: who migrates where, the same result wherever they are computed, and real processes that compute them."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.paths import TESTS, with_test_modules
from typer.testing import CliRunner

import galapax as gx
from galapax.cli.app import app
from galapax.core.algorithm import Budget, insert_immigrants
from galapax.core.errors import InputError
from galapax.core.options import Islands, Topology
from galapax.core.problem import Population, Shape
from galapax.core.stop import Stop
from galapax.execution import island_schedule
from galapax.numerics import devices as devices_module
from galapax.numerics import random

BOX = [(-5.0, 4.0)] * 4


def waves(x):
    """Optimum 0 at 0.3, off the box's centre, among many local ones."""
    return 10.0 * x.shape[0] + jnp.sum((x - 0.3) ** 2 - 10.0 * jnp.cos(2 * jnp.pi * (x - 0.3)))


def archipelago(count=4, every=5, migrants=2, topology="ring", **options):
    given = {"generations": 22, "population": 10, "polish": False, "seed": 3} | options
    return gx.minimize(waves, BOX, islands=Islands(count, every, migrants, topology), **given)


# --- routes ---


@pytest.mark.parametrize("topology", get_args(Topology))
@pytest.mark.parametrize(("count", "migrants"), [(2, 1), (6, 4), (7, 3), (12, 5)])
def test_migrants_come_from_other_islands_and_none_comes_twice(topology, count, migrants):
    islands = Islands(count, 1, migrants, topology)
    for turn in range(1, 9):
        source, rank = islands.routes(turn, seed=1)
        assert source.shape == rank.shape == (count, migrants)
        for here in range(count):
            pairs = set(zip(source[here], rank[here], strict=True))
            assert here not in source[here]
            assert len(pairs) == migrants and rank.max() < migrants


def test_each_topology_has_its_neighbours():
    assert Islands(5, 1, 2).routes(1, 0)[0].tolist() == [[4, 4], [0, 0], [1, 1], [2, 2], [3, 3]]
    source, _ = Islands(12, 1, 4, "torus").routes(1, 0)  # three rows of four
    assert set(source[5]) == {4, 6, 1, 9}
    assert set(source[0]) == {3, 1, 8, 4}
    seen = {s for turn in range(1, 4) for s in Islands(6, 1, 2, "complete").routes(turn, 0)[0][2]}
    assert seen == {0, 1, 3, 4, 5}
    drawn = [Islands(6, 1, 2, "random").routes(turn, 0)[0] for turn in range(1, 200)]
    counts = np.bincount(np.concatenate([d[2] for d in drawn]), minlength=6)
    assert counts[2] == 0 and counts[[0, 1, 3, 4, 5]].min() > 50  # of 398, 80 each expected; four standard deviations
    assert not all(np.array_equal(d, drawn[0]) for d in drawn)


# --- operators ---


def population(values, violation=None):
    values = jnp.asarray(values, float)
    objectives = values[:, None] if values.ndim == 1 else values
    return Population(jnp.arange(len(objectives), dtype=float)[:, None], objectives, violation)


@pytest.mark.slow
def test_the_best_leave_feasible_ones_first():
    key = random.root_key(0)
    leave = island_schedule.select_emigrants(key, population([3.0, 1.0, jnp.inf, 2.0]), 3, True)
    assert leave[:, 0].tolist() == [1, 3, 0]
    leave = island_schedule.select_emigrants(
        key, population([3.0, 1.0, 0.0, 2.0], jnp.array([0.0, 0.5, 1.0, 0.0])), 3, True
    )
    assert leave[:, 0].tolist() == [3, 0, 1]
    front = population([[0.0, 2.0], [1.0, 1.0], [2.0, 2.0], [2.0, 0.0]])
    for seed in range(20):
        assert 2 not in island_schedule.select_emigrants(random.root_key(seed), front, 3, True)[:, 0]


def test_any_may_leave_but_those_that_failed():
    own = population([3.0, jnp.inf, 0.0, 2.0])
    emigrants = jax.jit(island_schedule.select_emigrants, static_argnums=(2, 3))
    seen = [int(emigrants(random.root_key(seed), own, 1, False)[0, 0]) for seed in range(120)]
    assert set(seen) == {0, 2, 3}
    assert min(seen.count(i) for i in (0, 2, 3)) > 20


def test_the_worst_in_use_make_room():
    own = population([3.0, 9.0, 0.0, 2.0, 99.0])
    places = jax.jit(island_schedule.select_replaced_rows, static_argnums=(2, 3, 4, 5))
    assert set(places(random.root_key(0), own, 5, 4, 2, True).tolist()) == {0, 1}
    chosen = {int(p) for seed in range(60) for p in places(random.root_key(seed), own, 5, 4, 2, False)}
    assert chosen == {0, 1, 2, 3}
    other = places(random.root_key(1), own, 8, 8, 3, True)  # not as many parents as candidates: any place
    assert len(set(other.tolist())) == 3


@pytest.mark.slow
def test_a_point_joins_a_distribution_where_it_is_and_pulls_no_more_than_a_sample():
    algorithm = gx.CMAES().bind(3, Shape(), Budget(None, None))
    bounds = gx.box(-1.0, 3.0, 3).round_inwards("float32")
    state = algorithm.init(random.root_key(1), bounds)
    far = jnp.array([[2.9, -0.9, 2.9]], state.candidates.dtype)
    near = algorithm.place(state.now, jnp.full((1, 3), 0.4, far.dtype), bounds)
    for points, expected in ((near, 0.4), (far, None)):
        joined = insert_immigrants(algorithm, state, jnp.array([2]), points)
        assert jnp.array_equal(joined.candidates[2], points[0])
        length = float(jnp.sqrt(jnp.sum(joined.normals[2] ** 2)))
        if expected is not None:
            assert jnp.allclose(joined.normals[2], expected, atol=1e-4)
        assert length <= np.sqrt(3) + 2 + 1e-4
        assert jnp.array_equal(joined.normals[:2], state.normals[:2])


# --- runs ---


@pytest.mark.slow
def test_a_run_adds_up_and_is_replayed():
    result = archipelago(runs=3, keep=gx.Keep(snapshots=[10]))
    assert result.runs.nfev.tolist() == [4 * 10 * 22] * 3
    assert result.history.nfev[-1] == 4 * 10 * 22
    assert result.snapshots[10].x.shape == (3, 40, 4)
    assert np.array_equal(result.runs.history.best[:, -1], result.runs.fun)
    again = result.run(1)
    assert np.array_equal(again.x, result.runs.x[1]) and again.nfev == result.runs.nfev[1]
    alone = archipelago(runs=range(2, 3))
    assert np.array_equal(alone.x, result.runs.x[2])


def test_migration_matters_and_without_it_islands_are_alone():
    """Where nobody migrates the first island of a run is the same whatever the others do."""
    never = archipelago(count=3, every=1000)
    other = archipelago(count=5, every=1000)
    assert other.fun <= never.fun
    assert archipelago(count=3).nfev == never.nfev
    assert not np.array_equal(archipelago(count=3).population, never.population)


def test_the_best_of_an_island_is_known_on_the_next_one_after_a_migration():
    """With DE it takes the place of the worst, which it beats."""
    result = archipelago(every=10, migrants=1, algorithm="de", keep=gx.Keep(snapshots=[10, 11]))
    before, after = (result.snapshots[g].objectives.reshape(4, 10).min(axis=1) for g in (10, 11))
    assert (after <= np.roll(before, 1)).all()
    assert (before > np.roll(before, 1)).any()  # else it would say nothing


def test_a_target_ends_the_whole_run():
    result = archipelago(target=30.0, generations=200)
    assert result.success and result.stop is Stop.TARGET and result.fun <= 30.0
    assert result.nfev < 4 * 10 * 200
    assert result.history.nfev[-1] == result.nfev


def test_evaluations_are_those_of_all_islands():
    assert archipelago(generations=None, max_evaluations=1000).nfev == 1000
    with pytest.raises(InputError, match="max_evaluations"):
        archipelago(generations=None, max_evaluations=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("zdt1", {"population": 8}),
        ("g06", {"population": 8}),
        ("sphere", {"algorithm": "lshade", "population": 12}),
        ("sphere", {"algorithm": "cmaes"}),
        ("sphere", {"algorithm": "pso", "population": 8}),
        ("zdt1", {"population": 8, "keep": gx.Keep(archive=20)}),
        ("dtlz2", {}),
    ],
    ids=["two objectives", "constraints", "lshade", "cmaes", "pso", "archive", "three objectives"],
)
def test_other_kinds_of_runs(problem, options):
    result = gx.minimize(
        gx.problems.get(problem), islands=Islands(3, 4, 2), generations=14, polish=False, runs=2, **options
    )
    assert np.array_equal(result.run(1).x, result.runs.x[1] if "X" not in result else result.run(1).x)
    if "X" in result:
        assert len(result.X) and np.array_equal(gx.indicators.non_dominated(result.F), np.ones(len(result.F), bool))


@pytest.mark.slow
def test_a_black_box_on_islands():
    traced = archipelago(algorithm="de", generations=12)
    called = archipelago(algorithm="de", generations=12, blackbox=True)
    assert called.nfev == traced.nfev and np.isfinite(called.fun)


@pytest.mark.slow
def test_islands_find_more_than_as_many_runs_apart():
    """Rastrigin's function in 10 variables: the median of 20 archipelagos is below that of the best of 8 runs apart."""
    box, own = [(-5.0, 4.0)] * 10, {"generations": 200, "polish": False, "algorithm": gx.DE(population=30)}
    together = gx.minimize(waves, box, islands=Islands(8, 10, 2), runs=20, **own).runs.fun
    apart = gx.minimize(waves, box, runs=160, **own).runs.fun.reshape(20, 8).min(axis=1)
    assert np.median(together) < np.median(apart)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"islands": "four"}, "islands must be a galapax.Islands, or how many"),
        ({"islands": 0}, "islands: count"),
        ({"islands": Islands(3, 0)}, "migrate_every"),
        ({"islands": Islands(3, 5, 6), "population": 10}, "at most half a population, 5 of 10; got 6"),
        ({"islands": Islands(3, 5, 1, "star")}, 'topology must be "ring", "torus", "complete" or "random"; got .star.'),
        ({"islands": 3, "restarts": "ipop"}, "does not restart"),
        ({"islands": 3, "algorithm": gx.CMAES(surrogate=True), "blackbox": True}, "leave surrogate=True out"),
        ({"islands": 3, "algorithm": "de", "workers": gx.Workers(2, asynchronous=True)}, "leave islands out"),
    ],
)
def test_what_cannot_be_is_refused(given, sentence):
    with pytest.raises(InputError, match=sentence):
        gx.minimize(waves, BOX, generations=3, **given)


def test_the_command_line_takes_islands():
    command = [
        "solve",
        "sphere",
        "--dim",
        "3",
        "--islands",
        "3",
        "--migrate-every",
        "4",
        "-g",
        "12",
        "-n",
        "8",
        "--json",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0 and '"count": 3' in done.stdout
    wrong = CliRunner().invoke(app, ["solve", "sphere", "--migrants", "3"])
    assert wrong.exit_code == 2 and "add --islands" in wrong.stderr
    for given, sentence in ((["--process-id", "1"], "need the coordinator"), (["--coordinator", "x"], "host:port")):
        wrong = CliRunner().invoke(app, ["solve", "sphere", *given])
        assert wrong.exit_code == 2 and sentence in wrong.stderr


def test_rows_are_dealt_out_in_order(monkeypatch):
    monkeypatch.setattr(devices_module, "process_count", lambda: 3)
    shares = []
    for number in range(3):
        monkeypatch.setattr(devices_module, "process_index", lambda number=number: number)
        shares.append(devices_module.ProcessShard([4, 4, 4, 4, 2]))
    assert [list(share.slices) for share in shares] == [[0], [1, 2], [3, 4]]
    assert [share.first for share in shares] == [0, 4, 12]
    assert [share.local for share in shares] == [4, 8, 6] and shares[0].total == 18
    assert devices_module.ProcessShard([4, 2], alone=True).local == 6


# --- devices and processes ---

SCRIPT = """
import sys
from galapax.numerics import devices
number, count, port, kind, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
if count > 1:
    devices.connect(f"127.0.0.1:{port}", number, count)
from test_islands import shared_run
print("digest", shared_run(kind, file), flush=True)
"""


def shared_run(kind, file=""):
    """What the processes compute: a checksum of everything that came out."""
    options = {"population": 8, "polish": False, "keep": gx.Keep(snapshots=[12])}
    if kind == "islands":
        result = gx.minimize(waves, BOX, islands=Islands(4, 5, 2, "random"), generations=24, **options)
    elif kind == "runs":
        result = gx.minimize(waves, BOX, "de", runs=100, generations=15, **options)
    else:
        options |= {"checkpoint": gx.Checkpoint(file, generations=20), "resume": True, "tolerance": 0}
        result = gx.minimize(waves, BOX, islands=Islands(4, 5, 2), generations=int(kind), **options)
    parts = (result.x, result.history.best, result.history.nfev, np.asarray(result.population), result.snapshots[12].x)
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def started(number, count, port, kind, file="", devices=1):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    own = with_test_modules(TESTS / "execution") | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", SCRIPT, str(number), str(count), str(port), kind, str(file)]
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def digest(process):
    out, err = process.communicate(timeout=240)
    lines = [line for line in out.splitlines() if line.startswith("digest")]
    assert process.returncode == 0 and lines, err[-2000:]
    return lines[0].split()[1]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def of_processes(count, kind, file=""):
    port = free_port()
    return [digest(p) for p in [started(number, count, port, kind, file) for number in range(count)]]


needs_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="devices and processes are faked on a CPU")


@needs_cpu
def test_two_processes_come_to_the_result_of_one():
    assert of_processes(2, "islands") == [shared_run("islands")] * 2


@needs_cpu
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["islands", "runs"])
def test_the_result_is_the_same_on_any_number_of_devices_and_processes(kind):
    expected = shared_run(kind)
    assert digest(started(0, 1, 0, kind, devices=4)) == expected
    assert of_processes(3, kind) == [expected] * 3  # of the runs more processes than slices


@needs_cpu
@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_lost_process_ends_the_others_with_a_sentence_and_the_checkpoint_goes_on(tmp_path, victim):
    whole, parts, port = tmp_path / "whole", tmp_path / "parts", free_port()
    expected = shared_run("3000", whole)
    both = [started(number, 2, port, "3000", parts) for number in range(2)]
    deadline = time.monotonic() + 120
    while not (tmp_path / "parts.1").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    both[victim].kill()
    other = both[1 - victim]
    _, err = other.communicate(timeout=120)
    assert other.returncode != 0
    if victim:  # where the coordinator is lost, JAX ends the process at once
        assert "another process of this run has ended" in err
    both[victim].communicate(timeout=30)
    assert of_processes(2, "3000", parts) == [expected, expected]
