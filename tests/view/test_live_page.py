"""The live page in a real browser."""

import io
import time
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from support import saved_runs
from support.live_runs import ALL, DE, Run, ask, command, running, until

import galapax as gx
from galapax.algorithms.nsga2 import NSGA2
from galapax.view import live
from galapax.view.live import server

pytestmark = pytest.mark.usefixtures("own_server")


@pytest.fixture
def visit(browser):
    """Opens a page, and fails the test if the page complains."""
    complaints, pages = [], []

    def of_page(told):
        return told.type in ("error", "warning")

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


def _number(text: str) -> float:
    """Parse a number as a page writes it."""
    return float(text.replace("−", "-").replace(",", ""))


def painted(page, name) -> int:
    """How many colours a chart shows."""
    pixels = np.asarray(Image.open(io.BytesIO(page.locator(f"#{name} .plot").screenshot())).convert("RGB"))
    return len(np.unique(pixels.reshape(-1, 3), axis=0))


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
        assert min(colours.values()) > 2 and colours["scatter"] > 30, colours
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
        text_colour = "getComputedStyle(document.body).color"
        ink = light.evaluate(text_colour)
        assert page.evaluate(text_colour) != ink and page.is_visible(".bar")
        page.emulate_media(media="print", color_scheme="dark")
        until(lambda: page.evaluate(text_colour) == ink)
        assert page.is_hidden(".bar") and painted(page, "curve") > 5


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_front_moves_beside_the_true_one(visit):
    with running(gx.problems.get("zdt1", dim=5), NSGA2(population=40), generations=ALL, paused=True) as run:
        page = visit(run.url)
        until(lambda: page.is_visible("#front") and painted(page, "front") > 3)
        assert "true front" in page.inner_text("#front .legend")
        low = "Math.min(...Array.from(frame.values).filter((_, i) => i % 2))"
        first = page.evaluate(low)
        page.click("#pause")
        until(lambda: page.evaluate(low) < first)
        until(lambda: page.inner_text("#best-name") == "hypervolume")
        assert page.inner_text("#curve-title") == "Hypervolume by generation"
        until(lambda: _number(page.inner_text("#best")) > 0)


def test_a_map_shows_its_elites_in_their_cells(visit):
    def reach(x):
        return x[0]

    def height(x):
        return x[1]

    space = [(-1, 1)] * 3
    options = {"measures": [reach, height], "ranges": [(-1, 1), (0, 1)], "cells": (8, 5), "generations": ALL}
    with running(lambda x: x @ x, space, verb=gx.illuminate, paused=True, **options) as run:
        page = visit(run.url)
        until(lambda: page.is_visible("#front image"))
        assert page.inner_text("#front-title") == "Map of elites" and not page.is_visible("#front-tools")
        assert page.evaluate("facts.map") == {"cells": [8, 5], "ranges": [[-1, 1], [0, 1]]}
        page.click("#pause")
        until(lambda: page.evaluate("Array.from(frame.values).filter(Number.isFinite).length / 3") == 40)
        # one colour for each of the 40 cells: their elites differ
        pixels = page.evaluate("""async () => {
            const image = new Image(); image.src = document.querySelector("#front image").getAttribute("href");
            await image.decode();
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [image.width, image.height];
            const context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
            return [image.width, image.height, Array.from(context.getImageData(0, 0, image.width, image.height).data)];
        }""")
        width, height_of_image, data = pixels
        assert (width, height_of_image) == (8, 5) and min(data[3::4]) == 255
        red = np.array(data).reshape(5, 8, 4)[..., 0]
        assert red[4, 3] < red[0, 0]  # dark is low: the cell at the origin, and the corner at the top left


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_axis_says_the_best_known_value_to_its_digits(visit):
    run = Run(gx.problems.get("g06"), gx.DE(population=10), generations=3)
    run.thread.join(60)
    page = visit(run.url)
    until(lambda: generation(page) == 3)
    assert page.evaluate("toLogScale([[1, 2]]).name") == "above the best known (−6961.813876)"


@pytest.mark.slow
def test_the_pointer_shows_values_and_dragging_zooms(visit):
    with running(gx.problems.get("branin"), DE, generations=ALL, paused=True) as run:
        page = visit(run.url)
        for _ in range(3):
            page.click("#step")
        until(lambda: generation(page) == 4 and int(page.get_attribute("#curve", "data-points") or 0) >= 4)
        until(lambda: painted(page, "scatter") > 20)
        area = page.locator("#curve .plot > svg").bounding_box()
        page.mouse.move(area["x"] + area["width"] - 14, area["y"] + area["height"] / 2)
        until(lambda: page.is_visible("#curve .tip"))
        shown = page.inner_text("#curve .tip")
        names = {"best so far", "median of the generation", "worst of the generation"}
        assert shown.startswith("generation 4") and names <= set(shown.replace("\t", "\n").split("\n"))
        before = page.evaluate("charts.scatter.view.x")
        area = page.locator("#scatter .plot > svg").bounding_box()
        page.mouse.move(area["x"] + 0.4 * area["width"], area["y"] + 0.3 * area["height"])
        page.mouse.down()
        page.mouse.move(area["x"] + 0.7 * area["width"], area["y"] + 0.6 * area["height"], steps=3)
        page.mouse.up()
        until(lambda: page.evaluate("charts.scatter.view.x") != before)
        low, high, _ = page.evaluate("charts.scatter.view.x")
        assert before[0] < low < high < before[1]
        page.dblclick("#scatter .plot")
        until(lambda: page.evaluate("charts.scatter.view.x") == before)
        x, y = page.evaluate("[charts.scatter.place.x.at(frame.x[0]), charts.scatter.place.y.at(frame.x[1])]")
        page.mouse.move(area["x"] + x, area["y"] + y)
        until(lambda: page.inner_text("#scatter .tip").startswith("individual"))


@pytest.mark.slow
def test_the_best_designs_are_in_a_table(visit):
    with running(gx.problems.get("g06"), DE, generations=ALL, paused=True) as run:
        page = visit(run.url)
        until(lambda: page.locator("#best-rows tr").count() == 11)
        head, *rows = [row.locator("th, td").all_inner_texts() for row in page.locator("#best-rows tr").all()]
        assert head == ["fitness", "violation", "x1", "x2"]
        violations = [_number(row[1]) for row in rows]
        assert violations == sorted(violations)  # the feasible ones first
        least = min(page.evaluate("Array.from(frame.violation)"))
        assert violations[0] == pytest.approx(least, rel=1e-2)


@pytest.mark.slow
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
        again = declared({"thickness": _number(thickness), "bolts": int(bolts), "gauge": _number(gauge), **chosen})
        assert _number(value) == pytest.approx(again, rel=1e-4)
        assert page.locator("#best-rows th").all_inner_texts()[1:] == names
        assert first["thickness"] == ["0.1", "1", "10"] and first["welded"] == ["no", "yes"]
        assert first["bolts"] == ["4", "6", "8", "10", "12", "14", "16"]
        assert first["material"] == ["steel", "aluminium", "titanium"] and first["gauge"] == ["0.5", "0.8", "1.6"]
        page.select_option("#scatter-x", "2")
        until(lambda: page.evaluate("charts.scatter.names[0]") == "material" and painted(page, "scatter") > 5)
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
    assert _number(best[1]) == pytest.approx(named["thickness"], rel=1e-5)


def _shown_of(page) -> dict[str, list[str]]:
    """The ticks of each axis."""
    script = """k => { const { range, kind } = geneAxis(k), scale = createScale(...range, 0, 600);
      return (kind ? discreteTicks(kind, scale, ...range) : scale.ticks).map(([, text]) => text); }"""
    return {name: page.evaluate(script, k) for k, name in enumerate(DECLARED)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "ensemble", "front"])
def test_a_saved_run_is_replayed_on_the_same_page_with_its_report_and_its_neighbours(kind, visit, tmp_path):
    options = {"single": {"snapshots": True}, "ensemble": {"runs": 4}, "front": {"m": 2}}[kind]
    for name in ("earlier", "shown"):
        saved_runs.random_run(
            runs=options.get("runs", 1), m=options.get("m", 1), snapshots="snapshots" in options
        ).save(tmp_path / name)
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


@pytest.mark.slow
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
