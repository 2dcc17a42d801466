"""Define the timeouts for MCP servers, and the error for a server that is not available."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTimeouts:
    """The timeouts, in seconds, for starting a server and listing its tools, for a call, and for each shutdown step."""

    start: float = 30.0
    call: float = 60.0
    grace: float = 2.0


class ServerUnavailable(Exception):
    """The server is not available. The message says how it ended or why it could not be started."""
