"""Serve the coordination tools of agent sessions over MCP, as an ASGI application.

Each session has its own application, which only the session's agent can reach. Each request must carry the session's
token. A request without a token, or with a wrong one, is refused and recorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from ... import __version__
from .coordination_session import WAIT_SCHEMA, WAIT_TOOL, CoordinationSession

PATH = "/mcp"
SCHEME = "bearer "
LARGEST_REQUEST = 512 * 1024

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


@asynccontextmanager
async def open_coordination_service(session: CoordinationSession) -> AsyncIterator[Application]:
    """Yield the application through which a session's agent calls the session's tools, at PATH."""
    manager = StreamableHTTPSessionManager(
        _build_server(session), json_response=True, stateless=True, max_request_body_size=LARGEST_REQUEST
    )

    async def answer_request(scope: Message, receive: Receive, send: Send) -> None:
        if (refusal := _find_refusal(session, scope)) is not None:
            status, reason = refusal
            session.record_refusal(f"a call to the coordination tools was refused: {reason}")
            await _answer_error(send, status, reason)
        elif scope["path"] != PATH:
            await _answer_error(send, 404, f"unknown path; use {PATH}")
        elif scope["method"] != "POST":
            # Every message answers a POST: there is no stream to open with GET, and no session to end with DELETE.
            await _answer_error(send, 405, "only POST is supported")
        else:
            await manager.handle_request(scope, receive, send)

    async with manager.run():
        yield answer_request


def _find_refusal(session: CoordinationSession, scope: Message) -> tuple[int, str] | None:
    """Return the status and the reason if a request must be refused."""
    given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
    if not given:
        return 401, "the request has no token"
    text = given[0].strip()
    is_bearer = text.lower().startswith(SCHEME)
    if len(given) > 1 or not is_bearer or not session.has_token(text[len(SCHEME) :].strip()):
        return 403, "the token does not belong to this agent's session"
    return None


def _build_server(session: CoordinationSession) -> Server[Any]:
    async def list_tools(
        context: ServerRequestContext[Any], asked: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        session.note_listed()
        offered = [
            types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)
            for tool in session.tools
        ]
        waiting = types.Tool(
            name=WAIT_TOOL,
            description="Continue waiting for a call that was not finished yet.",
            input_schema=WAIT_SCHEMA,
        )
        return types.ListToolsResult(tools=[*offered, waiting])

    async def call_tool(context: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await session.call_tool(asked.name, asked.arguments or {})
        return types.CallToolResult(content=[types.TextContent(text=answer.text)], is_error=answer.is_error)

    return Server(
        "podium",
        version=__version__,
        instructions="Tools to report to the person and to work with the other members of your team.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _answer_error(send: Send, status: int, reason: str) -> None:
    body = msgspec.json.encode({"error": reason})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
