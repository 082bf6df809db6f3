"""The output of a command: tables or JSON, a saved folder, the live page, and an exit code."""

from __future__ import annotations

import contextlib
import json
import shlex
import tempfile
import threading
import warnings
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console, RenderableType

from galapax._startup import INTERRUPTED
from galapax.cli.error_report import FAILED, print_error, use_shell_words
from galapax.core.errors import InputError
from galapax.core.stop import Stop
from galapax.execution.observers import LOOPBACK, Live
from galapax.results.front import ASK_USER
from galapax.results.result import Result
from galapax.results.study import Study
from galapax.storage import atomic, manifest
from galapax.storage.export import front_table, runs_table, value_names
from galapax.storage.result_format import result_to_json, to_json
from galapax.view import live as live_page
from galapax.view import terminal

console = Console()

DONE = 0  # exit code; see also cli/error_report.py


# --- how it ends ------------------------------------------------------------------------------------------------------


def print_line(sentence: str, style: str | None = None) -> None:
    """Print a sentence on stdout, without markup, since it may hold the user's text."""
    console.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)


def exit_code(outcome: Result | Study) -> int:
    """Return the exit code of a run or a study.

    0 as asked and feasible, 1 nothing feasible or the target missed, 130 by Ctrl-C.
    Of several runs the best counts; of a study, the best of all its runs.
    """
    results = [outcome] if isinstance(outcome, Result) else outcome.results
    stops = [result.get("stop") for result in results]
    if Stop.INTERRUPT in (stops if isinstance(outcome, Result) else [*stops, outcome.stop]):
        return INTERRUPTED
    # a cell with nothing finite ended a study early, whatever the others found
    if not any(result.feasible for result in results) or any(np.isinf(result.violation) for result in results):
        return FAILED
    if isinstance(outcome, Result):
        return FAILED if outcome.settings["target"] is not None and not outcome.success else DONE
    shares = [outcome.success(i)["success"] for i, target in enumerate(outcome.targets) if target is not None]
    return FAILED if shares and not any(shares) else DONE


# --- results and studies ----------------------------------------------------------------------------------------------


def print_result(outcome: Result | Study, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Save a result or a study, if --out is given, and then print it, so that no printing error can lose it."""
    folder, caught = None, []
    if out is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            folder = outcome.save(out)
    if as_json:
        print(json.dumps(study_as_json(outcome) if isinstance(outcome, Study) else result_as_json(outcome), indent=1))
    elif not quiet:
        console.print(build_tables(outcome))
    for warning in caught:
        print_error(str(warning.message), style="bold yellow")
    if folder is not None and not (quiet or as_json):
        names = sorted(f.name for f in folder.iterdir() if not f.name.startswith("."))
        print_line(f"Saved to {folder}: {', '.join(names)}")


def build_tables(outcome: Result | Study) -> RenderableType:
    """Build the tables of a result or a study."""
    if isinstance(outcome, Study):
        return terminal.study_tables(outcome, bold=console.is_terminal)
    message = use_shell_words(outcome.message)
    return terminal.result_table(Result(outcome | {"message": message}))


def command_line(context: typer.Context) -> str:
    """Return the command that repeats this one, without the options about showing and saving."""
    words = ["galapax", "solve"]
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if option.name in NOT_IN_COMMAND or value is None or value == option.default or value in ((), []):
            continue
        if not option.opts[0].startswith("-"):
            words.append(str(value))
        elif isinstance(value, bool):
            words.append((option.opts if value else option.secondary_opts)[0])
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [option.opts[0], str(one)]
    return shlex.join(words)


# options of `solve` about showing and saving, which `command_line` leaves out
NOT_IN_COMMAND = {
    "out", "force", "live", "port", "host", "open_page", "wait", "paused", "quiet", "as_json", "use_cache",
    "checkpoint", "checkpoint_every", "resume", "context",
}  # fmt: skip


def result_as_json(result: Result) -> dict[str, object]:
    """Return a result as plain JSON values, with its runs and its front."""
    out = result_to_json(result)
    if result.runs is not None:
        table = runs_table(result.runs, result.problem.variable_names(), value_names(result))
        rate, low, high = result.runs.success_rate()
        out["runs"] = to_json(dict(zip(table.names, table.rows.T, strict=True)))
        out["success_rate"] = {"rate": rate, "low": low, "high": high}
    if "F" in result:
        table = front_table(result)
        out["front"] = to_json(dict(zip(table.names, table.rows.T, strict=True)))
    return out


def study_as_json(study: Study) -> dict[str, object]:
    """Return a study as plain JSON values."""
    cells = [{**row, "settings": result.settings} for row, result in zip(study.summary(), study.results, strict=True)]
    return to_json({"kind": study.kind, "message": study.message, "axes": study.axes, "targets": study.targets,
                    "cells": cells, "runs": study.rows()})  # fmt: skip


def check_folder(folder: Path | None, force: bool, kind: str = "") -> None:
    """Refuse a folder that cannot be written, or that is not empty, before anything is computed.

    kind: "result.json" or "study.json", what is going to be saved; with `force` too, nothing that is not galapax's may
    be in its way.
    """
    if folder is None:
        return
    try:
        _check_writable(folder)
        names = [f.name for f in folder.iterdir()] if folder.exists() else []
        inside = sorted(name for name in names if not atomic.is_temporary(name))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"--out needs a writable folder, and {folder} is not writable ({why}).") from None
    if inside and not force:
        saved = [name for name in ("result.json", "study.json") if name in inside]
        what = f"holds a saved run ({saved[0]})" if saved else f"is not empty (it contains {inside[0]})"
        raise InputError(f"{folder} {what}: choose another folder for --out, or add --force to write into this one.")
    if inside and kind:
        manifest.refuse_unowned(folder, [*manifest.FILES_OF_KIND[kind], manifest.NAME])


def _check_writable(folder: Path) -> None:
    """Create the folder and a file in it, and remove again what did not exist before."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    created = []
    try:
        for path in reversed(missing):
            path.mkdir()
            created.append(path)
        with tempfile.TemporaryFile(dir=folder):
            pass
    finally:
        for path in reversed(created):
            path.rmdir()


# --- saved runs -------------------------------------------------------------------------------------------------------


def open_report(folder: Path) -> None:
    """Open the page of a saved run, and say where it is."""
    page = folder / "report.html"
    if not page.is_file():
        raise InputError(f'{folder} has no report.html: pip install "galapax[view]" and save the run again.')
    opened = webbrowser.open(page.resolve().as_uri())
    where = f"The report is {page.resolve()}"
    print_line(where if opened else f"{where}; no browser was found to open it.")


def draw_pictures(saved: Result | Study, folder: Path) -> tuple[list[Path], dict[str, str]]:
    """Draw all pictures of a run or a study as PNG files; return the files, and reasons for those that are missing."""
    if isinstance(saved, Result):
        return saved.plot.save(folder)
    from matplotlib.figure import Figure

    from galapax.view import plots

    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Callable[[Study], Figure]] = {"convergence": plots.study_convergence}
    if saved.kind == "comparison":
        figures["ecdf"] = plots.running_times
    for name, draw in figures.items():
        atomic.write_by(folder / f"{name}.png", partial(draw(saved).savefig, format="png", dpi=130))
    return [folder / f"{name}.png" for name in figures], {}


def print_written_files(files: list[Path]) -> None:
    """Print the files that were written, by folder; of many the first and the last."""
    for parent in dict.fromkeys(file.parent for file in files):
        names = [file.name for file in files if file.parent == parent]
        shown = f"{len(names)} files, {names[0]} to {names[-1]}" if len(names) > 8 else ", ".join(names)
        print_line(f"Wrote to {parent}: {shown}")


# --- the live page ----------------------------------------------------------------------------------------------------


def parse_live(
    live: bool, port: int | None, host: str | None, open_page: bool, paused: bool, quiet: bool
) -> Live | None:
    """Return the live page that the options ask for."""
    if not live:
        if port is not None or host is not None or paused:
            raise InputError("--port, --host and --paused apply to the live page: add --live.")
        return None

    address = LOOPBACK if host is None else host
    try:
        address.encode("idna")  # as the server will, in the middle of starting
    except UnicodeError:
        raise InputError(f"--host must be an address such as {LOOPBACK}; got {host!r}.") from None

    def announce(sentence: str) -> None:
        if not quiet:
            Console(stderr=True).print(sentence, markup=False, highlight=False, soft_wrap=True)

    def warn(sentence: str) -> None:
        print_error(sentence, style="bold yellow")

    return Live(
        0 if port is None else port, LOOPBACK if host is None else host, open_page, paused, say=announce, warn=warn
    )


def print_resume_hint(result: Result, checkpoint: Path | None, quiet: bool) -> None:
    """Print how to resume a run that was stopped early."""
    if checkpoint is not None and not quiet and result.stop.early:
        Console(stderr=True).print(f"To continue: galapax resume {checkpoint}", highlight=False)


def finish_page(page: Live | None, result: Result, folder: Path | None) -> None:
    """Tell the live page that its run is over, and where it was saved."""
    live_page.on_run_end(page, result, folder)


def replay_on_page(page: Live, result: Result, folder: Path) -> None:
    """Play a saved run on the live page until Ctrl-C."""
    if live_page.replay_result(page, result, folder):
        wait_on_page(page, True, False)


def wait_on_page(page: Live | None, wait: bool, quiet: bool) -> None:
    """Keep the live page up until Ctrl-C."""
    if page is None or not wait or not page.served:
        return
    if not quiet:
        Console(stderr=True).print("The live page stays open until you press Ctrl-C.", highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def mark_chosen(result: Result, choice: Any) -> InputError | None:
    """Mark the chosen point of the front, and return the error where that fails.

    It is not raised here, since the result is to be shown and saved even then.
    """
    if choice is None or not np.size(result.get("F", ())):
        return None
    try:
        row = result.choose(**choice) if isinstance(choice, dict) else result.choose(choice)
    except InputError as error:
        return error
    result["chosen"] = {"asked": row} if isinstance(choice, str) and choice == ASK_USER else choice
    return None
