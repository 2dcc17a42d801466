"""What a run came to, as programs and as people read it."""

from __future__ import annotations

from typing import Any

from msgspec import structs, to_builtins

from ...values.event import SCHEMA
from ...values.request import Part
from ...values.result import Result


def result_fields(result: Result | None) -> dict[str, Any] | None:
    """A result for programs, its amounts in full; None for a run that did not begin."""
    if result is None:
        return None
    fields: dict[str, Any] = to_builtins(result)
    return {"schema": SCHEMA, **fields, "usage": structs.asdict(result.usage)}


def format_parts(parts: tuple[Part, ...]) -> list[str]:
    """What there is without an answer, marked as what it is."""
    lines = []
    for part in parts:
        if part.text.strip():
            how = "finished" if part.outcome == "succeeded" else f"{part.outcome}, not finished"
            lines += [f"--- {part.agent} ({how})", part.text.rstrip("\n")]
    return ["There is no answer. What there is of one:", *lines] if lines else []
