"""Parse provider errors, and decide whether the same call may succeed later."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from ...values.errors import OutsideFailed

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


_MESSAGE_KEYS = ("error", "message", "detail", "msg")


def _find_error_codes(document: Any) -> str:
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return ""
    details = error.get("details")
    codes = [error.get(key) for key in ("code", "type", "status")]
    codes += [details.get("error_code")] if isinstance(details, dict) else []
    return " ".join(map(str, codes)).lower()
