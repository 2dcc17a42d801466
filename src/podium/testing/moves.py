"""Shorthands for the moves that tests use most."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ..engines.script import Fails, Move, ToolCall


def calls(tool: str, /, **arguments: Any) -> Move:
    """Return a move that calls this tool. A move is the scripted reply to one model call."""
    return Move(calls=(ToolCall(name=tool, arguments=arguments),))


def fails(status: int = 500, *, times: int | None = None, then: str = "", retry_after: float = 0.0) -> Move:
    """Return a move that fails with this HTTP status. A move is the scripted reply to one model call.

    By default, every attempt at the call fails. If `times` is given, only the first `times` attempts fail, and later
    attempts get the reply `then`.
    """
    return Move(says=then, fails=Fails(status=status, times=times, retry_after=retry_after))


def format_script(*moves: Move | str | Mapping[str, Any]) -> str:
    """Return a script as the block of Markdown from which a scripted model reads it in a prompt."""
    return f"```script\n{json.dumps(msgspec.to_builtins(moves))}\n```"
