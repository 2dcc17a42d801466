"""Check that a request's token has the scope that a route needs."""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import PermissionDeniedException
from litestar.handlers.base import BaseRouteHandler

from .access_tokens import AccessToken, Scope

Connection = ASGIConnection[Any, Any, Any, Any]
ApiRequest = Request[Any, Any, Any]


def get_token(connection: Connection) -> AccessToken:
    """Return the access token of a request. The `RequestGuard` middleware has already validated the token."""
    token = connection.scope["state"]["token"]
    assert isinstance(token, AccessToken)
    return token


def _require(scope: Scope, connection: Connection) -> None:
    token = get_token(connection)
    if scope not in token.scopes:
        has = ", ".join(token.scopes) or "none"
        raise PermissionDeniedException(f"this needs a token with the scope {scope}; yours has {has}")


def may_read(connection: Connection, handler: BaseRouteHandler) -> None:
    """Require the scope `read`."""
    _require("read", connection)


def may_act(connection: Connection, handler: BaseRouteHandler) -> None:
    """Require the scope `act`."""
    _require("act", connection)


def may_approve(connection: Connection, handler: BaseRouteHandler) -> None:
    """Require the scope `approve`."""
    _require("approve", connection)
