"""Implement Anthropic's Messages API for the model server: parse requests, and render replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from ...engines.model.model_wire import Message, ModelCall
from ...engines.script import compute_move_usage, make_tool_uses, stop_reason
from ...values.event import ToolUse
from ...values.json import Json, JsonObject, JsonSchema
from ...values.request import Image
from .api_reply import ModelApi, ModelRequest, ScriptedReply, make_caller_tool
from .http_connection import encode, encode_chunk

SIGNATURE = "signed-by-the-script"

# Requests


class _Source(Struct, frozen=True):
    media_type: str = ""
    data: bytes = b""


class _Block(Struct, frozen=True):
    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: str | list[_Block] | None = None
    source: _Source | None = None


class _Message(Struct, frozen=True):
    role: str
    content: str | list[_Block]


class _Tool(Struct, frozen=True):
    name: str = ""
    description: str = ""
    input_schema: JsonSchema = {}


class _Request(Struct, frozen=True):
    model: str
    max_tokens: int
    messages: list[_Message]
    system: str | list[_Block] | None = None
    tools: list[_Tool] | None = None
    stream: bool = False


_decode = msgspec.json.Decoder(_Request).decode


def _read_api_key(headers: Mapping[str, str]) -> str:
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")


def _parse_request(body: bytes, key: str) -> ModelRequest:
    request = _decode(body)
    call = ModelCall(
        agent=request.model,
        model=request.model,
        system=_join_text(request.system),
        messages=tuple(one for message in request.messages for one in _split_message(message)),
        tools=tuple(
            make_caller_tool(definition.name, definition.description, definition.input_schema)
            for definition in request.tools or ()
        ),
        key=key,
        max_tokens=request.max_tokens,
    )
    return ModelRequest(call=call, is_streaming=request.stream)


def _split_message(message: _Message) -> Iterator[Message]:
    """Split an API message into our messages: one for each tool result, and one for the user's text between them."""
    blocks = [_Block(type="text", text=message.content)] if isinstance(message.content, str) else message.content
    if message.role == "assistant":
        calls = [
            ToolUse(id=block.id, name=block.name, arguments=block.input) for block in _filter_blocks(blocks, "tool_use")
        ]
        yield Message(
            role="assistant", text="".join(block.text for block in _filter_blocks(blocks, "text")), calls=tuple(calls)
        )
        return
    for is_answer, group in groupby(blocks, key=lambda block: block.type == "tool_result"):
        if is_answer:
            for block in group:
                yield Message(role="tool", text=_join_text(block.content), answers=block.tool_use_id)
        else:
            said = list(group)
            shown = (block.source for block in _filter_blocks(said, "image"))
            images = tuple(Image(source.media_type, source.data) for source in shown if source is not None)
            yield Message(role="user", text=_join_text(said), images=images)


def _join_text(content: str | list[_Block] | None) -> str:
    if isinstance(content, list):
        return "\n\n".join(block.text for block in _filter_blocks(content, "text"))
    return content or ""


def _filter_blocks(blocks: list[_Block], kind: str) -> list[_Block]:
    return [block for block in blocks if block.type == kind]


# Replies

_ERRORS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _format_error(status: int, message: str) -> object:
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req-scripted"}


class _AnthropicRenderer:
    """Formats a scripted reply as a response from this API."""

    def __init__(self, reply: ScriptedReply) -> None:
        self._attempt = reply.attempt
        self._request = reply.request
        self._id = f"msg-{reply.number}"

    def render_document(self) -> dict[str, Json]:
        move = self._attempt.move
        content: list[JsonObject] = []
        if move.reasoning:
            content.append({"type": "thinking", "thinking": move.reasoning, "signature": SIGNATURE})
        if move.says:
            content.append({"type": "text", "text": move.says})
        # Invalid arguments are sent as a string, because a JSON document cannot contain an incomplete object.
        content += [
            _encode_tool_start(use) | {"input": use.unreadable or use.arguments}
            for use in make_tool_uses(self._attempt)
        ]
        return self._build_message(content=content, stop_reason=self._stop_reason(), usage=self._format_usage())

    def render_opening(self) -> bytes:
        move = self._attempt.move
        usage = self._format_usage()
        started = self._build_message(usage=usage | {"output_tokens": min(1, usage["output_tokens"])})
        opening = _encode_event("message_start", message=started) + _encode_event("ping")
        if move.reasoning:
            deltas = [
                {"type": "thinking_delta", "thinking": move.reasoning},
                {"type": "signature_delta", "signature": SIGNATURE},
            ]
            opening += _encode_block_events(0, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        if move.says:
            text = {"type": "text", "text": ""}
            opening += _encode_event("content_block_start", index=self._text_index(), content_block=text)
        return opening

    def render_piece(self, text: str) -> bytes:
        delta = {"type": "text_delta", "text": text}
        return _encode_event("content_block_delta", index=self._text_index(), delta=delta)

    def render_ending(self) -> bytes:
        move = self._attempt.move
        end = b""
        if self._attempt.fault == "garbled" and not move.calls:
            end += encode_chunk(
                b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "br\n\n'
            )
        place = self._text_index()
        if move.says:
            end += _encode_event("content_block_stop", index=place)
            place += 1
        for n, use in enumerate(make_tool_uses(self._attempt), place):
            text = use.unreadable or encode(use.arguments).decode()
            parts = ["", *(part for part in (text[:7], text[7:]) if part)]
            end += _encode_block_events(
                n, _encode_tool_start(use), [{"type": "input_json_delta", "partial_json": part} for part in parts]
            )
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        return (
            end
            + _encode_event("message_delta", delta=delta, usage=self._format_usage())
            + _encode_event("message_stop")
        )

    def _text_index(self) -> int:
        return 1 if self._attempt.move.reasoning else 0

    def _stop_reason(self) -> str:
        reason = stop_reason(self._attempt.move)
        return {"tool_calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}.get(reason, reason)

    def _build_message(self, **more: Json) -> dict[str, Json]:
        model = self._attempt.move.model or self._request.call.model
        message = {"id": self._id, "type": "message", "role": "assistant", "model": model}
        return message | {"content": [], "stop_reason": None, "stop_sequence": None} | more

    def _format_usage(self) -> dict[str, int]:
        spent = compute_move_usage(self._attempt.move, self._request.call)
        return {
            "input_tokens": max(spent.input_tokens - spent.cached_tokens, 0),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": spent.cached_tokens,
            "output_tokens": spent.output_tokens,
        }


def _encode_tool_start(use: ToolUse) -> dict[str, Json]:
    return {"type": "tool_use", "id": use.id, "name": use.name, "input": {}}


def _encode_block_events(index: int, start: JsonObject, deltas: Sequence[JsonObject]) -> bytes:
    """Return all events of a content block, from start to stop."""
    events = [_encode_event("content_block_start", index=index, content_block=start)]
    events += [_encode_event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join([*events, _encode_event("content_block_stop", index=index)])


def _encode_event(kind: str, **more: Json) -> bytes:
    return encode_chunk(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode({"type": kind, **more})))


ANTHROPIC = ModelApi(
    path="/messages",
    read_api_key=_read_api_key,
    parse_request=_parse_request,
    format_error=_format_error,
    make_renderer=_AnthropicRenderer,
)
