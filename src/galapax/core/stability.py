"""Marks on the public API: what may still change, and what will go. docs/stability.md has the policy."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

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
    """Whether a minor release may change it; a subclass is judged by itself."""
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
    """A docstring with one more paragraph."""
    return f"{inspect.cleandoc(docstring or '')}\n\n{line}".strip()
