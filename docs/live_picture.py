"""Take the picture of the live page: `python docs/live_picture.py` (needs Chromium and playwright)."""

import shutil
import sys
import threading
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

import galapax as gx

GENERATIONS = 16  # where the population has found the valleys and is not yet in one of them


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("The picture of the live page is taken in Chromium, which is not installed.")
    said: list[str] = []
    ready = threading.Event()

    def say(sentence: str) -> None:
        said.append(sentence)
        ready.set()

    live = gx.Live(open_browser=False, paused=True, say=say)
    problem, algorithm = gx.problems.get("rastrigin", dim=2), gx.DE(population=120, crossover_rate=0.9)
    run = threading.Thread(target=gx.minimize, args=(problem, algorithm), kwargs={"generations": 400, "live": live})
    run.start()
    ready.wait()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1200, "height": 1105}, device_scale_factor=1.25)
        page.goto(said[0].removeprefix("Live page: "))
        for generation in range(1, GENERATIONS + 1):
            while page.get_attribute("#generation", "data-value") != str(generation):
                time.sleep(0.02)
            if generation < GENERATIONS:
                page.click("#step")
        while "Computing" in page.inner_text("#scatter-note"):
            time.sleep(0.05)
        time.sleep(0.5)
        page.evaluate("document.activeElement.blur()")
        folder = Path(__file__).parent / "gallery"
        folder.mkdir(exist_ok=True)
        page.screenshot(path=folder / "live.png")
        page.click("#stop")
        run.join()
        browser.close()


if __name__ == "__main__":
    main()
