"""Offer tools in the prompt, for models and servers without a tool interface.

The tools are described in the system prompt, and the reply is one JSON object: a call or the answer. Servers that
support JSON schemas enforce that format. Conversations are stored as for any other model, so that an agent can fall
back from one kind of model to the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import structs

from ...core.engine import Tool
from ...values.errors import OutsideFailed
from ...values.json import JsonSchema
from ...values.plain_text import remove_line_numbers
from .model_wire import Message, ModelCall, ReplyPart
from .not_done_tool import NOT_DONE

RefusedSchemas = set[tuple[str, str, bool]]
"""The kinds of calls whose schema was refused.

A kind of call is identified by the server, the model, and whether other tools were offered.
"""
_REFUSALS = (400, 415, 422, 501)
_ABOUT_SCHEMA = re.compile(r"response_format|json.?schema|grammar|structured|tool_choice", re.IGNORECASE)


class SchemaFallback:
    """Sends calls to one server. If the server refuses a call's schema, the call is sent again without it.

    Several instances can share `refused`, so that the server refuses each kind of call only once. If `refused` is None,
    a call whose schema is refused fails.
    """

    def __init__(self, server: str, refused: RefusedSchemas | None) -> None:
        self._server = server
        self._refused = refused

    async def stream(
        self, call: ModelCall, send: Callable[[ModelCall], AsyncGenerator[ReplyPart, None]]
    ) -> AsyncGenerator[ReplyPart, None]:
        """Yield the reply to the call. If the server refuses the schema, send the call again without it."""
        kind = (self._server, call.model, any(tool.name != call.schema_tool for tool in call.tools))
        free = structs.replace(call, schema=None, schema_tool="")
        refused = set() if self._refused is None else self._refused
        is_refused = kind in refused
        if call.schema is not None and not is_refused:
            has_begun = False
            try:
                async with aclosing(send(call)) as parts:
                    async for part in parts:
                        has_begun = True
                        yield part
                return
            except OutsideFailed as error:
                if has_begun or self._refused is None or not _may_refuse_schema(error):
                    raise
                is_refused = True
        async with aclosing(send(free)) as parts:
            async for part in parts:
                if is_refused:
                    # Recorded only when this call succeeds: if both calls fail, the schema is not the cause.
                    refused.add(kind)
                yield part


INSTRUCTIONS = (
    "You have these tools:\n{tools}\n\n"
    "Reply with one JSON object and nothing else. To use a tool, reply with\n"
    '{{"tool": "NAME", "arguments": {{...}}}}\n'
    "and you get its result in the next message. {otherwise}\n"
    "Do not say that something is done before a tool has done it."
)
ANSWER = 'When nothing is left to do, reply with\n{{"answer": {answer}}}'
NO_ANSWER = 'If you cannot do what was asked, reply with\n{"not_done": "why"}'
READ_FILE = "read_file"
_ANSWER_START = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_FENCED_OBJECT = re.compile(r"```\w*\s*(?P<object>\{.*\})\s*```", re.DOTALL)
_STRING_PART = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*')
_NO_TOOLS = re.compile(
    r"not support(?:ed)? (?:\w+ ){0,2}(?:tool|function)"
    r"|(?:tool|function)[\w `'\"-]{0,20} (?:is|are) (?:not |un)supported"
    r"|no endpoints found that support tool"
    r"|tool choice requires",
    re.IGNORECASE,
)
_decoder = json.JSONDecoder(strict=False)


def refuses_tools(message: str) -> bool:
    """Return whether a server's error message says that the model, or the server, does not support tool calls."""
    return _NO_TOOLS.search(message) is not None


# The call
def emulate_tools(call: ModelCall, *, takes_schema: bool) -> ModelCall:
    """Return the call with its tools described in the prompt, and with earlier calls and results as text.

    If there are tools and `takes_schema` is true, the call gets a schema for its reply.
    """
    names = {use.id: use.name for message in call.messages for use in message.calls}
    # A model copies the form of its earlier replies, so only a call that asks for the wrapped answer shows it.
    is_wrapped = bool(call.tools)
    messages = tuple(_merge_neighbours(_as_text(message, names, is_wrapped=is_wrapped) for message in call.messages))
    if not call.tools:
        return structs.replace(call, messages=messages)
    tools = tuple(tool for tool in call.tools if tool.name != NOT_DONE)
    can_answer = len(tools) == len(call.tools)
    answer = '"your answer as text"' if call.schema is None else "JSON that matches the schema"
    otherwise = ANSWER.format(answer=answer) if can_answer else NO_ANSWER
    listed = "\n".join(map(_describe_tool, tools))
    system = f"{call.system}\n\n{INSTRUCTIONS.format(tools=listed, otherwise=otherwise)}".lstrip()
    schema = make_reply_schema(tools, call.schema, can_answer=can_answer) if takes_schema else None
    return structs.replace(call, system=system, messages=messages, tools=(), schema=schema)


def make_reply_schema(tools: tuple[Tool, ...], answer: JsonSchema | None, *, can_answer: bool = True) -> JsonSchema:
    """Return the JSON schema of a reply: a call to one of the tools, or the answer.

    If `can_answer` is false, the model can only say that the task is not done instead of calling a tool.
    """
    choices = [
        _make_object(tool={"type": "string", "enum": [tool.name]}, arguments=inline_references(tool.parameters))
        for tool in tools
    ]
    if can_answer:
        choices.append(_make_object(answer={"type": "string"} if answer is None else inline_references(answer)))
    else:
        choices.append(_make_object(not_done={"type": "string"}))
    return {"anyOf": choices}


def _make_object(**properties: JsonSchema) -> JsonSchema:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def inline_references(schema: JsonSchema) -> JsonSchema:
    """Return a schema with its `$defs` inlined. A recursive or unknown reference becomes `{}` (any value)."""
    definitions = schema.get("$defs", {})

    def resolve(value: Any, open_names: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [resolve(item, open_names) for item in value]
        if not isinstance(value, dict):
            return value
        if isinstance(reference := value.get("$ref"), str):
            name = reference.removeprefix("#/$defs/")
            if name in open_names or name not in definitions:
                return {}
            return resolve(definitions[name], (*open_names, name))
        return {key: resolve(item, open_names) for key, item in value.items() if key != "$defs"}

    found: JsonSchema = resolve(dict(schema), ())
    return found


def _describe_tool(tool: Tool) -> str:
    """Describe a tool in a few lines: its arguments with their types, and what it does."""
    schema = inline_references(tool.parameters)
    required = schema.get("required", ())
    description = tool.description.replace(" as numbered lines", "") if tool.name == READ_FILE else tool.description
    lines = [f"- {tool.name}: {description}"]
    for name, property_schema in schema.get("properties", {}).items():
        need = "" if name in required else ", optional"
        about = f": {property_schema['description']}" if property_schema.get("description") else ""
        lines.append(f"  {name} ({_describe_type(property_schema)}{need}){about}")
    return "\n".join(lines)


def _describe_type(schema: JsonSchema) -> str:
    if isinstance(choices := schema.get("enum"), list):
        return "one of " + ", ".join(json.dumps(one, ensure_ascii=False) for one in choices)
    if schema.get("type") == "array" and isinstance(items := schema.get("items"), dict):
        return f"list of {_describe_type(items)}"
    if schema.get("type") == "object" and schema.get("properties"):
        return "object with " + ", ".join(schema["properties"])
    kind = schema.get("type", "any")
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


# The conversation
def _as_text(message: Message, names: Mapping[str, str], *, is_wrapped: bool) -> Message:
    """Return the message as text: calls become the JSON that the model writes, and a result becomes a user message.

    Text in a message with calls is left out. If `is_wrapped`, an answer becomes the JSON that the model writes, too.
    """
    if message.role == "tool":
        name = names.get(message.answers, "the tool")
        # A model that copies line numbers into a JSON string copies them into the file.
        text = remove_line_numbers(message.text) if name == READ_FILE else message.text
        return Message(role="user", text=f"[result of {name}]\n{text}")
    if message.role == "user" or not (message.calls or message.text):
        return message
    calls = [json.dumps({"tool": use.name, "arguments": use.arguments}, ensure_ascii=False) for use in message.calls]
    text = json.dumps({"answer": message.text}, ensure_ascii=False) if is_wrapped else message.text
    answer = [text] if message.text and not calls else []
    return Message(role="assistant", text="\n".join([*calls, *answer]), model=message.model)


def _merge_neighbours(messages: Iterator[Message]) -> Iterator[Message]:
    """Yield the messages, with neighbours of the same role merged: many chat templates require alternating roles."""
    last: Message | None = None
    for message in messages:
        if last is not None and last.role == message.role:
            last = structs.replace(
                last, text=f"{last.text}\n\n{message.text}", images=(*last.images, *message.images), sealed=""
            )
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last


# The reply
def decode_answer(text: str) -> str | None:
    """Return the answer in a reply, even if it is incomplete, or None if the reply is not an answer.

    The reply may be in a code fence, or wrap the answer twice, because models copy the form of what they were shown.
    """
    bare = text.strip()
    if (fenced := _FENCED_OBJECT.fullmatch(bare)) is not None:
        bare = fenced["object"]
    try:
        found = _decoder.decode(bare)
    except (ValueError, RecursionError):
        return AnswerStream().add_text(bare) or None
    keys = {str(key).casefold(): value for key, value in found.items()} if isinstance(found, dict) else {}
    if "answer" not in keys or "tool" in keys:
        return None
    answer = keys["answer"]
    if answer is None:
        return ""
    if not isinstance(answer, str):
        return json.dumps(answer, ensure_ascii=False)
    return _unwrap_again(answer)


def _unwrap_again(answer: str) -> str:
    """Return the answer in an answer that consists only of the form for answers, or the answer itself."""
    try:
        found = _decoder.decode(answer) if answer.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return answer
    if isinstance(found, dict) and found.keys() == {"answer"} and isinstance(found["answer"], str):
        return found["answer"]
    return answer


def decode_not_done(text: str) -> str | None:
    """Return why the task is not done, or None if the reply does not say that it is not done."""
    try:
        found = _decoder.decode(text.strip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != {NOT_DONE}:
        return None
    return str(found[NOT_DONE])


class AnswerStream:
    """Decodes the answer in a reply while the reply is streamed, if the answer is a string."""

    def __init__(self) -> None:
        self.decoded = ""
        self._text = ""
        self._place = -1
        """The index in `_text` of the next character of the answer to decode, or -1 until an answer is recognised."""

    def add_text(self, text: str) -> str:
        """Add a piece of the reply, and return the part of the answer that it completes."""
        self._text += text
        if self._place < 0:
            if (start := _ANSWER_START.match(self._text)) is None:
                return ""
            self._place = start.end()
        part = _STRING_PART.match(self._text, self._place)
        assert part is not None, "unreachable: the pattern also matches an empty string"
        written = part[0]
        # The second half of a surrogate pair may not have arrived yet.
        if (half := re.search(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z", written)) is not None:
            written = written[: half.start()]
        self._place += len(written)
        try:
            decoded: str = _decoder.decode(f'"{written}"')
        except ValueError:
            return ""
        self.decoded += decoded
        return decoded


def _may_refuse_schema(error: OutsideFailed) -> bool:
    """Return whether a server may have refused a call because of its schema. Some servers answer with 500."""
    if error.is_too_long or error.is_unknown_model or error.status is None:
        return False
    return error.status in _REFUSALS or (error.status >= 500 and _ABOUT_SCHEMA.search(str(error)) is not None)
