"""Format the result of a run as JSON fields and as text."""

from __future__ import annotations

from typing import Any

from msgspec import structs, to_builtins

from ...values.event import SCHEMA
from ...values.request import Part
from ...values.result import Result
from .agent_text import AgentText


def result_fields(result: Result | None) -> dict[str, Any] | None:
    """Return the JSON fields of a result, including all usage fields. Return None if the run did not start."""
    if result is None:
        return None
    fields: dict[str, Any] = to_builtins(result)
    return {"schema": SCHEMA, **fields, "usage": structs.asdict(result.usage)}


def format_parts(parts: tuple[Part, ...]) -> list[str]:
    """Return the partial results of a run that did not succeed, each labelled with its agent and outcome."""
    lines = []
    for part in parts:
        if part.text.strip():
            how = "finished" if part.outcome == "succeeded" else f"{part.outcome}, not finished"
            lines += [f"--- {part.agent} ({how})", AgentText(part.text.rstrip("\n"))]
    return ["No answer. Partial results:", *lines] if lines else []
