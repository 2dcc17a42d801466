"""The arguments of a tool as a type: what the model is told of them, and how a call is held to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ..core.gate import InvalidCall
from ..values.event import ToolUse

T = TypeVar("T", bound=Struct)

_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]*)`(?: - at `\$(?P<at>.*)`)?$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>[^`]*)`(?: - at `\$(?P<at>.*)`)?$")
_WRONG = re.compile(r"^(?P<what>.*) - at `\$\.(?P<at>.*)`$")


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The arguments of one tool. What is left out has its default; what is not named here is refused."""


@lru_cache(maxsize=256)
def build_schema(arguments_type: type[Struct]) -> dict[str, Any]:
    """The JSON schema of the arguments, whole in itself. Nobody changes it."""
    (top,), parts = msgspec.json.schema_components([arguments_type], ref_template="{name}")
    inlined = _inline_references(top, parts)
    assert isinstance(inlined, dict)
    inlined.pop("title", None)
    inlined.pop("description", None)
    return {"type": "object", "properties": {}, **inlined}


def _inline_references(node: Any, parts: dict[str, Any], above: tuple[str, ...] = ()) -> Any:
    if isinstance(node, list):
        return [_inline_references(item, parts, above) for item in node]
    if not isinstance(node, dict):
        return node
    name = node.get("$ref")
    if isinstance(name, str) and name in parts:
        if name in above:  # a type that holds itself: the model learns its outermost level
            return {"type": "object"}
        return _inline_references(parts[name], parts, (*above, name))
    return {key: _inline_references(value, parts, above) for key, value in node.items()}


def parse_arguments(call: ToolUse, arguments_type: type[T]) -> T:
    """The call's arguments. Raises Unfit with a sentence about the first that is missing, unknown or wrong."""
    if call.unreadable:
        raise InvalidCall(
            f"The arguments of {call.name} are not a JSON object; give "
            f"{format_names(arguments_type.__struct_fields__)} as one."
        )
    try:
        return msgspec.convert(call.arguments, arguments_type)
    except msgspec.ValidationError as error:
        raise InvalidCall(_explain_invalid_arguments(call.name, arguments_type, str(error))) from error


def _explain_invalid_arguments(tool: str, arguments_type: type[Struct], message: str) -> str:
    if missing := _MISSING.match(message):
        return (
            f"{tool} needs {_format_argument(missing)}, which is missing; it takes "
            f"{format_names(arguments_type.__struct_fields__)}."
        )
    if unknown := _UNKNOWN.match(message):
        return (
            f"{tool} has no argument {_format_argument(unknown)}; it takes "
            f"{format_names(arguments_type.__struct_fields__)}."
        )
    if wrong := _WRONG.match(message):
        return f"{tool} cannot take `{wrong['at']}` as it is: {wrong['what'][:1].lower()}{wrong['what'][1:]}."
    return f"{tool} cannot take these arguments: {message}."


def _format_argument(match: re.Match[str]) -> str:
    at = (match["at"] or "").lstrip(".")
    return f"`{at}.{match['name']}`" if at else f"`{match['name']}`"


def format_names(names: Sequence[str]) -> str:
    """Names as they stand in a sentence."""
    if not names:
        return "no arguments"
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def canonical_arguments(arguments: Struct, **resolved: Any) -> dict[str, Any]:
    """The arguments as they are shown and decided on: what differs from its default, and what was resolved."""
    given: dict[str, Any] = msgspec.to_builtins(arguments)
    return given | resolved
