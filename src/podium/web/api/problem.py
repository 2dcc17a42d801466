"""Encode errors as `application/problem+json`, with the message that the command line prints.

Errors from the OpenAI endpoint have the format of the OpenAI API, with the same message.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from ...protocols.client_runs import TooManyRuns
from ...protocols.openai_chat import UnknownModel, error_fields
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
OPENAI_PATH = "/v1/"

# The first match wins.
_STATUS_BY_ERROR: tuple[tuple[type[BaseException], HTTPStatus], ...] = (
    (NoSuchRun, HTTPStatus.NOT_FOUND),
    (UnknownModel, HTTPStatus.NOT_FOUND),
    (TooManyRuns, HTTPStatus.TOO_MANY_REQUESTS),
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


def find_status(error: BaseException, *, path: str = "") -> HTTPStatus:
    """Return the HTTP status for an error in a request for `path`."""
    status = next(
        (status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR
    )
    is_invalid = status == HTTPStatus.UNPROCESSABLE_ENTITY and path.startswith(OPENAI_PATH)
    return HTTPStatus.BAD_REQUEST if is_invalid else status


class ErrorBody(NamedTuple):
    """The body of an error response, and its media type."""

    body: bytes
    media_type: str


def encode_problem(status: int, detail: str, *, path: str, **more: object) -> ErrorBody:
    """Return the body of an error response to a request for `path`."""
    if path.startswith(OPENAI_PATH):
        return ErrorBody(msgspec.json.encode(error_fields(status, detail)), "application/json")
    fields = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return ErrorBody(msgspec.json.encode(fields), PROBLEM_TYPE)


def error_headers(error: ErrorBody) -> Iterable[tuple[bytes, bytes]]:
    """Return the headers of an error response."""
    return (
        (b"content-type", error.media_type.encode()),
        (b"content-length", str(len(error.body)).encode()),
        (b"cache-control", b"no-store"),
    )
