"""Shorthands for the moves that tests use most."""

from __future__ import annotations

from typing import Any

from ..engines.script import Fails, Move, ToolCall


def calls(tool: str, /, **arguments: Any) -> Move:
    """Return a move, the scripted reply to one model call, that calls this tool."""
    return Move(calls=(ToolCall(name=tool, arguments=arguments),))


def fails(status: int = 500, *, times: int | None = None, then: str = "", retry_after: float = 0.0) -> Move:
    """Return a move, the scripted reply to one model call, that fails with this HTTP status.

    It fails every time or, if `times` is given, only that many times. After that, it replies with `then`.
    """
    return Move(says=then, fails=Fails(status=status, times=times, retry_after=retry_after))
