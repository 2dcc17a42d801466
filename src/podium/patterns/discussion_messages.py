"""Take part in a discussion: create the tools for it, and recognise replies that say nothing.

Such replies are PASS, tool calls written as text, and echoes of the topic.

Models that cannot call tools write the call into their reply. Such a call is not a contribution, and neither is a
repetition of the topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import msgspec

from ..core.engine import Tool, ToolAnswer
from ..core.scope import Scope
from ..values.event import Broadcast, ToolUse, Voted
from ..values.json import Json
from ..values.plain_text import truncate_text

LONGEST_QUOTE = 200


def _make_event_tool(
    name: str,
    description: str,
    fields: dict[str, str],
    parse_event: Callable[[Mapping[str, Any]], Broadcast | Voted] | None,
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


LONGEST_REPLY = 100_000
MOST_VALUES = 100
PASS = "pass"
ECHO_SHARE = 0.8
"""The minimum number of words in an echo, as a fraction of the number of words in the topic.

An echo consists only of consecutive words from the topic. Articles are ignored.
"""
SHORTEST_TOPIC = 4
"""The minimum number of words in a topic for echo detection. Repeating a shorter topic can be a genuine answer."""
_FRAME = re.compile(r"```[\w-]*|</?tool_calls?>|</?tools>|[{}\s,;]+")
_WORD = re.compile(r"\w+")
_ARTICLES = frozenset({"a", "an", "the"})
_decoder = json.JSONDecoder(strict=False)


def find_spoken_text(text: str, tools: Collection[str], *, topic: str = "") -> str:
    """Return the reply, or an empty string if it only says PASS, repeats the topic, or consists of calls to `tools`."""
    bare = text.strip("\ufeff \t\r\n")
    if bare.strip(".!*_ ").casefold() == PASS or _consists_of_calls(bare, tools) or is_echo(bare, topic):
        return ""
    return bare


def is_echo(text: str, topic: str) -> bool:
    """Return whether the text only repeats the topic."""
    said, asked = _list_words(text), _list_words(topic)
    if len(asked) < SHORTEST_TOPIC or len(said) < ECHO_SHARE * len(asked):
        return False
    return " ".join(said) in " ".join(asked)


def repeats_part(text: str, prompt: str) -> bool:
    """Return whether the text consists only of consecutive words from a prompt."""
    return f" {' '.join(_list_words(text))} " in f" {' '.join(_list_words(prompt))} "


def _list_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.casefold()) if word not in _ARTICLES]


def _consists_of_calls(text: str, tools: Collection[str]) -> bool:
    """Return whether the text consists only of calls to these tools, apart from fences, tags and stray braces."""
    if len(text) > LONGEST_REPLY:
        return False
    rest, place, calls = [], 0, 0
    for _ in range(MOST_VALUES):
        if (start := text.find("{", place)) < 0:
            break
        rest.append(text[place:start])
        try:
            found, place = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            place = start + 1
            continue
        if not _is_call(found, tools):
            return False
        calls += 1
    rest.append(text[place:])
    return calls > 0 and not _FRAME.sub("", "".join(rest))


def _is_call(found: Json, tools: Collection[str]) -> bool:
    call = found["function"] if isinstance(found, dict) and isinstance(found.get("function"), dict) else found
    if not isinstance(call, dict) or call.get("name") not in tools:
        return False
    return any(isinstance(call.get(key), dict) for key in ("arguments", "parameters"))


def make_member_broadcast_tool(author: str, number: int) -> Tool:
    """Create the tool that a member uses to broadcast a message in round `number`."""

    def parse_broadcast(arguments: Mapping[str, Any]) -> Broadcast:
        return Broadcast(author=author, round=number, text=arguments["message"])

    return _make_broadcast_tool(parse_broadcast)


def make_member_vote_tool(author: str, number: int) -> Tool:
    """Create the tool that a member uses to vote in round `number`. A vote ends the member's turn."""

    def parse_vote(arguments: Mapping[str, Any]) -> Voted:
        reason = str(arguments.get("reason", ""))
        return Voted(author=author, round=number, ready=arguments["ready"], reason=reason)

    fields = {"ready": "boolean", "reason": "string"}
    return _make_event_tool("vote_conclude", "Vote on whether the discussion can end.", fields, parse_vote)
