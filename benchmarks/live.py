"""What the live page costs a run: `python benchmarks/live.py`.

The same run without a page, with one that nobody looks at, with a reader that takes all news and frames as a page does,
and with the page in a real (headless) Chromium on the same machine, one after the other, several times over. Programs
are compiled before. Seconds are those of the generations ("run" in the timings), the least of the rounds, since other
work on the machine only adds; "CPU s" is the processor time of the run's own process, threads of the server included;
"looked at" the share of the wall time in which the run stood still to be looked at.
Chromium draws without a GPU and takes processor time of its own, which the wall time of a run on a CPU feels when
the run keeps every core busy.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import harness

import galapax as gx
from galapax.view.live.session import LiveSession

CASES: dict[str, tuple[Any, Any, int]] = {
    "DE, n = 50, 30 variables": (gx.problems.get("ackley", dim=30), gx.DE(population=50), 500_000),
    "FEP, n = 400, 30 variables": (gx.problems.get("ackley", dim=30), gx.FEP(population=400), 40_000),
    "DE, n = 100 000, 100 variables": (gx.problems.get("rastrigin", dim=100), gx.DE(population=100_000), 70),
    "DE, 1000 runs of n = 40, 10 variables": (gx.problems.get("ackley", dim=10), gx.DE(population=40), 2500),
}
RUNS = {"DE, 1000 runs of n = 40, 10 variables": 1000}


def consume(url: str) -> None:
    """Take all news and, as the page does, a frame whenever the one before has come."""
    have = 0
    with urllib.request.urlopen(f"{url}events") as news:
        for line in news:
            if line.startswith(b"data: "):
                frame = json.loads(line[6:])["frame"]
                if frame != have:
                    have = frame
                    urllib.request.urlopen(f"{url}frame").read()
                    print(frame, flush=True)


@contextmanager
def reader(url: str) -> Iterator[Callable[[], int]]:
    """A process that reads along; yields how many frames it has taken."""
    child = subprocess.Popen([sys.executable, __file__, "--consume", url], stdout=subprocess.PIPE)
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    pipe = child.stdout
    time.sleep(1.0)
    try:
        yield lambda: len((pipe.read() or b"").splitlines())
    finally:
        child.kill()
        child.wait()


@contextmanager
def chromium(url: str) -> Iterator[Callable[[], int]]:
    """The page in a browser; yields how many frames it has drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        page.evaluate("drawn = 0; const old = draw.scatter; draw.scatter = () => { drawn++; old(); }; 0")
        time.sleep(1.0)
        try:
            yield lambda: int(page.evaluate("const d = drawn; drawn = 0; d"))
        finally:
            browser.close()


def measure(case: str, live: Any) -> tuple[float, float, float]:
    """Wall and processor seconds of one run, and the share of its wall time in which it was looked at."""
    problem, algorithm, generations = CASES[case]
    looking, before = 0.0, time.process_time()
    on_chunk = LiveSession.on_chunk

    def timed(*arguments: Any) -> None:
        nonlocal looking
        start = time.perf_counter()
        on_chunk(*arguments)
        looking += time.perf_counter() - start

    with patch.object(LiveSession, "on_chunk", timed):
        runs = RUNS.get(case, 1)
        result = gx.minimize(
            problem, algorithm, generations=generations, tolerance=0, polish=False, runs=runs, live=live
        )
    seconds = result.timings["run"]
    return seconds, time.process_time() - before, looking / seconds


def main() -> None:
    parser = harness.make_parser(__doc__, rounds=7)
    parser.add_argument("--case", choices=list(CASES), action="append")
    parser.add_argument("--consume", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.consume:
        consume(arguments.consume)
        return
    urls: list[str] = []
    live = gx.Live(open_browser=False, say=lambda sentence: urls.append(sentence.removeprefix("Live page: ")))
    gx.minimize(gx.problems.get("sphere", dim=2), gx.DE(population=10), generations=2, live=live)
    url = urls[0]
    modes: dict[str, Any] = {"no page": None, "page, nobody looks": nullcontext, "a reader": reader}
    if shutil.which("chromium"):
        modes["Chromium"] = chromium
    print(harness.describe_machine("galapax"))
    heads = ("run", "page", "wall s", "slower by", "CPU s", "more by", "looked at", "frames/s")
    table = harness.Table(*heads, widths=[38, 18])
    for case in arguments.case or CASES:
        measure(case, None)
        measure(case, live)
        best: dict[str, tuple[float, float, float]] = {}
        rates: dict[str, float] = {}
        for _ in range(arguments.rounds):
            for mode, opened in modes.items():
                context = nullcontext() if opened in (None, nullcontext) else opened(url)
                with context as frames:
                    if frames is not None:
                        frames()
                    wall, cpu, looking = measure(case, None if opened is None else live)
                    if frames is not None:
                        rates[mode] = max(rates.get(mode, 0.0), frames() / wall)
                known = best.get(mode, (wall, cpu, looking))
                best[mode] = (min(known[0], wall), min(known[1], cpu), min(known[2], looking))
        base = best["no page"]
        for mode, (wall, cpu, looking) in best.items():
            shares = f"{wall / base[0] - 1:+.1%}", f"{cpu:.3f}", f"{cpu / base[1] - 1:+.1%}", f"{looking:.1%}"
            table.add(case, mode, f"{wall:.3f}", *shares, f"{rates[mode]:.1f}" if mode in rates else "")


if __name__ == "__main__":
    main()
