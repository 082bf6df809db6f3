"""The errors a user meets: each says what was needed, what came and what to do.

Tracebacks show the user's own code alone, warnings point at it, and marks say what of the public API may change.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import jax


def format_bytes(size: int) -> str:
    """Bytes of memory for a message."""
    if size >= 2**80:
        return "over a quadrillion GiB"
    for unit, bytes_each in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= 0.1 * bytes_each:
            return f"{size / bytes_each:.1f} {unit}"
    return f"{size / 2**10:.1f} KiB"


class InputError(ValueError):
    """An argument that cannot be worked with; raised before anything is compiled."""


class ObjectiveCountError(InputError):
    """A function returns other than the needed number of objectives: n_objectives of them."""

    def __init__(self, message: str, n_objectives: int) -> None:
        super().__init__(message)
        self.n_objectives = n_objectives


class MissingPackage(ImportError):
    """A package that is not installed is needed; the message has the command that installs it."""


class UnknownArgument(InputError, TypeError):
    """A keyword that a function or an algorithm does not have: Python's TypeError for it, with a hint."""


class EvaluationError(RuntimeError):
    """An objective or constraint failed during a run that was told to stop at failures."""


class OutOfMemory(MemoryError):
    """A program whose working memory is known to be more than is free: it was not started."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(
            f"a program needs {format_bytes(needed)} of working memory and {format_bytes(free)} are free: use "
            "fewer runs, a smaller population, or an objective that needs less memory."
        )
        self.needed, self.free = needed, free


class LostProcess(RuntimeError):
    """Another process that computes the same run is gone."""


def unknown_name_error(kind: str, name: str, valid_names: Iterable[str], listed: str | None = None) -> InputError:
    """Build the error for a name that is in no registry, with the nearest names that are; listed: where to find them
    all, if they are too many for a sentence.
    """
    names = sorted(valid_names)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.65)
    hint = f"did you mean {' or '.join(near)}?" if near else listed or f"known: {', '.join(names)}."
    return InputError(f"There is no {kind} called {name!r}; {hint}")


# --- the user's own code on the stack ---------------------------------------------------------------------------------


CONFIG: Any = jax.config  # its type has no flags
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple(
    str(Path(path)) + os.sep
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
)
MAX_TRACEBACK_FRAMES = 20  # of the user's, that a failure remembers


def shows_all_frames() -> bool:
    """Return whether the frames of libraries are wanted: JAX_TRACEBACK_FILTERING=off asks for them."""
    return str(CONFIG.jax_traceback_filtering) == "off"


def is_user_file(name: str) -> bool:
    """Return whether a file is neither ours nor of an installed package or Python itself."""
    return not name.startswith((_PACKAGE, "<frozen ", *_LIBRARIES))


def user_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception with the frames of the user's own files alone.

    Where there are none, as in a simulator that was installed, those from the first frame on that is not ours.
    """
    frames = list(_walk(error.__traceback__))
    chosen = [frame for frame in frames if is_user_file(frame.tb_frame.f_code.co_filename)]
    if not chosen:
        outside = [i for i, frame in enumerate(frames) if not _is_ours(frame.tb_frame.f_code.co_filename)]
        chosen = frames[outside[0] :] if outside else []
    trimmed: TracebackType | None = None
    for frame in reversed(chosen):
        trimmed = TracebackType(trimmed, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trimmed


def describe_traceback(error: BaseException) -> tuple[str, str]:
    """Return the user's lines of a traceback as text, and where the last of them is: "in model (fit.py:9)"."""
    frames = traceback.extract_tb(user_traceback(error))
    try:
        text = "".join(traceback.format_list(frames[-MAX_TRACEBACK_FRAMES:]))
        text += "".join(traceback.format_exception_only(error))
    except Exception:  # of a class that somebody wrote
        text = type(error).__name__
    return f"Traceback (most recent call last):\n{text}", _locate(frames)


def user_location(error: BaseException) -> str:
    """Return where in the user's code an exception was raised: "in model (fit.py:9)"; "" where nobody knows."""
    return _locate(traceback.extract_tb(user_traceback(error)))


def _locate(frames: traceback.StackSummary) -> str:
    if not frames:
        return ""
    last = frames[-1]
    name = "" if last.name == "<module>" else f"in {last.name} "
    return f"{name}({Path(last.filename).name}:{last.lineno})"


def as_user_error(error: BaseException) -> BaseException | None:
    """Return an exception for `raise ... from`, with the user's frames alone and no chain; all of it, if that is asked
    for by JAX_TRACEBACK_FILTERING=off.
    """
    if shows_all_frames():
        return error
    trimmed = user_traceback(error)
    if trimmed is None:
        return None
    error.__cause__, error.__context__ = None, None
    notes = [note for note in getattr(error, "__notes__", ()) if "JAX_TRACEBACK_FILTERING" not in note]
    if hasattr(error, "__notes__"):
        error.__notes__ = notes
    return error.with_traceback(trimmed)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's that led here, however deep in the package that is."""
    warnings.warn(message, category, stacklevel=_user_stacklevel())


def _user_stacklevel() -> int:
    """Return the `stacklevel` of the nearest caller outside the package, for the function that calls this one."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None:
        frame, level = frame.f_back, level + 1
        name = frame.f_code.co_filename
        if not _is_ours(name) and not any(name.startswith(library) and "jax" in name for library in _LIBRARIES):
            return level
    return 1


def _is_ours(name: str) -> bool:
    return name.startswith(_PACKAGE)


def _walk(frame: TracebackType | None) -> Iterator[TracebackType]:
    while frame is not None:
        yield frame
        frame = frame.tb_next


# --- marks on the public API: docs/stability.md has the policy --------------------------------------------------------


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

EXPERIMENTAL_NOTE = "Experimental: may change in a minor release, see docs/stability.md."


def experimental(public: FunctionT) -> FunctionT:
    """Mark a class or function that a minor release may change: a line in its docstring and an attribute.

    It warns nobody: an experimental feature is tested like any other, only its interface is not settled.
    """
    public.__doc__ = _append(public.__doc__, EXPERIMENTAL_NOTE)
    public.__galapax_experimental__ = True  # type: ignore[attr-defined]
    return public


def is_experimental(public: object) -> bool:
    """Return whether a minor release may change it; a subclass is judged by itself."""
    return "__galapax_experimental__" in vars(public)


def warn_deprecated(name: str, *, since: str, instead: str, stacklevel: int = 3) -> None:
    """Warn that `name` will be removed by the next major release, with what replaces it.

    The caller's own line is named, so that Python shows the warning once for each place that must change.

    stacklevel: 3 where a public function calls this for one of its arguments.
    """
    warnings.warn(
        f"{name} is deprecated since galapax {since} and will be removed by the next major release: use {instead}.",
        DeprecationWarning,
        stacklevel=stacklevel,
    )


def deprecated(name: str, *, since: str, instead: str) -> Callable[[FunctionT], FunctionT]:
    """Decorate a function that will go: each call works as before and warns, see `warn_deprecated`."""

    def decorate(function: FunctionT) -> FunctionT:
        @functools.wraps(function)
        def call(*arguments: object, **options: object) -> Any:
            warn_deprecated(name, since=since, instead=instead)
            return function(*arguments, **options)

        call.__doc__ = _append(function.__doc__, f"Deprecated since {since}: use {instead}.")
        return call  # type: ignore[return-value]

    return decorate


def _append(docstring: str | None, line: str) -> str:
    """Append a paragraph to a docstring."""
    return f"{inspect.cleandoc(docstring or '')}\n\n{line}".strip()
