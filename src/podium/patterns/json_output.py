"""Validate an agent's answer against the JSON schema in the agent's file.

The request includes the schema. If the answer does not match, the agent gets the reason in the same conversation and
can answer again. This works with any engine. Models with native structured output use that as well.

Replies that patterns parse, such as plans, scores and reviews, have schemas, too. Models and servers that can constrain
a reply to a schema get the schema. Others get the same prompt and reply in text, and every reply goes through the same
parsers.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.operation import Operation
from ..core.session import Session
from ..values.agent import Agent
from ..values.errors import Mistake
from ..values.json import JsonSchema
from ..values.request import Answer

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

from collections.abc import Iterable, Mapping

from ..core.engine import ReplyFormat

TEXT: JsonSchema = {"type": "string"}
TEXTS: JsonSchema = {"type": "array", "items": TEXT}


def make_object_schema(properties: Mapping[str, JsonSchema], *, optional: Iterable[str] = ()) -> JsonSchema:
    """Return the schema of an object with only these properties. Those in `optional` can be left out."""
    left_out = set(optional)
    required = [name for name in properties if name not in left_out]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def make_choice(names: Iterable[str]) -> JsonSchema:
    """Return the schema of a string that is one of these names."""
    return {"type": "string", "enum": list(names)}


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


MOST_TRIES = 3
MOST_STARTS = 50
"""The maximum number of positions that are tried as the start of a JSON value."""
_decoder = json.JSONDecoder()
_FENCE = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)\n?```", re.DOTALL)


class SchemaMismatch(Exception):
    """An answer that does not match the schema. The message says why."""


async def ask_with_schema(op: Operation, session: Session, prompt: str, schema: JsonSchema) -> Answer:
    """Ask the agent and return its answer, parsed and validated. Raise AgentFailed if no answer matches."""
    words = f"{prompt}\n\n[answer only with JSON that matches this schema]\n{msgspec.json.encode(schema).decode()}"
    why = ""
    for _ in range(MOST_TRIES):
        reply = await session.ask(words)
        try:
            return Answer(text=reply.text, data=parse_output(reply.text, schema))
        except SchemaMismatch as error:
            why = str(error)
            words = f"This answer does not match the schema: {why}. Answer again, with only the JSON."
    raise op.make_error("failed", f"its answer does not match its output schema: {why}")


def parse_output(text: str, schema: JsonSchema) -> Any:
    """Parse the whole answer, or its last fenced block. Raise SchemaMismatch if it does not match the schema."""
    # Imported here because the import takes longer than most runs take to start.
    from jsonschema import ValidationError
    from referencing.exceptions import Unresolvable

    data = _parse_json(text)
    try:
        _make_validator(schema).validate(data)
    except ValidationError as error:
        raise SchemaMismatch(f"at {error.json_path} {error.message}") from None
    except Unresolvable as error:
        raise SchemaMismatch(f"the schema refers to {error.ref!r}, which is not in it") from None
    except RecursionError:
        raise SchemaMismatch("it is nested too deeply") from None
    return data


def validate_output_schema(agent: Agent) -> None:
    """Raise Mistake if the agent's output schema is not a valid JSON schema. Called before the run starts."""
    if not isinstance(agent.output, dict):
        return
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(agent.output).check_schema(agent.output)
    except SchemaError as error:
        raise Mistake(
            f"the output schema of {agent.name} is not a valid JSON Schema: {error.json_path}: {error.message}"
        ) from None


def _make_validator(schema: JsonSchema) -> Validator:
    """Create a validator for the schema. References to other documents are not followed."""
    from jsonschema.validators import validator_for
    from referencing import Registry

    made: Validator = validator_for(schema)(schema, registry=Registry())
    return made


def find_json(text: str) -> Any:
    """Return the JSON value in a reply: the whole text, its last fenced block, or its first object or array.

    Return None if the reply contains no JSON value.
    """
    try:
        return _parse_json(text)
    except SchemaMismatch:
        pass
    for start in [found.start() for found in re.finditer(r"[\[{]", text)][:MOST_STARTS]:
        try:
            found, _ = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict | list):
            return found
    return None


def _parse_json(text: str) -> Any:
    for candidate in (text, *reversed(_FENCE.findall(text))):
        try:
            return msgspec.json.decode(candidate.encode())
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
    raise SchemaMismatch("it is not JSON")


def make_assignments_format(workers: Iterable[str], *, may_answer: bool, may_complete: bool) -> ReplyFormat:
    """Return the format of a lead's plan: its assignments and, where allowed, an answer or a claim of completion."""
    item = make_object_schema({"worker": make_choice(workers), "task": TEXT})
    properties: dict[str, JsonSchema] = {"assignments": {"type": "array", "items": item}}
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
