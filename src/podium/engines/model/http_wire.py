"""Send streaming POST requests for the HTTP adapters, and build failures that quote the provider's message.

An adapter builds the request and supplies the reply format. If the server sends nothing for too long, the request
fails. Retries and costs are handled elsewhere.

Providers put the time at which a limit resets in different places: in Retry-After, in rate limit headers, in a field of
the error, or only in its message.
"""

from __future__ import annotations

import io
import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio
import msgspec
from yarl import URL

from ...core.engine import Reasoning, Text
from ...values.errors import Mistake, OutsideFailed
from ...values.json import JsonObject
from .model_prices import suggest_models
from .model_wire import ModelCall, ReplyPart, estimate_call_size
from .providers import LOCAL, describe_stopped_server
from .retry_policy import parse_error_body
from .stream_events import ReplyParser, StreamFormat, encode

LIMIT_STATUSES = (402, 403, 413, 429, 503, 529)
"""The response statuses that can indicate a limit. Rate limit headers of other responses are ignored."""
EPOCH = 1_000_000_000.0
"""The threshold above which a number of seconds is a Unix timestamp and not a duration."""
_RATE_RESET = re.compile(r"(?:x-|anthropic-)?ratelimit-(?:reset(?P<kind>-[a-z-]+)?|(?P<start>[a-z-]+)-reset)$")
_DURATION = re.compile(
    r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+)ms)?"
)
_TRY_AGAIN = re.compile(
    r"(?:try|retry|resets?|available)\s+(?:again\s+)?in\s+((?:\d+(?:\.\d+)?(?:ms|[dhms])\s?)+)", re.I
)
_BODY_TIMES = ("resets_at", "reset_at", "resetsAt", "reset_time")
_BODY_SECONDS = ("resets_in_seconds", "retry_after", "retry_after_seconds", "retryDelay", "retry_delay")


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
        self, call: ModelCall, payload: JsonObject, reply_format: StreamFormat
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


def find_reset_seconds(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> float | None:
    """Return the number of seconds until the provider accepts the call again, or None if the response does not say.

    The header names in `headers` are in lower case. Retry-After takes precedence, then the headers of the limits that
    are used up, then the error itself.
    """
    if (told := _read_retry_after(headers, now)) is not None:
        return told
    if status not in LIMIT_STATUSES:
        return None
    found = list(_iter_exhausted(headers, now)) or list(_iter_body_times(body, now))
    return max(found, default=None)


def parse_retry_after(value: str, *, now: datetime) -> float | None:
    """Return the seconds to wait according to a Retry-After header (seconds or a date), or None if it is invalid."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _parse_reset(value: Any, now: float) -> float | None:
    """Return the number of seconds until a reset, or None if `value` is invalid.

    `value` is a number of seconds, a duration such as 6m0s, or the time of the reset.
    """
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        return _parse_duration(text) if text[-1:] in ("s", "m", "h", "d") else _parse_time(text, now)
    if not math.isfinite(number):
        return None
    while number > 100 * EPOCH:  # milliseconds, or even smaller units
        number /= 1000
    return max(number - now if number > EPOCH else number, 0.0)


def _read_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    if (milliseconds := headers.get("retry-after-ms")) is not None:
        exact = parse_retry_after(milliseconds, now=datetime.fromtimestamp(now, UTC))
        if exact is not None:
            return exact / 1000
    value = headers.get("retry-after")
    return None if value is None else parse_retry_after(value, now=datetime.fromtimestamp(now, UTC))


def _iter_exhausted(headers: Mapping[str, str], now: float) -> Iterator[float]:
    """Yield the number of seconds until each used-up limit resets. Limits that are not used up are skipped."""
    for name, value in headers.items():
        if (match := _RATE_RESET.match(name)) is None:
            continue
        kind = match["kind"] or ""
        remaining = headers.get(
            name.removesuffix("-reset") + "-remaining"
            if match["start"]
            else name.removesuffix(f"reset{kind}") + f"remaining{kind}"
        )
        is_rejected = headers.get(name.removesuffix("-reset") + "-status") == "rejected"
        is_only = not match["start"] and not kind and remaining is None
        if remaining in ("0", "0.0") or is_rejected or is_only:
            seconds = _parse_reset(value, now)
            if seconds is not None:
                yield seconds


def _iter_body_times(body: bytes, now: float) -> Iterator[float]:
    """Yield the number of seconds until each reset time in the fields or the message of an error response's body."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = body.decode(errors="replace")
    for holder in _iter_objects(document):
        named = {str(key).lower(): value for key, value in holder.items()}
        for key in (*_BODY_TIMES, *_BODY_SECONDS):
            if (seconds := _parse_reset(named.get(key.lower()), now)) is not None:
                yield seconds
        if isinstance(inner := named.get("headers"), dict):
            yield from _iter_exhausted({str(key).lower(): str(value) for key, value in inner.items()}, now)
    for match in _TRY_AGAIN.finditer(body.decode(errors="replace")):
        if (seconds := _parse_duration(match[1])) is not None:
            yield seconds


def _iter_objects(document: Any, depth: int = 4) -> Iterator[dict[Any, Any]]:
    """Yield the objects in a JSON document, down to a fixed depth: no provider nests its errors more deeply."""
    if isinstance(document, dict):
        yield document
    children = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    for child in children if depth else ():
        yield from _iter_objects(child, depth - 1)


def _parse_duration(text: str) -> float | None:
    """Return the number of seconds in a duration such as 1h2m3.5s, 20ms or 2m, or None if the text is not one."""
    match = _DURATION.fullmatch("".join(text.split()))
    if match is None or not any(match.groupdict().values()):
        return None
    parts = {unit: float(value or 0) for unit, value in match.groupdict().items()}
    return parts["d"] * 86_400 + parts["h"] * 3_600 + parts["m"] * 60 + parts["s"] + parts["ms"] / 1000


def _parse_time(text: str, now: float) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now, 0.0)
