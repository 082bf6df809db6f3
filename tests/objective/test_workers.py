"""Black boxes called by other threads and processes: the same run, and what dies or hangs costs one evaluation.

The processes are real. They read galapax first, which takes them a second or two, so that tests share them.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from support import simulators
from support.simulators import LOWER, UPPER, Counted, Loaded, bowl, dies, dies_or_hangs, late_at_random, raises

import galapax as gx
from galapax.core.options import Workers
from galapax.objective import pool
from galapax.objective.pool import Functions
from galapax.objective.remote import RemoteEvaluator

BOX = [(LOWER, UPPER)] * 3
N = 12
SPAWN = multiprocessing.get_context("spawn")


def solve(fun=bowl, algorithm="de", **settings):
    return gx.minimize(fun, BOX, algorithm, polish=False, **{"population": N, "generations": 4, "seed": 2, **settings})


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        yield pool


@pytest.fixture
def threads():
    with ThreadPoolExecutor(3) as pool:
        yield pool


class Elsewhere(Executor):
    """An executor of a kind that galapax does not know; it does a task at once."""

    _max_workers = 2

    def __init__(self):
        self.tasks = []
        self.closed = False

    def submit(self, function, /, *arguments):
        self.tasks.append(arguments)
        future = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        self.closed = True


def same(one, other):
    return np.array_equal(one.x, other.x) and one.fun == other.fun and (one.nfev, one.nit) == (other.nfev, other.nit)


# --- the same run -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_any_executor_makes_the_run_that_a_black_box_makes(processes, threads):
    alone = solve(blackbox=True, runs=2)
    for executor in (threads, processes, Elsewhere(), Elsewhere):
        assert same(solve(runs=2, workers=executor), alone)


@pytest.mark.slow
def test_answers_may_come_in_any_order(threads, processes):
    alone = solve(blackbox=True)
    for executor in (threads, processes):
        assert same(solve(late_at_random, workers=executor), alone)


def test_an_executor_of_the_caller_is_left_open_and_one_that_we_started_is_closed(threads):
    made = []

    def make():
        made.append(Elsewhere())
        return made[-1]

    given = Elsewhere()
    solve(workers=given)
    solve(workers=make)
    solve(workers=threads)
    assert not given.closed and [e.closed for e in made] == [True] and threads.submit(int).result() == 0


def test_passing_a_dask_client_suggests_its_executor():
    class Client:
        def get_executor(self, **settings):
            asked.append(settings)
            return made

        def submit(self, *arguments):
            raise AssertionError("its futures are of another kind")

    asked, made = [], Elsewhere()
    assert same(solve(workers=Client()), solve(blackbox=True))
    assert asked == [{"pure": False}] and made.tasks


def test_no_two_tasks_are_equal():
    """A scheduler that computes equal tasks once would hand out the same failure to every retry."""
    given = Elsewhere()
    solve(raises, workers=gx.Workers(given, retries=2))
    serials = [task[-1] for task in given.tasks]
    assert len(set(serials)) == len(serials)


@pytest.mark.slow
def test_constraints_and_several_objectives_come_from_workers_too(threads):
    for fun in (simulators.simulate, lambda x: gx.Evaluation(fun=[x[0], (x[1] - x[0]) ** 2], ineq=x[2])):
        here, there = solve(fun, None, blackbox=True), solve(fun, None, workers=threads)
        assert np.array_equal(here.population, there.population)
        assert here.settings["algorithm"] in ("epsilon_de", "nsga2")


def test_workers_replay_a_single_run_of_an_ensemble(threads):
    result = solve(runs=3, workers=threads)
    again = result.run(1)
    assert np.array_equal(again.x, result.runs.x[1])


def test_functions_of_a_whole_population_are_given_chunks(threads):
    def fun(x):
        sizes.append(len(x))
        return ((x - 1.0) ** 2).sum(axis=1)

    sizes = []
    assert same(solve(fun, vectorized=True, workers=threads), solve(blackbox=True))
    assert sum(sizes) == 4 * N and min(sizes) == 1  # the first tells how long it takes


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_the_function_is_sent_once_to_each_worker(processes, tmp_path):
    result = solve(Loaded(tmp_path), generations=6, workers=processes)
    loads = [name.split("-")[0] for name in os.listdir(tmp_path)]
    assert result.nfev == 6 * N and len(loads) == len(set(loads)) <= 2


def test_lambdas_and_closures_are_sent(processes):
    centre = np.ones(3)
    assert same(solve(lambda x: float(((x - centre) ** 2).sum()), workers=processes), solve(blackbox=True))


def test_a_function_that_nobody_can_send_is_named(processes):
    lock = threading.Lock()

    def locked(x):
        with lock:
            return bowl(x)

    with pytest.raises(
        gx.InputError, match=r"fun \(.*locked\) cannot be sent to workers: it contains an object that cannot be pick"
    ):
        solve(locked, workers=processes)


def test_without_cloudpickle_one_sentence_names_the_function(processes, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(gx.InputError, match=r"fun \(.*<lambda>\) cannot be pickled.*def at the top.*cloudpickle"):
        solve(lambda x: 0.0, workers=processes)


def test_tasks_are_as_large_as_pays_and_smaller_in_the_end():
    pool = ThreadPoolExecutor(4)
    remote = RemoteEvaluator(Functions({"fun": bowl}), Workers(pool))
    assert remote.chunk_size(1000) == 1  # nobody knows yet how long it takes
    remote._row_seconds = 0.001  # a task should take 10 ms at least
    assert [remote.chunk_size(left) for left in (800, 160, 50, 7)] == [100, 20, 10, 7]
    remote._row_seconds = 0.1  # and a second at most
    assert [remote.chunk_size(left) for left in (800, 16, 8, 1)] == [10, 2, 1, 1]
    remote.timeout = 1.0  # and be well within the limit
    assert remote.chunk_size(800) == 2
    pool.shutdown()


class Far(Elsewhere):
    """An executor to which the way is long."""

    def submit(self, function, /, *arguments):
        time.sleep(0.002)
        return super().submit(function, *arguments)


def slowly(x):
    time.sleep(0.002)
    return bowl(x)


def told(record):
    return [str(warning.message) for warning in record if "workers" in str(warning.message)]


@pytest.mark.parametrize(("function", "executor", "pays"), [(bowl, Far, False), (slowly, Elsewhere, True)])
def test_workers_that_do_not_pay_are_warned_of_once(function, executor, pays, recwarn):
    solve(function, generations=6, workers=executor())
    sentences = told(recwarn)
    assert len(sentences) == (0 if pays else 1)
    assert pays or (sentences[0].startswith("2 workers took") and "the run is faster without" in sentences[0])


def test_workers_that_have_nothing_to_do_are_warned_of(recwarn):
    with ThreadPoolExecutor(N + 1) as pool:
        solve(generations=2, workers=pool)
        solve(generations=2, runs=2, workers=pool)
    assert told(recwarn) == [
        f"{N + 1} workers evaluate {N} points at a time, so some have nothing to do: give a larger population, more "
        "runs, or fewer workers."
    ]


# --- failures ---------------------------------------------------------------------------------------------------------


def bad_points(result):
    return all(failed.x[0] > 2.0 for failed in result.failures) and result.n_failed > 0


def test_an_exception_in_a_worker_costs_one_evaluation(processes):
    here, there = solve(raises, "random", blackbox=True), solve(raises, "random", workers=processes)
    assert same(here, there) and here.n_failed == there.n_failed > 0
    assert [f.error for f in here.failures] == [f.error for f in there.failures]
    with pytest.raises(gx.EvaluationError, match=r"no convergence in raises \(simulators.py:\d+\), at x = "):
        solve(raises, "random", on_failure="raise", workers=processes)


# the second is bad, and the last where a third variable of nearly nothing is
POINTS = np.array([[0.0, 1.0, 1.0], [2.5, 1.0, 1.0], [0.5, 1.0, 1.0], [1.0, 1.0, 0.0]])


def once(fun, **settings):
    """One generation of four points, the second of which is bad."""
    return gx.minimize(fun, BOX, "random", population=4, generations=1, x0=POINTS, polish=False, **settings)


@pytest.mark.parametrize(
    "pebble", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["Pebble", "standard library"]
)
def test_processes_that_we_make_may_die_or_hang(pebble, monkeypatch):
    if not pebble:
        monkeypatch.setitem(sys.modules, "pebble", None)
    lost = once(dies_or_hangs, workers=gx.Workers(2, timeout=1.0))
    assert (lost.fun, lost.nfev, lost.n_failed) == (0.25, 4, 2)
    errors = {tuple(failed.x): failed.error for failed in lost.failures}
    assert set(errors) == {tuple(POINTS[1]), tuple(POINTS[3])}
    assert "the worker process was lost" in errors[tuple(POINTS[1])]
    assert errors[tuple(POINTS[3])] == "no answer within the limit of 1 s"


@pytest.mark.slow
def test_a_pool_of_the_caller_that_broke_is_replaced():
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        result = once(dies, workers=pool)
        assert bad_points(result) and (result.fun, result.nfev, result.n_failed) == (0.25, 4, 1)


def test_threads_that_hang_are_left_behind():
    leave = threading.Event()

    def fun(x):
        if x[0] > 2.0:
            leave.wait()
        return bowl(x)

    result = once(fun, workers=gx.Workers(ThreadPoolExecutor(2), timeout=0.2))
    leave.set()
    assert (result.fun, result.n_failed) == (0.25, 1) and "no answer within" in result.failures[0].error


def test_a_broken_executor_that_nobody_can_make_again_ends_the_run_with_the_best_so_far():
    from concurrent.futures import BrokenExecutor

    class Breaks(Elsewhere):
        def submit(self, function, /, *arguments):
            if len(self.tasks) == 2 * N:  # a generation is as many tasks at most
                raise BrokenExecutor("the nodes went home")
            return super().submit(function, *arguments)

    result = solve(generations=50, workers=Breaks())
    assert result.stop == "workers" and np.isfinite(result.fun) and 0 < result.nfev < 50 * N and result.n_failed == 0
    assert "the nodes went home" in result.message and "workers=lambda" in result.message


def points_beyond(*where):
    """Starting points, of which these lie where simulators die."""
    points = np.tile(np.linspace(0.0, 1.0, 3 * N).reshape(-1, 1), (1, 3))
    points[list(where), 0] = 2.5
    return points


def test_a_pool_that_cannot_be_replaced_ends_the_run_after_the_limit(tmp_path):
    """What was evaluated counts, and with more memory the run goes on from there."""
    pools = []

    def make(count):
        if len(pools) >= count:
            raise OSError("no memory")
        pools.append(ProcessPoolExecutor(1, mp_context=SPAWN))
        return pools[-1]

    options = {"population": N, "generations": 3, "seed": 2, "x0": points_beyond(N - 1)[:N]}
    options["checkpoint"] = tmp_path / "run.ckpt"
    result = gx.minimize(
        dies, BOX, "de", workers=gx.Workers(lambda: make(1), workers_timeout=1), polish=False, **options
    )
    assert result.stop == "workers" and not result.success and result.nfev >= 1 and result.n_failed == 0
    assert "no worker has been alive for 1 s (workers_timeout)" in result.message
    assert "the pool cannot start (OSError: no memory)" in result.message
    resumed = gx.minimize(dies, BOX, "de", resume=True, workers=lambda: make(100), polish=False, **options)
    whole = gx.minimize(raises, BOX, "de", blackbox=True, **options | {"checkpoint": None})
    assert np.array_equal(resumed.population, whole.population) and resumed.nfev == whole.nfev == 3 * N


def make_pebble(*arguments):
    from pebble import ProcessPool

    return ProcessPool(1, context=SPAWN, initializer=simulators.exit_if_exists, initargs=arguments)


def make_standard(*arguments):
    return ProcessPoolExecutor(1, mp_context=SPAWN, initializer=simulators.exit_if_exists, initargs=arguments)


@pytest.mark.parametrize("make", [make_standard, make_pebble])
@pytest.mark.parametrize("asynchronous", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_processes_that_end_as_soon_as_they_start_end_the_run_after_the_limit(make, asynchronous, tmp_path):
    if make is make_pebble:
        pytest.importorskip("pebble")
    file = str(tmp_path / "full")
    result = gx.minimize(
        simulators.Sabotage(file),
        BOX,
        "de",
        population=N,
        generations=40,
        seed=2,
        x0=points_beyond(N - 1)[:N],
        workers=gx.Workers(lambda: make(file), asynchronous=asynchronous, workers_timeout=1),
    )
    assert result.stop == "workers" and np.isfinite(result.fun) and not result.success
    assert "no worker has been alive for 1 s (workers_timeout)" in result.message


@pytest.mark.parametrize("given", [False, True])
def test_a_process_that_exits_with_code_0_costs_one_evaluation(given):
    """Pebble says nothing of it."""
    pebble = pytest.importorskip("pebble")
    points = points_beyond(1)[:4]
    options = {"population": 4, "generations": 1, "x0": points}
    if given:
        with pebble.ProcessPool(1, context=SPAWN) as pool:
            result = gx.minimize(simulators.exits_regularly, BOX, "random", workers=pool, polish=False, **options)
    else:
        result = gx.minimize(simulators.exits_regularly, BOX, "random", workers=1, polish=False, **options)
    assert (result.nfev, result.n_failed) == (4, 1) and "exited with code 0" in result.failures[0].error


class Silent(Elsewhere):
    """An executor like that of mpi4py, which cannot tell whether its workers live; they answer so many tasks."""

    n_answered = 2 * N

    def submit(self, function, /, *arguments):
        if len(self.tasks) < self.n_answered:
            return super().submit(function, *arguments)
        return Future()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_workers_of_which_nothing_is_known_must_answer_within_the_limit(asynchronous):
    result = solve(generations=50, workers=gx.Workers(Silent(), workers_timeout=0.5, asynchronous=asynchronous))
    assert result.stop == "workers" and np.isfinite(result.fun) and 0 < result.nfev < 50 * N and result.n_failed == 0
    assert "no worker has answered for 0.5 s (workers_timeout)" in result.message


def test_workers_lost_in_the_last_generation_end_the_run_too(tmp_path):
    """It is not over: its checkpoint has the generation without the points that were not evaluated."""

    def far(x):
        time.sleep(0.02)  # so that a generation is several tasks
        return bowl(x)

    def lose_workers(state):
        if state.generation == 2:
            executor.n_answered = len(executor.tasks) + 1

    executor = Silent()
    executor.n_answered = 3 * N
    options = {"generations": 3, "checkpoint": tmp_path / "run.ckpt"}
    ended = solve(far, callback=lose_workers, workers=gx.Workers(executor, workers_timeout=0.5), **options)
    assert ended.stop == "workers" and 2 * N < ended.nfev < 3 * N and not ended.success
    resumed = solve(far, resume=True, workers=Elsewhere(), **options)
    assert same(resumed, solve(blackbox=True, generations=3)) and resumed.stop == "budget"


def test_constraints_of_lost_workers_are_not_called_in_this_process():
    def simulate(x):
        raise AssertionError("it might end this process")

    class Never(Silent):
        n_answered = 0

    result = solve(simulate, "epsilon_de", ineq=simulate, workers=gx.Workers(Never(), workers_timeout=0.5))
    assert result.stop == "workers" and result.nfev == 0 and not result.feasible


def test_who_was_beside_the_one_that_killed_its_worker_is_tried_again():
    class Lost(Exception):
        pass

    class Loses(Elsewhere):
        """The bad point takes the task before it along, as a scheduler does that counts who was there."""

        def submit(self, function, /, *arguments):
            future = super().submit(function, *arguments)
            rows = arguments[2]
            if (rows[:, 0] > 2.0).any() or ((rows[:, 0] == 0.0).any() and len(self.tasks) <= 4):
                future = Future()
                future.set_exception(Lost("gone"))
            return future

    result = once(bowl, workers=Loses())
    assert (result.nfev, result.n_failed) == (4, 1) and np.array_equal(result.failures[0].x, POINTS[1])


@pytest.mark.slow
def test_workers_leave_the_accelerator_alone():
    result = once(simulators.platform, workers=1, on_failure="worst")
    assert result.failures[0].error == "fun raised RuntimeError: cpu cpu"
    assert os.environ.get("JAX_PLATFORMS") != "cpu" or "JAX_PLATFORMS" in os.environ


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows has no such mask")
def test_workers_that_start_do_not_hear_ctrl_c():
    masked = [
        sys.executable,
        "-c",
        "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))",
    ]
    with pool._sigint_blocked():
        assert subprocess.check_output(masked) == b"True\n"
    assert subprocess.check_output(masked) == b"False\n"


def test_what_forks_is_warned_of():
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    with pytest.warns(UserWarning, match="forks its processes.*spawn"):
        RemoteEvaluator(Functions({"fun": bowl}), Workers(pool)).close()
    pool.shutdown()


@pytest.mark.slow
def test_the_error_of_a_script_without_a_main_guard_suggests_one(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import galapax as gx
            gx.minimize(lambda x: float(x @ x), [(-1, 2)] * 2, "de", population=6, generations=2, workers=1)
            """
        )
    )
    told = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert told.returncode == 1 and "stop before they evaluate anything" in told.stderr.splitlines()[-1]
    assert '`if __name__ == "__main__":`' in told.stderr.splitlines()[-1]


# --- time and Ctrl-C --------------------------------------------------------------------------------------------------


def test_time_ends_a_generation_of_workers():
    def fun(x):
        calls.append(x[0])
        if len(calls) > 3:
            leave.wait()
        return bowl(x)

    calls, leave = [], threading.Event()
    pool = ThreadPoolExecutor(1)
    result = solve(fun, population=40, generations=None, max_seconds=0.5, workers=pool)
    leave.set()
    pool.shutdown(cancel_futures=True)
    assert result.stop == "time" and result.nit == 1 and result.n_failed == 0 and 0 < result.nfev <= 3


def test_ctrl_c_while_workers_are_busy_keeps_what_was_evaluated(ctrl_c_raises):
    import signal

    def fun(x):
        calls.append(x[0])
        if len(calls) == 2 * N + 3:
            os.kill(os.getpid(), signal.SIGINT)
            leave.wait(30)
        return bowl(x)

    calls, leave = [], threading.Event()
    pool = ThreadPoolExecutor(1)
    result = solve(fun, generations=50, workers=pool)
    leave.set()
    pool.shutdown(cancel_futures=True)
    assert result.stop == "interrupt" and 2 * N <= result.nfev < 2 * N + 3 and result.n_failed == 0


def test_a_cache_serves_all_workers(tmp_path, threads):
    fun = Counted(tmp_path)
    result = solve(fun, x0=np.ones((N, 3)), workers=gx.Workers(threads, memoize=True))
    assert fun.calls == result.nfev - result.n_cached < result.nfev


# --- asynchronous -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_asynchronous_evolution_finds_the_optimum_and_counts(threads):
    result = solve(late_at_random, generations=30, workers=gx.Workers(threads, asynchronous=True))
    assert result.fun < 0.05 and (result.nit, result.nfev, result.n_failed) == (30, 30 * N, 0)
    assert (np.diff(result.history.best) <= 0).all() and result.fun == bowl(result.x)


def test_no_worker_waits_for_the_slowest():
    """A call waits until fifty others, more than a generation after its own, were made; in turns that never happens."""

    def fun(x):
        with lock:
            number = len(calls)
            calls.append(x)
        if number == 2 * N + 3:
            waited.append(enough.wait(60))
        if number == 2 * N + 53:
            enough.set()
        return bowl(x)

    lock, enough, calls, waited = threading.Lock(), threading.Event(), [], []
    with ThreadPoolExecutor(2) as pool:
        result = solve(fun, generations=12, workers=gx.Workers(pool, asynchronous=True))
    assert waited == [True] and result.nfev == 12 * N


def test_failures_of_asynchronous_candidates_are_counted_and_tried_again(threads):
    def flaky(x):
        with lock:
            seen.append(x.tobytes())
            first = seen.count(seen[-1]) == 1
        if first or x[0] > 2.0:
            raise ValueError("no convergence")
        return bowl(x)

    seen, lock = [], threading.Lock()
    result = solve(flaky, generations=10, workers=gx.Workers(threads, asynchronous=True, retries=1))
    assert bad_points(result) and result.nfev == 10 * N and len(seen) >= 2 * result.nfev - 6 and result.x[0] <= 2.0


@pytest.mark.slow
def test_constraints_hold_asynchronously_too(threads):
    result = solve(simulators.simulate, generations=200, population=20, workers=gx.Workers(threads, asynchronous=True))
    assert result.feasible and result.x[0] <= 0.5 and abs(result.x[2] - 0.25) <= 1e-4 and result.eq.shape == (1,)


def test_time_ends_asynchronous_evolution_too(clock):
    def fun(x):
        clock.wait(0.1)
        return bowl(x)

    with ThreadPoolExecutor(1) as pool:
        result = solve(fun, generations=None, max_seconds=5.0, workers=gx.Workers(pool, asynchronous=True))
    assert result.stop == "time" and result.nfev < 51 and result.n_failed == 0 and np.isfinite(result.fun)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"algorithm": "ga"}, "asynchronous=True is for DE"),
        ({"algorithm": None}, "asynchronous=True is for DE.*cmaes"),
        ({"runs": 2}, "remove runs"),
        ({"vectorized": True}, "remove vectorized"),
        ({"on_failure": "resample"}, "remove on_failure"),
        ({"memoize": True}, "remove memoize"),
    ],
    ids=str,
)
def test_what_cannot_be_asynchronous_is_refused(threads, settings, why):
    memoize = settings.pop("memoize", None)
    with pytest.raises(gx.InputError, match=why):
        solve(workers=gx.Workers(threads, asynchronous=True, memoize=memoize), **settings)
