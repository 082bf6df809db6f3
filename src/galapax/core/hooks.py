"""What rooms below do for rooms above them: drawing and saving a result, showing how a run goes on.

A result is plain data and imports no picture and no file format, and a run knows no page. The views offer their
functions here when they are imported, which `import galapax` does, and are asked for them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_offered: dict[str, Callable[..., Any]] = {}


def offer(name: str, function: Callable[..., Any]) -> None:
    """Do this whenever `name` is asked for; a later offer takes the place of an earlier one."""
    _offered[name] = function


def offered(name: str) -> Callable[..., Any]:
    """The function that was offered by this name."""
    if name not in _offered:
        raise RuntimeError(f"{name!r} is not available: import galapax as a whole.")
    return _offered[name]


class Shown:
    """What notebooks show as a small table with a picture; see view/notebook.py."""

    def _repr_html_(self) -> str:
        html: str = offered("html")(self)
        return html
