"""The progress line says at once that something goes on, and keeps what matters where there is little room."""

import io
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import galapax as gx
from galapax.execution import observers
from galapax.view import progress

FIRST = gx.Progress(generation=10, generations=200, nfev=64_000, fun=30.0, violation=0.0, runs_done=0, runs=100,
                    seconds=1.0, feasible_share=0.1)  # fmt: skip
LATER = gx.Progress(generation=120, generations=200, nfev=768_000, fun=24.30621, violation=0.002, runs_done=12,
                    runs=100, seconds=5.0, feasible_share=0.4)  # fmt: skip


class Screen(io.StringIO):
    """A stderr that says whether it is a terminal."""

    def __init__(self, terminal: bool):
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def screen(monkeypatch):
    """What makes a stderr, which pytest itself replaces between fixture and test."""

    def made(terminal: bool = True) -> Screen:
        stderr = Screen(terminal)
        monkeypatch.setattr(sys, "stderr", stderr)
        return stderr

    monkeypatch.setenv("COLUMNS", "80")
    return made


def test_the_line_says_for_how_long_no_worker_has_been_alive(screen):
    stderr = screen()
    with progress.progress_line(True, "tank · de") as show:
        show(observers.Waiting(35.0))
    assert "tank · de  no worker has been alive for 35 s" in stderr.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("title", ["g07 · epsilon_de", "[3/12] moea_zdt6_6pi · sharing_moea"])
def test_an_ensemble_keeps_its_runs_and_the_time_left(width, title):
    line = progress.fit_to_width(title, LATER, FIRST, width - 1)
    assert len(line) < width
    for part in ("12/100 runs done", "3 s left", "best 24.3062"):
        assert part in line


def test_what_matters_least_is_left_out_first():
    lines = {width: progress.fit_to_width("g07 · epsilon_de", LATER, FIRST, width) for width in (60, 79, 125, 160)}
    assert lines[160] == (
        "g07 · epsilon_de  ████████████░░░░░░░░  60%  generation 120/200  best 24.3062  40% feasible  violation 0.002  "
        "12/100 runs done  176,000 evaluations/s  3 s left"
    )
    assert "evaluations/s" not in lines[125] and "40% feasible" not in lines[125] and "60%" in lines[125]
    assert "60%" not in lines[79] and "g07" in lines[79]
    assert lines[60] == "g07 · epsilon_de  best 24.3062  12/100 runs done  3 s left"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_line_that_is_wanted_says_at_once_that_it_compiles(screen, terminal):
    stderr = screen(terminal)
    with progress.progress_line(True, "g07 · de") as show:
        assert "g07 · de  compiling …" in stderr.getvalue()
        show(LATER)
        assert "12/100 runs done" in stderr.getvalue()
    assert stderr.getvalue().endswith("\r" if terminal else "\n")


def test_by_itself_it_says_so_after_a_while_on_a_terminal(screen, monkeypatch):
    monkeypatch.setattr(progress, "SHOW_AFTER_SECONDS", 0.05)
    stderr = screen()
    with progress.progress_line(None, "g07 · de"):
        assert stderr.getvalue() == ""
        until = time.perf_counter() + 5.0
        while not stderr.getvalue() and time.perf_counter() < until:
            time.sleep(0.01)
        assert stderr.getvalue() == "\rg07 · de  compiling …"


def test_a_short_run_shows_nothing_by_itself(screen):
    stderr = screen()
    with progress.progress_line(None, "g07 · de") as show:
        show(replace(FIRST, seconds=0.5))
    assert stderr.getvalue() == ""


def test_elsewhere_nothing_is_shown_unasked(screen):
    stderr = screen(terminal=False)
    for wanted in (None, False):
        with progress.progress_line(wanted, "g07 · de") as show:
            show(LATER)
    assert stderr.getvalue() == ""


def test_the_time_left_follows_evaluations_where_they_limit_a_run():
    first = replace(FIRST, generations=None, max_evaluations=1_000_000)
    later = replace(LATER, generations=None, max_evaluations=1_000_000)
    assert later.seconds_left(first) == pytest.approx(4 * 232 / 704)
    assert progress.finished_share(later) == pytest.approx(0.768) and "1 s left" in progress.fit_to_width(
        "t", later, first, 200
    )
    assert replace(later, max_evaluations=None).seconds_left(first) is None


def test_a_slow_first_generation_is_reported_at_once():
    slow = replace(FIRST, generation=1, generations=200, seconds=65.0, overhead=5.0)
    assert progress.describe_progress(slow, slow)["left"] == "3.3 h left"
    assert "left" not in progress.describe_progress(
        replace(slow, overhead=61.0), slow
    )  # nearly all of it was compilation


def test_the_time_of_the_whole_run_comes_before_it_and_is_right(screen):
    """From the speed after the first report, which has in it what happens once."""
    stderr = screen()
    with progress.progress_line(None, "g07 · de") as show:
        show(replace(FIRST, generation=1, seconds=2.0, overhead=1.0))
        show(replace(FIRST, generation=2, seconds=2.2, overhead=1.0))  # too little was measured
        assert "about" not in stderr.getvalue()
        show(replace(FIRST, generation=3, seconds=5.0, overhead=2.0))  # a second each
        show(replace(FIRST, generation=4, seconds=6.0, overhead=2.0))
    assert stderr.getvalue().count("g07 · de: about 3 min for 200 generations of 100 runs") == 1
    assert stderr.getvalue().count("\n") == 1  # it stays there


def test_a_run_of_a_few_seconds_says_nothing_beforehand(screen):
    stderr = screen()
    with progress.progress_line(None, "g07 · de") as show:
        show(replace(FIRST, generation=1, seconds=1.0))
        time.sleep(0.12)
        show(replace(FIRST, generation=101, seconds=6.0))
    assert "s left" in stderr.getvalue() and "about" not in stderr.getvalue()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "about 10 min for 200 generations of 100 runs"),
        ({"runs": 1}, "about 10 min for 200 generations"),
        ({"max_evaluations": 128_000}, "about 60 s for 128,000 evaluations of 100 runs"),
        ({"max_seconds": 120.0}, "2 min, the time limit"),
        ({"runs_before": 50, "runs_together": 50}, "about 57 s for 200 generations of 100 runs"),
    ],
    ids=["generations", "alone", "evaluations", "time", "second-half"],
)
def test_what_is_said_beforehand(changes, sentence):
    state = replace(FIRST, seconds=30.0, **changes)
    assert progress.describe_duration(state, state.seconds_left()) == sentence


def test_nothing_is_said_of_a_run_without_limits_and_one_read_from_a_file():
    assert replace(FIRST, generations=None).seconds_left() is None
    assert replace(FIRST, restored=True).seconds_left() is None


class Kernel:
    """IPython in a notebook, as far as it is used."""

    kernel = object()

    def __init__(self):
        self.shown, self.display = [], SimpleNamespace(display=self.first)

    def get_ipython(self):
        return self

    def first(self, bundle, raw, display_id):
        self.update(bundle, raw)
        return self

    def update(self, bundle, raw):
        self.shown.append(bundle)


def test_a_notebook_shows_a_bar_and_keeps_how_long_it_takes(screen, monkeypatch):
    stderr, kernel = screen(terminal=False), Kernel()
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    with progress.progress_line(None, "<g07>") as show:
        show(replace(FIRST, generation=1, seconds=1.5, overhead=1.0))
        assert kernel.shown == []  # it may be over at once
        show(replace(FIRST, seconds=28.5, overhead=1.0))
        time.sleep(0.3)
        show(replace(LATER, seconds=331.0, overhead=1.0))
    texts = [bundle["text/plain"] for bundle in kernel.shown]
    assert texts[0] == texts[-1] == "<g07>: about 10 min for 200 generations of 100 runs"
    assert "generation 120/200" in texts[-2] and "4 min left" in texts[-2]
    assert '<progress value="0.6' in kernel.shown[-2]["text/html"] and "&lt;g07&gt;" in kernel.shown[-2]["text/html"]
    assert stderr.getvalue() == ""


def test_a_run_says_what_of_its_time_was_no_generation():
    told = []
    gx.minimize(
        lambda x: (x**2).sum(), [(-1, 1)] * 2, "de", generations=5, callback=told.append, progress=False, polish=False
    )
    assert 0 < told[-1].overhead < told[-1].seconds and told[-1].runs_together == 1
    assert told[0].shares == [told[0].generation / 5] and told[-1].seconds_left() == 0.0
