"""The shared part of the HTTP wires: one streaming POST, and failures that quote the provider's message.

A wire encodes the request and parses the reply. Retries, costs and timeouts are handled elsewhere.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio
import msgspec
from yarl import URL

from ...core.engine import Text
from ...values.errors import Mistake, OutsideFailed
from .model_wire import ModelCall, ReplyPart
from .stream_events import NOT_JSON, FailureFactory, ReplyParser, encode

LONGEST_QUOTE = 600
SHORTEST_SECRET = 8
"""A shorter key is a placeholder such as "x"; redacting it would garble every message."""

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30)
_DRAIN_SECONDS = 1.0
_LARGEST_WRITE = 2**20


# The call


class Endpoint:
    """The URL of a provider that calls are sent to. `client` returns the shared HTTP client, whose owner closes it.

    `proxy` is an argument because a client that looks for proxies itself (`trust_env`) also reads
    `.netrc` in a thread before every call, which takes several times as long as the call.
    """

    def __init__(
        self,
        client: Callable[[], aiohttp.ClientSession],
        url: URL,
        api_key: str,
        *,
        key_name: str,
        provider: str,
        proxy: str | None,
        headers: Mapping[str, str],
    ) -> None:
        self._client = client
        self._url = url
        self._key = api_key
        self._key_name = key_name
        self._provider = provider
        self._proxy = proxy
        self._headers = {"Content-Type": "application/json", **headers}

    async def stream_reply(self, call: ModelCall, body: bytes, reply: ReplyParser) -> AsyncGenerator[ReplyPart, None]:
        """Send the body and yield the parts that `reply` parses from the response."""
        response = await self._post_call(call, body)
        try:
            if response.status >= 300:
                raise await self._read_refusal(response, call)
            content = response.content
            try:
                while not reply.is_done and (data := await content.readany()):
                    for part in _merge_texts(reply.feed(data)):
                        yield part
                if not content.is_eof():
                    await _drain_response(content)
            except (aiohttp.ClientError, OSError) as error:
                if not reply.stop:
                    raise self.make_failure(f"broke off in the middle of its reply: {error}", retryable=True) from error
            for part in reply.finish_reply():
                yield part
        finally:
            # If the caller stops reading, this ends the call. A reply that was read to its end has already
            # returned its connection to the pool.
            response.close()

    def make_failure(
        self,
        what: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
        is_too_long: bool = False,
    ) -> OutsideFailed:
        message = f"{self._provider} {what}"
        if len(self._key) >= SHORTEST_SECRET:
            message = message.replace(self._key, f"[{self._key_name}]")
        return OutsideFailed(
            message, retryable=retryable, retry_after=retry_after, status=status, is_too_long=is_too_long
        )

    async def _post_call(self, call: ModelCall, body: bytes) -> aiohttp.ClientResponse:
        headers = {**self._headers, "Idempotency-Key": call.key} if call.key else self._headers
        # The client warns about large bodies that are written at once; a file is sent in parts.
        data = body if len(body) <= _LARGEST_WRITE else io.BytesIO(body)
        try:
            # Redirects are not followed: they may change the method and lead to any host.
            return await self._client().post(
                self._url, data=data, headers=headers, proxy=self._proxy, timeout=_TIMEOUT, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError) as error:
            raise self.make_failure(
                f"cannot be reached at {self._url.with_user(None).with_query(None)}: {error or type(error).__name__}",
                retryable=not isinstance(error, aiohttp.ClientSSLError),
            ) from error

    async def _read_refusal(self, response: aiohttp.ClientResponse, call: ModelCall) -> OutsideFailed:
        """Build the failure for an error response, with the provider's own message."""
        body = b""
        with suppress(aiohttp.ClientError, OSError):
            while len(body) < 2**16 and (data := await response.content.readany()):
                body += data
        document = _decode_error_body(body)
        words = (
            _find_error_message(document)
            or response.headers.get("Location")
            or response.reason
            or "no reason was given"
        )
        status = response.status
        if status not in (401, 403):
            what = f"answered {status} for the model {call.model}: {words}"
        elif self._key:
            what = f"answered {status} to the key in {self._key_name}: {words}"
        else:
            what = f"answered {status}, and there is no key in {self._key_name}: {words}"
        return self.make_failure(
            what,
            retryable=_is_transient(status) and not any(word in _read_error_codes(document) for word in _QUOTA_ERRORS),
            retry_after=parse_retry_after(response.headers.get("Retry-After", ""), now=datetime.now(UTC)),
            status=status,
            is_too_long=status in (400, 413, 422) and _is_too_long(_read_error_codes(document), words),
        )


def _merge_texts(pieces: Iterator[ReplyPart]) -> Iterator[ReplyPart]:
    """Yield the pieces with consecutive texts joined: texts from one read would be shown at the same moment anyway."""
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
    """Read what follows the end of the reply, for a short time, so that the connection can be reused."""
    with anyio.move_on_after(_DRAIN_SECONDS):
        while await content.readany():
            pass


def parse_server_url(base_url: str) -> URL:
    """Parse the address of a model server. Raise Mistake if it is not an HTTP URL."""
    try:
        url = URL(base_url.strip())
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise Mistake(f"{base_url!r} is not the URL of a model server; use one such as http://127.0.0.1:11434/v1")
    return url


def find_proxy(base_url: str) -> str | None:
    """Return the proxy that the environment sets for this address, if any."""
    url = URL(base_url)
    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)


def parse_retry_after(value: str, *, now: datetime) -> float | None:
    """Return the seconds to wait from a Retry-After header, which holds seconds or a date."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


# Provider errors

_PERMANENT_ERRORS = (
    "invalid",
    "auth",
    "permission",
    "not_found",
    "quota",
    "context_length",
    "content_filter",
    "billing",
    "too_large",
)
_QUOTA_ERRORS = ("insufficient_quota", "spend_limit")
"""Error codes of a 429 that a retry does not solve: the account has reached its spending limit."""


def make_stream_failure(make_failure: FailureFactory, error: Any) -> OutsideFailed:
    """Build the failure for an error that a server sends in the middle of a reply."""
    kind = _read_error_codes({"error": error})
    status = next((int(word) for word in kind.split() if len(word) == 3 and word.isdigit()), None)
    is_transient = (
        not any(word in kind for word in (*_PERMANENT_ERRORS, *_QUOTA_ERRORS))
        if status is None
        else _is_transient(status)
    )
    words = _find_error_message(error)
    is_too_long = _is_too_long(kind, words)
    return make_failure(
        f"broke off its reply: {words}",
        retryable=is_transient and not is_too_long,
        status=status,
        is_too_long=is_too_long,
    )


def _is_too_long(kind: str, words: str) -> bool:
    """Return whether the provider says that the conversation exceeds the model's context window."""
    return "context_length" in kind or _TOO_LONG.search(words) is not None


_TOO_LONG = re.compile(
    r"prompt is too long|context (length|window|size)|maximum context|too many (input )?tokens|input is too long",
    re.IGNORECASE,
)


def _is_transient(status: int) -> bool:
    """Return whether the same call may succeed a little later."""
    return status in (408, 409, 429) or status >= 500


def _decode_error_body(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except NOT_JSON:
        return body.decode(errors="replace")


def _find_error_message(document: Any) -> str:
    """Return the message in an error document, wherever the provider puts it."""
    while not isinstance(document, str):
        if isinstance(document, list) and document:
            document = document[0]
        elif isinstance(document, dict) and (key := next((key for key in _MESSAGE_KEYS if document.get(key)), None)):
            document = document[key]
        else:
            document = encode(document).decode() if document else ""
    return " ".join(document.split())[:LONGEST_QUOTE]


_MESSAGE_KEYS = ("error", "message", "detail", "msg")


def _read_error_codes(document: Any) -> str:
    """Return the codes and the type of a provider's error, in lower case."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return ""
    details = error.get("details")
    codes = [error.get(key) for key in ("code", "type", "status")]
    codes += [details.get("error_code")] if isinstance(details, dict) else []
    return " ".join(map(str, codes)).lower()
