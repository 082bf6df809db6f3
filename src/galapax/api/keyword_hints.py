"""Answers to keywords that a verb does not have: the word for it here, or the nearest ones."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from galapax.core.errors import EvaluationError, InputError, UnknownArgument, unknown_name_error
from galapax.core.hints import KEYWORDS, find_answers
from galapax.core.user_code import shows_all_frames

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_LISTED_ARGUMENTS = 12  # arguments that a sentence names


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a verb so that unknown keywords are answered, and scipy's `minimize(f, x0, bounds=B)` is understood."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def verb(*positional: Any, **named: Any) -> R:
        if len(positional) == 2 and "bounds" in named and "x0" in parameters:
            *positional, named["x0"] = positional  # type: ignore[assignment]
        for name in named:
            if name not in parameters:
                raise unknown_keyword_error(name, parameters, function.__name__, named[name])
        try:
            return function(*positional, **named)
        except (InputError, EvaluationError) as error:
            if shows_all_frames():
                raise
            raise error.with_traceback(None)  # noqa: B904  # the sentence says it all; our own frames would bury it

    return verb


def suggest_arguments(kind: type[T]) -> type[T]:
    """Make the constructor of a class answer words of other libraries."""
    init = kind.__init__
    parameters = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def checked_init(self: T, *positional: Any, **named: Any) -> None:
        for name in named:
            if name not in parameters:
                raise unknown_keyword_error(name, parameters, kind.__name__, named[name])
        init(self, *positional, **named)

    setattr(kind, "__init__", checked_init)  # noqa: B010  # mypy takes an assignment for a mistake
    return kind


def unknown_keyword_error(name: str, parameters: Iterable[str], verb: str, value: object = None) -> UnknownArgument:
    """Build the error for a keyword that a verb does not have."""
    for answer in find_answers(name, KEYWORDS):
        is_same = re.fullmatch(r"write \w+", answer) and isinstance(value, int | float)
        return UnknownArgument(f"{verb} has no {name!r}: {answer}{f'={value}' if is_same else ''}.")
    names = list(parameters)
    listed = f"help(gx.{verb}) lists all {len(names)}." if len(names) > MAX_LISTED_ARGUMENTS else None
    return UnknownArgument(str(unknown_name_error(f"argument of {verb}", name, names, listed)))
