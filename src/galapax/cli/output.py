"""The output of a command: tables or JSON, a saved folder, the live page, an exit code; errors in the shell's words.

An error names options in place of arguments, and the line of the user's file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import tempfile
import threading
import traceback
import warnings
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import typer
from rich.console import Console, RenderableType

from galapax._startup import INTERRUPTED
from galapax.cli import shell_options as options
from galapax.core.errors import EvaluationError, InputError, LostProcess, MissingPackage
from galapax.core.stop import Stop
from galapax.execution.observers import LOOPBACK, Live
from galapax.results.front import ASK_USER
from galapax.results.result import Result
from galapax.results.study import Study
from galapax.storage import atomic
from galapax.storage.export import front_table, runs_table, value_names
from galapax.storage.result_format import result_to_json, to_json
from galapax.view import live as live_page
from galapax.view import terminal

FAILED, BAD_INPUT = 1, 2  # exit codes

_VALUE = r"""range\(\d+, \d+\)|True|False|None|"[^"]*"|'[^']*'|\[[^\]]*\]|[\w./+-]*[\w/+-]"""
_GROUP = re.compile(r"(?:\b(?:workers|keep|compute)=)?gx\.(?:Workers|Keep|Compute)\((?P<arguments>[^()]*)\)")
_ASSIGNMENT = re.compile(rf"(?<![\w.-])(?<!--set )(?P<name>[a-z]\w*)=(?P<value>{_VALUE})?")
_LONG_NAME = re.compile(r"(?<![\w.-])[a-z0]+_[a-z_]+(?![\w(=]|\.\w)")


# --- what the shell calls it ------------------------------------------------------------------------------------------


def use_shell_words(sentence: str) -> str:
    """Write the arguments that a sentence names as options: `blackbox=True` is `--blackbox`."""
    sentence = _GROUP.sub(lambda match: _translate_group(match["arguments"]), sentence)
    sentence = _ASSIGNMENT.sub(lambda match: _translate(match["name"], match["value"]) or match[0], sentence)
    names = {name for name in (*options.run_options(), *options.SOLVE) if "_" in name}
    return _LONG_NAME.sub(lambda match: _flag(match[0]) if match[0] in names else match[0], sentence)


def _translate_group(arguments: str) -> str:
    """Write the arguments of a group, such as gx.Workers(8, timeout=30), as options."""
    words = []
    for argument in re.split(r",\s*(?![^\[]*\])", arguments):
        name, equals, value = argument.partition("=")
        words.append((_translate(name, value) or argument) if equals else f"--workers {argument}")
    return " ".join(words)


def _translate(name: str, value: str | None) -> str | None:
    """Write an argument and its value as an option; None where the shell has no such option."""
    if name not in (*options.run_options(), *options.SOLVE):
        return None
    if value in (None, "True"):
        return _flag(name)
    if value == "False":
        return f"--no-{name.replace('_', '-')}"
    if name == "history":
        return "--history-x"
    if (run_range := re.fullmatch(r"range\((\d+), (\d+)\)", str(value))) is not None:
        first, end = map(int, run_range.groups())
        return f"--first-run {first} --runs {end - first}"
    text = "none" if value == "None" else str(value).strip("\"'")
    return f"{_flag(name)} {text.strip('[]').replace(', ', ',')}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- where it happened ------------------------------------------------------------------------------------------------


def locate_error(error: BaseException, file: Path) -> str:
    """Name the line of a file at which an error, or what caused it, was raised; "" where none of its lines was."""
    cause: BaseException | None = error
    visited: set[int] = set()
    location = ""
    while cause is not None and id(cause) not in visited:
        visited.add(id(cause))
        location = _last_line(cause, cause.__traceback__, file) or location
        cause = cause.__cause__ or cause.__context__
    return location


def _last_line(error: BaseException, trace: TracebackType | None, file: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename and _is_same(Path(error.filename), file):
        return f"{file.name}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(trace) if _is_same(Path(frame.filename), file)]
    return f"{file.name}, line {frames[-1].lineno}: {frames[-1].line}" if frames else ""


def _is_same(path: Path, file: Path) -> bool:
    return path.name == file.name and os.path.abspath(path) == os.path.abspath(file)


# --- how a command ends -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def report_errors(problem: str = "") -> Iterator[None]:
    """Turn expected errors into one sentence and an exit code; any other shows its traceback.

    problem: the name or the file of the problem that is solved.
    """
    try:
        yield
    except KeyboardInterrupt:
        print_error("stopped by Ctrl-C before a result was available.")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # `| head` has read enough
        raise
    except EvaluationError as error:
        print_error(describe_error(error, problem))
        raise typer.Exit(FAILED) from None
    except LostProcess as error:
        print_error(str(error))
        sys.stdout.flush()
        os._exit(FAILED)  # an orderly end would wait for the process that is gone
    except MemoryError as error:
        print_error(f"not enough memory ({error}): use fewer runs or a smaller population.")
        raise typer.Exit(BAD_INPUT) from None
    except (InputError, MissingPackage, OSError) as error:
        print_error(describe_error(error, problem))
        raise typer.Exit(BAD_INPUT) from None


def describe_error(error: BaseException, problem: str) -> str:
    """Describe an error in the shell's words, with the line of the user's file where it arose."""
    sentence = use_shell_words(str(error))
    place = locate_error(error, Path(problem)) if problem.endswith(".py") else ""
    return f"{sentence}\n    {place}" if place else sentence


def print_error(sentence: str, style: str = "bold red") -> None:
    """Print a sentence on stderr, without markup, since it may hold the user's text."""
    errors = Console(stderr=True)
    errors.print("galapax:", style=style, end=" ", highlight=False)
    errors.print(sentence, markup=False, highlight=False, soft_wrap=True)


def print_warnings() -> None:
    """Print warnings for users as sentences from now on, not as lines of Python with their place in galapax."""
    show = warnings.showwarning

    def print_warning(message, category, filename, lineno, file=None, line=None):  # type: ignore[no-untyped-def]
        if category is UserWarning and file is None:
            print_error(use_shell_words(str(message)), style="bold yellow")
        else:
            show(message, category, filename, lineno, file, line)

    warnings.showwarning = print_warning


console = Console()

DONE = 0  # exit code; see also cli/output.py


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
    words = ["galapax", str(context.command.name)]
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
        atomic.refuse_unowned(folder, [*atomic.FILES_OF_KIND[kind], atomic.MANIFEST])


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


def print_written_files(files: list[Path]) -> None:
    """Print the files that were written, by folder; of many the first and the last."""
    for parent in dict.fromkeys(file.parent for file in files):
        names = [file.name for file in files if file.parent == parent]
        listing = f"{len(names)} files, {names[0]} to {names[-1]}" if len(names) > 8 else ", ".join(names)
        print_line(f"Wrote to {parent}: {listing}")


# --- the live page ----------------------------------------------------------------------------------------------------


def parse_live(arguments: options.Arguments) -> Live | None:
    """Return the live page that the options ask for."""
    port, host, paused = arguments.port, arguments.host, arguments.paused
    if not arguments.live:
        if port is not None or host is not None or paused:
            raise InputError("--port, --host and --paused apply to the live page: add --live.")
        return None

    address = LOOPBACK if host is None else host
    try:
        address.encode("idna")  # as the server will, in the middle of starting
    except UnicodeError:
        raise InputError(f"--host must be an address such as {LOOPBACK}; got {host!r}.") from None

    def announce(sentence: str) -> None:
        if not arguments.quiet:
            Console(stderr=True).print(sentence, markup=False, highlight=False, soft_wrap=True)

    def warn(sentence: str) -> None:
        print_error(sentence, style="bold yellow")

    return Live(0 if port is None else port, address, arguments.open_page, paused, say=announce, warn=warn)


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
    if page is None or not wait or not page.is_served:
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
