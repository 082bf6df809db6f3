"""The live page in a real browser: it shows the run and stops it."""

import threading
import time

import pytest

import galapax as gx

pytest.importorskip("starlette")
TIMEOUT = 60  # seconds


def wait_until(claim):
    deadline = time.monotonic() + TIMEOUT
    while not claim():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def test_a_run_is_watched_and_stopped(browser):
    sentences, results, complaints = [], [], []
    is_over = threading.Event()

    def work():
        page, problem = gx.Live(open_browser=False, say=sentences.append), gx.problems.get("rastrigin", dim=2)
        stop = {"tolerance": 0, "callback": lambda progress: is_over.is_set()}
        results.append(gx.minimize(problem, "de", generations=10**8, live=page, **stop))

    run = threading.Thread(target=work, daemon=True)
    run.start()
    try:
        wait_until(lambda: sentences or not run.is_alive())
        page = browser.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(sentences[0].removeprefix("Live page: "))
        wait_until(lambda: int(page.get_attribute("#generation", "data-value") or 0) > 20)
        page.click("#stop")
        wait_until(lambda: page.inner_text("#state") == "finished")
        page.close()
    finally:
        is_over.set()
        run.join(TIMEOUT)
    assert not complaints and "Stopped from the live page" in results[0].message
