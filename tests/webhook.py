"""A webhook: a real HTTP server on this machine that keeps what it receives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

TOO_LONG = 30.0
"""Seconds after which a test that waits for a call has failed."""


class Webhook:
    """The calls to a webhook that answers with a status. With `is_silent`, it never answers."""

    def __init__(self, url: str, *, status: int, is_silent: bool) -> None:
        self.url = url
        self.status = status
        self.is_silent = is_silent
        self.calls: Queue[dict[str, Any]] = Queue()
        self.released = threading.Event()

    def wait_call(self) -> dict[str, Any]:
        """Wait for the next call, and return its JSON."""
        return self.calls.get(timeout=TOO_LONG)

    def list_calls(self) -> list[dict[str, Any]]:
        """Return the calls that nobody has waited for."""
        return [self.calls.get_nowait() for _ in range(self.calls.qsize())]


@contextmanager
def serve_webhook(*, status: int = 204, is_silent: bool = False) -> Iterator[Webhook]:
    """Serve a webhook during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/json"
            hook.calls.put(json.loads(body))
            if hook.is_silent:
                hook.released.wait(TOO_LONG)
                return
            self.send_response(hook.status)
            self.send_header("Location", f"{hook.url}/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook = Webhook(f"http://127.0.0.1:{server.server_port}/hook/secret", status=status, is_silent=is_silent)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hook
        finally:
            hook.released.set()
            server.shutdown()
            thread.join()
