"""Serve the coordination tools of agent sessions over MCP, as an ASGI application.

Each session has its own application, which only the session's agent can reach. Each request must carry the session's
token. A request without a token, or with a wrong one, is refused and recorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from ... import __version__
from .coordination_router import PATH, Application, Message, Receive, Send, answer_error, find_session, refuse_request
from .coordination_session import SERVER_NAME, WAIT_SCHEMA, WAIT_TOOL, CoordinationSession

LARGEST_REQUEST = 512 * 1024


@asynccontextmanager
async def open_coordination_service(session: CoordinationSession) -> AsyncIterator[Application]:
    """Yield an ASGI application that serves the session's tools to its agent, at the path PATH."""
    manager = StreamableHTTPSessionManager(
        _build_server(session), json_response=True, stateless=True, max_request_body_size=LARGEST_REQUEST
    )

    async def answer_request(scope: Message, receive: Receive, send: Send) -> None:
        if find_session([session], scope) is None:
            await refuse_request([session], scope, send)
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
