"""Check that a request's token has the scope that a route needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litestar import Litestar, Request
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import HTTPRouteHandler
from litestar.handlers.base import BaseRouteHandler
from litestar.openapi.spec import SecurityScheme
from litestar.routes import HTTPRoute
from litestar.types import Guard

from ...values.actor import AccessScope, Actor, get_scope
from .access_tokens import AccessToken
from .problem import list_errors
from .route_parameters import Server

Connection = ASGIConnection[Any, Any, Any, Any]
ApiRequest = Request[Any, Any, Any]

SECURITY_SCHEME = "token"
SECURITY_SCHEMES: dict[str, Any] = {SECURITY_SCHEME: SecurityScheme(type="http", scheme="bearer")}


def get_token(connection: Connection) -> AccessToken:
    """Return the access token of a request. The `RequestGuard` middleware has already validated the token."""
    token = connection.scope["state"].get("token")
    if not isinstance(token, AccessToken):
        raise NotAuthorizedException("this needs a token")
    return token


def find_actor(request: ApiRequest, server: Server) -> Actor:
    """Return who sends a request: the server's user, on the page or through the API."""
    return Actor(name=server.user, channel=get_token(request).channel)


def require_scope(connection: Connection, scope: AccessScope, *, to: str = "this") -> None:
    """Raise PermissionDeniedException unless the request's token has a scope. `to` says what needs it."""
    token = get_token(connection)
    if scope not in token.scopes:
        has = ", ".join(token.scopes) or "none"
        raise PermissionDeniedException(f"{to} needs a token with the scope {scope}; yours has {has}")


def may_read(connection: Connection, handler: BaseRouteHandler) -> None:
    """Require the scope `read`."""
    require_scope(connection, "read")


def may_act(connection: Connection, handler: BaseRouteHandler) -> None:
    """Require the scope `act`."""
    require_scope(connection, "act")


def may_approve(connection: Connection, handler: BaseRouteHandler) -> None:
    """Require the scope `approve`."""
    require_scope(connection, "approve")


def may(act: Callable[..., object]) -> Guard:
    """Return the guard that requires the scope of an act."""
    return next(guard for guard, scope in SCOPE_OF_GUARD.items() if scope == get_scope(act))


SCOPE_OF_GUARD: dict[Guard, AccessScope] = {may_read: "read", may_act: "act", may_approve: "approve"}


def document_routes(app: Litestar, open_paths: frozenset[str]) -> None:
    """Add the scope that each route needs, and the errors that it can respond with, to the API's OpenAPI document.

    Raise TypeError for a documented route that checks no scope, unless its path is one of `open_paths`.
    """
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        for handler, _ in route.route_handler_map.values():
            scopes = _list_scopes(handler)
            if not scopes and handler.resolve_include_in_schema() and route.path not in open_paths:
                raise TypeError(f"the route {route.path} checks no scope; add a guard such as may_read")
            handler.security = [{SECURITY_SCHEME: scopes}] if scopes else None
            handler.responses = list_errors(route.path, is_read="GET" in handler.http_methods)


def _list_scopes(handler: HTTPRouteHandler) -> list[str]:
    return [SCOPE_OF_GUARD[guard] for guard in handler.guards or () if guard in SCOPE_OF_GUARD]
