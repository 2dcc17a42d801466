"""Errors as `application/problem+json`, with the sentence that the command line prints."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

import msgspec

from ...values.errors import (
    AlreadyAnswered,
    JournalMismatch,
    LeaseLost,
    Mistake,
    NoSuchRun,
    OutsideFailed,
    RequestClosed,
    RunHeld,
    RunIsPaused,
    RunOver,
    StoreCorrupt,
    StoreFailed,
)

PROBLEM_TYPE = "application/problem+json"

# The first match wins.
_STATUS_BY_ERROR: tuple[tuple[type[BaseException], HTTPStatus], ...] = (
    (NoSuchRun, HTTPStatus.NOT_FOUND),
    (RunOver, HTTPStatus.CONFLICT),
    (RunIsPaused, HTTPStatus.CONFLICT),
    (Mistake, HTTPStatus.UNPROCESSABLE_ENTITY),
    (AlreadyAnswered, HTTPStatus.CONFLICT),
    (RequestClosed, HTTPStatus.GONE),
    (RunHeld, HTTPStatus.CONFLICT),
    (LeaseLost, HTTPStatus.CONFLICT),
    (OutsideFailed, HTTPStatus.BAD_GATEWAY),
    (StoreCorrupt, HTTPStatus.INTERNAL_SERVER_ERROR),
    (StoreFailed, HTTPStatus.SERVICE_UNAVAILABLE),
    (JournalMismatch, HTTPStatus.INTERNAL_SERVER_ERROR),
)


def find_status(error: BaseException) -> HTTPStatus:
    """Return the HTTP status for an error."""
    return next(
        (status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR
    )


def encode_problem(status: int, detail: str, **more: object) -> bytes:
    """Return the body of an error response."""
    return msgspec.json.encode(
        {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    )


def problem_headers(body: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Return the headers of an error response."""
    return (
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    )
