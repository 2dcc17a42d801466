"""Decide what follows a failed model call: whether and when it is retried, and which model is called next.

The next model is the first of the agent's models that is neither missing nor at its limit.


After a crash, the attempts on the timeline determine the choice; the limits known to this process only help avoid
futile calls.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from anyio import sleep
from msgspec import Struct

from ...values.errors import OutsideFailed
from ...values.event import CallFailed
from .provider_throttle import ProviderThrottle

LONGEST_QUOTE = 600
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
FailureFactory = Callable[..., OutsideFailed]
"""Builds a provider failure, with the provider's name in front of the message and its key redacted."""
_PERMANENT = re.compile(
    "invalid|auth|permission|not_found|quota|context_length|content_filter|billing|too_large|spend_limit"
)
_QUOTA = re.compile("insufficient_quota|spend_limit")
"""Error codes in 429 responses after which a retry is pointless, because the account has reached its spending limit."""
_TOO_LONG = re.compile(
    r"prompt is too long|context (length|window|size)|maximum context|too many (input )?tokens|input is too long",
    re.IGNORECASE,
)
_NO_SUCH_MODEL = re.compile(
    r"\bmodel\b.*\b(not (found|exist)|unknown|unavailable)|\b(invalid|unknown|no such) model\b|not a valid model",
    re.IGNORECASE,
)


class ProviderError(Struct, frozen=True):
    """An error document: its message, and its codes and type in lower case."""

    words: str
    codes: str

    @property
    def is_too_long(self) -> bool:
        """Whether the provider says that the conversation exceeds the model's context window."""
        return "context_length" in self.codes or _TOO_LONG.search(self.words) is not None

    def is_unknown_model(self, status: int) -> bool:
        """Return whether the provider says that it has no model with this name."""
        if status == 404:
            return re.search(r"\bmodel", self.words, re.IGNORECASE) is not None
        is_said = "model_not_found" in self.codes or _NO_SUCH_MODEL.search(self.words) is not None
        return status in (400, 422) and is_said

    def is_transient(self, status: int | None) -> bool:
        """Return whether the same call may succeed a little later."""
        if status is None:
            return not _PERMANENT.search(self.codes)
        return (status in (408, 409, 429) or status >= 500) and not _QUOTA.search(self.codes)


_MESSAGE_KEYS = ("error", "message", "detail", "msg")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Decides how many times a call is retried after a transient failure, and how long to wait before each retry."""

    max_retries: int = 5
    first_delay: float = 1.0
    longest_delay: float = 30.0
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = sleep

    def next_delay(self, attempt: int, error: OutsideFailed) -> float | None:
        """Return the seconds before the next attempt, or None for no retry. A provider's Retry-After is respected.

        A call that failed because the server sent nothing is retried only once, because every attempt takes minutes.
        """
        if not error.retryable or attempt > (1 if error.is_silent else self.max_retries):
            return None
        if error.retry_after is not None:
            return error.retry_after
        return min(self.first_delay * 2.0 ** (attempt - 1), self.longest_delay) * (0.5 + self.jitter() / 2)


class ModelCandidate(Protocol):
    """A model that can be called.

    If `is_for_limits` is true, it is used only when an earlier model is at its limit. If `is_for_unknown` is true, it
    is used only when the provider of an earlier model has no such model.
    """

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    @property
    def throttle(self) -> ProviderThrottle: ...

    @property
    def is_for_limits(self) -> bool: ...

    @property
    def is_for_unknown(self) -> bool: ...


class ModelCandidates:
    """The models of one agent, in the order they are tried."""

    def __init__(self, models: Sequence[ModelCandidate]) -> None:
        self._models = models
        self._unknown: set[int] = set()
        """The indices of models that their providers do not offer. These models are not tried again."""

    def find_first(self) -> int:
        """Return the index of the model to try first. If all models are at their limits, this is the first model."""
        known = [place for place in range(len(self._models)) if place not in self._unknown]
        limited = self._find_limited()
        return next(self._iter_allowed(known, limited), known[0] if known else 0)

    def find_recorded(self, outcome: CallFailed, expected: int) -> int:
        """Return the index of the model whose failure is on the timeline, or `expected` if that model is not listed."""
        found = [
            place
            for place, model in enumerate(self._models)
            if model.name == outcome.model and outcome.provider in ("", model.provider)
        ]
        return expected if expected in found or not found else found[0]

    def mark_unknown(self, place: int) -> None:
        """Record that the provider of a model does not offer it."""
        self._unknown.add(place)

    def find_next(self, failed: int, limited: dict[int, float]) -> int | None:
        """Return the index of the model to try next, or None if no model is left.

        `failed` is the index of the model whose call failed. `limited` maps the index of each model that reached its
        limit during this call to the time when the limit resets. Other models that are known to be at their limits are
        added to `limited`. If only such models are left, return the index of the one whose limit resets first.
        """
        for place, until in self._find_limited().items():
            limited.setdefault(place, until)
        left = [place for place in range(failed + 1, len(self._models)) if place not in self._unknown]
        following = next(self._iter_allowed(left, limited), None)
        if following is not None or not limited:
            return following
        waiting = {place: until for place, until in limited.items() if place not in self._unknown}
        return min(waiting, key=lambda place: (waiting[place], place), default=None)

    def _find_limited(self) -> dict[int, float]:
        now = time.time()
        found = {place: model.throttle.find_limit(model.name).until for place, model in enumerate(self._models)}
        return {place: until for place, until in found.items() if until > now}

    def _iter_allowed(self, places: Sequence[int], limited: dict[int, float]) -> Iterator[int]:
        for place in places:
            model = self._models[place]
            if place in limited or (model.is_for_limits and not limited):
                continue
            if self._unknown or not model.is_for_unknown:
                yield place


def parse_error_body(body: bytes) -> ProviderError:
    """Parse the body of an error response, whether it is JSON or not."""
    try:
        return _read_error(msgspec.json.decode(body))
    except NOT_JSON:
        return _read_error(body.decode(errors="replace"))


def make_stream_failure(make_failure: FailureFactory, error: Any) -> OutsideFailed:
    """Build the failure for an error that a server sends in the middle of a reply."""
    found = _read_error({"error": error})
    status = next((int(word) for word in found.codes.split() if len(word) == 3 and word.isdigit()), None)
    return make_failure(
        f"aborted its reply: {found.words}",
        retryable=found.is_transient(status) and not found.is_too_long,
        status=status,
        is_too_long=found.is_too_long,
    )


def _read_error(document: Any) -> ProviderError:
    return ProviderError(_find_error_message(document), _find_error_codes(document))


def _find_error_message(document: Any) -> str:
    """Return the message in an error document, wherever the provider puts it."""
    while not isinstance(document, str):
        if isinstance(document, list) and document:
            document = document[0]
        elif isinstance(document, dict) and (key := next((key for key in _MESSAGE_KEYS if document.get(key)), None)):
            document = document[key]
        else:
            document = msgspec.json.encode(document).decode() if document else ""
    return " ".join(document.split())[:LONGEST_QUOTE]


def _find_error_codes(document: Any) -> str:
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return ""
    details = error.get("details")
    codes = [error.get(key) for key in ("code", "type", "status")]
    codes += [details.get("error_code")] if isinstance(details, dict) else []
    return " ".join(map(str, codes)).lower()
