"""The wire of OpenAI's chat completions, which most providers and local servers speak as well.

One streaming POST on the shared HTTP client; its bytes are cut into lines and the lines into
pieces, with nothing in between. Servers differ in what they add or leave out, so whatever can be
understood is. Trying again, counting money and giving up on silence belong to others.
"""

from __future__ import annotations

import io
import math
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio
import msgspec
from msgspec import Struct
from yarl import URL

from ...errors import Mistake, OutsideFailed
from ...event import ToolUse
from ...mind import Reasoning, Text, Tool
from ...usage import Usage
from .wire import Call, Called, Ended, Heard, Message

LONGEST_LINE = 16 * 2**20
LONGEST_QUOTE = 600
SHORTEST_SECRET = 8
"""A shorter key is a placeholder such as "x", and blotting it out would spoil every sentence."""

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30)
_DRAIN_SECONDS = 1.0
_LARGEST_WRITE = 2**20

_encode = msgspec.json.Encoder().encode


class OpenAIWire:
    """The models at one address. `client` gives the shared HTTP client, which is not ours to close.

    `proxy` is an argument because a client that looks for proxies itself (`trust_env`) also reads
    `.netrc` in a thread before every call, which costs several times the call.
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
    ) -> None:
        self._client = client
        self._url = _completions(base_url)
        self._key = api_key.strip()
        self._key_name = key_name
        self._provider = provider
        self._proxy = proxy
        self._headers = {"Content-Type": "application/json"}
        if self._key:
            # There is room for one of the two only; the client refuses a name in the address beside a key.
            self._url = self._url.with_user(None)
            self._headers["Authorization"] = f"Bearer {self._key}"

    async def stream(self, call: Call) -> AsyncGenerator[Heard, None]:
        body = _encode(_payload(call))
        response = await self._post(call, body)
        try:
            if response.status >= 300:
                raise await self._refusal(response, call)
            reply = Reply(failed=self._failed, sent=len(body), place=len(call.messages))
            content = response.content
            try:
                while not reply.is_done and (data := await content.readany()):
                    for heard in reply.feed(data):
                        yield heard
                if not content.is_eof():
                    await _drain(content)
            except (aiohttp.ClientError, OSError) as error:
                if not reply.stop:
                    raise self._failed(f"broke off in the middle of its reply: {error}", retryable=True) from error
            for heard in reply.end():
                yield heard
        finally:
            # Whoever stops listening hangs up. A reply that was read to its end has given its connection back already.
            response.close()

    async def _post(self, call: Call, body: bytes) -> aiohttp.ClientResponse:
        headers = {**self._headers, "Idempotency-Key": call.key} if call.key else self._headers
        # The client warns of a large body that is written at once; as a file it goes out in parts.
        data = body if len(body) <= _LARGEST_WRITE else io.BytesIO(body)
        try:
            # A redirect is not followed: it would turn the call into another one, and may lead anywhere.
            return await self._client().post(
                self._url, data=data, headers=headers, proxy=self._proxy, timeout=_TIMEOUT, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError) as error:
            raise self._failed(
                f"cannot be reached at {self._url.with_user(None).with_query(None)}: {error or type(error).__name__}",
                retryable=not isinstance(error, aiohttp.ClientSSLError),
            ) from error

    async def _refusal(self, response: aiohttp.ClientResponse, call: Call) -> OutsideFailed:
        """Why there is no reply, in the provider's own words."""
        body = b""
        with suppress(aiohttp.ClientError, OSError):
            while len(body) < 2**16 and (data := await response.content.readany()):
                body += data
        document = _document(body)
        words = _words(document) or response.headers.get("Location") or response.reason or "no reason was given"
        status = response.status
        if status not in (401, 403):
            what = f"answered {status} for the model {call.model}: {words}"
        elif self._key:
            what = f"answered {status} to the key in {self._key_name}: {words}"
        else:
            what = f"answered {status}, and there is no key in {self._key_name}: {words}"
        return self._failed(
            what,
            retryable=_may_pass(status) and "insufficient_quota" not in _kind(document),
            retry_after=retry_after(response.headers.get("Retry-After", ""), now=datetime.now(UTC)),
            status=status,
        )

    def _failed(
        self, what: str, *, retryable: bool = False, retry_after: float | None = None, status: int | None = None
    ) -> OutsideFailed:
        message = f"{self._provider} {what}"
        if len(self._key) >= SHORTEST_SECRET:
            message = message.replace(self._key, f"[{self._key_name}]")
        return OutsideFailed(message, retryable=retryable, retry_after=retry_after, status=status)


def proxy_for(base_url: str) -> str | None:
    """The proxy that the environment names for this address."""
    url = URL(base_url)
    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)


def retry_after(value: str, *, now: datetime) -> float | None:
    """The seconds that a Retry-After header asks for, whether it counts them or names a date."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _completions(base_url: str) -> URL:
    try:
        url = URL(base_url.strip())
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise Mistake(f"{base_url!r} is no address of a model server; http://127.0.0.1:11434/v1 would be one")
    return url.with_path(url.raw_path.rstrip("/") + "/chat/completions", encoded=True).with_query(url.query)


async def _drain(content: aiohttp.StreamReader) -> None:
    """Read what follows the end of the reply, so that the connection can be used again; not for long."""
    with anyio.move_on_after(_DRAIN_SECONDS):
        while await content.readany():
            pass


# What is sent


def _payload(call: Call) -> dict[str, Any]:
    messages = [_message(message) for message in call.messages]
    if call.system:
        messages.insert(0, {"role": "system", "content": call.system})
    payload: dict[str, Any] = {
        "model": call.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if call.tools:
        payload["tools"] = [_tool(tool) for tool in call.tools]
    return payload


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.answers, "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    return {"role": message.role, "content": message.text or None, "tool_calls": [_used(use) for use in message.calls]}


def _used(use: ToolUse) -> dict[str, Any]:
    # Arguments that could not be read go back as {}: servers that parse past calls refuse the whole conversation.
    function = {"name": use.name, "arguments": _encode(use.arguments).decode()}
    return {"id": use.id, "type": "function", "function": function}


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


# What comes back


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


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


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode
_decode_arguments = msgspec.json.Decoder(dict[str, Any] | None).decode
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Wanted:
    """A tool call that is still coming in."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ""


class Reply:
    """A reply on its way in: bytes are fed, cut wherever the network cut them, and pieces come out.

    `stop` is the server's word for why it ended, empty until then; `is_done` when nothing more is
    to be read. `sent` and `place` are the size of the question and its place in the conversation:
    they stand in for token counts and call ids that the server leaves out.
    """

    def __init__(self, *, failed: Callable[..., OutsideFailed], sent: int, place: int) -> None:
        self.stop = ""
        self.is_done = False
        self._failed = failed
        self._sent = sent
        self._said = 0
        self._place = place
        self._is_document: bool | None = None
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._wanted: list[_Wanted] = []
        self._wanted_at: dict[int, _Wanted] = {}
        self._usage: _Usage | None = None

    def feed(self, data: bytes) -> Iterator[Heard]:
        """What these bytes complete."""
        if self._is_document is None:
            if not (start := data.lstrip()):
                return
            # Some servers answer a request for a stream with one JSON document.
            self._is_document = start.startswith(b"{")
        end = 0 if self._is_document else data.rfind(b"\n") + 1
        if not end:
            self._keep(data)
            return
        lines = data[:end]
        if self._tail:
            lines = b"".join(self._tail) + lines
            self._tail.clear()
            self._tail_size = 0
        if end < len(data):
            self._keep(data[end:])
        for line in lines.split(b"\n"):
            if line.startswith(b"data:") and not self.is_done:
                event = line[5:].strip()
                if event == b"[DONE]":
                    self.is_done = True
                elif event:
                    yield from self._heard(event)

    def end(self) -> Iterator[Heard]:
        """What remains to be said, the end of the reply included. Raises OutsideFailed where it has none."""
        if self._is_document:
            yield from self._heard(b"".join(self._tail))
        elif self._tail:
            yield from self.feed(b"\n")
        if not self.stop:
            raise self._failed("broke off in the middle of its reply", retryable=True)
        ids: set[str] = set()
        for n, wanted in enumerate(self._wanted):
            use = _use(wanted, otherwise=f"call-{self._place}-{n}", taken=ids)
            ids.add(use.id)
            yield Called(use)
        yield Ended(stop=self.stop, usage=self._spent())

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_size += len(data)
        if self._tail_size > LONGEST_LINE:
            raise self._failed(f"sent a line of more than {LONGEST_LINE} bytes")

    def _heard(self, event: bytes) -> Iterator[Heard]:
        try:
            chunk = _decode(event)
        except _NOT_JSON as error:
            raise self._failed(f"sent JSON that cannot be read: {error}", retryable=True) from error
        if chunk.error:
            raise self._broken(chunk.error)
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices or ():
            if choice.index:
                continue
            if choice.finish_reason:
                self.stop = choice.finish_reason
            elif self._is_document:
                self.stop = "stop"
            if (delta := choice.delta or choice.message) is not None:
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
            wanted = _Wanted()
            self._wanted.append(wanted)
        if delta.index is not None:
            self._wanted_at[delta.index] = wanted
        wanted.id = wanted.id or delta.id or ""
        wanted.name = wanted.name or function.name or ""
        arguments = function.arguments or ""
        text = arguments if isinstance(arguments, str) else _encode(arguments).decode()
        wanted.arguments += text
        self._said += len(text)

    def _continued(self, delta: _ToolDelta, function: _Function) -> _Wanted | None:
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

    def _broken(self, error: Any) -> OutsideFailed:
        """The failure that a server tells of in a reply that had begun well."""
        kind = _kind({"error": error})
        status = next((int(word) for word in kind.split() if len(word) == 3 and word.isdigit()), None)
        lasting = ("invalid", "auth", "permission", "not_found", "quota", "context_length", "content_filter")
        may_pass = not any(word in kind for word in lasting) if status is None else _may_pass(status)
        return self._failed(f"broke off its reply: {_words(error)}", retryable=may_pass, status=status)

    def _spent(self) -> Usage:
        counted = self._usage
        if counted is None:
            # About four characters make a token.
            return Usage(input_tokens=-(-self._sent // 4), output_tokens=-(-self._said // 4), calls=1, estimated=1)
        details = counted.prompt_tokens_details
        return Usage(
            input_tokens=counted.prompt_tokens or 0,
            output_tokens=counted.completion_tokens or 0,
            cached_tokens=(details.cached_tokens if details else 0) or 0,
            calls=1,
        )


def _use(wanted: _Wanted, *, otherwise: str, taken: set[str]) -> ToolUse:
    id = wanted.id if wanted.id and wanted.id not in taken else otherwise
    if not wanted.arguments.strip():
        return ToolUse(id=id, name=wanted.name)
    try:
        return ToolUse(id=id, name=wanted.name, arguments=_decode_arguments(wanted.arguments) or {})
    except _NOT_JSON:
        return ToolUse(id=id, name=wanted.name, unreadable=wanted.arguments)


def _is_object(arguments: str) -> bool:
    try:
        return _decode_arguments(arguments) is not None
    except _NOT_JSON:
        return False


# What went wrong, in the provider's words


def _may_pass(status: int) -> bool:
    """Whether the same call may succeed a little later."""
    return status in (408, 409, 429) or status >= 500


def _document(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except _NOT_JSON:
        return body.decode(errors="replace")


def _words(document: Any) -> str:
    """The sentence in an error, wherever the provider puts it."""
    while not isinstance(document, str):
        if isinstance(document, list) and document:
            document = document[0]
        elif isinstance(document, dict) and (key := next((key for key in _SENTENCES if document.get(key)), None)):
            document = document[key]
        else:
            document = _encode(document).decode() if document else ""
    return " ".join(document.split())[:LONGEST_QUOTE]


_SENTENCES = ("error", "message", "detail", "msg")


def _kind(document: Any) -> str:
    """The provider's own code and type of an error, in lower case."""
    error = document.get("error") if isinstance(document, dict) else None
    return (
        " ".join(str(error.get(key)) for key in ("code", "type", "status")).lower() if isinstance(error, dict) else ""
    )
