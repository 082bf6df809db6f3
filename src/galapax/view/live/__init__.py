"""The live page of a run. The server is imported only when a page is requested."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from galapax.execution.observers import Facts, Live
from galapax.results.result import Result

if TYPE_CHECKING:
    from galapax.view.live.server import Server
    from galapax.view.live.session import LiveSession


def is_served(live: Live) -> bool:
    """Whether its page is being served."""
    server = sys.modules.get("galapax.view.live.server")
    return server is not None and server.is_running(live)


def on_run_end(live: Live | None, result: Result, folder: Path | None) -> None:
    """Let the page of a finished run replay it, and link to its report where it was saved."""
    if live is None or not is_served(live):
        return
    page = sys.modules["galapax.view.live.server"].get_server(live)
    if page.session is not None:
        page.session.folder = None if folder is None else Path(folder)
        page.session.replay = lambda: replay_result(
            replace(live, open_browser=False, say=lambda _: None), result, folder
        )
        page.notify_viewers()


def replay_result(live: Live, result: Result, folder: Path | None = None) -> bool:
    """Replay a finished run on a page; return whether a page could be served."""
    page = _start_server(live)
    if page is None:
        return False
    from galapax.view.live.replay import Replay

    page.show(Replay(result, page, folder), live)
    return True


@contextmanager
def watch_run(live: Live, facts: Callable[[], Facts]) -> Iterator[LiveSession | None]:
    """Open a session that shows a run on a page; None, with a warning, where no page can be served."""
    session = _open_session(live, facts)
    try:
        yield session
    except BaseException as error:
        if session is not None:
            session.fail(f"The run ended with an error: {type(error).__name__}: {error}")
        raise


def _open_session(live: Live, facts: Callable[[], Facts]) -> LiveSession | None:
    page = _start_server(live, " The run continues without it.")
    if page is None:
        return None
    from galapax.view.live.session import LiveSession

    session = LiveSession(facts(), page, live.paused, live.slow_start)
    page.show(session, live)
    return session


def _start_server(live: Live, consequence: str = "") -> Server | None:
    """Return the server of the page; None, with a warning, where there can be none."""
    try:
        from galapax.view.live import server

        return server.get_server(live)
    except ModuleNotFoundError as missing:
        live.warn(f"The live page needs {missing.name}: pip install 'galapax[live]'.{consequence}")
    except OSError as error:
        why = error.strerror or str(error)
        live.warn(
            f"The live page cannot be served at {live.host}, port {live.port}: {why}. Port 0 chooses a free one."
            f"{consequence}"
        )
    return None
