"""The wire of OpenAI's chat completions, which most providers and local servers speak as well.

The bytes of one streaming POST become pieces, with nothing in between. Servers differ in what they
add or leave out, so whatever can be understood is.
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
from .http_wire import Endpoint, address, broken
from .model_wire import Call, Called, Ended, Heard, Message, asked_size
from .stream_events import NOT_JSON, Events, Failing, Wanted, encode, estimated, used, uses


class OpenAIWire:
    """The models at one address. `client` gives the shared HTTP client, which is not ours to close.

    Without `asks_usage` the server is not asked to count: some count unasked and refuse the question.
    Without `takes_schema` it is not held to a schema while it writes: some know only their own forms of that.
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
        base = address(base_url)
        url = base.with_path(base.raw_path.rstrip("/") + "/chat/completions", encoded=True).with_query(base.query)
        if key:
            # There is room for one of the two only; the client refuses a name in the address beside a key.
            url = url.with_user(None)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._endpoint = Endpoint(client, url, key, key_name=key_name, provider=provider, proxy=proxy, headers=headers)
        self._asks_usage = asks_usage
        self._takes_schema = takes_schema

    def stream(self, call: Call) -> AsyncGenerator[Heard, None]:
        body = encode(_payload(call, asks_usage=self._asks_usage, takes_schema=self._takes_schema))
        reply = Reply(failed=self._endpoint.failed, sent=asked_size(call, body), place=len(call.messages))
        return self._endpoint.stream(call, body, reply)


# What is sent


def _payload(call: Call, *, asks_usage: bool, takes_schema: bool) -> dict[str, Any]:
    messages = [_message(message) for message in call.messages]
    if call.system:
        messages.insert(0, {"role": "system", "content": call.system})
    payload: dict[str, Any] = {"model": call.model, "messages": messages, "stream": True}
    if asks_usage:
        payload["stream_options"] = {"include_usage": True}
    if call.tools:
        payload["tools"] = [_tool(tool) for tool in call.tools]
    if call.schema is not None and takes_schema:
        payload["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": call.schema}}
    return payload


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.answers, "content": message.text}
    if message.images:
        return {"role": message.role, "content": [{"type": "text", "text": message.text}, *map(_shown, message.images)]}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    sealed = _opened(message.sealed)
    calls = [_used(use) | sealed.extra.get(use.id, {}) for use in message.calls]
    return {"role": message.role, "content": message.text or None, "tool_calls": calls} | sealed.thinking


def _shown(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media};base64,{b64encode(image.data).decode()}"}}


def _used(use: ToolUse) -> dict[str, Any]:
    # Arguments that could not be read go back as {}: servers that parse past calls refuse the whole conversation.
    function = {"name": use.name, "arguments": encode(use.arguments).decode()}
    return {"id": use.id, "type": "function", "function": function}


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


# What goes back as it came


class _Sealed(Struct, frozen=True, omit_defaults=True):
    """Fields of a message that calls tools, and of its calls by their ids, without which servers refuse the answers.

    DeepSeek wants its reasoning to be repeated, Gemini a signature with every call.
    """

    thinking: dict[str, str] = {}
    extra: dict[str, dict[str, Any]] = {}


_NOTHING = _Sealed()
_decode_sealed = msgspec.json.Decoder(_Sealed).decode


def _opened(sealed: str) -> _Sealed:
    try:
        return _decode_sealed(sealed) if sealed else _NOTHING
    except NOT_JSON:
        return _NOTHING  # sealed by another wire


# What comes back


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


class Reply:
    """A reply on its way in. The server's word for why it ended is kept as it is.

    `sent` and `place` are the size of the question and its place in the conversation: they stand
    in for token counts and call ids that the server leaves out.
    """

    def __init__(self, *, failed: Failing, sent: int, place: int) -> None:
        self.stop = ""
        self.is_done = False
        self._failed = failed
        self._sent = sent
        self._said = 0
        self._place = place
        self._events = Events(failed)
        self._thought: list[str] = []
        self._wanted: list[Wanted] = []
        self._wanted_at: dict[int, Wanted] = {}
        self._usage: _Usage | None = None

    def feed(self, data: bytes) -> Iterator[Heard]:
        for event in self._events.feed(data):
            yield from self._heard(event)

    def end(self) -> Iterator[Heard]:
        for event in self._events.rest():
            yield from self._heard(event)
        if not self.stop:
            raise self._failed("broke off in the middle of its reply", retryable=True)
        calls = uses(self._wanted, place=self._place)
        for use in calls:
            yield Called(use)
        yield Ended(stop=self.stop, usage=self._spent(), sealed=self._sealed(calls))

    def _sealed(self, calls: list[ToolUse]) -> str:
        extra = {
            use.id: {"extra_content": wanted.extra}
            for use, wanted in zip(calls, self._wanted, strict=True)
            if wanted.extra is not None
        }
        thinking = {"reasoning_content": "".join(self._thought)} if calls and self._thought else {}
        return encode(_Sealed(thinking=thinking, extra=extra)).decode() if thinking or extra else ""

    def _heard(self, event: bytes) -> Iterator[Heard]:
        if self.is_done:
            return
        if event == b"[DONE]":
            self.is_done = True
            return
        try:
            chunk = _decode(event)
        except NOT_JSON as error:
            raise self._failed(f"sent JSON that cannot be read: {error}", retryable=True) from error
        if chunk.error:
            raise broken(self._failed, chunk.error)
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
                    self._want(tool)

    def _want(self, delta: _ToolDelta) -> None:
        """Add to the call that this delta continues, or begin another."""
        function = delta.function or _Function()
        wanted = self._continued(delta, function)
        if wanted is None:
            wanted = Wanted()
            self._wanted.append(wanted)
        if delta.index is not None:
            self._wanted_at[delta.index] = wanted
        wanted.id = wanted.id or delta.id or ""
        wanted.name = wanted.name or function.name or ""
        arguments = function.arguments or ""
        text = arguments if isinstance(arguments, str) else encode(arguments).decode()
        wanted.arguments += text
        wanted.extra = wanted.extra or delta.extra_content
        self._said += len(text)

    def _continued(self, delta: _ToolDelta, function: _Function) -> Wanted | None:
        if delta.id and (same := next((wanted for wanted in self._wanted if wanted.id == delta.id), None)):
            return same
        if delta.index is None:
            wanted = self._wanted[-1] if self._wanted else None
        else:
            wanted = self._wanted_at.get(delta.index)
        if wanted is None or (delta.id and wanted.id):
            return None
        # Some servers give whole calls without index or id, others give every call the index 0.
        if function.name and (delta.index is None or (wanted.name and _is_object(wanted.arguments))):
            return None
        return wanted

    def _spent(self) -> Usage:
        counted = self._usage
        if counted is None:
            return estimated(self._sent, self._said)
        details = counted.prompt_tokens_details
        return Usage(
            input_tokens=counted.prompt_tokens or 0,
            output_tokens=counted.completion_tokens or 0,
            cached_tokens=(details.cached_tokens if details else 0) or 0,
            written_tokens=(details.cache_write_tokens if details else 0) or 0,
            calls=1,
        )


def _is_object(arguments: str) -> bool:
    return arguments.lstrip().startswith("{") and not used("", "", arguments).unreadable
