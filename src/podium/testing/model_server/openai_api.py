"""Implement OpenAI's Chat Completions API for the model server: parse requests, and render replies."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from ...engines.model.model_wire import Message, ModelCall
from ...engines.model.stream_events import parse_tool_use
from ...engines.script import compute_move_usage, make_tool_uses, stop_reason
from ...values.event import ToolUse
from ...values.json import Json, JsonObject, JsonSchema
from ...values.request import Image
from .api_reply import ModelApi, ModelRequest, ScriptedReply, make_caller_tool
from .http_connection import encode, encode_chunk

# Requests


class _Function(Struct, frozen=True):
    name: str = ""
    description: str = ""
    arguments: str = ""
    parameters: JsonSchema = {}


class _FunctionEntry(Struct, frozen=True):
    id: str = ""
    function: _Function = _Function()


class _ImageUrl(Struct, frozen=True):
    url: str = ""


class _Part(Struct, frozen=True):
    text: str = ""
    image_url: _ImageUrl | None = None


class _Message(Struct, frozen=True):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_FunctionEntry] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        parts = self.content or ""
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)

    @property
    def images(self) -> tuple[Image, ...]:
        parts = self.content if isinstance(self.content, list) else []
        return tuple(_decode_image(part.image_url.url) for part in parts if part.image_url is not None)


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class _JsonSchema(Struct, frozen=True):
    schema: JsonSchema | None = None


class _ResponseFormat(Struct, frozen=True):
    json_schema: _JsonSchema = _JsonSchema()


class _Request(Struct, frozen=True):
    model: str
    messages: list[_Message]
    tools: list[_FunctionEntry] | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    response_format: _ResponseFormat | None = None


_decode = msgspec.json.Decoder(_Request).decode


def _read_api_key(headers: Mapping[str, str]) -> str:
    return headers.get("authorization", "").removeprefix("Bearer ")


def _parse_request(body: bytes, key: str) -> ModelRequest:
    request = _decode(body)
    wants_usage = not request.stream or (request.stream_options or _StreamOptions()).include_usage
    return ModelRequest(call=_build_call(request, key), is_streaming=request.stream, wants_usage=wants_usage)


def _build_call(request: _Request, key: str) -> ModelCall:
    ruled = ("system", "developer")
    functions = [named.function for named in request.tools or ()]
    return ModelCall(
        agent=request.model,
        model=request.model,
        system="\n\n".join(message.text for message in request.messages if message.role in ruled),
        messages=tuple(_parse_message(message) for message in request.messages if message.role not in ruled),
        tools=tuple(
            make_caller_tool(function.name, function.description, function.parameters) for function in functions
        ),
        key=key,
        schema=None if request.response_format is None else request.response_format.json_schema.schema,
        max_tokens=request.max_completion_tokens or request.max_tokens,
    )


def _decode_image(url: str) -> Image:
    """Decode an image from a data URL."""
    media, _, data = url.removeprefix("data:").partition(";base64,")
    return Image(media, b64decode(data))


def _parse_message(message: _Message) -> Message:
    if message.role == "tool":
        return Message(role="tool", text=message.text, answers=message.tool_call_id or "")
    if message.role != "assistant":
        return Message(role="user", text=message.text, images=message.images)
    calls = tuple(
        parse_tool_use(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
    )
    return Message(role="assistant", text=message.text, calls=calls)


# Replies


def _format_error(status: int, message: str) -> object:
    return {"error": {"message": message, "type": "scripted", "code": status}}


class _OpenAIRenderer:
    """Formats a scripted reply as a response from this API."""

    def __init__(self, reply: ScriptedReply) -> None:
        self._attempt = reply.attempt
        self._request = reply.request
        self._id = f"chatcmpl-{reply.number}"
        self._model = reply.attempt.move.model or reply.request.call.model

    def render_document(self) -> dict[str, Json]:
        move = self._attempt.move
        message: dict[str, Json] = {"role": "assistant", "content": move.says or None}
        if move.reasoning:
            message["reasoning_content"] = move.reasoning
        if move.calls:
            message["tool_calls"] = [
                _encode_tool_use(use, arguments=_encode_arguments(use)) for use in make_tool_uses(self._attempt)
            ]
        choice: JsonObject = {"index": 0, "message": message, "finish_reason": stop_reason(move)}
        return self._build_document("chat.completion", choice) | {"usage": self._format_usage()}

    def render_opening(self) -> bytes:
        reasoning = self._attempt.move.reasoning
        opening = self._encode_delta({"role": "assistant", "content": ""})
        return opening + self._encode_delta({"reasoning_content": reasoning}) if reasoning else opening

    def render_piece(self, text: str) -> bytes:
        return self._encode_delta({"content": text})

    def render_ending(self) -> bytes:
        end = b""
        if self._attempt.fault == "garbled" and not self._attempt.move.calls:
            end += encode_chunk(b'data: {"choices": [{"delta": {"content": "br\n\n')
        for n, use in enumerate(make_tool_uses(self._attempt)):
            text = _encode_arguments(use)
            deltas: list[JsonObject] = [{"index": n, **_encode_tool_use(use, arguments="")}]
            deltas += [{"index": n, "function": {"arguments": part}} for part in (text[:7], text[7:]) if part]
            end += b"".join(self._encode_delta({"tool_calls": [delta]}) for delta in deltas)
        end += self._encode_delta({}, finish=stop_reason(self._attempt.move))
        if self._request.wants_usage:
            end += _encode_data(self._build_document("chat.completion.chunk") | {"usage": self._format_usage()})
        return end + encode_chunk(b"data: [DONE]\n\n")

    def _encode_delta(self, delta: JsonObject, *, finish: str | None = None) -> bytes:
        choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
        return _encode_data(self._build_document("chat.completion.chunk", choice))

    def _build_document(self, kind: str, *choices: JsonObject) -> dict[str, Json]:
        return {"id": self._id, "object": kind, "created": 0, "model": self._model, "choices": choices}

    def _format_usage(self) -> dict[str, Json]:
        spent = compute_move_usage(self._attempt.move, self._request.call)
        return {
            "prompt_tokens": spent.input_tokens,
            "completion_tokens": spent.output_tokens,
            "total_tokens": spent.tokens,
            "prompt_tokens_details": {"cached_tokens": spent.cached_tokens},
        }


def _encode_arguments(use: ToolUse) -> str:
    return use.unreadable or encode(use.arguments).decode()


def _encode_tool_use(use: ToolUse, *, arguments: str) -> JsonObject:
    return {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": arguments}}


def _encode_data(document: object) -> bytes:
    return encode_chunk(b"data: %b\n\n" % encode(document))


OPENAI = ModelApi(
    path="/chat/completions",
    read_api_key=_read_api_key,
    parse_request=_parse_request,
    format_error=_format_error,
    make_renderer=_OpenAIRenderer,
)
