"""The errors a user meets: each says what was needed, what came and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
    """The error for a name that is in no registry, with the nearest names that are; listed: where to find them all, if
    they are too many for a sentence.
    """
    names = sorted(valid_names)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.65)
    hint = f"did you mean {' or '.join(near)}?" if near else listed or f"known: {', '.join(names)}."
    return InputError(f"There is no {kind} called {name!r}; {hint}")
