"""Anthropic's messages, as a scripted model speaks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from ...engines.model.model_wire import Call, Message
from ...engines.script import usage, uses
from ...values.attachment import Image
from ...values.event import ToolUse
from .api_reply import Asked, Reply, Speech, tool
from .http_connection import chunk, encode

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
    input_schema: dict[str, Any] = {}


class _Request(Struct, frozen=True):
    model: str
    max_tokens: int
    messages: list[_Message]
    system: str | list[_Block] | None = None
    tools: list[_Tool] | None = None
    stream: bool = False


_decode = msgspec.json.Decoder(_Request).decode


def _key(headers: Mapping[str, str]) -> str:
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")


def _asked(body: bytes, key: str) -> Asked:
    request = _decode(body)
    call = Call(
        agent=request.model,
        model=request.model,
        system=_text(request.system),
        messages=tuple(one for message in request.messages for one in _messages(message)),
        tools=tuple(tool(given.name, given.description, given.input_schema) for given in request.tools or ()),
        key=key,
    )
    return Asked(call=call, is_streaming=request.stream)


def _messages(message: _Message) -> Iterator[Message]:
    """What is one message here and several elsewhere: answers of tools, and what the user says to them."""
    blocks = [_Block(type="text", text=message.content)] if isinstance(message.content, str) else message.content
    if message.role == "assistant":
        calls = [ToolUse(id=block.id, name=block.name, arguments=block.input) for block in _of(blocks, "tool_use")]
        yield Message(role="assistant", text="".join(block.text for block in _of(blocks, "text")), calls=tuple(calls))
        return
    for is_answer, group in groupby(blocks, key=lambda block: block.type == "tool_result"):
        if is_answer:
            for block in group:
                yield Message(role="tool", text=_text(block.content), answers=block.tool_use_id)
        else:
            said = list(group)
            shown = (block.source for block in _of(said, "image"))
            images = tuple(Image(source.media_type, source.data) for source in shown if source is not None)
            yield Message(role="user", text=_text(said), images=images)


def _text(content: str | list[_Block] | None) -> str:
    if isinstance(content, list):
        return "\n\n".join(block.text for block in _of(content, "text"))
    return content or ""


def _of(blocks: list[_Block], kind: str) -> list[_Block]:
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


def _error(status: int, message: str) -> object:
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req-scripted"}


class _Rendering:
    """A move as this API puts it."""

    def __init__(self, reply: Reply) -> None:
        self._cue = reply.cue
        self._asked = reply.asked
        self._id = f"msg-{reply.number}"

    def document(self) -> dict[str, Any]:
        move = self._cue.move
        content: list[dict[str, Any]] = []
        if move.reasoning:
            content.append({"type": "thinking", "thinking": move.reasoning, "signature": SIGNATURE})
        if move.says:
            content.append({"type": "text", "text": move.says})
        # Arguments that are spoiled are a text here: in a document they cannot be half an object.
        content += [_opened(use) | {"input": use.unreadable or use.arguments} for use in uses(self._cue)]
        return self._message(content=content, stop_reason=self._stop(), usage=self._usage())

    def opening(self) -> bytes:
        move = self._cue.move
        usage = self._usage()
        started = self._message(usage=usage | {"output_tokens": min(1, usage["output_tokens"])})
        opening = _event("message_start", message=started) + _event("ping")
        if move.reasoning:
            deltas = [
                {"type": "thinking_delta", "thinking": move.reasoning},
                {"type": "signature_delta", "signature": SIGNATURE},
            ]
            opening += _block(0, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        if move.says:
            text = {"type": "text", "text": ""}
            opening += _event("content_block_start", index=self._place_of_text(), content_block=text)
        return opening

    def piece(self, text: str) -> bytes:
        delta = {"type": "text_delta", "text": text}
        return _event("content_block_delta", index=self._place_of_text(), delta=delta)

    def ending(self) -> bytes:
        move = self._cue.move
        end = b""
        if self._cue.fault == "garbled" and not move.calls:
            end += chunk(b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "br\n\n')
        place = self._place_of_text()
        if move.says:
            end += _event("content_block_stop", index=place)
            place += 1
        for n, use in enumerate(uses(self._cue), place):
            text = use.unreadable or encode(use.arguments).decode()
            parts = ["", *(part for part in (text[:7], text[7:]) if part)]
            end += _block(n, _opened(use), [{"type": "input_json_delta", "partial_json": part} for part in parts])
        delta = {"stop_reason": self._stop(), "stop_sequence": None}
        return end + _event("message_delta", delta=delta, usage=self._usage()) + _event("message_stop")

    def _place_of_text(self) -> int:
        return 1 if self._cue.move.reasoning else 0

    def _stop(self) -> str:
        return "tool_use" if self._cue.move.calls else "end_turn"

    def _message(self, **more: Any) -> dict[str, Any]:
        message = {"id": self._id, "type": "message", "role": "assistant", "model": self._asked.call.model}
        return message | {"content": [], "stop_reason": None, "stop_sequence": None} | more

    def _usage(self) -> dict[str, int]:
        spent = usage(self._cue.move, self._asked.call)
        return {
            "input_tokens": max(spent.input_tokens - spent.cached_tokens, 0),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": spent.cached_tokens,
            "output_tokens": spent.output_tokens,
        }


def _opened(use: ToolUse) -> dict[str, Any]:
    return {"type": "tool_use", "id": use.id, "name": use.name, "input": {}}


def _block(index: int, begun: dict[str, Any], deltas: list[dict[str, Any]]) -> bytes:
    """The events of a block from beginning to end."""
    events = [_event("content_block_start", index=index, content_block=begun)]
    events += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join([*events, _event("content_block_stop", index=index)])


def _event(kind: str, **more: Any) -> bytes:
    return chunk(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode({"type": kind, **more})))


ANTHROPIC = Speech(path="/messages", key=_key, asked=_asked, error=_error, rendering=_Rendering)
