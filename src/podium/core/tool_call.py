"""Run one of an agent's tool calls: validate its arguments, record its start, run the tool, and record the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ..values.action import Action
from ..values.errors import PodiumError
from ..values.event import ToolAnswered, ToolCalled, ToolUse
from ..values.json import Json, JsonSchema
from ..values.request import replace_surrogates
from .engine import Tool, ToolAnswer
from .gate import InvalidCall
from .scope import Scope

T = TypeVar("T", bound=Struct)
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]*)`(?: - at `\$(?P<at>.*)`)?$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>[^`]*)`(?: - at `\$(?P<at>.*)`)?$")
_WRONG = re.compile(r"^(?P<what>.*) - at `\$\.(?P<at>.*)`$")


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One tool's arguments. Omitted arguments get their default values; unknown arguments are rejected."""


_LEFT_OUT = frozenset(
    {"title", "default", "additionalProperties", "minimum", "maximum", "minLength", "maxLength", "minItems"}
)


async def run_tool_call(tools: Mapping[str, Tool], call: ToolUse, place: Scope, *, agent: str) -> ToolAnswer:
    """Run a call at its scope, and return the answer.

    A recorded answer is returned without running the tool again if the tool's calls are steps (`is_step`), the call
    timed out, or the tool no longer exists. Otherwise, the tool is run even if an answer is recorded.
    """
    tool = tools.get(call.name)
    place.record(make_tool_called(call, place, agent=agent))
    known = place.child("tool_answered#1").find_outcome(ToolAnswered)
    if known is not None and (tool is None or tool.is_step or known.is_timed_out):
        answer = ToolAnswer(text=known.text, is_error=known.is_error)
    else:
        answer, is_timed_out = (
            await _invoke_tool(tool, call, place) if tool else (_answer_unknown_tool(call, tools), False)
        )
        answer = replace(answer, text=replace_surrogates(place.timeline.redaction.redact_text(answer.text)))
        place.record(ToolAnswered(id=call.id, text=answer.text, is_error=answer.is_error, is_timed_out=is_timed_out))
    if tool is not None and tool.after_answer is not None:
        await tool.after_answer(call, place, answer)
    return answer


def make_tool_called(call: ToolUse, place: Scope, *, agent: str) -> ToolCalled:
    """Return the event for the start of a call."""
    action = Action(run=place.timeline.run, agent=agent, tool=call.name, arguments=call.arguments)
    return ToolCalled(id=call.id, action=action, is_from_text=call.is_from_text, is_emulated=call.is_emulated)


async def _invoke_tool(tool: Tool, call: ToolUse, place: Scope) -> tuple[ToolAnswer, bool]:
    """Return the tool's answer, and whether it timed out."""
    if call.unreadable:
        return ToolAnswer(text=f"The arguments for {tool.name} are not a JSON object.", is_error=True), False
    try:
        with place.timeline.work.timeouts.apply_timeout(place.path, tool.timeout):
            return await tool.answer(call, place), False
    except PodiumError:
        raise
    except Exception as error:
        # A tool can be third-party code: its exception becomes its answer.
        return ToolAnswer(text=f"{tool.name} failed: {type(error).__name__}: {error}", is_error=True), False
    return ToolAnswer(text=f"{tool.name} was stopped after {tool.timeout:g} s.", is_error=True), True


def _answer_unknown_tool(call: ToolUse, tools: Mapping[str, Tool]) -> ToolAnswer:
    known = ", ".join(tools) or "none"
    return ToolAnswer(text=f"Tool {call.name!r} not found; available: {known}.", is_error=True)


@lru_cache(maxsize=256)
def build_schema(arguments_type: type[Struct]) -> JsonSchema:
    """Return the JSON schema for the arguments, without references. The schema is cached and must not be modified.

    The schema contains only what helps a model write a call, because it is part of every prompt. Defaults and limits
    are left out: the answer to a call that exceeds a limit says what is wrong.
    """
    (top,), parts = msgspec.json.schema_components([arguments_type], ref_template="{name}")
    shown = _shorten_schema(_inline_references(top, parts))
    assert isinstance(shown, dict)
    return {"type": "object", "properties": {}, **shown}


def _shorten_schema(node: Any) -> Any:
    """Return the schema without the keys in `_LEFT_OUT`, and without the null type of optional arguments."""
    if isinstance(node, list):
        return [_shorten_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key not in _LEFT_OUT}
    if node.get("type") == "object":
        kept.pop("description", None)  # the type's docstring, which does not help the model
        if "properties" in kept:
            kept["properties"] = {name: _shorten_schema(one) for name, one in node["properties"].items()}
        return kept if kept.get("required") else {key: value for key, value in kept.items() if key != "required"}
    others = [one for one in kept.get("anyOf", ()) if one != {"type": "null"}]
    if len(others) == 1:
        del kept["anyOf"]
        kept = {**others[0], **kept}
    return {key: _shorten_schema(value) for key, value in kept.items()}


def _inline_references(node: Any, parts: dict[str, Any], above: tuple[str, ...] = ()) -> Any:
    if isinstance(node, list):
        return [_inline_references(item, parts, above) for item in node]
    if not isinstance(node, dict):
        return node
    name = node.get("$ref")
    if isinstance(name, str) and name in parts:
        if name in above:  # a recursive type: the model sees only its outermost level
            return {"type": "object"}
        return _inline_references(parts[name], parts, (*above, name))
    return {key: _inline_references(value, parts, above) for key, value in node.items()}


def parse_arguments(call: ToolUse, arguments_type: type[T]) -> T:
    """Parse a call's arguments. Raise InvalidCall for the first argument that is missing, unknown or invalid."""
    if call.unreadable:
        raise InvalidCall(
            f"The arguments for {call.name} are not a JSON object; give an object with "
            f"{_format_names(arguments_type.__struct_fields__)}."
        )
    try:
        return msgspec.convert(call.arguments, arguments_type)
    except msgspec.ValidationError as error:
        raise InvalidCall(_explain_invalid_arguments(call.name, arguments_type, str(error))) from error


def _explain_invalid_arguments(tool: str, arguments_type: type[Struct], message: str) -> str:
    if missing := _MISSING.match(message):
        return (
            f"{tool} was called without the required argument {_format_argument(missing)}; the tool takes "
            f"{_format_names(arguments_type.__struct_fields__)}."
        )
    if unknown := _UNKNOWN.match(message):
        return (
            f"{tool} has no argument {_format_argument(unknown)}; it takes "
            f"{_format_names(arguments_type.__struct_fields__)}."
        )
    if wrong := _WRONG.match(message):
        return f"{tool} got an invalid `{wrong['at']}`: {wrong['what'][:1].lower()}{wrong['what'][1:]}."
    return f"{tool} got invalid arguments: {message}."


def _format_argument(match: re.Match[str]) -> str:
    at = (match["at"] or "").lstrip(".")
    return f"`{at}.{match['name']}`" if at else f"`{match['name']}`"


def _format_names(names: Sequence[str]) -> str:
    """Join argument names for a message."""
    if not names:
        return "no arguments"
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def canonical_arguments(arguments: Struct, **resolved: Json) -> dict[str, Json]:
    """Return the arguments to show and check: those that differ from their defaults, and the `resolved` values."""
    given: dict[str, Json] = msgspec.to_builtins(arguments)
    return given | resolved
