"""Recognise replies in a discussion that say nothing: PASS, tool calls written as text, and echoes of the topic.

Models that cannot call tools write the call into their reply. Such a call is not a contribution, and neither is a
repetition of the topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

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


def _is_call(found: Any, tools: Collection[str]) -> bool:
    call = found["function"] if isinstance(found, dict) and isinstance(found.get("function"), dict) else found
    if not isinstance(call, dict) or call.get("name") not in tools:
        return False
    return any(isinstance(call.get(key), dict) for key in ("arguments", "parameters"))
