"""What is known of an MCP server that is not there any more."""

from __future__ import annotations


class ServerUnavailable(Exception):
    """The server is not there; the text says how it ended or why it could not be started."""
