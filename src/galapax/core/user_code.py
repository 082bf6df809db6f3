"""Finds the user's own code on the stack: for tracebacks that show it alone, and for warnings that point at it."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

CONFIG: Any = jax.config  # its type has no flags
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple(
    str(Path(path)) + os.sep
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
)
MAX_TRACEBACK_FRAMES = 20  # of the user's, that a failure remembers


def shows_all_frames() -> bool:
    """Whether the frames of libraries are wanted: JAX_TRACEBACK_FILTERING=off asks for them."""
    return str(CONFIG.jax_traceback_filtering) == "off"


def is_user_file(name: str) -> bool:
    """Whether a file is neither ours nor of an installed package or Python itself."""
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
    """The `stacklevel` of the nearest caller outside the package, for the function that calls this one."""
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
