"""The command that starts the MCP server on stdio for agents that cannot call MCP servers over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

from . import _stdio_shim_program

SHIM = Path(_stdio_shim_program.__file__)
"""The program that the command runs. It must be readable in the agent's sandbox."""
TOKEN_VARIABLE = "PODIUM_COORDINATION_TOKEN"


def build_shim_command(url: str) -> list[str]:
    """Return the command that starts the server. The session's token must be in the variable TOKEN_VARIABLE."""
    return [sys.executable, "-I", "-S", str(SHIM), url]
