"""The live page without a browser: its server, what it sends, and what goes wrong."""

import json
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import jax
import numpy as np
import pytest
from support.live_runs import ALL, DE, Run, ask, command, running, until
from typer.testing import CliRunner

import galapax as gx
from galapax.cli.app import app
from galapax.numerics import devices
from galapax.view import progress
from galapax.view.live import server, session

pytestmark = pytest.mark.usefixtures("own_server")


def test_the_platform_is_that_of_the_default_device():
    here = jax.devices()[0].platform
    assert devices.platform() == here and devices.on_cpu() == (here == "cpu")
    for chosen in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(chosen):
            assert devices.platform() == "cpu" and devices.on_cpu()
    folder = Path(gx.__file__).parent / "view"
    assert not [file for file in folder.rglob("*.py") if "default_backend" in file.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 3])
def test_the_same_seed_gives_the_same_result_with_and_without_the_page(runs):
    problem = gx.problems.get("spring")
    options = {
        "generations": 150,
        "tolerance": None,
        "seed": 4,
        "runs": runs,
        "keep": gx.Keep(history="x"),
        "polish": False,
    }
    alone = gx.minimize(problem, gx.DE(population=16), **options)
    run = Run(problem, gx.DE(population=16), paused=True, **options)
    until(lambda: run.session.message(0, 0)[0]["generation"] == 1)
    for made in (2, 3):
        assert command(run.url, "step")[0] == 200
        until(lambda made=made: run.session.message(0, 0)[0]["generation"] == made)
    assert command(run.url, "speed", 1000)[0] == 200
    assert command(run.url, "resume")[0] == 200
    run.thread.join(60)
    watched = run.result
    assert np.array_equal(alone.x, watched.x) and alone.fun == watched.fun and alone.message == watched.message
    assert np.array_equal(alone.history.best, watched.history.best)
    assert np.array_equal(alone.population, watched.population)
    assert watched.timings["held"] > 0 and watched.timings["run"] > 0


def test_what_is_shown_of_an_ensemble_is_its_history():
    run = Run(gx.problems.get("rastrigin", dim=2), DE, generations=90, runs=9, target=1.0, maximize=False)
    run.thread.join(60)
    message, _, _ = run.session.message(-1, 0)
    history = run.result.runs.history
    assert len(message["points"]) > 20
    for point in message["points"]:
        best = np.sort(history.best[:, point[0] - 1])
        np.testing.assert_allclose(point[-5:], best[[0, 2, 4, 6, 8]])
        np.testing.assert_allclose(point[1:2], history.best[0, point[0] - 1])


def test_what_is_shown_of_a_run_is_its_history_and_its_population():
    run = Run(lambda x: -(x**2).sum(), [(-1, 2)] * 3, DE, generations=30, maximize=True)
    run.thread.join(60)
    history = run.result.history
    points = run.session.message(-1, 0)[0]["points"]
    assert [p[0] for p in points] == list(range(1, 31))  # no more than are shown of a chunk
    np.testing.assert_allclose([p[1] for p in points], history.best)
    np.testing.assert_allclose([p[3] for p in points], history.worst)
    assert points[-1][2] == pytest.approx(np.median(run.result.population_fitness))
    head, values, x = unpack(run.session.frame())
    assert head["generation"] == 30
    np.testing.assert_allclose(values[:, 0], run.result.population_fitness)
    np.testing.assert_allclose(x, run.result.population.astype(np.float32))


def unpack(data):
    (length,) = struct.unpack("<I", data[:4])
    head = json.loads(data[4 : 4 + length])
    n, m, v = head["shown"], head["objectives"], head["variables"]
    values = np.frombuffer(data, "<f8", n * m, 4 + length).reshape(n, m)
    return head, values, np.frombuffer(data[-4 * n * v :], "<f4").reshape(n, v)


def test_large_populations_are_thinned_and_keep_their_best():
    run = Run(gx.problems.get("sphere", dim=70), gx.DE(population=5000), generations=3)
    run.thread.join(60)
    head, values, _ = unpack(run.session.frame())
    assert (head["shown"], head["variables"]) == (4096, 64)
    assert values.min() == run.result.fun
    assert run.session.describe()["max_individuals"] == 4096 and run.session.describe()["dim"] == 70


def test_of_a_large_archive_only_cells_with_an_elite_are_shown():
    fun, measures, ranges = (lambda x: x @ x), (lambda x: x), [(0, 1), (0, 1)]
    run = Run(fun, [(0, 1)] * 2, verb=gx.illuminate, measures=measures, ranges=ranges, cells=(80, 80), generations=60)
    run.thread.join(60)
    _, values, _ = unpack(run.session.frame())
    filled = len(run.result.fun)
    assert filled > 4096 and np.isfinite(values).all() and values[:, 0].min() == run.result.fun.min()
    assert len(np.unique(values, axis=0)) == 4096


@pytest.mark.parametrize("runs", [1, 3])
def test_what_is_shown_of_a_search_for_minima_is_its_table(runs):
    options = {"max_evaluations": 3000, "unseen": 0, "polish": False, "runs": runs}
    alone = gx.minima("branin", **options)
    run = Run("branin", verb=gx.minima, **options)
    run.thread.join(60)
    assert np.array_equal(run.result.minima.x, alone.minima.x)  # watching changes nothing
    first = run.result if runs == 1 else run.result.run(0)
    head, values, x = unpack(run.session.frame())
    np.testing.assert_array_equal(values[:, 0], first.minima.fun)
    np.testing.assert_array_equal(x, first.minima.x.astype(np.float32))
    message = run.session.message(-1, 0)[0]
    assert message["state"] == "finished" and message["nfev"] == run.result.nfev
    assert head["generation"] == run.result.nit
    points, history = message["points"], run.result.history
    assert points[0][0] == 1 and points[-1][0] == run.result.nit
    if runs == 1:
        np.testing.assert_allclose([point[1] for point in points], history.best)
        np.testing.assert_allclose([point[3] for point in points], history.worst)
    else:  # runs end their rounds at different times, and all at last
        np.testing.assert_allclose(points[-1][-5::2], np.sort(run.result.runs.fun))


def test_a_search_for_minima_is_paused_and_stopped_from_the_page():
    with running("branin", verb=gx.minima, max_evaluations=10**6, unseen=0, polish=False, paused=True) as run:
        until(lambda: run.session.message(-1, 0)[0]["state"] == "paused")
        rounds = run.session.message(-1, 0)[0]["generation"]
        run.session.command("step")
        until(lambda: run.session.message(-1, 0)[0]["generation"] == rounds + 1)
    assert run.result.stop == "page" and len(run.result.minima) == 3 and run.result.nfev < 10**6


def test_long_curves_are_thinned(monkeypatch):
    monkeypatch.setattr(session, "MAX_LIVE_POINTS", 40)
    run = Run(gx.problems.get("sphere", dim=2), DE, generations=5000)
    run.thread.join(60)
    generations = [p[0] for p in run.session.message(-1, 0)[0]["points"]]
    assert generations[0] == 1 and generations[-1] == 5000 and len(generations) <= 40
    assert generations == sorted(set(generations))


def test_contours_are_the_objective_and_come_once_for_each_pair():
    calls = []

    def fun(x):
        calls.append(1)
        return (x[0] - 1) ** 2 + 3 * x[1] + x[2]

    with running(fun, [(-2, 2), (0, 1), (5, 6)], DE, generations=ALL, ineq=lambda x: x[0], paused=True) as run:
        until(lambda: run.session._frame is not None)
        before = len(calls)
        grid = json.loads(ask(run.url, "/contours?a=0&b=1&k=0")[1])
        other = float(run.session._frame[2].best[2])
        side = grid["side"]
        x, y = np.meshgrid(np.linspace(-2, 2, side), np.linspace(0, 1, side))
        expected = (x - 1) ** 2 + 3 * y + other
        np.testing.assert_allclose(np.reshape(grid["values"], (side, side)), expected, rtol=1e-5, atol=1e-5)
        assert np.array_equal(np.reshape(grid["feasible"], (side, side)) == 1, x <= 0)
        traced = len(calls)
        assert traced > before
        assert json.loads(ask(run.url, "/contours?a=0&b=1&k=0")[1]) == grid
        assert len(calls) == traced
        for bad in ("a=0&b=0", "a=0&b=9", "a=-1&b=1", "a=0&b=1&k=7"):
            assert "Choose" in json.loads(ask(run.url, f"/contours?{bad}")[1])["why"]
        assert ask(run.url, "/contours?a=x&b=1")[0] == 400


def test_contours_of_a_black_box_are_not_asked_for():
    run = Run(lambda x: float((x**2).sum()), [(-1, 1)] * 2, DE, generations=5, blackbox=True)
    run.thread.join(60)
    assert run.result.nit == 5 and run.session.message(-1, 0)[0]["points"][-1][0] == 5
    assert "cannot be called here" in run.session.contours(0, 1, 0, False)["why"]


def test_other_sites_and_wrong_commands_are_refused():
    with running(gx.problems.get("sphere", dim=2), DE, generations=ALL, paused=True) as run:
        here = f"127.0.0.1:{urlsplit(run.url).port}"
        assert command(run.url, "pause", Origin=f"http://{here}", Sec_Fetch_Site="same-origin")[0] == 200
        assert ask(run.url, "/facts", Host="localhost:1234")[0] == 200  # through a tunnel
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Host": f"evil.example:{urlsplit(run.url).port}"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Content_Type": "text/plain"},
        ):
            assert command(run.url, "stop", **headers)[0] == 403, headers
        assert ask(run.url, "/facts", Host="evil.example")[0] == 403
        for name, value in (
            ("exec", "1"),
            (["stop"], None),
            (None, None),
            ("speed", 0),
            ("speed", 1e9),
            ("speed", "fast"),
            ("speed", True),
            ("speed", float("nan")),
            ("speed", 10**400),
            ("run", 1),
            ("run", 0.5),
        ):
            assert command(run.url, name, value)[0] == 400, (name, value)
        for body in ("", "stop", "[]", "{", '{"command": 1}', "[" * 900):
            assert ask(run.url, "/command", "POST", body)[0] == 400, body
        assert ask(run.url, "/command", "POST", "x" * 5000)[0] == 413
        assert ask(run.url, "/command")[0] == 405
        assert ask(run.url, "/../../etc/passwd")[0] == 404
        until(lambda: run.session.message(0, 0)[0]["generation"] == 1)
        assert run.thread.is_alive()


@pytest.mark.slow
def test_what_holds_a_run_up_does_not_count_against_its_time_limit():
    gx.minimize(
        gx.problems.get("sphere", dim=2), DE, max_seconds=60.0, generations=2, polish=False
    )  # compiles, which counts
    run = Run(gx.problems.get("sphere", dim=2), DE, max_seconds=4.0, paused=True)
    until(lambda: run.session.message(0, 0)[0]["state"] == "paused")
    time.sleep(4.2)
    assert run.thread.is_alive()
    command(run.url, "resume")
    run.thread.join(60)
    assert run.result.nit > 1 and "time limit" in run.result.message


def test_a_run_that_nobody_watches_any_more_goes_on(monkeypatch):
    monkeypatch.setattr(session, "ABANDONED_SECONDS", 0.3)
    run = Run(gx.problems.get("sphere", dim=2), DE, generations=30, paused=True)
    until(lambda: run.session.message(0, 0)[0]["state"] == "paused")
    time.sleep(0.6)
    assert run.thread.is_alive()  # nobody came yet
    with socket.create_connection(("127.0.0.1", urlsplit(run.url).port)) as viewer:
        viewer.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in viewer.recv(100)
        until(lambda: run.session.page.seconds_without_viewers() == 0)
    run.thread.join(60)
    assert run.result.nit == 30


def test_a_later_run_at_the_same_place_takes_over_the_page():
    first = Run(gx.problems.get("sphere", dim=2), DE, generations=30, paused=True)
    second = Run(gx.problems.get("branin"), DE, generations=30)
    first.thread.join(60)  # it was paused, and its page is gone
    second.thread.join(60)
    assert second.url == first.url and first.result.nit == 30
    assert json.loads(ask(first.url, "/facts")[1])["name"] == "branin"


def test_the_page_shows_an_error_in_the_run():
    def fun(x):
        if x[0] > -2:
            raise RuntimeError("the solver crashed")

    live = gx.Live(open_browser=False, say=lambda _: None)
    with pytest.raises(gx.EvaluationError):
        gx.minimize(fun, [(-1, 1)] * 2, DE, blackbox=True, on_failure="raise", live=live)
    text = server._servers[live.host, live.port].session.message(0, 0)[0]
    assert text["state"] == "failed" and "the solver crashed" in text["message"]


def test_a_taken_port_is_warned_of_and_the_run_goes_on():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.warns(UserWarning, match=rf"port {port}: .* in use.* The run continues without it"):
            result = gx.minimize(gx.problems.get("branin"), DE, generations=5, live=port, polish=False)
        assert result.nit == 5


def test_a_missing_extra_is_warned_of_and_the_run_goes_on(monkeypatch):
    monkeypatch.delitem(sys.modules, "galapax.view.live.server")
    monkeypatch.delattr("galapax.view.live.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.warns(UserWarning, match=r"needs uvicorn: pip install 'galapax\[live\]'. The run continues"):
        result = gx.minimize(gx.problems.get("branin"), DE, generations=5, live=True, polish=False)
    assert result.nit == 5


def test_a_server_that_fails_is_warned_of_and_the_run_goes_on(monkeypatch):
    async def serve(self, sockets):
        raise RuntimeError("no more files")

    monkeypatch.setattr(server.uvicorn.Server, "serve", serve)
    warned = []
    live = gx.Live(open_browser=False, paused=True, say=lambda _: None, warn=warned.append)
    result = gx.minimize(gx.problems.get("branin"), DE, generations=5, live=live, polish=False)
    assert result.nit == 5 and not live.is_served
    assert warned == ["The live page stopped (RuntimeError: no more files). The run continues without it."]


def test_a_server_that_failed_before_it_knew_the_run_does_not_hold_it_up(monkeypatch):
    fails = threading.Event()

    async def serve(self, sockets):
        raise RuntimeError("no more files")

    def late(self, *arguments):
        assert fails.wait(10)
        show(self, *arguments)

    show = server.Server.show
    monkeypatch.setattr(server.uvicorn.Server, "serve", serve)
    monkeypatch.setattr(server.Server, "show", late)
    live = gx.Live(open_browser=False, paused=True, say=lambda _: None, warn=lambda _: fails.set())
    assert gx.minimize(gx.problems.get("branin"), DE, generations=5, live=live, polish=False).nit == 5


def test_an_error_while_sampling_is_warned_of_and_the_run_goes_on(monkeypatch):
    def broken(*arguments):
        raise MemoryError("no room")

    monkeypatch.setattr(session.observers.ChunkView, "rows", broken)
    warned = []
    live = gx.Live(open_browser=False, paused=True, say=lambda _: None, warn=warned.append)
    result = gx.minimize(gx.problems.get("branin"), DE, generations=5, live=live, polish=False)
    assert result.nit == 5
    assert warned == ["The live page has stopped updating (MemoryError: no room). The run continues."]


@pytest.mark.parametrize("live", ["yes", 1.5, -1, 70000, [8080]])
def test_wrong_arguments_are_refused(live):
    with pytest.raises(gx.InputError, match=r"live must be|port must be"):
        gx.minimize(gx.problems.get("branin"), DE, generations=5, live=live)


def test_wrong_hosts_are_refused():
    with pytest.raises(gx.InputError, match="host must be an address"):
        gx.Live(host="")
    assert gx.Live().private and gx.Live(host="localhost").private and gx.Live(host="::1").private
    assert not gx.Live(host="0.0.0.0").private and not gx.Live(host="example.org").private


@pytest.mark.slow
def test_solve_live_says_where_and_stays_up_until_interrupted(monkeypatch):
    monkeypatch.setenv("GALAPAX_CACHE", "off")
    arguments = ["solve", "branin", "-g", "5", "-n", "10", "--live", "--no-open"]
    outcome = CliRunner().invoke(app, [*arguments, "--no-wait"])
    assert outcome.exit_code == 0 and "Live page: http://127.0.0.1:" in outcome.output and "0." in outcome.output

    def interrupt(self, timeout=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("galapax.cli.output.threading.Event.wait", interrupt)
        outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0 and "stays open until" in outcome.output
    outcome = CliRunner().invoke(app, ["solve", "branin", "--port", "8080"])
    assert outcome.exit_code == 2 and "add --live" in outcome.output


@pytest.mark.slow
def test_importing_galapax_loads_no_server():
    import subprocess

    code = (
        "import sys, galapax; "
        "print([m for m in ('uvicorn', 'starlette', 'rich', 'typer', 'matplotlib', 'PIL') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


# the terminal


def state(**changes):
    usual = {"generation": 500, "generations": 2000, "nfev": 50_000, "fun": 1.25, "violation": 0.0}
    return gx.Progress(**{**usual, "runs_done": 0, "runs": 1, "seconds": 5.0, **changes})


def test_the_progress_line_has_best_feasibility_speed_and_time_left():
    first = state(generation=100, nfev=10_000, seconds=1.0)
    line = progress.fit_to_width("g06 · de", state(feasible_share=0.4), first, 120)
    assert "generation 500/2000  best 1.25  40% feasible  10,000 evaluations/s  15 s left" in line
    assert "█████░░░░░░░░░░░░░░░  25%" in line
    limited = state(generations=None, max_seconds=20.0)
    assert "15 s left" in progress.fit_to_width("", limited, first, 120) and "  25%" in progress.fit_to_width(
        "", limited, first, 120
    )


@pytest.mark.parametrize("width", range(0, 130, 7))
def test_the_progress_line_fits_the_terminal(width):
    line = progress.fit_to_width(
        "g06 · de", state(feasible_share=0.4, violation=2.0, runs=30), state(seconds=1.0), width
    )
    assert len(line) <= width
    if width > 60:
        assert line.startswith("g06 · de") and "best 1.25" in line


def test_a_slow_start_is_slow_only_while_somebody_watches_and_until_they_choose():
    class Watched:
        alone = 0.0

        def seconds_without_viewers(self):
            return self.alone

        def notify_viewers(self):
            pass

    page = Watched()
    shown = session.LiveSession.__new__(session.LiveSession)
    shown.page, shown._is_slow_start, shown._watched_since, shown._browser_deadline, shown._speed, shown._chunk_end = (
        page,
        True,
        None,
        0.0,
        None,
        1,
    )
    assert session.INITIAL_SPEED <= shown._pace() < 2 * session.INITIAL_SPEED
    shown._watched_since -= 3 * session.SPEED_DOUBLING_SECONDS
    assert 8 * session.INITIAL_SPEED <= shown._pace() < 9 * session.INITIAL_SPEED
    page.alone = 5.0
    assert shown._pace() is None and shown._is_slow_start
    page.alone, shown._watched_since = 0.0, shown._watched_since - 60
    shown._pace()
    assert not shown._is_slow_start and shown._pace() is None  # a while has passed


def test_the_first_generations_predict_the_time_of_the_run():
    """And what the page holds a run up is no speed of the run."""
    shown = session.LiveSession.__new__(session.LiveSession)
    shown._speed = None
    first = state(generation=1, generations=200, nfev=20, seconds=5.0, overhead=4.0)  # a second each
    slow = state(generation=1, generations=200, nfev=20, seconds=64.0, overhead=4.0)
    assert shown._estimate_times(((0.0, 20, first),), "running") == {}
    assert shown._estimate_times(((0.0, 20, slow),), "running") == {
        "left": 199 * 60.0,
        "total_seconds": 64.0 + 199 * 60.0,
    }
    later = state(generation=11, generations=200, nfev=220, seconds=75.0, overhead=64.0)  # held up for a minute
    told = shown._estimate_times(((0.0, 20, first), (70.0, 220, later)), "running")
    assert told["left"] == pytest.approx(189.0) and told["total_seconds"] == pytest.approx(264.0)
    assert told["evaluations_per_second"] == pytest.approx(200 / 70)
    shown._speed = 0.5  # a viewer lets it make one in two seconds
    assert shown._estimate_times(((0.0, 20, first), (70.0, 220, later)), "running")["left"] == 378.0
    assert shown._estimate_times(((0.0, 20, first),), "paused") == {}


@pytest.mark.parametrize("on_cpu", [True, False])
def test_a_long_run_is_not_cut_into_ever_so_many_chunks(monkeypatch, on_cpu):
    monkeypatch.setattr(session.devices, "on_cpu", lambda: on_cpu)
    made, lengths = 0, []
    while made < 500_000:
        lengths.append(session._next_chunk_length(made))
        made += lengths[-1]
    assert len(lengths) < 100 and lengths[0] <= 100
    assert on_cpu or {n % 100 for n in lengths} == {0}  # of 100s and 500s, for which there are programs
