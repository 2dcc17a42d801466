"""Determine when the limit that a call has reached will reset, based on the error response.

Providers put the time in different places: in Retry-After, in rate limit headers, in a field of the error, or only in
its message. All functions are pure; the time is an argument.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

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


def parse_reset(value: Any, now: float) -> float | None:
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
            seconds = parse_reset(value, now)
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
            if (seconds := parse_reset(named.get(key.lower()), now)) is not None:
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
