"""Answers as data: an agent whose file gives a JSON schema for its output is held to it.

The agent is told the schema with its request. An answer that does not fit is said to be so, in
the same conversation, and may be given again. This works with any engine; models that can be held
to a schema while they write are asked for that as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.operation import Operation
from ..core.session import Session
from ..values.agent import Agent
from ..values.errors import Mistake
from ..values.request import Answer

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MOST_TRIES = 3

_FENCE = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)\n?```", re.DOTALL)


class Unfitting(Exception):
    """An answer is not what the schema wants; its text says why."""


async def fitting(op: Operation, session: Session, prompt: str, schema: dict[str, Any]) -> Answer:
    """The agent's answer, read and checked."""
    words = f"{prompt}\n\n[answer with JSON alone that fits this schema]\n{msgspec.json.encode(schema).decode()}"
    why = ""
    for _ in range(MOST_TRIES):
        reply = await session.ask(words)
        try:
            return Answer(text=reply.text, data=read(reply.text, schema))
        except Unfitting as error:
            why = str(error)
            words = f"This answer does not fit the schema: {why}. Answer again, with the JSON alone."
    raise op.failed("failed", f"its answer does not fit its output schema: {why}")


def read(text: str, schema: dict[str, Any]) -> Any:
    """The data in an answer: the whole of it or the last block in a fence. Raises Unfitting."""
    # Here, because they take longer to import than most runs to begin.
    from jsonschema import ValidationError
    from referencing.exceptions import Unresolvable

    data = _parsed(text)
    try:
        _validator(schema).validate(data)
    except ValidationError as error:
        raise Unfitting(f"at {error.json_path} {error.message}") from None
    except Unresolvable as error:
        raise Unfitting(f"the schema refers to {error.ref!r}, which is not in it") from None
    except RecursionError:
        raise Unfitting("it is nested too deeply") from None
    return data


def must_be_schema(agent: Agent) -> None:
    """Refuse an output schema that is none, before anything is asked. Raises Mistake."""
    if not isinstance(agent.output, dict):
        return
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(agent.output).check_schema(agent.output)
    except SchemaError as error:
        raise Mistake(f"the output of {agent.name} is no JSON schema: at {error.json_path} {error.message}") from None


def _validator(schema: dict[str, Any]) -> Validator:
    """A validator that looks at nothing but the schema: a reference to elsewhere is not followed."""
    from jsonschema.validators import validator_for
    from referencing import Registry

    made: Validator = validator_for(schema)(schema, registry=Registry())
    return made


def _parsed(text: str) -> Any:
    for candidate in (text, *reversed(_FENCE.findall(text))):
        try:
            return msgspec.json.decode(candidate.encode())
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
    raise Unfitting("it is no JSON")
