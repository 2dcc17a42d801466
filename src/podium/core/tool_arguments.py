"""Build the JSON schema for a tool's arguments from their type, and validate the arguments of a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ..values.event import ToolUse
from .gate import InvalidCall

T = TypeVar("T", bound=Struct)

_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]*)`(?: - at `\$(?P<at>.*)`)?$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>[^`]*)`(?: - at `\$(?P<at>.*)`)?$")
_WRONG = re.compile(r"^(?P<what>.*) - at `\$\.(?P<at>.*)`$")


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One tool's arguments. Omitted arguments get their default values; unknown arguments are rejected."""


@lru_cache(maxsize=256)
def build_schema(arguments_type: type[Struct]) -> dict[str, Any]:
    """Return the JSON schema for the arguments, without references. The schema is cached and must not be modified.

    The schema contains only what helps a model write a call, because it is part of every prompt. Defaults and limits
    are left out: the answer to a call that exceeds a limit says what is wrong.
    """
    (top,), parts = msgspec.json.schema_components([arguments_type], ref_template="{name}")
    shown = _shorten_schema(_inline_references(top, parts))
    assert isinstance(shown, dict)
    return {"type": "object", "properties": {}, **shown}


_LEFT_OUT = frozenset(
    {"title", "default", "additionalProperties", "minimum", "maximum", "minLength", "maxLength", "minItems"}
)


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
            f"{format_names(arguments_type.__struct_fields__)}."
        )
    try:
        return msgspec.convert(call.arguments, arguments_type)
    except msgspec.ValidationError as error:
        raise InvalidCall(_explain_invalid_arguments(call.name, arguments_type, str(error))) from error


def _explain_invalid_arguments(tool: str, arguments_type: type[Struct], message: str) -> str:
    if missing := _MISSING.match(message):
        return (
            f"{tool} was called without the required argument {_format_argument(missing)}; the tool takes "
            f"{format_names(arguments_type.__struct_fields__)}."
        )
    if unknown := _UNKNOWN.match(message):
        return (
            f"{tool} has no argument {_format_argument(unknown)}; it takes "
            f"{format_names(arguments_type.__struct_fields__)}."
        )
    if wrong := _WRONG.match(message):
        return f"{tool} got an invalid `{wrong['at']}`: {wrong['what'][:1].lower()}{wrong['what'][1:]}."
    return f"{tool} got invalid arguments: {message}."


def _format_argument(match: re.Match[str]) -> str:
    at = (match["at"] or "").lstrip(".")
    return f"`{at}.{match['name']}`" if at else f"`{match['name']}`"


def format_names(names: Sequence[str]) -> str:
    """Join argument names for a message."""
    if not names:
        return "no arguments"
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def canonical_arguments(arguments: Struct, **resolved: Any) -> dict[str, Any]:
    """Return the arguments to show and check: those that differ from their defaults, and the `resolved` values."""
    given: dict[str, Any] = msgspec.to_builtins(arguments)
    return given | resolved
