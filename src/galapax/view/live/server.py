"""The server of the live page: starlette and uvicorn in a thread of their own.

The page is one document without anything from elsewhere. News come as server-sent events, frames and contours by GET
when the page is ready for them, commands by POST. Only this machine can reach it, unless another host is given: then
every request needs the token. Nothing that a page sends is more than one of a few commands and a number.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import math
import os
import re
import secrets
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from galapax.view.live import Live
from galapax.view.live.replay import Replay, find_report, sibling_runs
from galapax.view.live.session import LiveSession
from galapax.view.web import page_script, page_style, read_asset

HEARTBEAT_SECONDS = 15.0
EVENT_INTERVAL = 0.08  # seconds
MAX_COMMAND_BYTES = 1000

_servers: dict[tuple[str, int], Server] = {}


def get_server(live: Live) -> Server:
    """Return the server at this host and port; start one if there is none. A later run is shown on the same page."""
    address = (live.host, live.port)
    if address not in _servers or _servers[address].failed:
        _servers[address] = Server(live)
    return _servers[address]


def is_running(live: Live) -> bool:
    server = _servers.get((live.host, live.port))
    return server is not None and not server.failed


class Server:
    """Serves the page of one session at a time."""

    def __init__(self, live: Live) -> None:
        """Bind the socket and start serving; raises OSError if the address is not available."""
        self.live = live
        self.token = "" if live.private else secrets.token_urlsafe(24)
        self.failed = False
        self.session: LiveSession | Replay | None = None
        self._viewers: set[asyncio.Event] = set()
        self._last_viewer_left_at = -math.inf
        family, _, _, _, address = socket.getaddrinfo(live.host, live.port, type=socket.SOCK_STREAM)[0]
        self._socket = socket.socket(family)
        if os.name == "posix":  # elsewhere the option would let two servers share a port
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(address)
            self._socket.listen(64)
        except OSError:
            self._socket.close()
            raise
        self.port = int(self._socket.getsockname()[1])
        self._loop: asyncio.AbstractEventLoop | None = None
        threading.Thread(target=self._serve, name="galapax live page", daemon=True).start()

    @property
    def url(self) -> str:
        host = self.live.host
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def show(self, session: LiveSession | Replay, live: Live) -> None:
        """Show this session from now on; an earlier one that is paused goes on by itself."""
        self.live = live  # the same address, but perhaps other functions to say and warn
        earlier, self.session = self.session, session
        if earlier is not None:
            earlier.release()
        if self.failed:  # before it knew of this session, which would wait for a page for ever
            session.release()
            return
        self.live.say(f"Live page: {self.url}")
        if self.live.open_browser and not self._viewers and open_page(self.url):
            session.expect_viewer()
        self.notify_viewers()

    def seconds_without_viewers(self) -> float:
        """Seconds since the last viewer left; 0 while somebody watches, inf if nobody came yet."""
        return 0.0 if self._viewers else time.perf_counter() - self._last_viewer_left_at

    def notify_viewers(self) -> None:
        """Wake the pages: there is something new. Called from any thread."""
        if self._viewers and self._loop is not None and not self.failed:
            with contextlib.suppress(RuntimeError):  # the server has just ended
                self._loop.call_soon_threadsafe(self._wake)

    def warn(self, sentence: str) -> None:
        """Warn the user."""
        self.live.warn(sentence)

    def _wake(self) -> None:
        for viewer in self._viewers:
            viewer.set()

    def _serve(self) -> None:
        config = uvicorn.Config(
            RequestGuard(self),
            lifespan="off",
            log_config=None,
            log_level="critical",
            loop="asyncio",
            http="h11",
            ws="none",
        )
        try:
            asyncio.run(self._run(uvicorn.Server(config)))
        except BaseException as error:  # whatever it is, the run must not notice
            self.failed = True
            self._viewers.clear()
            if self.session is not None:
                self.session.release()
            self.live.warn(f"The live page stopped ({type(error).__name__}: {error}). The run continues without it.")

    async def _run(self, server: uvicorn.Server) -> None:
        self._loop = asyncio.get_running_loop()
        await server.serve(sockets=[self._socket])

    # routes

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._page),
                Route("/events", self._events),
                Route("/facts", self._facts),
                Route("/frame", self._frame),
                Route("/contours", self._contours),
                Route("/runs", self._runs),
                Route("/report", self._report),
                Route("/command", self._command, methods=["POST"]),
            ]
        )

    async def _page(self, request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        text = read_asset("live.html").replace("NONCE", nonce)
        text = text.replace("/*CSS*/", page_style("live")).replace("/*JS*/", page_script("live"))
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})

    async def _events(self, request: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            changed, name, version, n_sent = asyncio.Event(), "", -1, 0
            self._viewers.add(changed)
            try:
                while True:
                    changed.clear()
                    session = self.session
                    if session is not None:
                        if session.name != name:
                            name, version, n_sent = session.name, -1, 0
                        message, version, n_sent = session.message(version, n_sent)
                        message["saved"] = session.folder is not None
                        yield f"data: {json.dumps(message)}\n\n"
                    await asyncio.sleep(EVENT_INTERVAL)
                    try:
                        await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
                    except TimeoutError:
                        yield ": still here\n\n"
            finally:
                self._viewers.discard(changed)
                self._last_viewer_left_at = time.perf_counter()

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def _facts(self, request: Request) -> Response:
        if self.session is None:
            return PlainTextResponse("No run yet.", 404)
        return JSONResponse(await run_in_threadpool(self.session.describe))

    async def _frame(self, request: Request) -> Response:
        data = b"" if self.session is None else self.session.frame()
        return Response(data, media_type="application/octet-stream")

    async def _contours(self, request: Request) -> Response:
        try:
            first, second, objective = (int(request.query_params.get(name, "0")[:6]) for name in ("a", "b", "k"))
        except ValueError:
            return PlainTextResponse("a, b and k are numbers of variables and of an objective.", 400)
        if self.session is None:
            return PlainTextResponse("No run yet.", 404)
        recompute = "anew" in request.query_params
        return JSONResponse(await run_in_threadpool(self.session.contours, first, second, objective, recompute))

    async def _runs(self, request: Request) -> Response:
        folder = None if self.session is None else self.session.folder
        return JSONResponse(await run_in_threadpool(sibling_runs, folder))

    async def _report(self, request: Request) -> Response:
        folder = None if self.session is None else self.session.folder
        page = await run_in_threadpool(find_report, folder, request.query_params.get("run", ""))
        if page is None:
            return PlainTextResponse("There is no report.", 404)
        return HTMLResponse(await run_in_threadpool(page.read_text, "utf-8"))

    async def _command(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_COMMAND_BYTES:
                return PlainTextResponse("The command is too long.", 413)
        try:
            request_data = json.loads(body)
            name, value = request_data["command"], request_data.get("value")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return PlainTextResponse('A command looks like {"command": "pause"}.', 400)
        if self.session is None:
            return PlainTextResponse("No run yet.", 404)
        error = self.session.command(name, value)
        return PlainTextResponse(error, 400) if error else PlainTextResponse("done")


class RequestGuard:
    """ASGI middleware that lets through only requests of the page itself."""

    HEADERS = (
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),  # the address has the token
        (b"x-content-type-options", b"nosniff"),
        (b"cross-origin-resource-policy", b"same-origin"),
    )

    def __init__(self, server: Server) -> None:
        self.server, self.app = server, server.app()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self.HEADERS]
            await send(message)

        refusal = self._refusal(
            scope["method"], scope["path"], Headers(scope=scope), QueryParams(scope["query_string"])
        )
        handler = self.app if refusal is None else PlainTextResponse(refusal, 403)
        await handler(scope, receive, send_safely)

    def _refusal(self, method: str, path: str, headers: Headers, query: QueryParams) -> str | None:
        token, host = self.server.token, headers.get("host", "")
        if token:
            if not hmac.compare_digest(query.get("token", "").encode(), token.encode()):
                return "This page needs the token that galapax printed with the address."
        elif re.sub(r":\d+$", "", host) not in (self.server.live.host, "127.0.0.1", "localhost", "[::1]"):
            return "This page can be opened on this machine only."  # a name that somebody made to point here
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        # "none": typed into the address bar; a link on another site may lead to the page, but to nothing else here
        is_own_page = site in ("same-origin", "none") or (path == "/" and headers.get("sec-fetch-mode") == "navigate")
        if not is_own_page or (origin is not None and origin.partition("://")[2] != host):
            return "Only the page itself may read the run."
        if method in ("GET", "HEAD"):
            return None
        if site != "same-origin":
            return "Commands must come from the page itself."
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            return "Commands must be JSON."  # which no form of another site can send
        return None


def open_page(url: str) -> bool:
    """Open the page in a browser, if there is one with windows; return whether that was tried."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False  # what webbrowser finds then runs in the terminal, in the run's way
    threading.Thread(target=_open, args=(url,), daemon=True).start()
    return True


def _open(url: str) -> None:
    try:
        webbrowser.open(url)
    except webbrowser.Error:
        return  # the address is printed
