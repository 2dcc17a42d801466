"""Build the application: the routes of the API, the page, and the guard in front of both."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from litestar import Litestar, Request, Response, get
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components
from msgspec import UNSET, UnsetType

from .. import __version__
from ..values.errors import PodiumError, explain_full_disk
from ..values.plain_text import escape_unprintable
from .api.metrics import read_metrics
from .api.problem import encode_problem, find_status
from .api.request_guard import OPEN_PATHS, AsgiApp, RequestGuard
from .api.routes import (
    a2a_endpoint,
    catalogue,
    costs,
    events,
    groups,
    inbox,
    notifications,
    openai_endpoint,
    review,
    runs,
    sign_in,
    team_work,
    teams,
    workers,
)
from .api.schema_plugins import RowColumnsPlugin, StoredJsonPlugin
from .api.scopes import SECURITY_SCHEMES, document_routes, find_actor
from .api.server_context import ServerContext
from .api.server_log import report_trouble
from .dashboard.static_files import load_static_files, serve_file, serve_page

ROUTES = (
    *sign_in.ROUTES,
    *events.ROUTES,
    *inbox.ROUTES,
    *runs.ROUTES,
    *team_work.ROUTES,
    *teams.ROUTES,
    *workers.ROUTES,
    *review.ROUTES,
    *catalogue.ROUTES,
    *costs.ROUTES,
    *groups.ROUTES,
    *notifications.ROUTES,
    *openai_endpoint.ROUTES,
    *a2a_endpoint.ROUTES,
)


@get("/health", sync_to_thread=False)
def read_health() -> dict[str, str]:
    """Report that the server is running, with its version."""
    return {"status": "ok", "version": __version__}


def build_app(
    context: ServerContext, *, hosts: Collection[str], public_names: Collection[str] = (), is_tls: bool = False
) -> AsgiApp:
    """Return the ASGI application.

    It accepts only requests for `hosts` and for `public_names`, the names that a reverse proxy uses.
    """

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with context.open():
            yield

    static_files = load_static_files()
    app = Litestar(
        route_handlers=[read_health, read_metrics, *ROUTES, serve_page, serve_file],
        dependencies={
            "actor": Provide(find_actor, sync_to_thread=False),
            "server": Provide(lambda: context, sync_to_thread=False),
            "static_files": Provide(lambda: static_files, sync_to_thread=False),
        },
        exception_handlers={
            PodiumError: _handle_podium_error,
            HTTPException: _handle_http_error,
            RecursionError: _handle_deep_body,
            Exception: _handle_internal_error,
        },
        lifespan=[lifespan],
        plugins=[StoredJsonPlugin(), RowColumnsPlugin()],
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title="Podium",
            version=__version__,
            path="/api/schema",
            render_plugins=[JsonRenderPlugin()],
            components=Components(security_schemes=SECURITY_SCHEMES),
        ),
    )
    document_routes(app, OPEN_PATHS)
    return RequestGuard(
        app,  # type: ignore[arg-type]
        context.tokens,
        hosts,
        page_files=[f"/{name}" for name in static_files],
        public_names=public_names,
        is_tls=is_tls,
    )


def _handle_podium_error(request: Request[Any, Any, Any], error: PodiumError) -> Response[bytes]:
    """Return the response to a Podium error, with the message that the command line prints."""
    status = find_status(error, path=request.scope["path"])
    return _build_response(request, status, str(error))


def _handle_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Return the response to an error in the request itself, such as a missing field."""
    return _build_response(request, error.status_code, error.detail, headers=error.headers, errors=error.extra or UNSET)


def _handle_deep_body(request: Request[Any, Any, Any], _: RecursionError) -> Response[bytes]:
    """Return the response to JSON that is nested more deeply than the decoder allows."""
    return _build_response(request, 400, "the JSON is nested too deeply")


def _handle_internal_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return a response that contains only the type of an unexpected error, and print the traceback to stderr."""
    trace = "".join(traceback.format_exception(error))
    if full := explain_full_disk(error):
        return _build_response(request, HTTPStatus.INSUFFICIENT_STORAGE, full)
    report_trouble(f"{request.scope['method']} {escape_unprintable(request.scope['path'])}\n{trace}")
    why = f"internal error in Podium: {type(error).__name__}; podium serve printed the details"
    return _build_response(request, 500, why)


def _build_response(
    request: Request[Any, Any, Any],
    status: int,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    errors: dict[str, Any] | list[Any] | UnsetType = UNSET,
) -> Response[bytes]:
    error = encode_problem(status, detail, path=request.scope["path"], errors=errors)
    return Response(error.body, status_code=status, media_type=error.media_type, headers=headers)
