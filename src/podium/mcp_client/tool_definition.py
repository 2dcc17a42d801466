"""Define the properties of an MCP tool that are covered by a user's trust, and describe changes to these properties.

Arguments are validated against the schema of a tool, which is untrusted, in bounded time. A regular expression can
take forever on a short text, and nested alternatives can take exponential time. So patterns
are not checked, and the number of checks is limited. The server that sent the schema checks the values again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from ..values.json import JsonSchema
from ..values.plain_text import escape_unprintable, truncate_text

MOST_CHECKS = 20_000
UNBOUNDED_KEYWORDS = frozenset(
    ("pattern", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames")
)
"""Keywords whose checks can run regular expressions."""


class TooComplex(Exception):
    """The schema needs more checks than are allowed."""


LONGEST = 64
"""The length of the longest tool name that all known models accept."""


class ToolDefinition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool's description, its schema and its server's hints. Hints are claims by the server and may be false."""

    name: str
    description: str = ""
    parameters: JsonSchema = {}
    is_read_only: bool = False
    is_idempotent: bool = False

    @property
    def canonical_json(self) -> str:
        """The definition as JSON. Equal definitions have the same JSON in every process."""
        return msgspec.json.encode(self, order="sorted").decode()

    @property
    def digest(self) -> str:
        return sha256(self.canonical_json.encode()).hexdigest()

    @classmethod
    def from_json(cls, content: str) -> ToolDefinition | None:
        """Return the definition in a JSON string, or None if it contains no valid definition."""
        try:
            return msgspec.json.decode(content, type=cls)
        except msgspec.MsgspecError:
            return None


def build_mcp_tool_name(server: str, tool: str) -> str:
    """Return the name that models use for a tool. The name is unique among the tools of all servers.

    A server's name contains no double underscore. If a tool name is too long or contains characters that models do not
    accept, it is changed, and a hash of the original name is appended.
    """
    prefix = f"mcp__{server}__"
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    if clean == tool and tool and len(prefix) + len(tool) <= LONGEST:
        return prefix + tool
    mark = f"_{sha256(tool.encode(errors='surrogatepass')).hexdigest()[:8]}"
    return prefix + clean[: LONGEST - len(prefix) - len(mark)] + mark


def describe_change(trusted: ToolDefinition | None, now: ToolDefinition) -> str:
    """Describe in one line how a tool differs from its trusted definition."""
    if trusted is None:
        return "its definition has changed"
    return "; ".join(_describe_changes(trusted, now)) or "its definition has changed"


def _describe_changes(trusted: ToolDefinition, now: ToolDefinition) -> Iterator[str]:
    if trusted.description != now.description:
        before, after = _excerpt_difference(trusted.description, now.description)
        yield f'its description changed from "{before}" to "{after}"'
    before_names, after_names = _read_properties(trusted), _read_properties(now)
    for name in sorted(before_names.keys() | after_names.keys()):
        if name not in before_names:
            yield f"it has a new argument {escape_unprintable(truncate_text(name, 60))!r}"
        elif name not in after_names:
            yield f"it no longer has the argument {escape_unprintable(truncate_text(name, 60))!r}"
        elif before_names[name] != after_names[name]:
            before, after = _excerpt_difference(*(_encode_json(table[name]) for table in (before_names, after_names)))
            yield f"its argument {escape_unprintable(truncate_text(name, 60))!r} changed from {before} to {after}"
    if _without_properties(trusted) != _without_properties(now):
        before, after = _excerpt_difference(
            _encode_json(_without_properties(trusted)), _encode_json(_without_properties(now))
        )
        yield f"its schema changed from {before} to {after}"
    for hint in ("is_read_only", "is_idempotent"):
        if getattr(trusted, hint) != getattr(now, hint):
            claims = "now claims" if getattr(now, hint) else "no longer claims"
            yield f"it {claims} to be {hint.removeprefix('is_').replace('_', '-')}"


def _read_properties(definition: ToolDefinition) -> JsonSchema:
    found = definition.parameters.get("properties")
    return found if isinstance(found, dict) else {}


def _without_properties(definition: ToolDefinition) -> JsonSchema:
    return {key: value for key, value in definition.parameters.items() if key != "properties"}


def _excerpt_difference(before: str, after: str, *, width: int = 120) -> tuple[str, str]:
    """Return short excerpts of both strings, starting shortly before the first difference."""
    same = next(
        (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(map(len, (before, after)))
    )
    start = max(0, same - 30)
    mark = "…" if start else ""
    first, second = (escape_unprintable(truncate_text(text[start:], width)) for text in (before, after))
    return mark + first, mark + second


def _encode_json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def iter_schema_errors(schema: JsonSchema, value: object) -> Iterator[tuple[str, str]]:
    """Yield the location and message of each error in a value.

    Raise TooComplex if the schema needs too many checks, and Unresolvable if a reference in it cannot be resolved.
    """
    # Imported here for start-up time: the import takes longer than starting most runs.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    base = validator_for(schema, default=Draft202012Validator)
    checks = 0

    def count_checks(check: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            nonlocal checks
            checks += 1
            if checks > MOST_CHECKS:
                raise TooComplex
            return check(*arguments)

        return counted

    def skip(*arguments: Any) -> None:
        """Report no errors."""

    def check_additional(validator: Any, allowed: Any, instance: Any, inner: Mapping[str, Any]) -> Any:
        return (
            None
            if "patternProperties" in inner
            else base.VALIDATORS["additionalProperties"](validator, allowed, instance, inner)
        )

    bounded = {
        keyword: skip if keyword in UNBOUNDED_KEYWORDS else count_checks(check)
        for keyword, check in base.VALIDATORS.items()
    }
    bounded["additionalProperties"] = count_checks(check_additional)
    # With an empty registry, a schema cannot cause another schema to be fetched from the network.
    validator = extend(base, bounded)(schema, registry=Registry())  # type: ignore[no-untyped-call]
    try:
        for error in validator.iter_errors(value):
            yield ".".join(str(part) for part in error.absolute_path), error.message
    except RecursionError:
        raise TooComplex from None
