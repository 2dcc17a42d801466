"""The wire for OpenAI's Chat Completions API, which most providers and local servers support.

The bytes of one streaming POST are parsed directly into reply parts. Servers differ in what they add
or leave out, so the parser is lenient.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from ...core.engine import Reasoning, Text, Tool
from ...values.attachment import Image
from ...values.event import ToolUse
from ...values.usage import Usage
from .http_wire import Endpoint, make_stream_failure, parse_server_url
from .model_wire import Message, ModelCall, ReplyEnd, ReplyPart, ToolCallPart, estimate_call_size
from .stream_events import (
    NOT_JSON,
    FailureFactory,
    PartialToolCall,
    SSEParser,
    build_tool_uses,
    encode,
    estimate_usage,
    parse_tool_use,
)


class OpenAIWire:
    """The models at one address. `client` returns the shared HTTP client, whose owner closes it.

    Set `asks_usage` to false for servers that refuse `stream_options`; some report usage unasked.
    Set `takes_schema` to false for servers that do not support `json_schema` as the response format.
    """

    def __init__(
        self,
        client: Callable[[], aiohttp.ClientSession],
        base_url: str,
        api_key: str = "",
        *,
        key_name: str = "OPENAI_API_KEY",
        provider: str = "openai",
        proxy: str | None = None,
        asks_usage: bool = True,
        takes_schema: bool = True,
    ) -> None:
        key = api_key.strip()
        base = parse_server_url(base_url)
        url = base.with_path(base.raw_path.rstrip("/") + "/chat/completions", encoded=True).with_query(base.query)
        if key:
            # Both use the Authorization header, and the client refuses a user in the URL beside a key.
            url = url.with_user(None)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._endpoint = Endpoint(client, url, key, key_name=key_name, provider=provider, proxy=proxy, headers=headers)
        self._asks_usage = asks_usage
        self._takes_schema = takes_schema

    def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        body = encode(_build_payload(call, asks_usage=self._asks_usage, takes_schema=self._takes_schema))
        reply = OpenAIReplyParser(
            make_failure=self._endpoint.make_failure, sent=estimate_call_size(call, body), place=len(call.messages)
        )
        return self._endpoint.stream_reply(call, body, reply)


# Request


def _build_payload(call: ModelCall, *, asks_usage: bool, takes_schema: bool) -> dict[str, Any]:
    messages = [_encode_message(message) for message in call.messages]
    if call.system:
        messages.insert(0, {"role": "system", "content": call.system})
    payload: dict[str, Any] = {"model": call.model, "messages": messages, "stream": True}
    if asks_usage:
        payload["stream_options"] = {"include_usage": True}
    if call.tools:
        payload["tools"] = [_encode_tool(tool) for tool in call.tools]
    if call.schema is not None and takes_schema:
        payload["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": call.schema}}
    return payload


def _encode_message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.answers, "content": message.text}
    if message.images:
        return {
            "role": message.role,
            "content": [{"type": "text", "text": message.text}, *map(_encode_image, message.images)],
        }
    if not message.calls:
        return {"role": message.role, "content": message.text}
    sealed = _read_sealed_fields(message.sealed)
    calls = [_encode_tool_use(use) | sealed.extra.get(use.id, {}) for use in message.calls]
    return {"role": message.role, "content": message.text or None, "tool_calls": calls} | sealed.thinking


def _encode_image(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media};base64,{b64encode(image.data).decode()}"}}


def _encode_tool_use(use: ToolUse) -> dict[str, Any]:
    # Unreadable arguments are sent back as {}: servers that parse earlier calls would refuse the whole conversation.
    function = {"name": use.name, "arguments": encode(use.arguments).decode()}
    return {"id": use.id, "type": "function", "function": function}


def _encode_tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


# Fields that are sent back unchanged


class _SealedFields(Struct, frozen=True, omit_defaults=True):
    """Fields of a message with tool calls, and of each call by id, without which servers refuse the tool results.

    DeepSeek needs its reasoning back, Gemini a signature with every call.
    """

    thinking: dict[str, str] = {}
    extra: dict[str, dict[str, Any]] = {}


_NO_SEALED_FIELDS = _SealedFields()
_decode_sealed = msgspec.json.Decoder(_SealedFields).decode


def _read_sealed_fields(sealed: str) -> _SealedFields:
    try:
        return _decode_sealed(sealed) if sealed else _NO_SEALED_FIELDS
    except NOT_JSON:
        return _NO_SEALED_FIELDS  # sealed by another wire


# Reply


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: Any = None


class _Part(Struct, gc=False):
    text: str | None = None


class _Delta(Struct, gc=False):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolDelta] | None = None


class _Choice(Struct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class OpenAIReplyParser:
    """The parser of one reply. The server's stop reason is kept as it is.

    `sent` is the size of the request and `place` its position in the conversation. They replace
    token counts and call ids that the server leaves out.
    """

    def __init__(self, *, make_failure: FailureFactory, sent: int, place: int) -> None:
        self.stop = ""
        self.is_done = False
        self._make_failure = make_failure
        self._sent = sent
        self._said = 0
        self._place = place
        self._events = SSEParser(make_failure)
        self._thought: list[str] = []
        self._partial_calls: list[PartialToolCall] = []
        self._partial_call_at: dict[int, PartialToolCall] = {}
        self._usage: _Usage | None = None

    def feed(self, data: bytes) -> Iterator[ReplyPart]:
        for event in self._events.feed(data):
            yield from self._parse_event(event)

    def finish_reply(self) -> Iterator[ReplyPart]:
        for event in self._events.finish_stream():
            yield from self._parse_event(event)
        if not self.stop:
            raise self._make_failure("broke off in the middle of its reply", retryable=True)
        calls = build_tool_uses(self._partial_calls, place=self._place)
        for use in calls:
            yield ToolCallPart(use)
        yield ReplyEnd(stop=self.stop, usage=self._compute_usage(), sealed=self._encode_sealed(calls))

    def _encode_sealed(self, calls: list[ToolUse]) -> str:
        extra = {
            use.id: {"extra_content": partial_call.extra}
            for use, partial_call in zip(calls, self._partial_calls, strict=True)
            if partial_call.extra is not None
        }
        thinking = {"reasoning_content": "".join(self._thought)} if calls and self._thought else {}
        return encode(_SealedFields(thinking=thinking, extra=extra)).decode() if thinking or extra else ""

    def _parse_event(self, event: bytes) -> Iterator[ReplyPart]:
        if self.is_done:
            return
        if event == b"[DONE]":
            self.is_done = True
            return
        try:
            chunk = _decode(event)
        except NOT_JSON as error:
            raise self._make_failure(f"sent JSON that cannot be read: {error}", retryable=True) from error
        if chunk.error:
            raise make_stream_failure(self._make_failure, chunk.error)
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices or ():
            if choice.index:
                continue
            if choice.finish_reason:
                self.stop = choice.finish_reason
            elif self._events.is_document:
                self.stop = "stop"
            if (delta := choice.delta or choice.message) is not None:
                if delta.reasoning_content is not None:
                    self._thought.append(delta.reasoning_content)
                if thought := delta.reasoning_content or delta.reasoning:
                    self._said += len(thought)
                    yield Reasoning(thought)
                if said := delta.content or delta.refusal:
                    text = said if isinstance(said, str) else "".join(part.text or "" for part in said)
                    if text:
                        self._said += len(text)
                        yield Text(text)
                for tool in delta.tool_calls or ():
                    self._add_tool_delta(tool)

    def _add_tool_delta(self, delta: _ToolDelta) -> None:
        """Add a delta to the call that it continues, or start a new call."""
        function = delta.function or _Function()
        partial_call = self._find_partial_call(delta, function)
        if partial_call is None:
            partial_call = PartialToolCall()
            self._partial_calls.append(partial_call)
        if delta.index is not None:
            self._partial_call_at[delta.index] = partial_call
        partial_call.id = partial_call.id or delta.id or ""
        partial_call.name = partial_call.name or function.name or ""
        arguments = function.arguments or ""
        text = arguments if isinstance(arguments, str) else encode(arguments).decode()
        partial_call.arguments += text
        partial_call.extra = partial_call.extra or delta.extra_content
        self._said += len(text)

    def _find_partial_call(self, delta: _ToolDelta, function: _Function) -> PartialToolCall | None:
        if delta.id and (
            same := next((partial_call for partial_call in self._partial_calls if partial_call.id == delta.id), None)
        ):
            return same
        if delta.index is None:
            partial_call = self._partial_calls[-1] if self._partial_calls else None
        else:
            partial_call = self._partial_call_at.get(delta.index)
        if partial_call is None or (delta.id and partial_call.id):
            return None
        # Some servers send whole calls without index or id; others send every call with index 0.
        if function.name and (delta.index is None or (partial_call.name and _is_object(partial_call.arguments))):
            return None
        return partial_call

    def _compute_usage(self) -> Usage:
        counted = self._usage
        if counted is None:
            return estimate_usage(self._sent, self._said)
        details = counted.prompt_tokens_details
        return Usage(
            input_tokens=counted.prompt_tokens or 0,
            output_tokens=counted.completion_tokens or 0,
            cached_tokens=(details.cached_tokens if details else 0) or 0,
            written_tokens=(details.cache_write_tokens if details else 0) or 0,
            calls=1,
        )


def _is_object(arguments: str) -> bool:
    return arguments.lstrip().startswith("{") and not parse_tool_use("", "", arguments).unreadable
