"""Call models through Anthropic's Messages API.

Cache breakpoints are set after the parts of the prompt that stay the same from call to call: the
tools, the system prompt and the earlier messages. The model decides how much to think. Thinking
blocks are sent back unchanged, because they are signed.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct, structs

from ...core.engine import Reasoning, Text, Tool
from ...values.event import ToolUse
from ...values.json import Json, JsonObject
from ...values.request import Image
from ...values.usage import Usage
from .http_wire import Endpoint, build_call_url
from .model_wire import Message, ModelCall, ModelServer, ReplyPart, Wire
from .stream_events import ReplyStop, StreamChange, StreamEnd, ToolCallArguments, ToolCallStart, encode, read_sealed
from .tool_emulation import RefusedSchemas, SchemaFallback

VERSION = "2023-06-01"
LONGEST_REPLY = 8192
REPLY_TOOL = "reply"
"""The tool that a model must call if its reply has to match a schema. The call's arguments become the reply's text."""

_CACHED = {"cache_control": {"type": "ephemeral"}}


def make_wire(server: ModelServer) -> Wire:
    """Return the adapter for a server."""
    return AnthropicWire(
        server.get_client,
        server.url,
        server.key,
        key_name=server.key_name,
        provider=server.provider.name,
        proxy=server.proxy,
        refused_schemas=server.refused_schemas,
    )


class AnthropicWire:
    """Calls the models at one address, with or without a trailing `/v1`. `client` returns the shared HTTP client.

    A reply is cut off after `max_tokens`, including thinking, with the stop reason `length`.
    """

    def __init__(
        self,
        client: Callable[[], aiohttp.ClientSession],
        base_url: str,
        api_key: str = "",
        *,
        key_name: str = "ANTHROPIC_API_KEY",
        provider: str = "anthropic",
        proxy: str | None = None,
        max_tokens: int = LONGEST_REPLY,
        refused_schemas: RefusedSchemas | None = None,
    ) -> None:
        key = api_key.strip()
        url = build_call_url(base_url, "/messages", version="/v1")
        headers = {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})
        self._endpoint = Endpoint(client, url, key, key_name=key_name, provider=provider, proxy=proxy, headers=headers)
        self._max_tokens = max_tokens
        self._fallback = SchemaFallback(base_url, refused_schemas)

    def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        # A schema is sent as a tool that the model must call, so it cannot be combined with other tools.
        if call.schema is None or any(tool.name != call.schema_tool for tool in call.tools):
            return self._send(structs.replace(call, schema=None))
        return self._fallback.stream(call, self._send)

    def _send(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        longest = self._max_tokens if call.max_tokens is None else min(self._max_tokens, call.max_tokens)
        payload = _build_payload(call, max_tokens=longest)
        is_reply = call.schema is not None and not call.tools
        return self._endpoint.stream_reply(call, payload, AnthropicReplyFormat(REPLY_TOOL if is_reply else ""))


# Request


def _build_payload(call: ModelCall, *, max_tokens: int) -> JsonObject:
    payload: dict[str, Any] = {
        "model": call.model,
        "max_tokens": max_tokens,
        "messages": _encode_messages(call.messages),
        "stream": True,
    }
    if call.system.strip():
        payload["system"] = [{"type": "text", "text": call.system} | _CACHED]
    if call.tools:
        payload["tools"] = [_encode_tool(tool) for tool in call.tools]
        payload["tools"][-1] |= _CACHED
    elif call.schema is None and (names := {use.name: None for message in call.messages for use in message.calls}):
        # The API rejects earlier calls to tools that are not defined, even if the model can no longer call tools.
        payload["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        payload["tool_choice"] = {"type": "none"}
    if call.schema is not None:
        name = call.schema_tool if call.tools else REPLY_TOOL
        if not call.tools:
            payload["tools"] = [{"name": name, "description": "Give your reply.", "input_schema": call.schema}]
        payload["tool_choice"] = {"type": "tool", "name": name, "disable_parallel_tool_use": True}
    return payload


def _encode_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Encode the messages as alternating turns: consecutive messages with the same role are merged."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if not (blocks := _encode_blocks(message)):
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    for turn in reversed(turns):
        if turn["role"] == "user":
            turn["content"][-1] |= _CACHED
            break
    return turns


def _encode_blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": _sanitise_call_id(message.answers), "content": message.text}]
    if (sealed := read_sealed(message.sealed, _decode_sealed)) is not None:
        return sealed
    # The API rejects text blocks that are empty or contain only white space.
    said = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return said + [*map(_encode_image, message.images)] + [_encode_tool_use(use) for use in message.calls]


def _encode_image(image: Image) -> dict[str, Any]:
    source = {"type": "base64", "media_type": image.media, "data": b64encode(image.data).decode()}
    return {"type": "image", "source": source}


def _encode_tool_use(use: ToolUse) -> dict[str, Any]:
    return {"type": "tool_use", "id": _sanitise_call_id(use.id), "name": use.name, "input": use.arguments}


def _sanitise_call_id(id: str) -> str:
    """Replace the characters in a call id that this API rejects. Other providers allow more characters."""
    return _INVALID_ID_CHARACTER.sub("_", id)


_INVALID_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


def _encode_tool(tool: Tool) -> dict[str, Json]:
    schema = {"type": "object"} | tool.parameters
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


_decode_sealed = msgspec.json.Decoder(list[dict[str, Any]]).decode


# Reply


class _Details(Struct, gc=False):
    explanation: str | None = None


class _Block(Struct, gc=False):
    """A content block, or the part of a block that an event contains."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Any = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: _Details | None = None


class _Usage(Struct, gc=False):
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None


class _Event(Struct, gc=False):
    """A stream event of any type, or a whole message; a message uses the last five fields."""

    type: str = ""
    index: int | None = None
    message: _Event | None = None
    content_block: _Block | None = None
    delta: _Block | None = None
    error: Any = None
    usage: _Usage | None = None
    content: list[_Block] | None = None
    stop_reason: str | None = None
    stop_details: _Details | None = None
    model: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class _PartialBlock(Struct):
    """A content block assembled from stream events. The arguments of a tool call are collected elsewhere."""

    start: _Block
    parts: list[str] = []
    signature: str = ""

    def to_content_block(self) -> dict[str, Any] | None:
        """Return the block as it is sent back to the API, or None for tool calls and blocks that are not sent back."""
        text = "".join(self.parts)
        match self.start.type:
            case "text" if text.strip():
                return {"type": "text", "text": text}
            case "thinking":
                signed = {"signature": self.signature} if self.signature else {}
                return {"type": "thinking", "thinking": text} | signed
            case "redacted_thinking":
                return {"type": "redacted_thinking", "data": self.start.data}
        return None


class AnthropicReplyFormat:
    """Reads a reply, which consists of content blocks. A call to `reply_tool` is treated as text."""

    def __init__(self, reply_tool: str = "") -> None:
        self.model = ""
        self._reply_tool = reply_tool
        self._blocks: list[_PartialBlock] = []
        self._block_at: dict[int | None, _PartialBlock] = {}
        self._counts: dict[str, int] = {}

    def read_event(self, data: bytes) -> Sequence[StreamChange]:
        event = _decode(data)
        match event.type:
            case "content_block_delta" if event.delta is not None:
                return self._read_delta(event.index, event.delta)
            case "content_block_start" if event.content_block is not None:
                return self._start_block(event.index, event.content_block)
            case "message_start" if event.message is not None:
                self._read_model(event.message)
                self._update_counts(event.message.usage)
            case "message_delta":
                self._update_counts(event.usage)
                if event.delta is not None:
                    return self._read_stop(event.delta)
            case "message_stop":
                return (StreamEnd(),)
            case "message":
                self._read_model(event)
                self._update_counts(event.usage)
                started = [change for block in event.content or () for change in self._start_block(None, block)]
                return [*started, *self._read_stop(event)]
            case _ if event.error:
                return (StreamEnd(event.error),)
        return ()

    def _read_model(self, message: _Event) -> None:
        if isinstance(message.model, str):
            self.model = message.model

    def _start_block(self, index: int | None, block: _Block) -> Sequence[StreamChange]:
        if block.type == "tool_use" and self._reply_tool and block.name == self._reply_tool:
            block = _Block(type="text", text=encode(block.input).decode() if block.input else None)
        self._block_at[index] = partial_block = _PartialBlock(block)
        self._blocks.append(partial_block)
        if block.type == "tool_use":
            start = ToolCallStart(index, block.id or "", block.name or "", is_new=True)
            # Some servers send all arguments at the start of the block.
            return (start, ToolCallArguments(index, block.input))
        return self._read_delta(index, block)

    def _read_delta(self, index: int | None, delta: _Block) -> Sequence[StreamChange]:
        """Add a delta to its block, and return the changes to the reply.

        The text of a delta without a block is also part of the reply.
        """
        block = self._block_at.get(index)
        if delta.partial_json:
            if block is not None and block.start.type == "tool_use":
                return (ToolCallArguments(index, delta.partial_json),)
            if block is None or not self._reply_tool:
                return ()
            block.parts.append(delta.partial_json)
            return (Text(delta.partial_json),)
        if delta.signature and block is not None:
            block.signature += delta.signature
        if not (part := delta.text or delta.thinking):
            return ()
        if block is not None:
            block.parts.append(part)
        return (Text(part) if delta.text else Reasoning(part),)

    def _read_stop(self, ended: _Block | _Event) -> Sequence[StreamChange]:
        """Read the stop reason. If a refusal has no text, its explanation becomes the text."""
        reason = "content_filter" if ended.stop_reason == "refusal" else ended.stop_reason
        stop = ReplyStop("end_turn" if reason == "tool_use" and self._reply_tool else reason)
        explanation = ended.stop_details.explanation if ended.stop_details is not None else None
        if explanation and not any(one.start.type == "text" for one in self._blocks):
            return (Text(explanation), stop)
        return (stop,)

    def _update_counts(self, usage: _Usage | None) -> None:
        """Record token counts. A count never decreases, so the larger value is the newer one."""
        for name, count in msgspec.structs.asdict(usage).items() if usage is not None else ():
            if count is not None:
                self._counts[name] = max(count, self._counts.get(name, 0))

    def compute_usage(self) -> Usage | None:
        if not self._counts:
            return None
        read = self._counts.get("cache_read_input_tokens", 0)
        written = self._counts.get("cache_creation_input_tokens", 0)
        return Usage(
            input_tokens=self._counts.get("input_tokens", 0) + read + written,
            output_tokens=self._counts.get("output_tokens", 0),
            cached_tokens=read,
            written_tokens=written,
            calls=1,
        )

    def encode_sealed(self, calls: Sequence[ToolUse], extra: JsonObject) -> str:
        """Encode all blocks in order; return "" if the message can be rebuilt from its text and calls alone."""
        left = iter(calls)
        blocks = [
            _encode_tool_use(next(left)) if block.start.type == "tool_use" else block.to_content_block()
            for block in self._blocks
        ]
        kept = [block for block in blocks if block is not None]
        text = "".join(block["text"] for block in kept if block["type"] == "text")
        plain = _encode_blocks(Message(role="assistant", text=text, calls=tuple(calls)))
        return "" if kept == plain else encode(kept).decode()
