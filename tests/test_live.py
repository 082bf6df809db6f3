"""The live page: in a real browser where one is to be had, and what it promises without one."""

import http.client
import json
import socket
import struct
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import jax
import numpy as np
import pytest
import saved_runs
from typer.testing import CliRunner

import galapax as gx
from galapax.algorithms.nsga2 import NSGA2
from galapax.cli.app import app
from galapax.numerics import devices
from galapax.view import live, progress
from galapax.view.live import server, session

ALL = 10**8  # more generations than any test waits for
DE = gx.DE(population=20)


@pytest.fixture(autouse=True)
def _own_server(monkeypatch):
    """A server of its own for each test: runs at the same place share one."""
    monkeypatch.setattr(server, "_servers", {})


class Run:
    """A run in a thread, with its page."""

    def __init__(self, *arguments, paused=False, live=None, **options):
        self.said: list[str] = []
        self.result = None
        ready = threading.Event()

        def say(sentence):
            self.said.append(sentence)
            ready.set()

        settings = {"open_browser": False, "paused": paused, "slow_start": False, "say": say, **(live or {})}

        def work():
            # easy problems and long runs: none is to end by itself
            self.result = gx.minimize(*arguments, live=gx.Live(**settings), **{"tolerance": 0, **options})

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        assert ready.wait(60)
        self.url = self.said[0].removeprefix("Live page: ")
        self.session = next(iter(server._servers.values())).session

    def end(self):
        self.session.command("stop")
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.result


@contextmanager
def running(*arguments, **options):
    run = Run(*arguments, **options)
    try:
        yield run
    finally:
        run.end()


@pytest.fixture
def visit(browser):
    """Opens a page, and fails the test if the page complains."""
    complaints, pages = [], []

    def of_page(told):
        looking = "getImageData" in told.text  # that is the test, looking at the pixels
        return told.type in ("error", "warning") and not looking

    def visit(url, width=1280, height=900, scheme="light"):
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.on(
            "console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") and of_page(m) else None
        )
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.goto(url)
        pages.append(page)
        return page

    yield visit
    for page in pages:
        page.close()
    assert complaints == []


def generation(page) -> int:
    return int(page.get_attribute("#generation", "data-value") or 0)


def until(claim, seconds=60.0):
    """Wait until claim() holds."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.03)


def painted(page, name) -> int:
    """How many colours a canvas shows."""
    script = """name => {
      const c = document.getElementById(name), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
      return new Set(new Uint32Array(d.buffer)).size; }"""
    return page.evaluate(script, name)


def ask(url, path, method="GET", body=None, **headers):
    """(status, body) of a request to the server of `url`."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=20)
    kind = {"Content-Type": "application/json"} if method == "POST" else {}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {**kind, **named})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data


def command(url, name, value=None, **headers):
    return ask(url, "/command", "POST", json.dumps({"command": name, "value": value}), **headers)


# in the browser


def test_a_run_is_watched_paused_stepped_resumed_and_stopped(visit):
    with running(gx.problems.get("rastrigin", dim=2), DE, generations=ALL, paused=True) as run:
        page = visit(run.url)
        until(lambda: generation(page) == 1 and page.inner_text("#state") == "paused")
        assert "de · 20 individuals, 2 variables · seed 0" in page.inner_text("#subtitle")
        page.click("#step")
        until(lambda: generation(page) == 2)
        time.sleep(0.3)
        assert generation(page) == 2
        page.click("#pause")
        seen, points = generation(page), int(page.get_attribute("#curve", "data-points") or 0)
        until(lambda: generation(page) > seen + 100 and int(page.get_attribute("#curve", "data-points")) > points + 5)
        assert page.inner_text("#state") == "running"
        page.click("#pause")
        until(lambda: page.inner_text("#state") == "paused")
        time.sleep(0.3)
        still = generation(page)
        time.sleep(0.4)
        assert generation(page) == still == int(page.get_attribute("#genome", "data-generation"))
        until(lambda: "computed" not in page.inner_text("#scatter-note"))
        colours = {name: painted(page, name) for name in ("curve", "scatter", "genome", "fitness")}
        assert min(colours.values()) > 3 and colours["scatter"] > 30, colours
        page.select_option("#genome-form", "rgba")
        page.uncheck("#log")
        page.evaluate("document.getElementById('speed').value = 3; document.getElementById('speed').oninput()")
        page.click("#pause")
        began, first = time.monotonic(), generation(page)
        until(lambda: generation(page) >= first + 4)
        assert (generation(page) - first) / (time.monotonic() - began) < 30  # ten a second were asked for
        page.click("#stop")
        until(lambda: page.inner_text("#state") == "finished")
        run.thread.join(30)
        assert "Stopped from the live page after generation" in run.result.message
        assert page.inner_text("#note") == run.result.message
        assert run.result.nit == generation(page) and np.isfinite(run.result.fun)
        assert page.is_disabled("#stop")


def test_on_paper_the_page_is_light_and_has_no_controls(visit):
    with running(gx.problems.get("branin"), DE, generations=ALL, paused=True) as run:
        light, page = visit(run.url), visit(run.url, scheme="dark")
        until(lambda: painted(page, "curve") > 5 and painted(light, "curve") > 5)
        ink = light.evaluate("colour.ink")
        assert page.evaluate("colour.ink") != ink and page.is_visible(".bar")
        page.emulate_media(media="print", color_scheme="dark")
        until(lambda: page.evaluate("colour.ink") == ink)
        assert page.is_hidden(".bar") and painted(page, "curve") > 5


def test_late_and_second_viewers_get_everything_so_far(visit):
    run = Run(gx.problems.get("sphere", dim=3), DE, generations=120, seed=5)
    run.thread.join(60)
    pages = [visit(run.url), visit(run.url, width=390, height=844, scheme="dark")]
    for page in pages:
        until(lambda page=page: generation(page) == 120 and page.get_attribute("#genome", "data-generation") == "120")
        assert (
            page.inner_text("#state") == "finished"
            and page.inner_text("#note") == "Stopped: generation limit (120) reached."
        )
        generations = page.evaluate("points.map(p => p[0])")
        assert generations[0] == 1 and generations[-1] == 120 and len(generations) > 30
        best = page.evaluate("points[points.length - 1][1]")
        assert best == pytest.approx(run.result.fun, rel=1e-12)
        assert "seed\n5" in page.inner_text("#settings")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_an_ensemble_with_constraints_shows_spread_and_feasible_share(visit):
    run = Run(gx.problems.get("spring"), gx.DE(population=16), generations=60, runs=12)
    run.thread.join(60)
    page = visit(run.url)
    until(lambda: generation(page) == 60)
    until(lambda: painted(page, "spread") > 3 and painted(page, "feasible") > 3 and painted(page, "curve") > 3)
    assert page.inner_text("#runs") == "12 of 12"
    values = page.evaluate("runState.values")
    feasible = run.result.runs.fun[run.result.runs.feasible]
    np.testing.assert_allclose(values, np.sort(feasible))
    assert page.evaluate("runState.share") == pytest.approx(run.result.runs.history.feasible_share[:, -1].mean())
    assert f"best {values[0]:.3g}"[:9] in page.inner_text("#spread-note")


def test_a_front_moves_beside_the_true_one(visit):
    with running(gx.problems.get("zdt1", dim=5), NSGA2(population=40), generations=ALL, paused=True) as run:
        page = visit(run.url)
        until(lambda: page.is_visible("#front") and painted(page, "front") > 3)
        assert "true front" in page.inner_text("#front-legend")
        low = "Math.min(...Array.from(frame.values).filter((_, i) => i % 2))"
        first = page.evaluate(low)
        page.click("#pause")
        until(lambda: page.evaluate(low) < first)
        until(lambda: page.inner_text("#best-name") == "hypervolume")
        assert page.inner_text("#curve-title") == "Hypervolume by generation"
        until(lambda: float(page.inner_text("#best")) > 0)


def test_the_page_works_with_its_token_and_not_without(visit):
    with running(gx.problems.get("sphere", dim=2), DE, generations=ALL, paused=True, live={"host": "0.0.0.0"}) as run:
        place = urlsplit(run.url)
        assert len(place.query) > len("token=") + 20
        page = visit(f"http://127.0.0.1:{place.port}/?{place.query}")
        until(lambda: generation(page) == 1)
        page.click("#step")
        until(lambda: generation(page) == 2)
        for path in ("/", "/events", "/facts", "/frame", "/contours?a=0&b=1", "/?token=wrong", "/nothing"):
            assert ask(run.url, path)[0] == 403, path
        assert command(run.url, "stop")[0] == 403
        assert ask(run.url, f"/facts?{place.query}")[0] == 200
        assert run.thread.is_alive()


def test_the_axis_says_the_best_known_value_to_its_digits(visit):
    run = Run(gx.problems.get("g06"), gx.DE(population=10), generations=3)
    run.thread.join(60)
    page = visit(run.url)
    until(lambda: generation(page) == 3)
    assert page.evaluate("toLogScale([[1, 2]]).name") == "above the best known (-6961.813876)"


# without a browser


def test_the_platform_is_that_of_the_default_device():
    here = jax.devices()[0].platform
    assert devices.platform() == here and devices.on_cpu() == (here == "cpu")
    for chosen in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(chosen):
            assert devices.platform() == "cpu" and devices.on_cpu()
    folder = Path(gx.__file__).parent / "view"
    assert not [file for file in folder.rglob("*.py") if "default_backend" in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("runs", [1, 3])
def test_the_same_seed_gives_the_same_result_with_and_without_the_page(runs):
    problem = gx.problems.get("spring")
    options = {"generations": 150, "tolerance": None, "seed": 4, "runs": runs, "keep": gx.Keep(history="x")}
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
    assert run.session.describe()["shown"] == 4096 and run.session.describe()["dim"] == 70


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


def test_what_holds_a_run_up_does_not_count_against_its_time_limit():
    gx.minimize(gx.problems.get("sphere", dim=2), DE, max_seconds=60.0, generations=2)  # compiles, which counts
    run = Run(gx.problems.get("sphere", dim=2), DE, max_seconds=1.0, paused=True)
    until(lambda: run.session.message(0, 0)[0]["state"] == "paused")
    time.sleep(1.2)
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


def test_an_error_in_the_run_is_told_on_the_page():
    def fun(x):
        if x[0] > -2:
            raise RuntimeError("the solver crashed")

    live = gx.Live(open_browser=False, say=lambda _: None)
    with pytest.raises(gx.EvaluationError):
        gx.minimize(fun, [(-1, 1)] * 2, DE, blackbox=True, on_failure="raise", live=live)
    text = server._servers[live.host, live.port].session.message(0, 0)[0]
    assert text["state"] == "failed" and "the solver crashed" in text["message"]


def test_a_port_that_is_taken_is_said_and_the_run_goes_on():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.warns(UserWarning, match=rf"port {port}: .* in use.* The run continues without it"):
            result = gx.minimize(gx.problems.get("branin"), DE, generations=5, live=port)
        assert result.nit == 5


def test_without_the_extra_it_is_said_and_the_run_goes_on(monkeypatch):
    monkeypatch.delitem(sys.modules, "galapax.view.live.server")
    monkeypatch.delattr("galapax.view.live.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.warns(UserWarning, match=r"needs uvicorn: pip install 'galapax\[live\]'. The run continues"):
        result = gx.minimize(gx.problems.get("branin"), DE, generations=5, live=True)
    assert result.nit == 5


def test_a_server_that_fails_is_said_and_the_run_goes_on(monkeypatch):
    async def serve(self, sockets):
        raise RuntimeError("no more files")

    monkeypatch.setattr(server.uvicorn.Server, "serve", serve)
    warned = []
    live = gx.Live(open_browser=False, paused=True, say=lambda _: None, warn=warned.append)
    result = gx.minimize(gx.problems.get("branin"), DE, generations=5, live=live)
    assert result.nit == 5 and not live.served
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
    assert gx.minimize(gx.problems.get("branin"), DE, generations=5, live=live).nit == 5


def test_trouble_while_looking_is_said_and_the_run_goes_on(monkeypatch):
    def broken(*arguments):
        raise MemoryError("no room")

    monkeypatch.setattr(session.live_view.ChunkView, "rows", broken)
    warned = []
    live = gx.Live(open_browser=False, paused=True, say=lambda _: None, warn=warned.append)
    result = gx.minimize(gx.problems.get("branin"), DE, generations=5, live=live)
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
    assert "generation 500/2000  best 1.25  40% feasible  1e+04 evaluations/s  15 s left" in line
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


def test_the_pointer_shows_values_and_dragging_zooms(visit):
    with running(gx.problems.get("branin"), DE, generations=ALL, paused=True) as run:
        page = visit(run.url)
        for _ in range(3):
            page.click("#step")
        until(lambda: generation(page) == 4 and int(page.get_attribute("#curve", "data-points") or 0) >= 4)
        until(lambda: painted(page, "scatter") > 20)
        area = page.locator("#curve").bounding_box()
        page.mouse.move(area["x"] + area["width"] - 14, area["y"] + area["height"] / 2)
        until(lambda: page.is_visible("#tip"))
        shown = page.inner_text("#tip")
        assert shown.startswith("generation 4") and {"best", "median", "worst"} <= set(
            shown.replace("\t", "\n").split("\n")
        )
        before = page.evaluate("drawn.scatter.x")
        area = page.locator("#scatter").bounding_box()
        page.mouse.move(area["x"] + 0.4 * area["width"], area["y"] + 0.3 * area["height"])
        page.mouse.down()
        page.mouse.move(area["x"] + 0.7 * area["width"], area["y"] + 0.6 * area["height"], steps=3)
        page.mouse.up()
        until(lambda: page.evaluate("drawn.scatter.x") != before)
        low, high = page.evaluate("drawn.scatter.x")
        assert before[0] < low < high < before[1]
        page.dblclick("#scatter")
        until(lambda: page.evaluate("drawn.scatter.x") == before)
        x, y = page.evaluate("[drawn.scatter.px(frame.x[0]), drawn.scatter.py(frame.x[1])]")
        page.mouse.move(area["x"] + x, area["y"] + y)
        until(lambda: page.inner_text("#tip").startswith("individual"))


def test_the_best_designs_are_in_a_table(visit):
    with running(gx.problems.get("g06"), DE, generations=ALL, paused=True) as run:
        page = visit(run.url)
        until(lambda: page.locator("#best-rows tr").count() == 11)
        head, *rows = [row.locator("th, td").all_inner_texts() for row in page.locator("#best-rows tr").all()]
        assert head == ["fitness", "violation", "x1", "x2"]
        violations = [float(row[1]) for row in rows]
        assert violations == sorted(violations)  # the feasible ones first
        least = min(page.evaluate("Array.from(frame.violation)"))
        assert violations[0] == pytest.approx(least, rel=1e-2)


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


def test_evaluations_per_second_are_those_that_are_made(visit):
    """Slowed down to ten generations a second, 20 individuals are 200 evaluations a second."""
    with running(gx.problems.get("sphere", dim=3), DE, generations=ALL, paused=True) as run:
        page = visit(run.url)
        command(run.url, "speed", 10)
        command(run.url, "resume")
        until(lambda: generation(page) > 25)
        assert 100 < page.evaluate("runState.evaluations_per_second") < 300


DECLARED = {
    "thickness": gx.real(0.1, 10, log=True, unit="mm"),
    "bolts": gx.integer(4, 16),
    "material": gx.choice("steel", "aluminium", "titanium"),
    "gauge": gx.choice(0.5, 0.8, 1.6),
    "welded": gx.boolean(),
}


def declared(v):
    kinds = v["material"] + 2.0 * v["welded"] + v["gauge"]
    return (v["thickness"] - 2.0) ** 2 + 0.1 * (v["bolts"] - 9) ** 2 + kinds


def test_declared_variables_are_shown_as_they_were_declared(visit, tmp_path):
    """On the axes, in the table and beside the pointer: during the run, and when a saved one is played again."""
    names = ["thickness [mm]", "bolts", "material", "gauge", "welded"]
    with running(declared, DECLARED, DE, generations=ALL, paused=True) as run:
        page = visit(run.url)
        until(lambda: page.locator("#best-rows tr").count() == 11)
        first, texts = _shown_of(page), page.locator("#best-rows tr").nth(1).locator("td").all_inner_texts()
        value, thickness, bolts, material, gauge, welded = texts
        chosen = {"material": ["steel", "aluminium", "titanium"].index(material), "welded": welded == "yes"}
        again = declared({"thickness": float(thickness), "bolts": int(bolts), "gauge": float(gauge), **chosen})
        assert float(value) == pytest.approx(again, rel=1e-4)
        assert page.locator("#best-rows th").all_inner_texts()[1:] == names
        assert first["thickness"] == ["10", "1", "0.1"] and first["welded"] == ["no", "yes"]
        assert first["bolts"] == ["4", "6", "8", "10", "12", "14", "16"]
        assert first["material"] == ["steel", "aluminium", "titanium"] and first["gauge"] == ["0.5", "0.8", "1.6"]
        page.select_option("#scatter-x", "2")
        until(lambda: page.evaluate("drawn.scatter.names[0]") == "material" and painted(page, "scatter") > 5)
    run.result.save(tmp_path / "run")
    said = []
    assert live.replay_result(gx.Live(open_browser=False, say=said.append), gx.load(tmp_path / "run"), tmp_path / "run")
    page = visit(said[0].removeprefix("Live page: "))
    page.click("#stop")
    until(lambda: page.locator("#best-rows tr").count() == 11)
    assert _shown_of(page) == first
    best = page.locator("#best-rows tr").nth(1).locator("td").all_inner_texts()
    named = run.result.problem.params(run.result.x)
    assert best[2:] == [str(named[n]) for n in ("bolts", "material", "gauge")] + ["yes" if named["welded"] else "no"]
    assert float(best[1]) == pytest.approx(named["thickness"], rel=1e-5)


def _shown_of(page) -> dict[str, list[str]]:
    """The ticks of each axis."""
    script = """k => { const a = geneAxis(k), pick = a.ticks(facts.lower[k] - 1e-9, facts.upper[k] + 1e-9, 8);
      return pick.map(a.text); }"""
    return {name: page.evaluate(script, k) for k, name in enumerate(DECLARED)}


def test_the_time_of_the_whole_run_is_told_from_its_first_generations():
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


@pytest.mark.parametrize("kind", ["single", "ensemble", "front"])
def test_a_saved_run_is_replayed_on_the_same_page_with_its_report_and_its_neighbours(kind, visit, tmp_path):
    options = {"single": {"keep": gx.Keep(snapshots=True)}, "ensemble": {"runs": 4}, "front": {"m": 2}}[kind]
    for name in ("earlier", "shown"):
        saved_runs.made(runs=options.get("runs", 1), m=options.get("m", 1), snapshots="snapshots" in options).save(
            tmp_path / name
        )
    (tmp_path / "other").mkdir()  # of somebody else
    said = []
    page_asked = gx.Live(open_browser=False, say=said.append)
    assert live.replay_result(page_asked, gx.load(tmp_path / "shown"), tmp_path / "shown")
    url = said[0].removeprefix("Live page: ")
    page = visit(url)
    until(lambda: generation(page) >= 2)
    page.click("#stop")
    until(lambda: page.inner_text("#state") == "finished")
    assert generation(page) == 6 and "Replay of a finished run." in page.inner_text("#note")
    until(lambda: page.locator("#past-rows tr").count() == 3 and page.is_visible("#report"))
    until(lambda: painted(page, "curve") > 5 and painted(page, "genome") > 3)
    assert page.is_hidden("#rate") and page.inner_text("#past-rows .shown").startswith("shown (this one)")
    status, text = ask(url, "/report?run=earlier")
    assert status == 200 and b"<!doctype html>" in text
    assert ask(url, "/report?run=../shown")[0] == 404 == ask(url, "/report?run=other")[0]
    page.click("#pause")  # Play again
    until(lambda: page.inner_text("#state") == "running" and generation(page) < 6)


def test_a_run_that_is_over_is_played_again_on_its_page(visit):
    live_asked = gx.Live(open_browser=False, slow_start=False, say=lambda _: None)
    result = gx.minimize(gx.problems.get("branin"), DE, generations=30, live=live_asked, tolerance=0, polish=False)
    shown = next(iter(server._servers.values()))
    assert shown.session.command("resume") == "The run has ended."
    live.on_run_end(live_asked, result, None)
    page = visit(shown.url)
    until(lambda: page.inner_text("#pause") == "Play again" and page.inner_text("#state") == "finished")
    page.click("#pause")
    until(lambda: page.inner_text("#state") == "running" and generation(page) < 30)
    page.click("#stop")
    until(lambda: "Replay of a finished run." in page.inner_text("#note"))


@pytest.mark.parametrize("on_cpu", [True, False])
def test_a_long_run_is_not_cut_into_ever_so_many_chunks(monkeypatch, on_cpu):
    monkeypatch.setattr(session.devices, "on_cpu", lambda: on_cpu)
    made, lengths = 0, []
    while made < 500_000:
        lengths.append(session._next_chunk_length(made))
        made += lengths[-1]
    assert len(lengths) < 100 and lengths[0] <= 100
    assert on_cpu or {n % 100 for n in lengths} == {0}  # of 100s and 500s, for which there are programs
