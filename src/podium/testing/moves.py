"""The moves that tests write most, in fewer words."""

from __future__ import annotations

from typing import Any

from ..engines.script import Fails, Move, ToolCall


def calls(tool: str, /, **arguments: Any) -> Move:
    """The model wants this tool."""
    return Move(calls=(ToolCall(name=tool, arguments=arguments),))


def fails(status: int = 500, *, times: int | None = None, then: str = "", retry_after: float = 0.0) -> Move:
    """The provider answers with this status: at the first `times` attempts and says `then` after, or at every one."""
    return Move(says=then, fails=Fails(status=status, times=times, retry_after=retry_after))
