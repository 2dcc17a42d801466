"""Call models through OpenAI's Chat Completions API, which most providers and local servers support.

Servers add or leave out different fields, so replies are parsed leniently.
"""

from __future__ import annotations

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


def make_wire(server: ModelServer) -> Wire:
    """Return the adapter for a server."""
    provider = server.provider
    return OpenAIWire(
        server.get_client,
        server.url,
        server.key,
        key_name=server.key_name,
        provider=provider.name,
        proxy=server.proxy,
        asks_usage=provider.asks_usage,
        takes_schema=provider.takes_schema if server.takes_schema is None else server.takes_schema,
        refused_schemas=server.refused_schemas,
        limit_name=provider.limit_name,
    )


class OpenAIWire:
    """Calls the models at one address. `client` returns the shared HTTP client, which its owner closes.

    Set `asks_usage` to false for servers that reject `stream_options`; some report usage anyway.
    Set `takes_schema` to false for servers that do not support `json_schema` as the response format. Other servers
    that turn out to refuse it are recorded in `refused_schemas`.
    `limit_name` is the request field that limits the reply: OpenAI's newer models refuse `max_tokens`, and other
    servers ignore `max_completion_tokens`.
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
        refused_schemas: RefusedSchemas | None = None,
        limit_name: str = "max_completion_tokens",
    ) -> None:
        key = api_key.strip()
        url = build_call_url(base_url, "/chat/completions")
        if key:
            # A user name in the URL and a key both use the Authorization header, so the client rejects the combination.
            url = url.with_user(None)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._endpoint = Endpoint(client, url, key, key_name=key_name, provider=provider, proxy=proxy, headers=headers)
        self._asks_usage = asks_usage
        self._takes_schema = takes_schema
        self._limit_name = limit_name
        self._fallback = SchemaFallback(base_url, refused_schemas)

    def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        if call.schema is None or not self._takes_schema:
            return self._send(structs.replace(call, schema=None))
        return self._fallback.stream(call, self._send)

    def _send(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        payload = _build_payload(call, asks_usage=self._asks_usage)
        if call.max_tokens is not None:
            payload[self._limit_name] = call.max_tokens
        return self._endpoint.stream_reply(call, payload, OpenAIReplyFormat())


# Request


def _build_payload(call: ModelCall, *, asks_usage: bool) -> dict[str, Json]:
    # Several servers reject calls with both a schema and tools, so the tool that is equivalent to the schema is not
    # offered. Its description is added to the prompt, because it explains the values, such as what each agent is for.
    replaced = [tool for tool in call.tools if call.schema is not None and tool.name == call.schema_tool]
    tools = [tool for tool in call.tools if tool not in replaced]
    messages = [_encode_message(message) for message in call.messages]
    if system := "\n\n".join(filter(None, (call.system, *(tool.description for tool in replaced)))):
        messages.insert(0, {"role": "system", "content": system})
    payload: dict[str, Json] = {"model": call.model, "messages": messages, "stream": True}
    if asks_usage:
        payload["stream_options"] = {"include_usage": True}
    if tools:
        payload["tools"] = [_encode_tool(tool) for tool in tools]
    if call.schema is not None:
        payload["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": call.schema}}
    return payload


def _encode_message(message: Message) -> JsonObject:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.answers, "content": message.text}
    if message.images:
        return {
            "role": message.role,
            "content": [{"type": "text", "text": message.text}, *map(_encode_image, message.images)],
        }
    if not message.calls:
        return {"role": message.role, "content": message.text}
    sealed = read_sealed(message.sealed, _decode_sealed) or _SealedFields()
    calls = [_encode_tool_use(use) | sealed.extra.get(use.id, {}) for use in message.calls]
    return {"role": message.role, "content": message.text or None, "tool_calls": calls} | sealed.thinking


def _encode_image(image: Image) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media};base64,{b64encode(image.data).decode()}"}}


def _encode_tool_use(use: ToolUse) -> dict[str, Json]:
    # Invalid arguments are sent back as {}: servers that parse earlier calls would reject the whole conversation.
    function = {"name": use.name, "arguments": encode(use.arguments).decode()}
    return {"id": use.id, "type": "function", "function": function}


def _encode_tool(tool: Tool) -> JsonObject:
    function: JsonObject = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


# Fields that are sent back unchanged


class _SealedFields(Struct, frozen=True, omit_defaults=True):
    """Provider data attached to a message with tool calls. Without it, some servers reject the tool results.

    DeepSeek requires its reasoning (`thinking`), and Gemini a signature for every call (`extra`, keyed by call id).
    """

    thinking: dict[str, str] = {}
    extra: dict[str, dict[str, Any]] = {}


_decode_sealed = msgspec.json.Decoder(_SealedFields).decode


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
    model: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class OpenAIReplyFormat:
    """Reads a reply from its deltas."""

    def __init__(self) -> None:
        self.model = ""
        self._thought: list[str] = []
        self._usage: _Usage | None = None

    def read_event(self, event: bytes) -> Sequence[StreamChange]:
        if event == b"[DONE]":
            return (StreamEnd(),)
        chunk = _decode(event)
        if chunk.error:
            return (StreamEnd(chunk.error),)
        if not self.model and isinstance(chunk.model, str):
            self.model = chunk.model
        if chunk.usage is not None:
            self._usage = chunk.usage
        changes: list[StreamChange] = []
        for choice in chunk.choices or ():
            if choice.index:
                continue
            if (delta := choice.delta or choice.message) is not None:
                if delta.reasoning_content is not None:
                    self._thought.append(delta.reasoning_content)
                if thought := delta.reasoning_content or delta.reasoning:
                    changes.append(Reasoning(thought))
                if said := delta.content or delta.refusal:
                    text = said if isinstance(said, str) else "".join(part.text or "" for part in said)
                    if text:
                        changes.append(Text(text))
                for tool in delta.tool_calls or ():
                    function = tool.function or _Function()
                    if tool.id or function.name or tool.extra_content:
                        start = ToolCallStart(tool.index, tool.id or "", function.name or "", tool.extra_content)
                        changes.append(start)
                    changes.append(ToolCallArguments(tool.index, function.arguments or ""))
            if choice.finish_reason or choice.delta is None:
                changes.append(ReplyStop(choice.finish_reason))
        return changes

    def compute_usage(self) -> Usage | None:
        if (counted := self._usage) is None:
            return None
        details = counted.prompt_tokens_details or _PromptDetails()
        return Usage(
            input_tokens=counted.prompt_tokens or 0,
            output_tokens=counted.completion_tokens or 0,
            cached_tokens=details.cached_tokens or 0,
            written_tokens=details.cache_write_tokens or 0,
            calls=1,
        )

    def encode_sealed(self, calls: Sequence[ToolUse], extra: JsonObject) -> str:
        thinking = {"reasoning_content": "".join(self._thought)} if calls and self._thought else {}
        if not thinking and not extra:
            return ""
        fields = {id: {"extra_content": content} for id, content in extra.items()}
        return encode(_SealedFields(thinking=thinking, extra=fields)).decode()
