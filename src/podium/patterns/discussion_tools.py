"""Create the tools for a discussion: members broadcast and vote, and the coordinator broadcasts and concludes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ..core.engine import Tool, ToolAnswer
from ..core.scope import Scope
from ..values.event import Broadcast, ToolUse, Voted
from ..values.plain_text import truncate_text

LONGEST_QUOTE = 200


def make_member_broadcast_tool(author: str, number: int) -> Tool:
    """Create the tool that a member uses to broadcast a message in round `number`."""

    def parse_broadcast(arguments: dict[str, Any]) -> Broadcast:
        return Broadcast(author=author, round=number, text=arguments["message"])

    return _make_broadcast_tool(parse_broadcast)


def make_member_vote_tool(author: str, number: int) -> Tool:
    """Create the tool that a member uses to vote in round `number`. A vote ends the member's turn."""

    def parse_vote(arguments: dict[str, Any]) -> Voted:
        reason = str(arguments.get("reason", ""))
        return Voted(author=author, round=number, ready=arguments["ready"], reason=reason)

    fields = {"ready": "boolean", "reason": "string"}
    return _make_event_tool("vote_conclude", "Vote on whether the discussion can end.", fields, parse_vote)


def _make_event_tool(
    name: str,
    description: str,
    fields: dict[str, str],
    parse_event: Callable[[dict[str, Any]], Broadcast | Voted] | None,
) -> Tool:
    """Create a tool that records an event. Without `parse_event`, it records nothing, and the caller handles the call.

    The first of `fields` is required.
    """
    required = next(iter(fields))

    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        if not is_argument(call.arguments.get(required), fields[required]):
            expected = f"{name} expects the argument {required} ({_ARGUMENT_KINDS[fields[required]]})"
            given = truncate_text(msgspec.json.encode(call.arguments).decode(), LONGEST_QUOTE)
            return ToolAnswer(text=f"{expected}, got {given}; call it again.", is_error=True)
        if parse_event is not None:
            scope.record(parse_event(call.arguments))
        return ToolAnswer(text="noted", ends_turn=name in _LAST_TOOLS, is_reply=True)

    return Tool(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": {field: {"type": kind} for field, kind in fields.items()},
            "required": [required],
        },
        answer=answer_call,
    )


_LAST_TOOLS = ("vote_conclude", "conclude")
"""The tools that end a turn: a model that can go on after its vote may broadcast and vote over and over."""
_ARGUMENT_KINDS = {"string": "a non-blank string", "boolean": "true or false"}


def is_argument(value: object, kind: str) -> bool:
    """Return whether a value is valid for a required argument of this kind."""
    return isinstance(value, bool) if kind == "boolean" else isinstance(value, str) and bool(value.strip())


_make_broadcast_tool = partial(
    _make_event_tool, "broadcast", "Send a message to all members of the discussion.", {"message": "string"}
)
MODERATOR_TOOLS = (_make_broadcast_tool(None),)
DECIDER_TOOLS = (
    *MODERATOR_TOOLS,
    _make_event_tool("conclude", "End the discussion and give the final answer.", {"summary": "string"}, None),
)
TOOL_NAMES = ("broadcast", "vote_conclude", "conclude")
"""The names of all discussion tools."""
