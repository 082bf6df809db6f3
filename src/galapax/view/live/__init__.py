"""The live page: what a user asks for, and the run's way to it. The server is loaded only when a page is wanted."""

from __future__ import annotations

import ipaddress
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from galapax.core.checks import whole
from galapax.core.errors import InputError
from galapax.core.problem import Problem

if TYPE_CHECKING:
    from galapax.view.live.session import Session

LOOPBACK = "127.0.0.1"


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=2)


@dataclass(frozen=True)
class Live:
    """How a run is shown in the browser while it goes on.

    port: of the page; 0 takes a free one.
    host: the address to listen at. Any other than this machine alone makes the page ask for the token in its address.
    open_browser: open the page, if there is a browser.
    paused: the run pauses after its first generation, until the page lets it go on.
    say: is given the sentence with the page's address. warn: is given the sentence that says why there is no page.
    """

    port: int = 0
    host: str = LOOPBACK
    open_browser: bool = True
    paused: bool = False
    say: Callable[[str], Any] = print
    warn: Callable[[str], Any] = _warn

    def __post_init__(self) -> None:
        if whole(self.port, "port", 0) > 65535:
            raise InputError(f"port must be a number from 0 (any free one) to 65535, got {self.port}.")
        if not isinstance(self.host, str) or not self.host.strip():
            raise InputError(f'host must be an address such as "{LOOPBACK}", got {self.host!r}.')

    @property
    def served(self) -> bool:
        """Whether the page is up now."""
        server = sys.modules.get("galapax.view.live.server")
        return server is not None and server.is_up(self)

    @property
    def private(self) -> bool:
        """Whether only this machine can reach the page."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True)
class Facts:
    """What the page must know of a run."""

    problem: Problem
    settings: dict[str, Any]  # as in a Result
    population: int
    evaluations: int  # a generation of one run
    generations: int | None  # the limit, if there is one
    contours: bool  # whether the objective can be called beside the run


def as_live(live: Any) -> Live | None:
    """What `live=` asks for: None for no page."""
    if live is None or live is False:
        return None
    if live is True:
        return Live()
    if isinstance(live, Live):
        return live
    if isinstance(live, int):
        return Live(port=live)
    raise InputError(f"live must be True, False, a port number or a galapax.Live, got {live!r}.")


@contextmanager
def watching(live: Live | None, facts: Callable[[], Facts]) -> Iterator[Session | None]:
    """A session that shows a run on a page; None where no page is wanted, or none can be had, which harms no run."""
    session = None if live is None else _open(live, facts)
    try:
        yield session
    except BaseException as error:
        if session is not None:
            session.fail(f"The run ended with an error: {type(error).__name__}: {error}")
        raise


def _open(live: Live, facts: Callable[[], Facts]) -> Session | None:
    try:
        from galapax.view.live import server
        from galapax.view.live.session import Session
    except ModuleNotFoundError as missing:
        live.warn(f"The live page needs {missing.name}: pip install 'galapax[live]'. The run goes on without the page.")
        return None
    try:
        page = server.at(live)
    except OSError as error:
        why = error.strerror or str(error)
        live.warn(
            f"The live page cannot be served at {live.host}, port {live.port}: {why}. The run goes on without it; "
            "port 0 takes a free one."
        )
        return None
    session = Session(facts(), page, live.paused)
    page.show(session, live)
    return session
