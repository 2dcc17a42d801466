"""Pass requests from an agent's process to the session whose token they carry.

Several sessions can share a process, and the process reaches Podium at one address. A request without a token, or with
one that belongs to none of these sessions, is refused and recorded.

Each session has its own application, which only the session's agent can reach. Each request must carry the session's
token. A request without a token, or with a wrong one, is refused and recorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from ... import __version__
from .coordination_session import SERVER_NAME, WAIT_SCHEMA, WAIT_TOOL, CoordinationSession

LARGEST_REQUEST = 512 * 1024


PATH = "/mcp"
"""The path where every session's tools are served."""
SCHEME = "bearer "
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class CoordinationRouter:
    """The ASGI application for one agent process. It serves all sessions of the process."""

    def __init__(self) -> None:
        self._applications: dict[CoordinationSession, Application] = {}

    @contextmanager
    def add_session(self, session: CoordinationSession, application: Application) -> Iterator[None]:
        """Route a session's requests to its application for the duration of the block."""
        self._applications[session] = application
        try:
            yield
        finally:
            del self._applications[session]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        session = _find_session(self._applications, scope)
        if session is None:
            await _refuse_request(self._applications, scope, send)
        else:
            await self._applications[session](scope, receive, send)


def _find_session(sessions: Iterable[CoordinationSession], scope: Message) -> CoordinationSession | None:
    """Return the session whose token a request carries, or None."""
    given = _read_authorization(scope)
    if len(given) != 1 or not given[0].lower().startswith(SCHEME):
        return None
    token = given[0][len(SCHEME) :].strip()
    return next((session for session in sessions if session.has_token(token)), None)


async def _refuse_request(sessions: Iterable[CoordinationSession], scope: Message, send: Send) -> None:
    """Refuse a request that carries no valid token, and record the refusal.

    The refusal is recorded for every session with an open turn, or for all sessions if no turn is open, because the
    sender of the request is unknown.
    """
    status, reason = 401, "the request has no token"
    if _read_authorization(scope):
        status, reason = 403, "the token does not belong to this agent's session"
    known = list(sessions)
    for session in [session for session in known if session.is_at_work] or known:
        session.record_refusal(f"a call to the coordination tools was refused: {reason}")
    await answer_error(send, status, reason)


async def answer_error(send: Send, status: int, reason: str) -> None:
    """Answer a request with an error."""
    body = msgspec.json.encode({"error": reason})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _read_authorization(scope: Message) -> list[str]:
    return [value.decode("latin-1").strip() for name, value in scope["headers"] if name == b"authorization"]


@asynccontextmanager
async def open_coordination_service(session: CoordinationSession) -> AsyncIterator[Application]:
    """Yield an ASGI application that serves the session's tools to its agent, at the path PATH."""
    manager = StreamableHTTPSessionManager(
        _build_server(session), json_response=True, stateless=True, max_request_body_size=LARGEST_REQUEST
    )

    async def answer_request(scope: Message, receive: Receive, send: Send) -> None:
        if _find_session([session], scope) is None:
            await _refuse_request([session], scope, send)
        elif scope["path"] != PATH:
            await answer_error(send, 404, f"unknown path; use {PATH}")
        elif scope["method"] != "POST":
            # Every message answers a POST: there is no stream to open with GET, and no session to end with DELETE.
            await answer_error(send, 405, "only POST is supported")
        else:
            await manager.handle_request(scope, receive, send)

    async with manager.run():
        yield answer_request


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
            description="Continue waiting for a call that has not finished yet.",
            input_schema=WAIT_SCHEMA,
        )
        return types.ListToolsResult(tools=[*offered, waiting])

    async def call_tool(context: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await session.call_tool(asked.name, asked.arguments or {})
        return types.CallToolResult(content=[types.TextContent(text=answer.text)], is_error=answer.is_error)

    return Server(
        SERVER_NAME,
        version=__version__,
        instructions="Tools to report to the person and to work with the other members of your team.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
