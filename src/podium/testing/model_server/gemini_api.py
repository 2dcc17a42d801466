"""Implement the Gemini API's content generation for the model server: parse requests, and render replies.

The server ignores the model's name, which is part of the path, so every call is for the model `gemini`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from ...engines.model.model_wire import Message, ModelCall
from ...engines.script import compute_move_usage, make_tool_uses, stop_reason
from ...values.event import ToolUse
from ...values.json import Json, JsonObject, JsonSchema
from .api_reply import ModelApi, ModelRequest, ScriptedReply, make_caller_tool
from .http_connection import encode, encode_chunk

MODEL = "gemini"


class _FunctionCall(Struct, frozen=True):
    id: str = ""
    name: str = ""
    args: dict[str, Any] = {}


class _FunctionResponse(Struct, frozen=True):
    id: str = ""
    response: dict[str, Any] = {}


class _Part(Struct, frozen=True, rename="camel"):
    text: str = ""
    function_call: _FunctionCall | None = None
    function_response: _FunctionResponse | None = None


class _Content(Struct, frozen=True):
    parts: list[_Part] = []
    role: str = "user"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


class _Declaration(Struct, frozen=True, rename="camel"):
    name: str
    description: str = ""
    parameters_json_schema: JsonSchema = {}


class _Tools(Struct, frozen=True, rename="camel"):
    function_declarations: list[_Declaration] = []


class _Settings(Struct, frozen=True, rename="camel"):
    max_output_tokens: int | None = None


class _Request(Struct, frozen=True, rename="camel"):
    contents: list[_Content]
    system_instruction: _Content = _Content()
    tools: list[_Tools] = []
    generation_config: _Settings = _Settings()


_decode = msgspec.json.Decoder(_Request).decode


def _read_api_key(headers: Mapping[str, str]) -> str:
    return headers.get("x-goog-api-key", "")


def _parse_request(is_streaming: bool, body: bytes, key: str) -> ModelRequest:
    request = _decode(body)
    declared = [one for tools in request.tools for one in tools.function_declarations]
    call = ModelCall(
        agent=MODEL,
        model=MODEL,
        system=request.system_instruction.text,
        messages=tuple(message for content in request.contents for message in _parse_content(content)),
        tools=tuple(make_caller_tool(one.name, one.description, one.parameters_json_schema) for one in declared),
        key=key,
        max_tokens=request.generation_config.max_output_tokens,
    )
    return ModelRequest(call=call, is_streaming=is_streaming)


def _parse_content(content: _Content) -> list[Message]:
    if content.role == "model":
        called = [part.function_call for part in content.parts if part.function_call is not None]
        calls = tuple(ToolUse(id=one.id, name=one.name, arguments=one.args) for one in called)
        return [Message(role="assistant", text=content.text, calls=calls)]
    answers = [part.function_response for part in content.parts if part.function_response is not None]
    messages = [Message(role="tool", text=encode(one.response).decode(), answers=one.id) for one in answers]
    return [*messages, Message(role="user", text=content.text)] if content.text or not messages else messages


def _format_error(status: int, message: str) -> object:
    return {"error": {"code": status, "message": message, "status": "SCRIPTED"}}


class _GeminiRenderer:
    """Formats a scripted reply as a response from this API."""

    def __init__(self, reply: ScriptedReply) -> None:
        self._attempt = reply.attempt
        self._request = reply.request
        uses = make_tool_uses(reply.attempt)
        self._calls: list[JsonObject] = [
            {"functionCall": {"id": use.id, "name": use.name, "args": use.arguments}} for use in uses
        ]

    def render_document(self) -> dict[str, Json]:
        says = self._attempt.move.says
        return self._end(*([{"text": says}] if says else []), *self._calls)

    def render_opening(self) -> bytes:
        return b""

    def render_piece(self, text: str) -> bytes:
        return _encode_data({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}]})

    def render_ending(self) -> bytes:
        return _encode_data(self._end(*self._calls))

    def _end(self, *parts: JsonObject) -> dict[str, Json]:
        """Return a document with these parts, the stop reason and the usage."""
        move = self._attempt.move
        spent = compute_move_usage(move, self._request.call)
        reason = "MAX_TOKENS" if stop_reason(move) == "length" else "STOP"
        content = {"role": "model", "parts": parts or [{"text": ""}]}
        return {
            "candidates": [{"index": 0, "content": content, "finishReason": reason}],
            "usageMetadata": {
                "promptTokenCount": spent.input_tokens,
                "candidatesTokenCount": spent.output_tokens,
                "totalTokenCount": spent.tokens,
            },
        }


def _encode_data(document: object) -> bytes:
    return encode_chunk(b"data: %b\r\n\r\n" % encode(document))


GEMINI, GEMINI_STREAM = (
    ModelApi(
        path=path,
        read_api_key=_read_api_key,
        parse_request=partial(_parse_request, is_streaming),
        format_error=_format_error,
        make_renderer=_GeminiRenderer,
    )
    for path, is_streaming in ((":generateContent", False), (":streamGenerateContent", True))
)
