"""How long MCP servers are waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTimeouts:
    """Seconds: for a server to start and list its tools, for a call, and to end by itself at each time of asking."""

    start: float = 30.0
    call: float = 60.0
    grace: float = 2.0


class ServerUnavailable(Exception):
    """The server is not there; the text says how it ended or why it could not be started."""
