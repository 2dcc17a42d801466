"""An MCP server on stdin and stdout that forwards every message to Podium's server over HTTP.

Usage: PODIUM_COORDINATION_TOKEN=TOKEN python -I -S _stdio_shim_program.py URL

It is for agents that support MCP servers only as child processes, not over HTTP. It runs inside the sandbox and uses
only the standard library. All messages after `initialize` are forwarded in parallel, because a tool may take a long
time to answer.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

SECONDS = 120
INTERNAL_ERROR = -32603
_writing = threading.Lock()
_version = ""


def main(url: str, token: str) -> None:
    """Forward messages until stdin ends."""
    running: list[threading.Thread] = []
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and message.get("method") == "initialize":
            # All other messages need the protocol version that this message negotiates, so wait for its answer.
            _pass_message(url, token, message)
            continue
        thread = threading.Thread(target=_pass_message, args=(url, token, message))
        thread.start()
        running = [one for one in (*running, thread) if one.is_alive()]
    for one in running:
        one.join()


def _pass_message(url: str, token: str, message: Any) -> None:
    """Send one message to Podium and, if it is a request, print the answer."""
    global _version
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    if _version:
        headers["MCP-Protocol-Version"] = _version
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    id = message.get("id") if isinstance(message, dict) and "method" in message else None
    try:
        with OPENER.open(request, timeout=SECONDS) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        answer = error.read()
        if id is not None and b'"jsonrpc"' not in answer:
            answer = _build_error(id, f"Podium rejected the request (HTTP status {error.code})")
    except OSError as error:
        answer = b"" if id is None else _build_error(id, f"Podium cannot be reached: {error}")
    if id is None or not answer:
        return
    if message.get("method") == "initialize":
        _version = str((json.loads(answer).get("result") or {}).get("protocolVersion", ""))
    with _writing:
        sys.stdout.buffer.write(answer.replace(b"\n", b" ") + b"\n")
        sys.stdout.buffer.flush()


OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Ignores any proxy in the environment, because Podium listens on the sandbox's own loopback interface."""


def _build_error(id: Any, message: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": INTERNAL_ERROR, "message": message}}).encode()


if __name__ == "__main__":
    main(sys.argv[1], os.environ.get("PODIUM_COORDINATION_TOKEN", ""))
