"""What rooms below do for rooms above them: drawing and saving a result, showing how a run goes on.

A result is plain data and imports no picture and no file format, and a run knows no page. The views say here where
their functions are when `import galapax` imports them, and are asked for them by name. A function's file is imported
when it is first asked for: most runs draw and save nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_offered: dict[str, tuple[str, str]] = {}


def offer(name: str, module: str, function: str) -> None:
    """This function of a module is what `name` asks for."""
    _offered[name] = module, function


def offered(name: str) -> Callable[..., Any]:
    """The function that was offered by this name."""
    if name not in _offered:
        raise RuntimeError(f"{name!r} is not available: import galapax as a whole.")
    module, function = _offered[name]
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


class Shown:
    """What notebooks show as a small table with a picture; see view/notebook.py."""

    def _repr_html_(self) -> str:
        html: str = offered("html")(self)
        return html
