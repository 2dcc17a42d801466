"""Types for JSON that Podium builds or passes on.

msgspec cannot decode recursive types, so a struct that is decoded has `Any` in such a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None
JsonObject = Mapping[str, Json]
JsonSchema = dict[str, Any]
"""A JSON schema. Its author is a person, a library or an MCP server, so only its validator knows what is in it."""
