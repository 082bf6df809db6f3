"""Cases of a parametrised test, those that are slow marked where the test lists them.

    @pytest.mark.parametrize("name", params(ALGORITHMS, slow={"cmaes"}))
    @pytest.mark.parametrize(("name", "dtype"), params(product(ALGORITHMS, DTYPES), quick={"de-float32"}))

A case goes by the id that pytest prints. A name that no case has is an error, so that a renamed case is not forgotten.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest


def params(
    values: Iterable[Any],
    *,
    slow: Collection[str] | None = None,
    quick: Collection[str] | None = None,
    ids: Sequence[str] | Callable[[Any], str] | None = None,
) -> list[Any]:
    """Mark the cases named in `slow`, or all but those named in `quick`, as slow."""
    if (slow is None) == (quick is None):
        raise TypeError("Name either the slow cases or the quick ones.")
    values = list(values)
    if callable(ids):
        ids = [ids(value) for value in values]
    names = [case_id(value) for value in values] if ids is None else list(ids)
    named = set(slow if quick is None else quick)
    if unknown := named - set(names):
        raise ValueError(f"No case is called {sorted(unknown)}; there are {names}.")
    slow_names = named if quick is None else set(names) - named
    cases = []
    for value, name in zip(values, names, strict=True):
        arguments, marks = split(value)
        if name in slow_names:
            marks = (*marks, pytest.mark.slow)
        cases.append(pytest.param(*arguments, id=name, marks=marks))
    return cases


def product(*axes: Iterable[Any]) -> list[Any]:
    """Every combination of the axes, called by the ids of its values with a dash between them."""
    cases = []
    for values in itertools.product(*axes):
        parts = [split(value) for value in values]
        arguments = [argument for arguments, _ in parts for argument in arguments]
        marks = [mark for _, marks in parts for mark in marks]
        cases.append(pytest.param(*arguments, id="-".join(map(case_id, values)), marks=marks))
    return cases


def split(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arguments and marks of a case; a tuple is one argument each."""
    if isinstance(value, type(pytest.param())):
        return tuple(value.values), tuple(value.marks)
    return (value if isinstance(value, tuple) else (value,)), ()


def case_id(value: Any) -> str:
    """What pytest calls a case without an id of its own."""
    if isinstance(value, type(pytest.param())) and value.id is not None:
        return str(value.id)
    return "-".join(argument_id(argument) for argument in split(value)[0])


def argument_id(argument: Any) -> str:
    if isinstance(argument, str | int | float | bool | None):
        return str(argument)
    name = getattr(argument, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"Give {argument!r} an id.")
    return name
