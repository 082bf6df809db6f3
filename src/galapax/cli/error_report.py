"""Errors in the shell's words: options in place of arguments, and the line of the user's file."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import typer
from rich.console import Console

from galapax._startup import INTERRUPTED
from galapax.cli import shell_options as options
from galapax.core.errors import EvaluationError, InputError, LostProcess, MissingPackage

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
    return f"{sentence} ({place})" if place else sentence


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
