"""Runs in a thread with a live page, and requests to its server."""

import http.client
import json
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import galapax as gx
from galapax.view.live import server

ALL = 10**8  # more generations than any test waits for


DE = gx.DE(population=20)


class Run:
    """A run in a thread, with its page."""

    def __init__(self, *arguments, verb=gx.minimize, paused=False, live=None, **options):
        self.said: list[str] = []
        self.result = None
        ready = threading.Event()

        def say(sentence):
            self.said.append(sentence)
            ready.set()

        settings = {"open_browser": False, "paused": paused, "slow_start": False, "say": say, **(live or {})}

        def work():
            # easy problems and long runs: none is to end by itself
            endless = {"tolerance": 0, "polish": False} if verb is gx.minimize else {}
            self.result = verb(*arguments, live=gx.Live(**settings), **{**endless, **options})

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        assert ready.wait(60)
        self.url = self.said[0].removeprefix("Live page: ")
        self.session = next(iter(server._servers.values())).session

    def end(self):
        self.session.command("stop")
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.result


@contextmanager
def running(*arguments, **options):
    run = Run(*arguments, **options)
    try:
        yield run
    finally:
        run.end()


def until(claim, seconds=60.0):
    """Wait until claim() holds."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.03)


def ask(url, path, method="GET", body=None, **headers):
    """(status, body) of a request to the server of `url`."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=20)
    kind = {"Content-Type": "application/json"} if method == "POST" else {}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {**kind, **named})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data


def command(url, name, value=None, **headers):
    return ask(url, "/command", "POST", json.dumps({"command": name, "value": value}), **headers)
