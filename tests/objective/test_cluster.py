"""A real Dask cluster: a scheduler and worker processes over TCP on this machine, which come and go."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import galapax as gx
from galapax.objective import remote

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

BOX = [(-2.0, 3.0)] * 3
N = 12


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                    "--scheduler-file", str(folder / "scheduler.json"))  # fmt: skip
        self.client = distributed.Client(scheduler_file=str(folder / "scheduler.json"), timeout=60)

    def _start(self, kind, *options):
        command = [sys.executable, "-m", f"distributed.cli.{kind}", *options]
        found = {"PYTHONPATH": str(Path(gx.__file__).parents[1])}  # galapax, but not the tests
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(subprocess.Popen(command, env=os.environ | found, cwd=self.folder, **quiet))
        return self.processes[-1]

    @property
    def workers(self):
        return set(self.client.scheduler_info(n_workers=-1)["workers"])

    def add(self, count=1):
        """Workers that will be there soon; their processes."""
        return [
            self._start("dask_worker", self.client.scheduler.address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                        "--host", "127.0.0.1", "--local-directory", str(self.folder))
            for _ in range(count)
        ]  # fmt: skip

    def close(self):
        self.client.close()
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("dask"))
    made.add(2)
    made.client.wait_for_workers(2, timeout=120)
    yield made
    made.close()


def slow_bowl(x):
    time.sleep(0.05)
    return float(((x - 1.0) ** 2).sum())


def by_value(seconds=0.05):
    """A function that workers need not import: they do not have the tests."""
    code = {}
    exec(f"def fun(x):\n import time\n time.sleep({seconds})\n return float(((x - 1.0) ** 2).sum())", code)
    return code["fun"]


def solve(fun, **settings):
    return gx.minimize(fun, BOX, "de", polish=False, **{"population": N, "generations": 3, "seed": 4, **settings})


def test_a_cluster_of_threads_makes_the_run_that_this_process_makes():
    """The cheapest cluster that there is, with all of Dask's ways between client and worker but the network."""
    alone = solve(by_value(0.0), blackbox=True)
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        for executor in (client, client.get_executor(), client.get_executor):
            there = solve(by_value(0.0), workers=executor)
            assert np.array_equal(there.population, alone.population) and there.n_failed == 0


@pytest.mark.slow
def test_a_cluster_makes_the_run_that_this_process_makes(cluster):
    alone = solve(by_value(0.0), blackbox=True)
    for executor in (cluster.client, cluster.client.get_executor(), cluster.client.get_executor):
        there = solve(by_value(0.0), workers=executor)
        assert np.array_equal(there.population, alone.population) and there.n_failed == 0


@pytest.mark.slow
def test_a_function_that_workers_cannot_import_is_named(cluster):
    with pytest.raises(
        gx.InputError, match=r"a worker cannot load fun \(slow_bowl\).*module that the workers can import"
    ):
        solve(slow_bowl, workers=cluster.client)


@pytest.mark.slow
def test_a_worker_killed_in_mid_generation_and_one_added_late(cluster):
    """What it was doing is done by the others; the newcomer takes part."""
    victim = cluster.add(1)[0]
    cluster.client.wait_for_workers(3, timeout=120)
    alone = solve(by_value(0.0), blackbox=True, generations=8)
    began, told, generations_then = threading.Event(), [], []

    def note(state):
        told.append(state)
        began.set()

    before = cluster.workers

    def disturb():
        began.wait()
        time.sleep(0.2)  # within the second generation, which takes 12 x 0.05 / 3 s at least
        generations_then.append(len(told))
        victim.kill()
        cluster.add(1)

    thread = threading.Thread(target=disturb)
    thread.start()
    there = solve(by_value(), generations=8, callback=note, workers=cluster.client)
    thread.join()
    assert generations_then[0] < 8 and victim.poll() is not None
    assert np.array_equal(there.population, alone.population) and there.n_failed == 0 and there.nfev == 8 * N
    cluster.client.wait_for_workers(3, timeout=120)
    newcomer = cluster.workers - before
    solve(by_value(), workers=cluster.client)
    done = cluster.client.run(lambda: len(__import__("galapax").objective.pool._functions))
    assert len(newcomer) == 1 and done[newcomer.pop()] >= 1


@pytest.mark.slow
def test_a_point_that_kills_every_worker_it_meets_costs_itself_alone(cluster):
    """Workers under a nanny, which starts them again."""
    code = {}
    exec("def fun(x):\n import os\n if x[0] > 2.0: os._exit(1)\n return float(((x - 1.0) ** 2).sum())", code)
    points = np.array([[0.0, 1.0, 1.0], [2.5, 1.0, 1.0], [0.5, 1.0, 1.0], [1.0, 1.0, 0.0]])
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as own,
        distributed.Client(own) as client,
    ):
        result = gx.minimize(code["fun"], BOX, "random", population=4, generations=1, x0=points, workers=client)
    assert (result.fun, result.nfev, result.n_failed) == (0.25, 4, 1)
    assert np.array_equal(result.failures[0].x, points[1]) and "KilledWorker" in result.failures[0].error


# --- a cluster that loses all its workers -----------------------------------------------------------------------------


@pytest.fixture
def deserted(tmp_path):
    """A cluster of its own with one worker, which a test may empty or take apart."""
    own = Cluster(tmp_path)
    own.add(1)
    own.client.wait_for_workers(1, timeout=120)
    yield own
    own.close()


class Disturbance:
    """A callback that does something within the third generation, in another thread."""

    def __init__(self, action):
        self.thread = threading.Thread(target=self._wait_and_act, args=(action,))

    def _wait_and_act(self, action):
        time.sleep(0.2)  # a generation takes N x 0.05 s
        action()

    def __call__(self, state):
        if state.generation == 2:
            self.thread.start()


def kill_workers(cluster):
    for process in cluster.processes[1:]:  # the first is the scheduler
        process.kill()


def test_a_run_whose_workers_are_all_killed_ends_after_the_limit_and_resumes(deserted, tmp_path):
    alone = solve(by_value(0.0), blackbox=True, generations=5)
    disturbance = Disturbance(lambda: kill_workers(deserted))
    options = {"generations": 5, "checkpoint": tmp_path / "run.ckpt"}
    workers = gx.Workers(deserted.client, workers_timeout=1)
    ended = solve(by_value(), callback=disturbance, workers=workers, **options)
    assert ended.stop == "workers" and not ended.success and ended.n_failed == 0 and 2 * N <= ended.nfev < 3 * N
    assert np.isfinite(ended.fun) and ended.settings["workers_timeout"] == 1.0
    assert "no worker has been alive for 1 s (workers_timeout) while" in ended.message and "resume" in ended.message
    deserted.add(1)
    deserted.client.wait_for_workers(1, timeout=120)
    resumed = solve(by_value(), resume=True, workers=workers, **options)
    assert np.array_equal(resumed.population, alone.population) and resumed.nfev == 5 * N
    assert np.array_equal(resumed.history.best, alone.history.best)


def test_a_run_goes_on_when_workers_come_back_before_the_limit(deserted, monkeypatch):
    monkeypatch.setattr(remote, "QUIET_SECONDS", 0.5)
    alone = solve(by_value(0.0), blackbox=True, generations=5)

    def replace_workers():
        kill_workers(deserted)
        time.sleep(1.5)
        deserted.add(1)

    with pytest.warns(UserWarning, match=r"no worker is alive. The run waits for one, up to 120 s \(workers_timeout\)"):
        there = solve(
            by_value(),
            generations=5,
            callback=Disturbance(replace_workers),
            # a task that waits for a worker does not exceed the time limit of an evaluation
            workers=gx.Workers(deserted.client, workers_timeout=120, timeout=1.0),
        )
    assert np.array_equal(there.population, alone.population) and there.n_failed == 0 and there.nfev == 5 * N


def exits():
    code = {}
    exec("def fun(x):\n import os\n os._exit(1)", code)
    return code["fun"]


def test_an_objective_that_ends_every_worker_ends_the_run(deserted, tmp_path):
    """Without a nanny nobody starts workers again. The result is empty, and this process does not call the function."""
    result = solve(
        exits(),
        checkpoint=tmp_path / "run.ckpt",
        max_seconds=300,
        workers=gx.Workers(deserted.client, workers_timeout=1),
    )
    assert result.stop == "workers" and not result.success and result.nfev == 0 and np.isnan(result.fun)
    assert "no worker has been alive" in result.message


def test_time_ends_a_run_that_never_had_a_worker(deserted):
    kill_workers(deserted)
    began = time.perf_counter()
    result = solve(by_value(), max_seconds=1.0, workers=deserted.client)
    assert result.stop == "time" and result.nfev == 0 and time.perf_counter() - began < 60


def test_a_scheduler_that_goes_away_ends_the_run_after_the_limit(deserted):
    result = solve(
        by_value(),
        generations=50,
        callback=Disturbance(deserted.processes[0].kill),
        workers=gx.Workers(deserted.client, workers_timeout=1),
    )
    assert result.stop == "workers" and result.n_failed == 0 and 2 * N <= result.nfev < 50 * N


@pytest.mark.slow
def test_a_run_goes_on_when_its_scheduler_comes_back(deserted):
    alone = solve(by_value(0.0), blackbox=True, generations=5)
    port = deserted.client.scheduler.address.rsplit(":", 1)[1]

    def replace_scheduler():
        for process in deserted.processes:
            process.kill()
            process.wait()
        deserted._start("dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
        deserted.add(1)

    there = solve(by_value(), generations=5, callback=Disturbance(replace_scheduler), workers=deserted.client)
    assert np.array_equal(there.population, alone.population) and there.n_failed == 0 and there.nfev == 5 * N


@pytest.mark.slow
def test_an_objective_that_ends_every_worker_fails_everywhere_under_a_nanny():
    """Each point is sent three times, with more and more care, and a worker dies of it each time. By default a cluster
    also gives up workers that are not there 15 s after one died, and the run would end for want of workers.
    """
    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.deploy.lost-worker-timeout": "1 hour"}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as own,
        distributed.Client(own) as client,
    ):
        result = gx.minimize(exits(), BOX, "random", population=4, generations=1, workers=client)
    assert result.nfev == result.n_failed == 4 and "KilledWorker" in result.failures[0].error
