"""Let an exception of the user's function end a run, where a black box would count it as a failed evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from galapax.execution.observers import Progress


class FirstError:
    """A function that is called until it raises, and keeps the exception."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.error: Exception | None = None

    def __call__(self, x: Any) -> Any:
        if self.error is not None:
            raise self.error
        try:
            return self.function(x)
        except Exception as error:
            self.error = error
            raise

    def is_raised(self, progress: Progress) -> bool:
        """A callback that stops the run after an exception."""
        return self.error is not None

    def reraise(self) -> None:
        """Raise the exception, if there is one."""
        if self.error is not None:
            raise self.error
