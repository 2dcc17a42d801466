"""OpenAI's chat completions, as a scripted model speaks them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...engines.model.model_wire import Call, Message
from ...engines.model.stream_events import used
from ...engines.script import stop, usage, uses
from ...values.attachment import Image
from ...values.event import ToolUse
from .api_reply import Asked, Reply, Speech, tool
from .http_connection import chunk, encode

# Requests


class _Function(Struct, frozen=True):
    name: str = ""
    description: str = ""
    arguments: str = ""
    parameters: dict[str, Any] = {}


class _Named(Struct, frozen=True):
    id: str = ""
    function: _Function = _Function()


class _Address(Struct, frozen=True):
    url: str = ""


class _Part(Struct, frozen=True):
    text: str = ""
    image_url: _Address | None = None


class _Message(Struct, frozen=True):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_Named] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        parts = self.content or ""
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)

    @property
    def images(self) -> tuple[Image, ...]:
        parts = self.content if isinstance(self.content, list) else []
        return tuple(_image(part.image_url.url) for part in parts if part.image_url is not None)


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class _Request(Struct, frozen=True):
    model: str
    messages: list[_Message]
    tools: list[_Named] | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None


_decode = msgspec.json.Decoder(_Request).decode


def _key(headers: Mapping[str, str]) -> str:
    return headers.get("authorization", "").removeprefix("Bearer ")


def _asked(body: bytes, key: str) -> Asked:
    request = _decode(body)
    is_counted = not request.stream or (request.stream_options or _StreamOptions()).include_usage
    return Asked(call=_call(request, key), is_streaming=request.stream, is_counted=is_counted)


def _call(request: _Request, key: str) -> Call:
    ruled = ("system", "developer")
    functions = [named.function for named in request.tools or ()]
    return Call(
        agent=request.model,
        model=request.model,
        system="\n\n".join(message.text for message in request.messages if message.role in ruled),
        messages=tuple(_message(message) for message in request.messages if message.role not in ruled),
        tools=tuple(tool(function.name, function.description, function.parameters) for function in functions),
        key=key,
    )


def _image(url: str) -> Image:
    """An image that stands in its own address."""
    media, _, data = url.removeprefix("data:").partition(";base64,")
    return Image(media, b64decode(data))


def _message(message: _Message) -> Message:
    if message.role == "tool":
        return Message(role="tool", text=message.text, answers=message.tool_call_id or "")
    if message.role != "assistant":
        return Message(role="user", text=message.text, images=message.images)
    calls = tuple(used(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
    return Message(role="assistant", text=message.text, calls=calls)


# Replies


def _error(status: int, message: str) -> object:
    return {"error": {"message": message, "type": "scripted", "code": status}}


class _Rendering:
    """A move as this API puts it."""

    def __init__(self, reply: Reply) -> None:
        self._cue = reply.cue
        self._asked = reply.asked
        self._id = f"chatcmpl-{reply.number}"

    def document(self) -> dict[str, Any]:
        move = self._cue.move
        message: dict[str, Any] = {"role": "assistant", "content": move.says or None}
        if move.reasoning:
            message["reasoning_content"] = move.reasoning
        if move.calls:
            message["tool_calls"] = [_rendered(use) for use in uses(self._cue)]
        choice = {"index": 0, "message": message, "finish_reason": stop(move)}
        return self._document("chat.completion", choice) | {"usage": self._usage()}

    def opening(self) -> bytes:
        reasoning = self._cue.move.reasoning
        opening = self._event({"role": "assistant", "content": ""})
        return opening + self._event({"reasoning_content": reasoning}) if reasoning else opening

    def piece(self, text: str) -> bytes:
        return self._event({"content": text})

    def ending(self) -> bytes:
        end = b""
        if self._cue.fault == "garbled" and not self._cue.move.calls:
            end += chunk(b'data: {"choices": [{"delta": {"content": "br\n\n')
        for n, use in enumerate(uses(self._cue)):
            whole = _rendered(use)
            text = whole["function"]["arguments"]
            opened = {"index": n, **whole, "function": {"name": use.name, "arguments": ""}}
            deltas = [opened, *({"index": n, "function": {"arguments": part}} for part in (text[:7], text[7:]) if part)]
            end += b"".join(self._event({"tool_calls": [delta]}) for delta in deltas)
        end += self._event({}, finish=stop(self._cue.move))
        if self._asked.is_counted:
            end += _data(self._document("chat.completion.chunk") | {"usage": self._usage()})
        return end + chunk(b"data: [DONE]\n\n")

    def _event(self, delta: dict[str, Any], *, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(self._document("chat.completion.chunk", choice))

    def _document(self, kind: str, *choices: object) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": 0, "model": self._asked.call.model, "choices": choices}

    def _usage(self) -> dict[str, Any]:
        spent = usage(self._cue.move, self._asked.call)
        return {
            "prompt_tokens": spent.input_tokens,
            "completion_tokens": spent.output_tokens,
            "total_tokens": spent.tokens,
            "prompt_tokens_details": {"cached_tokens": spent.cached_tokens},
        }


def _rendered(use: ToolUse) -> dict[str, Any]:
    arguments = use.unreadable or encode(use.arguments).decode()
    return {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": arguments}}


def _data(document: object) -> bytes:
    return chunk(b"data: %b\n\n" % encode(document))


OPENAI = Speech(path="/chat/completions", key=_key, asked=_asked, error=_error, rendering=_Rendering)
