"""A choice among texts, in a function that JAX traces: it is a place there, and comparing a place with a text is never
true, which would give a wrong answer without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from galapax.core.errors import InputError


class LabelIndex(int):
    """The first of some labels, which refuses to be compared with a text."""

    name: str
    labels: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            places = ", ".join(f"{i} for {label!r}" for i, label in enumerate(self.labels[:3]))
            raise InputError(
                f"a function compares {self.name} with {other!r}, but one that JAX traces gets the place of a choice "
                f"({places}): compare with that number, index an array with it, or give blackbox=True."
            )
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__


def check_label_comparisons(
    function: Callable[..., Any], given: Mapping[str, Any], texts: Mapping[str, tuple[Any, ...]]
) -> None:
    """Try a function with such places instead of traced ones. texts: the labels of each choice by its name."""
    places = {}
    for name, labels in texts.items():
        places[name] = LabelIndex(0)
        places[name].name, places[name].labels = name, labels
    if not places:
        return
    try:
        function({**given, **places})
    except InputError:
        raise
    except Exception:  # whatever a plain number cannot do that a traced one can
        return
