"""Whether what one agent puts out fits what the next takes in, as far as their JSON schemas say plainly.

Only required properties, types and items are compared. Where a schema speaks in other ways
(references, alternatives, conditions) nothing is claimed, since a wrong refusal is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..values.located_yaml import quote_text

UNSUPPORTED_KEYWORDS = (
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "patternProperties",
    "const",
    "enum",
)
MAX_DEPTH = 16


def find_schema_mismatches(output: object, needed: object, *, place: str = "", depth: int = 0) -> Iterator[str]:
    """What of `needed` a value of the schema `output` may lack, each as a sentence about a property."""
    if not (isinstance(output, dict) and isinstance(needed, dict)) or depth > MAX_DEPTH:
        return
    if any(word in schema for schema in (output, needed) for word in UNSUPPORTED_KEYWORDS):
        return
    given, wanted = list_types(output), list_types(needed)
    if given and wanted and not given <= wanted:
        what = f"the property {quote_text(place)}" if place else "the output"
        yield f"{what} is {' or '.join(sorted(given))}, but {' or '.join(sorted(wanted))} is needed"
        return
    yield from _compare_properties(output, needed, place=place, depth=depth)
    yield from find_schema_mismatches(output.get("items"), needed.get("items"), place=f"{place}[]", depth=depth + 1)


def _compare_properties(output: dict[str, Any], needed: dict[str, Any], *, place: str, depth: int) -> Iterator[str]:
    """What is missing of the required properties, then what does not fit of those in both."""
    given, wanted = _as_mapping(output.get("properties")), _as_mapping(needed.get("properties"))
    sure = _as_names(output.get("required"))
    for name in _as_names(needed.get("required")):
        path = f"{place}.{name}" if place else name
        if name not in given and name not in sure:
            yield f"the property {quote_text(path)} is needed, but the output does not declare it"
        elif name not in sure:
            yield (
                f"the property {quote_text(path)} is needed, but the output may leave it out; list it as required there"
            )
    for name, schema in wanted.items():
        path = f"{place}.{name}" if place else name
        yield from find_schema_mismatches(given.get(name), schema, place=path, depth=depth + 1)


def list_types(schema: dict[str, Any]) -> frozenset[str]:
    """The types that a schema allows, a whole number being a number too; empty when it does not say."""
    named = schema.get("type")
    found = {named} if isinstance(named, str) else set(_as_names(named))
    if "number" in found:
        found.add("integer")
    return frozenset(found)


def _as_mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list | tuple) else []
