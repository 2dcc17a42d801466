"""What the wires over HTTP share: one streaming POST, and failures in the provider's words.

A wire says what to send and understands what comes back. Trying again, counting money and giving up
on silence belong to others.
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
"""A shorter key is a placeholder such as "x", and blotting it out would spoil every sentence."""

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30)
_DRAIN_SECONDS = 1.0
_LARGEST_WRITE = 2**20


# The call


class Endpoint:
    """The one address of a provider that is called. `client` gives the shared HTTP client, which is not ours to close.

    `proxy` is an argument because a client that looks for proxies itself (`trust_env`) also reads
    `.netrc` in a thread before every call, which costs several times the call.
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
        """Send the body and say what `reply` makes of the answer."""
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
            # Whoever stops listening hangs up. A reply that was read to its end has given its connection back already.
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
        # The client warns of a large body that is written at once; as a file it goes out in parts.
        data = body if len(body) <= _LARGEST_WRITE else io.BytesIO(body)
        try:
            # A redirect is not followed: it would turn the call into another one, and may lead anywhere.
            return await self._client().post(
                self._url, data=data, headers=headers, proxy=self._proxy, timeout=_TIMEOUT, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError) as error:
            raise self.make_failure(
                f"cannot be reached at {self._url.with_user(None).with_query(None)}: {error or type(error).__name__}",
                retryable=not isinstance(error, aiohttp.ClientSSLError),
            ) from error

    async def _read_refusal(self, response: aiohttp.ClientResponse, call: ModelCall) -> OutsideFailed:
        """Why there is no reply, in the provider's own words."""
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
    """The pieces, with text that came in one read as one: it would be shown at the same moment anyway."""
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
    """Read what follows the end of the reply, so that the connection can be used again; not for long."""
    with anyio.move_on_after(_DRAIN_SECONDS):
        while await content.readany():
            pass


def parse_server_url(base_url: str) -> URL:
    """The address of a model server. Raises Mistake for what is none."""
    try:
        url = URL(base_url.strip())
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise Mistake(f"{base_url!r} is no address of a model server; http://127.0.0.1:11434/v1 would be one")
    return url


def find_proxy(base_url: str) -> str | None:
    """The proxy that the environment names for this address."""
    url = URL(base_url)
    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)


def parse_retry_after(value: str, *, now: datetime) -> float | None:
    """The seconds that a Retry-After header asks for, whether it counts them or names a date."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


# What went wrong, in the provider's words

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
"""Kinds of a 429 that no waiting mends: the account has used up what it may spend."""


def make_stream_failure(make_failure: FailureFactory, error: Any) -> OutsideFailed:
    """The failure that a server tells of in a reply that had begun well."""
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
    """Whether the provider says that the conversation is more than its model can read."""
    return "context_length" in kind or _TOO_LONG.search(words) is not None


_TOO_LONG = re.compile(
    r"prompt is too long|context (length|window|size)|maximum context|too many (input )?tokens|input is too long",
    re.IGNORECASE,
)


def _is_transient(status: int) -> bool:
    """Whether the same call may succeed a little later."""
    return status in (408, 409, 429) or status >= 500


def _decode_error_body(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except NOT_JSON:
        return body.decode(errors="replace")


def _find_error_message(document: Any) -> str:
    """The sentence in an error, wherever the provider puts it."""
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
    """The provider's own codes and type of an error, in lower case."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return ""
    details = error.get("details")
    codes = [error.get(key) for key in ("code", "type", "status")]
    codes += [details.get("error_code")] if isinstance(details, dict) else []
    return " ".join(map(str, codes)).lower()
