"""Build the JSON schemas for replies that patterns parse, such as plans, scores and reviews.

Models and servers that can constrain a reply to a schema get the schema. Others get the same prompt and reply in text,
and every reply goes through the same parsers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.engine import ReplyFormat

TEXT: dict[str, Any] = {"type": "string"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}


def make_object_schema(properties: dict[str, Any], *, optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return the schema of an object with only these properties. Those in `optional` can be left out."""
    left_out = set(optional)
    required = [name for name in properties if name not in left_out]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def make_choice(names: Iterable[str]) -> dict[str, Any]:
    """Return the schema of a string that is one of these names."""
    return {"type": "string", "enum": list(names)}


def make_assignments_format(workers: Iterable[str], *, may_answer: bool, may_complete: bool) -> ReplyFormat:
    """Return the format of a lead's plan: its assignments and, where allowed, an answer or a claim of completion."""
    item = make_object_schema({"worker": make_choice(workers), "task": TEXT})
    properties: dict[str, Any] = {"assignments": {"type": "array", "items": item}}
    if may_answer:
        properties["answer"] = TEXT
    if may_complete:
        properties["complete"] = {"type": "boolean"}
    return ReplyFormat(schema=make_object_schema(properties, optional=("answer", "complete")))


def make_work_plan_format(members: Iterable[str]) -> ReplyFormat:
    """Return the format of a collaborating team's plan. It has no policies: a small model fills in every key."""
    criterion = make_object_schema({"text": TEXT, "command": TEXT}, optional=("command",))
    step = make_object_schema(
        {
            "id": TEXT,
            "owner": make_choice(members),
            "description": TEXT,
            "depends_on": TEXTS,
            "acceptance": {"type": "array", "items": criterion},
        }
    )
    return ReplyFormat(schema=make_object_schema({"steps": {"type": "array", "items": step}}))


REVIEW_FORMAT = ReplyFormat(schema=make_object_schema({"verdict": make_choice(("ACCEPT", "CHANGE")), "reason": TEXT}))
"""The format of a plan review."""

STEP_REVIEW_FORMAT = ReplyFormat(
    schema=make_object_schema(
        {
            "verdicts": {
                "type": "array",
                "items": make_object_schema(
                    {"criterion": {"type": "integer"}, "verdict": make_choice(("met", "not met")), "reason": TEXT}
                ),
            }
        }
    )
)
"""The format of a step review: a verdict on each acceptance criterion, by its number."""

SCORE_FORMAT = ReplyFormat(
    schema=make_object_schema({"score": {"type": "number", "minimum": 0, "maximum": 1}, "rationale": TEXT})
)
"""The format of an evaluator's reply."""
