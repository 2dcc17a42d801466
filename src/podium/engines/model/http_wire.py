"""Send streaming POST requests for the HTTP adapters, and build failures that quote the provider's message.

An adapter builds the request and supplies the reply format. If the server sends nothing for too long, the request
fails. Retries and costs are handled elsewhere.
"""

from __future__ import annotations

import io
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio
from yarl import URL

from ...core.engine import Reasoning, Text
from ...values.errors import Mistake, OutsideFailed
from .limit_reset import find_reset_seconds
from .model_prices import suggest_models
from .model_wire import ModelCall, ReplyPart, estimate_call_size
from .provider_errors import parse_error_body
from .providers import LOCAL, describe_stopped_server
from .stream_events import ReplyFormat, ReplyParser, encode

SHORTEST_SECRET = 8
"""The minimum length of a key that is redacted. Shorter keys are placeholders: redacting "x" would garble messages."""

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30)
_DRAIN_SECONDS = 1.0
_LARGEST_WRITE = 2**20

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """The provider URL that calls are sent to. `client` returns the shared HTTP client, which its owner closes.

    There is no repr, because it would show the key.
    `proxy` is an argument because a client that looks up proxies itself (`trust_env`) also reads
    `.netrc` in a thread before every call, which takes several times as long as the call.
    """

    client: Callable[[], aiohttp.ClientSession]
    url: URL
    key: str
    _: KW_ONLY
    key_name: str
    provider: str
    proxy: str | None
    headers: Mapping[str, str]

    async def stream_reply(
        self, call: ModelCall, payload: dict[str, Any], reply_format: ReplyFormat
    ) -> AsyncGenerator[ReplyPart, None]:
        """Send the payload and yield the parts of the reply, parsed with this format.

        If the call has limits, an empty part is yielded while only the arguments of a tool call arrive, so that the
        caller can tell a long call from a silent server.
        """
        body = encode(payload)
        sent = estimate_call_size(call, body)
        reply = ReplyParser(reply_format, make_failure=self.make_failure, sent=sent, place=len(call.messages))
        silence = _SilenceTimer(call, self.make_failure)
        response = await silence.limit(self._post_call(call, body))
        try:
            if response.status >= 300:
                raise await self._read_refusal(response, call)
            content = response.content
            try:
                while not reply.is_done and (data := await silence.limit(content.readany())):
                    changes, is_shown = reply.changes, False
                    for part in _merge_texts(reply.feed(data)):
                        is_shown = True
                        yield part
                    if silence.is_limited and reply.changes > changes:
                        silence.restart()
                        if not is_shown:
                            yield Reasoning("")
                if not content.is_eof():
                    await _drain_response(content)
            except (aiohttp.ClientError, OSError) as error:
                if not reply.stop:
                    raise self.make_failure(
                        f"disconnected in the middle of its reply: {error}", retryable=True
                    ) from error
            for part in reply.finish_reply():
                yield part
        finally:
            # If the caller stops reading, this ends the call. A reply that was read to the end has already
            # returned its connection to the pool.
            response.close()

    def make_failure(self, what: str, **facts: Any) -> OutsideFailed:
        """Build a failure for this provider, with the key redacted; `facts` sets fields of OutsideFailed."""
        message = f"{self.provider} {what}"
        if len(self.key) >= SHORTEST_SECRET:
            message = message.replace(self.key, f"[{self.key_name}]")
        return OutsideFailed(message, **facts)

    async def _post_call(self, call: ModelCall, body: bytes) -> aiohttp.ClientResponse:
        headers = {"Content-Type": "application/json", **self.headers}
        if call.key:
            headers["Idempotency-Key"] = call.key
        if (not self.key or self.provider == LOCAL) and self.url.host in LOOPBACK_HOSTS:
            # llama.cpp closes connections after streamed replies without saying so, and the next call would fail.
            headers["Connection"] = "close"
        # The client warns about large bodies that are written at once; a file object is sent in chunks.
        data = body if len(body) <= _LARGEST_WRITE else io.BytesIO(body)
        try:
            # Redirects are not followed: they can change the method and lead to any host.
            return await self.client().post(
                self.url, data=data, headers=headers, proxy=self.proxy, timeout=_TIMEOUT, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError) as error:
            url = self.url.with_user(None).with_query(None)
            if self.proxy is None and _is_refused_here(url, error):
                # No server listens on this port, so a retry would not help.
                raise OutsideFailed(describe_stopped_server(self.provider, str(url.origin()))) from error
            raise self.make_failure(
                f"cannot be reached at {url}: {error or type(error).__name__}",
                retryable=not isinstance(error, aiohttp.ClientSSLError),
            ) from error

    async def _read_refusal(self, response: aiohttp.ClientResponse, call: ModelCall) -> OutsideFailed:
        """Build the failure for an error response, with the provider's own message."""
        body = b""
        with suppress(aiohttp.ClientError, OSError):
            while len(body) < 2**16 and (data := await response.content.readany()):
                body += data
        error = parse_error_body(body)
        words = error.words or response.headers.get("Location") or response.reason or "no reason given"
        status = response.status
        is_unknown = error.is_unknown_model(status)
        if status not in (401, 403):
            what = f"returned {status} for the model {call.model}: {words}"
            if is_unknown and (hint := suggest_models(self.provider, call.model)):
                what = f"{what.rstrip('.')}; {hint}"
        elif self.key:
            what = f"returned {status} for the key in {self.key_name}: {words}"
        else:
            what = f"returned {status}, and {self.key_name} is not set: {words}"
        headers = {name.lower(): value for name, value in response.headers.items()}
        reset = find_reset_seconds(status, headers, body, now=time.time())
        return self.make_failure(
            what,
            # A quota that resets at a known time is a limit like any other.
            retryable=error.is_transient(status) or (status == 429 and reset is not None),
            retry_after=reset,
            status=status,
            is_too_long=status in (400, 413, 422) and error.is_too_long,
            is_unknown_model=is_unknown,
        )


class _SilenceTimer:
    """Limits how long a call waits for the beginning of its reply, and then for each further part."""

    def __init__(self, call: ModelCall, make_failure: Callable[..., OutsideFailed]) -> None:
        self._limits = call.limits
        self._make_failure = make_failure
        self._seconds = call.limits.first_token
        self._setting = "first_token_timeout"
        self._started_at = time.monotonic()

    @property
    def is_limited(self) -> bool:
        return self._limits.first_token is not None or self._limits.silence is not None

    def restart(self) -> None:
        """Start waiting for the next part of the reply."""
        self._seconds, self._setting = self._limits.silence, "silence_timeout"
        self._started_at = time.monotonic()

    def limit(self, waiting: Awaitable[T]) -> Awaitable[T]:
        """Return `waiting`, limited so that it raises OutsideFailed if the server sends nothing for too long.

        The time is measured from the start of the call or, once the reply has begun, from its latest part.
        """
        # A cancel scope costs as much time as parsing a part, so it is used only if a limit is set.
        return waiting if self._seconds is None else self._wait(waiting, self._seconds)

    async def _wait(self, waiting: Awaitable[T], seconds: float) -> T:
        with anyio.CancelScope(deadline=self._started_at + seconds):
            return await waiting
        raise self._make_failure(
            f"sent nothing for {seconds:g} s ({self._setting} in the settings)", retryable=True, is_silent=True
        )


def _is_refused_here(url: URL, error: Exception) -> bool:
    """Return whether a port on this machine refused the connection."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return isinstance(cause, ConnectionRefusedError) and url.host in LOOPBACK_HOSTS


def _merge_texts(pieces: Iterator[ReplyPart]) -> Iterator[ReplyPart]:
    """Join consecutive pieces of text. The pieces arrived together, so joining them does not delay any text."""
    said: list[str] = []
    try:
        for piece in pieces:
            if isinstance(piece, Text):
                said.append(piece.text)
                continue
            if said:
                yield Text("".join(said))
                said.clear()
            yield piece
    except OutsideFailed:
        if said:
            yield Text("".join(said))
        raise
    if said:
        yield Text("".join(said))


async def _drain_response(content: aiohttp.StreamReader) -> None:
    """Read any data after the end of the reply, for a short time, so that the connection can be reused."""
    with anyio.move_on_after(_DRAIN_SECONDS):
        while await content.readany():
            pass


def build_call_url(base_url: str, path: str, *, version: str = "") -> URL:
    """Return the URL for model calls; `base_url` may end in `version`. Raise Mistake if it is not an HTTP URL."""
    try:
        url = URL(base_url.strip())
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise Mistake(f"{base_url!r} is not the URL of a model server; use one such as http://127.0.0.1:11434/v1")
    whole_path = url.raw_path.rstrip("/").removesuffix(version) + version + path
    return url.with_path(whole_path, encoded=True).with_query(url.query)


def find_proxy(base_url: str) -> str | None:
    """Return the proxy that the environment sets for this address, if any."""
    url = URL(base_url)
    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
