"""Find tool calls that a model wrote as text, because the model or its server does not support the tool interface.

A reply counts only if it consists entirely of such calls, and only if all of them call offered tools. An
answer that contains JSON, or that explains what a call looks like, is still an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

LONGEST_WRITTEN_CALL = 1_000_000

_THOUGHT = re.compile(r"\A<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"\A```[\w-]*[ \t]*\r?\n(.*?)\r?\n?```\Z", re.DOTALL)
_MARK = re.compile(
    r"\A(?:<tool_calls?>|<function_calls?>|<\|python_tag\|>|<\|tool_calls?\|>|\[TOOL_CALLS\]|<｜tool▁calls▁begin｜>)"
)
"""The beginnings of calls in the formats of open models, which their servers should have parsed."""
_ANY_MARK = re.compile(r"</?tool_calls?>|</?function_calls?>|<\|/?(?:python_tag|tool_calls?)\|>|\[TOOL_CALLS\]")
_MARKED_NAME = re.compile(
    r"""<function=([\w.-]+)|<invoke\s+name="([\w.-]+)"|(?:\[TOOL_CALLS\]|<｜tool▁sep｜>)\s*([\w.-]+)"""
)
_NAME_KEYS = ("name", "tool", "tool_name", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input")
_decoder = json.JSONDecoder(strict=False)


def find_written_call(text: str, tools: Collection[str]) -> str | None:
    """Return the first tool called in a reply that consists only of calls to these tools; otherwise None."""
    text = _THOUGHT.sub("", text.strip()).strip()
    if not tools or not text or len(text) > LONGEST_WRITTEN_CALL:
        return None
    if (fenced := _FENCE.match(text)) is not None:
        text = fenced[1].strip()
    names = list(_iter_called_names(text))
    return names[0] if names and all(name in tools for name in names) else None


def _iter_called_names(text: str) -> Iterator[str]:
    """Yield the tool name of each call, or nothing if `text` contains anything except calls."""
    is_marked = _MARK.match(text) is not None
    found = _read_json_values(_ANY_MARK.sub(" ", text) if is_marked else text)
    if found is not None:
        calls = [_called_name(call) for value in found for call in _unwrap_calls(value)]
        if all(name is not None for name in calls):
            yield from (name for name in calls if name is not None)
    elif is_marked or text.startswith(("<function=", "<invoke ")):
        yield from (next(filter(None, groups)) for groups in _MARKED_NAME.findall(text))


def _read_json_values(text: str) -> list[Any] | None:
    """Return the JSON values in `text`; None if it contains anything else."""
    values: list[Any] = []
    place = 0
    while place < len(text):
        if text[place].isspace() or text[place] in ",;":
            place += 1
            continue
        try:
            value, place = _decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return None
        values.append(value)
    return values


def _unwrap_calls(value: Any) -> Iterator[Any]:
    """Yield the items of a list, the `tool_calls` of an object, or else the value itself."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list):
        yield from value
    else:
        yield value


def _called_name(call: Any) -> str | None:
    """Return the name of the tool that a JSON value calls; None if it is not a call."""
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]
    if not isinstance(call, dict) or not any(key in call for key in _ARGUMENT_KEYS):
        return None
    name = next((call[key] for key in _NAME_KEYS if isinstance(call.get(key), str)), None)
    return None if name is None else name.removeprefix("functions.")
