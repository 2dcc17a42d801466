"""Encode errors as `application/problem+json`, with the message that the command line prints.

Errors from the OpenAI endpoint have the format of the OpenAI API, with the same message.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from litestar.openapi import ResponseSpec
from msgspec import UNSET, Struct, UnsetType

from ...protocols.client_runs import TooManyRuns
from ...protocols.openai_chat import ChatError, UnknownModel, build_error
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

ERRORS = {
    HTTPStatus.BAD_REQUEST: "A part of the request is invalid.",
    HTTPStatus.UNAUTHORIZED: "The token is missing or no longer valid.",
    HTTPStatus.FORBIDDEN: "The token lacks a scope, or the host or page is not allowed.",
    HTTPStatus.NOT_FOUND: "There is nothing with this id or name.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The request cannot be carried out.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "The store is damaged, or Podium has an error.",
    HTTPStatus.BAD_GATEWAY: "Another program or server failed.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store cannot be used.",
}
"""What the errors mean that every route can respond with."""
ERRORS_OF_ACTS = {
    HTTPStatus.CONFLICT: "The state of the run does not allow it, or a question must be agreed to first.",
    HTTPStatus.GONE: "The request for a decision is closed.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.TOO_MANY_REQUESTS: "There are too many attempts or runs at once.",
    HTTPStatus.INSUFFICIENT_STORAGE: "The disk is full.",
}


def find_status(error: BaseException, *, path: str = "") -> HTTPStatus:
    """Return the HTTP status for an error in a request for `path`."""
    status = next(
        (status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR
    )
    is_invalid = status == HTTPStatus.UNPROCESSABLE_ENTITY and path.startswith(OPENAI_PATH)
    return HTTPStatus.BAD_REQUEST if is_invalid else status


class Problem(Struct, frozen=True, kw_only=True):
    """An error. `detail` says what is wrong and what would work, and `errors` lists the invalid parts of a request."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: dict[str, Any] | list[Any] | UnsetType = UNSET


class ErrorBody(NamedTuple):
    """The body of an error response, and its media type."""

    body: bytes
    media_type: str


def encode_problem(
    status: int, detail: str, *, path: str, errors: dict[str, Any] | list[Any] | UnsetType = UNSET
) -> ErrorBody:
    """Return the body of an error response to a request for `path`."""
    if path.startswith(OPENAI_PATH):
        return ErrorBody(msgspec.json.encode(build_error(status, detail)), "application/json")
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors)
    return ErrorBody(msgspec.json.encode(problem), PROBLEM_TYPE)


def list_errors(path: str, *, is_read: bool) -> dict[int, ResponseSpec]:
    """Return the errors that a route can respond with, for the API's OpenAPI document."""
    shown, media_type = (ChatError, "application/json") if path.startswith(OPENAI_PATH) else (Problem, PROBLEM_TYPE)
    return {
        int(status): ResponseSpec(shown, generate_examples=False, description=meaning, media_type=media_type)
        for status, meaning in (ERRORS if is_read else ERRORS | ERRORS_OF_ACTS).items()
    }


def error_headers(error: ErrorBody) -> Iterable[tuple[bytes, bytes]]:
    """Return the headers of an error response."""
    return (
        (b"content-type", error.media_type.encode()),
        (b"content-length", str(len(error.body)).encode()),
        (b"cache-control", b"no-store"),
    )
