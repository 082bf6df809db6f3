"""report.html in a real browser: opened from disk, with the network off."""

from __future__ import annotations

import csv
import io
import re
import time
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image
from support.cases import params
from support.report_runs import make_result, numbers_of, solved, study, sweep_of, two_objectives

import galapax as gx
from galapax.core.problem import Population, Problem, box
from galapax.results.front import PreferenceSearch
from galapax.results.study import Study
from galapax.view import figure_data, report

EVIL = "</script><script>document.title='broken'</script>"


def written(text, folder):
    file = folder / "report.html"
    file.write_text(text, encoding="utf-8")
    return file.as_uri()


@contextmanager
def opened(browser, address, *, width=1280, scheme="light"):
    """The page, with the network off. Errors of its scripts, and whatever it asks for, fail the test."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    trouble = []
    page.on("console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else trouble.append(request.url),
    )
    page.goto(address)
    yield page
    assert trouble == []
    context.close()


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def colours(page, place):
    picture = Image.open(io.BytesIO(page.locator(place).first.screenshot())).convert("RGB")
    return len(set(picture.get_flattened_data() if hasattr(picture, "get_flattened_data") else picture.getdata()))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Every kind of page by name."""
    no_point = make_result(
        Problem(lambda x: x[0], box(0, 1, 2), ineq=lambda x: x[:1] + 1, name="never"),
        feasible=False, success=False, violation=1.5, ineq=np.array([1.5]),
        message="Stopped: generation limit (50) reached.",
    )  # fmt: skip
    kinds = {
        "real": report.render_result(solved()),
        "front": report.render_result(two_objectives()),
        "space": report.render_result(make_result(gx.problems.get("dtlz2"), m=3)),
        "runs": report.render_result(make_result(gx.problems.get("branin"), runs=60)),
        "bare": report.render_result(make_result(gx.problems.get("sphere"), kept=False)),
        "infeasible": report.render_result(no_point),
        "failed": report.render_result(
            make_result(
                gx.problems.get("branin"),
                fun=np.nan,
                success=False,
                population_fitness=np.full(40, np.inf),
                n_failed=40,
            )
        ),
        "constant": report.render_result(make_result(gx.problems.get("branin"), population_fitness=np.full(40, 1e17))),
        "game": report.render_result(
            make_result(gx.problems.get("branin"), runs=4, worst_case=0.25, y=np.ones(2), worst_cases=np.ones(4))
        ),
        "empty": report.render_result(
            two_objectives(X=np.zeros((0, 3)), F=np.zeros((0, 2)), feasible=False, violation=2.0)
        ),
        "comparison": report.render_study(study()),
        "sweep of 1": report.render_study(sweep_of(1)),
        "sweep of 100": report.render_study(sweep_of(100)),
    }
    return {name: written(text, tmp_path_factory.mktemp("page")) for name, text in kinds.items()}


KINDS = (
    "real",
    "front",
    "space",
    "runs",
    "bare",
    "infeasible",
    "failed",
    "constant",
    "game",
    "empty",
    "comparison",
    "sweep of 1",
    "sweep of 100",
)


@pytest.mark.parametrize("kind", params(KINDS, quick={"bare", "game"}))
def test_every_kind_of_page_draws_its_figures_on_a_screen_and_on_a_phone(kind, browser, pages):
    with opened(browser, pages[kind]) as page:
        figures = page.locator("figure[data-chart]")
        assert figures.count() >= 1
        for i in range(figures.count()):
            drawn = figures.nth(i).locator(".plot > svg")
            assert drawn.get_attribute("aria-label")
            shapes = drawn.locator("path.curve, path.dots").evaluate_all(
                "all => all.map(p => p.getAttribute('d').length)"
            )
            assert shapes and max(shapes) > 12 and not any("NaN" in d for d in drawn.locator("path").evaluate_all(
                "all => all.map(p => p.getAttribute('d'))"))  # fmt: skip
        assert page.locator("h1").count() == 1 and page.locator("img:not([alt])").count() == 0
        assert overflow(page) <= 0
        page.set_viewport_size({"width": 390, "height": 800})
        narrow = "[...document.querySelectorAll('.plot > svg')].every(s => s.viewBox.baseVal.width < 390)"
        deadline = time.monotonic() + 20
        while not page.evaluate(narrow):  # wait_for_function would need eval, which the page forbids
            assert time.monotonic() < deadline
            page.wait_for_timeout(50)
        assert overflow(page) <= 0


@pytest.mark.slow
def test_the_page_says_what_was_solved_and_what_came_out(browser, pages):
    with opened(browser, pages["real"]) as page:
        text = page.locator("main").inner_text()
        for part in (
            "wide enough",
            "not too high",
            "active",
            "slack",
            "width",
            "within its bounds",
            "Settings",
            "history.csv",
        ):
            assert part in text
        assert "Minimise 1 objective over 4 variables, subject to 2 inequality constraints." in text
        shown = page.locator(".strip img")
        assert shown.count() == 9  # three maps of three generations
        assert shown.evaluate_all("all => all.every(i => i.complete && i.naturalWidth > 1)")
        assert colours(page, ".strip img.rows") > 50
    with opened(browser, pages["infeasible"]) as page:
        assert "No feasible point" in page.locator(".message.failed").inner_text()
        assert "Violation of the best point" in page.locator("main").inner_text()


@pytest.mark.slow
def test_the_logarithmic_scale_is_switched(browser, pages):
    with opened(browser, pages["runs"]) as page:
        figure = page.locator("figure[data-chart]").first
        switch = figure.get_by_role("button", name="log scale")
        assert switch.get_attribute("aria-pressed") == "true"
        numbers = "all => all.map(t => t.textContent)"
        before = figure.locator("svg text").evaluate_all(numbers), figure.locator("path.curve").get_attribute("d")
        assert any("10⁻" in text for text in before[0])
        assert figure.locator(".legend").inner_text().split() == ["median", "middle", "half", "all", "runs"]
        switch.click()
        after = figure.locator("svg text").evaluate_all(numbers), figure.locator("path.curve").get_attribute("d")
        assert not any("10⁻" in text for text in after[0]) and after[1] != before[1]
        switch.click()
        assert figure.locator("path.curve").get_attribute("d") == before[1]


def test_the_pointer_shows_values_of_a_curve(browser, pages):
    result = make_result(gx.problems.get("branin"), runs=60)
    with opened(browser, pages["runs"]) as page:
        figure = page.locator("figure[data-chart]").first
        drawn = figure.locator(".plot > svg")
        drawn.scroll_into_view_if_needed()
        area = drawn.bounding_box()
        page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] / 2)
        tip = figure.locator(".tip").inner_text()
        generation = int(re.match(r"generation (\d+), [\d,]+ evaluations", tip).group(1))
        values = result.runs.history.best[:, generation - 1] - result.problem.optimum
        floor = np.finfo(np.float64).eps
        shown = re.search(r"median\s+(\S+)", tip).group(1).replace("−", "-")
        assert float(shown) == pytest.approx(np.median(np.maximum(values, floor)), rel=1e-4)
        page.mouse.move(5, 5)
        assert figure.locator(".tip").is_hidden()


def where(page, row, column=0):
    """Where a point of the front lies on the screen, from the path that draws all of them."""
    return page.evaluate(
        """([row, column]) => {
            const svg = document.querySelectorAll(".plot > svg")[column];
            const all = [...svg.querySelectorAll("path.dots")].pop();
            const [x, y] = all.getAttribute("d").match(/M([\\d.-]+) ([\\d.-]+)/g)[row].slice(1).split(" ").map(Number);
            svg.scrollIntoView({ block: "center", behavior: "instant" });
            const area = svg.getBoundingClientRect(), box = svg.viewBox.baseVal;
            return [area.left + x * area.width / box.width, area.top + y * area.height / box.height];
        }""",
        [row, column],
    )


def test_the_pointer_shows_the_recipe_of_a_point_and_a_click_finds_it_in_the_table(browser, pages):
    result = two_objectives()
    with opened(browser, pages["front"]) as page:
        page.mouse.move(*where(page, 20))
        tip = page.locator(".tip").first.inner_text()
        lines = dict(line.rsplit("\t", 1) for line in tip.splitlines()[1:])
        assert tip.startswith("point 20") and list(lines) == ["cost [€]", "time", "flour [g]", "water", "salt"]
        expected = [*result.F[20], *result.X[20]]
        assert [float(v.replace("−", "-")) for v in lines.values()] == pytest.approx(expected, rel=1e-4)
        page.mouse.click(*where(page, 20))
        row = page.locator("tr.picked")
        assert row.get_attribute("data-row") == "20" and row.is_visible()
        beside = page.locator("aside.recipe")  # where it was the knee's before
        assert beside.inner_text().startswith("point 20") and beside.locator("tr").count() == 5
        plot, aside = page.locator(".with-recipe > .plot").bounding_box(), beside.bounding_box()
        assert aside["x"] >= plot["x"] + plot["width"], "beside the figure, not under it"
        legend = page.locator(".legend").first.inner_text()
        assert "knee" in legend and "best of each" in legend
        page.locator("select[data-axis=x]").first.select_option(label="water")  # any two columns
        assert page.locator(".plot > svg .axis-name").first.text_content() == "water"


def asked_of(page, answers):
    """Answer the questions of a page: the pairs that it asked about, and the row that it chose."""
    box, pairs = page.locator("[data-ask]"), []
    box.locator("button").click()
    for answer in answers:
        if not box.locator(f'button[data-answer="{answer}"]').count():
            break
        pairs.append(tuple(map(int, box.get_attribute("data-pair").split(","))))
        box.locator(f'button[data-answer="{answer}"]').click()
    if box.locator('button[data-answer="q"]').count():
        box.locator('button[data-answer="q"]').click()
    return pairs, int(box.get_attribute("data-chosen"))


@pytest.mark.parametrize(
    ("kind", "answers"),
    [("front", "abba=babaab"), pytest.param("space", "=b=a=b=a=b", marks=pytest.mark.slow), ("maximised", "bbq")],
    ids=["front", "space", "maximised"],
)
def test_the_page_asks_what_python_asks_and_chooses_alike(kind, answers, browser, pages, tmp_path):
    if kind == "maximised":
        result = two_objectives(F=-two_objectives().F)
        result.settings["maximize"] = True
        address = written(report.render_result(result), tmp_path)
    else:
        result = two_objectives() if kind == "front" else make_result(gx.problems.get("dtlz2"), m=3)
        address = pages[kind]
    values = np.array([[float(f"{v:.7g}") for v in row] for row in result.F])  # as the page has them
    own, expected = PreferenceSearch(result.sign * values), []
    for answer in answers:
        rows = own.next_question()
        if rows is None or answer == "q":
            break
        expected.append(rows)
        own.record_answer(rows, {"a": rows[0], "b": rows[1], "=": None}[answer])
    with opened(browser, address) as page:
        pairs, chosen = asked_of(page, answers.replace("q", ""))
        assert pairs == expected and len(pairs) > 1
        assert chosen == own.favourite
        assert page.locator("tr.picked").get_attribute("data-row") == str(chosen)
        assert f"result.X[{chosen}]" in page.locator("[data-ask]").inner_text()


@pytest.mark.slow
def test_a_front_in_space_is_turned(browser, pages):
    with opened(browser, pages["space"]) as page:
        path = "document.querySelector('.plot > svg path.dots').getAttribute('d')"
        before = page.evaluate(path)
        assert "true front" in page.locator(".legend").first.inner_text()
        x, y = where(page, 3)
        page.mouse.move(x, y)
        assert page.locator(".tip").first.inner_text().startswith("point ")
        page.mouse.down()
        page.mouse.move(x + 80, y + 20, steps=3)
        page.mouse.up()
        assert page.evaluate(path) != before
        turned = page.evaluate(path)
        page.mouse.move(x - 40, y)  # nobody holds it any more
        assert page.evaluate(path) == turned


@pytest.mark.slow
def test_brushing_an_axis_keeps_the_same_points_everywhere(browser, pages):
    result = make_result(gx.problems.get("dtlz2"), m=3)
    with opened(browser, pages["space"], scheme="dark") as page:
        figure, pairs = (page.locator("figure", has_text=text) for text in ("All objectives", "Every pair of"))
        axis = figure.locator("svg > line.frame").nth(1)
        assert figure.locator("svg > line.frame").count() == 3 and pairs.locator("svg > rect.frame").count() == 6
        axis.scroll_into_view_if_needed()
        at = axis.bounding_box()
        page.mouse.move(at["x"], at["y"] + at["height"])
        page.mouse.down()
        page.mouse.move(at["x"], at["y"] + at["height"] / 2, steps=4)
        page.mouse.up()
        f2 = result.F[:, 1]
        inside = f2 <= (f2.min() + f2.max()) / 2
        told = f"{inside.sum()} of {len(f2)} points"
        assert 0 < inside.sum() < len(f2) and figure.locator(".brushed").inner_text() == told
        assert page.locator("[data-table=front] tbody tr").count() == inside.sum()
        assert pairs.locator("path.dots").count() == 6  # those kept and the others, in each of three pairs
        off = page.locator("figure", has_text="across").first.locator("path.dots[style*='--line']")
        assert off.get_attribute("d").count("M") == (~inside).sum()  # in space, too
        asked, chosen = asked_of(page, "abab")
        assert inside[[row for pair in asked for row in pair]].all() and inside[chosen]
        figure.get_by_role("button", name="with variables").click()
        assert figure.locator("svg > line.frame").count() == 3 + 12
        figure.get_by_role("button", name="Clear brushes").click()
        assert page.locator("[data-table=front] tbody tr").count() == len(f2)
        assert pairs.locator("path.dots").count() == 3 and off.count() == 0


@pytest.mark.slow
def test_recipes_are_sorted_filtered_and_downloaded(browser, pages):
    result = two_objectives()
    with opened(browser, pages["front"]) as page:
        box = page.locator("[data-table=front]")
        column = box.locator("tbody td:nth-child(4)")  # mark, cost, time, flour
        numbers = lambda: [float(text.replace("−", "-")) for text in column.all_inner_texts()]  # noqa: E731
        assert numbers() == pytest.approx(result.X[:, 0], rel=1e-5)
        box.get_by_role("button", name="flour").click()
        assert numbers() == sorted(numbers()) and box.locator("th[aria-sort=ascending]").count() == 1
        box.get_by_role("button", name="flour").click()
        assert numbers() == sorted(numbers(), reverse=True)
        box.get_by_label("Filter flour").fill("0.2..0.5")
        inside = (result.X[:, 0] >= 0.2) & (result.X[:, 0] <= 0.5)
        assert len(numbers()) == inside.sum() > 0 and f"{inside.sum()} of 40 points" in box.inner_text()
        box.get_by_label("Filter flour").fill("< 0")
        assert numbers() == []
        box.get_by_role("button", name="Reset").click()
        assert len(numbers()) == 40
        with page.expect_download() as download:
            box.get_by_role("button", name="CSV").click()
        names, *rows = list(csv.reader(download.value.path().read_text(encoding="utf-8").splitlines()))
        assert names == ["mark", "cost [€]", "time", "flour [g]", "water", "salt"] and len(rows) == 40
        assert np.array([row[1:] for row in rows], float) == pytest.approx(np.hstack([result.F, result.X]), rel=1e-6)
        assert {"knee", "least cost", "least time"} <= {row[0] for row in rows}


@pytest.mark.slow
def test_dark_and_print(browser, pages):
    paper = "getComputedStyle(document.body).backgroundColor"
    curve = "getComputedStyle(document.querySelector('path.curve')).stroke"
    with opened(browser, pages["runs"]) as page:
        light = page.evaluate(paper), page.evaluate(curve)
    with opened(browser, pages["runs"], scheme="dark") as page:
        dark = page.evaluate(paper), page.evaluate(curve)
        assert colours(page, ".plot > svg") > 20
        assert (
            light[0] == "rgb(255, 255, 255)" and max(map(int, re.findall(r"\d+", dark[0]))) < 50 and light[1] != dark[1]
        )
        assert not page.evaluate(
            "[...document.querySelectorAll('.wide')].every(w => w.scrollHeight <= w.clientHeight + 1)"
        )
        page.emulate_media(media="print", color_scheme="dark")
        assert (page.evaluate(paper), page.evaluate(curve)) == light  # ink on white paper
        assert page.evaluate("[...document.querySelectorAll('.wide')].every(w => w.scrollHeight <= w.clientHeight + 1)")
        assert page.locator(".tools").first.is_hidden() and page.locator("nav").is_hidden()
        assert page.locator(".hint").count() and not any(page.locator(".hint").evaluate_all(
            "all => all.map(h => h.checkVisibility())"))  # nobody clicks on paper  # fmt: skip
        rows = page.locator("[data-table=runs] .paper tbody tr")
        assert rows.count() == 40 and rows.last.is_visible() and page.locator("tr[data-row='50']").is_hidden()


def test_on_paper_no_column_is_lost(browser, tmp_path):
    """A front with many columns is printed in blocks that fit the width of the paper."""
    names = [f"amount of component number {k}" for k in range(21)]
    problem = Problem(lambda x: x[:2], box(0, 1, 21), name="many", variables=names)
    with opened(browser, written(report.render_result(make_result(problem, m=2)), tmp_path)) as page:
        page.set_viewport_size({"width": 700, "height": 1000})
        page.emulate_media(media="print")
        blocks = page.locator("[data-table=front] .paper table")
        blocks.first.wait_for(state="attached")  # made when the page hears that it is printed
        shown = [text for block in blocks.all() for text in block.locator("th").all_inner_texts()]
        assert blocks.count() == 3 and [text for text in shown if text != "no."] == ["f1", "f2", *names]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


def test_choices_have_their_words_in_every_table_and_figure(browser, tmp_path):
    variables = {"bolts": gx.integer(4, 12), "alloy": gx.choice("steel", "bronze"), "coated": gx.boolean()}
    result = gx.minimize(
        lambda v: (v["bolts"] + v["alloy"], 9 - v["bolts"] - v["coated"]), variables, generations=2, polish=False
    )
    with opened(browser, written(report.render_result(result), tmp_path)) as page:
        box = page.locator("[data-table=front]")
        cells = box.locator("tbody tr").first.locator("td").all_inner_texts()
        assert {"steel", "bronze"} & set(cells) and {"yes", "no"} & set(cells)
        box.get_by_label("Filter alloy").fill("steel")
        assert box.locator("tbody tr").count() == (result.X[:, 1] == 0).sum()
        page.locator("select[data-axis=y]").first.select_option(label="alloy")
        assert set(result.X[:, 1]) <= {0, 1} and "steel" in page.locator(".plot > svg text").all_text_contents()
        answer = page.locator("table", has_text="within its bounds").inner_text()
        assert "one of steel, bronze" in answer


def test_a_problem_of_two_variables_has_its_landscape_behind_the_population(browser, tmp_path):
    with opened(browser, written(report.render_result(make_result(gx.problems.get("branin"))), tmp_path)) as page:
        figure = page.locator("figure", has=page.locator("svg image"))
        assert figure.count() == 1 and "darker is better" in figure.inner_text()
        figure.locator("select[data-axis=x]").select_option(label="x2")  # then it would be another picture
        assert page.locator("svg image").count() == 0


def test_a_sweep_of_two_hyper_parameters_has_a_heat_map(browser, tmp_path):
    cells = [make_result(gx.problems.get("branin"), runs=5, generations=30) for _ in range(6)]
    labels = [{"fr": f, "sigma": s} for f in (1.0, 2.0) for s in (0.1, 0.2, 0.3)]
    swept = Study("sweep", {"fr": [1.0, 2.0], "sigma": [0.1, 0.2, 0.3]}, labels, cells, [None] * 6, "Done.")
    with opened(browser, written(report.render_study(swept), tmp_path)) as page:
        shown = page.locator("table.heat td")
        assert shown.count() == 6
        values = [float(text) for text in shown.all_inner_texts()]
        assert values == pytest.approx(figure_data.study_heat_map(swept).values.ravel().tolist(), rel=5e-3)


def test_names_cannot_break_the_page(browser, tmp_path):
    names = {"variables": [EVIL, "\"'`<!--"], "objectives": ["<img src=x onerror=alert(1)>", "\u2028&amp;"]}
    problem = Problem(
        lambda x: x, box(0, 1, 2), name=EVIL, title='"><svg onload=alert(2)>', source=EVIL, ineq=lambda x: x,
        constraint_names=["<b>first", EVIL], units={EVIL: "<script>"}, **names,
    )  # fmt: skip
    result = make_result(problem, m=2, message=EVIL, ineq=np.array([-1.0, 2.0]), feasible=False, violation=2.0)
    with opened(browser, written(report.render_result(result), tmp_path)) as page:
        assert "svg onload" in page.title()
        assert (
            page.locator("main script, main b:not(.message b, .tip b, .recipe > b), img[src=x], svg[onload]").count()
            == 0
        )
        assert EVIL in page.locator("h1").inner_text()
        page.mouse.move(*where(page, 5))
        tip = page.locator(".tip").first.inner_text()
        assert EVIL in tip and "<img src=x onerror=alert(1)>" in tip
        assert page.locator("table.recipes th").first.is_visible()


@pytest.mark.slow
def test_a_huge_run_makes_a_small_page_that_draws(browser, tmp_path):
    problem = Problem(lambda x: x[:2], box(0, 1, 300), name="huge")
    front = make_result(problem, m=2, n=20_000, generations=20_000)
    front["snapshots"] = {g: Population(front.population, front.population_fitness, None) for g in (1, 10, 100, 20_000)}
    many = make_result(Problem(lambda x: x[0], box(0, 1, 30), name="many"), runs=1000, generations=1000, n=50_000)
    for result in (front, many):
        text = report.render_result(result)
        assert len(text.encode()) < 6e6
        with opened(browser, written(text, tmp_path)) as page:
            assert page.locator("path.curve").count() >= 1
    found = numbers_of(report.render_result(front))["tables"]["front"]
    assert found["total"] == 20_000 and 500 < len(found["data"][0]) <= report.MAX_FRONT_ROWS
    assert {"knee", "least f1", "least f2"} <= set(found["labels"].values())
