"""Open, use and close a connection to an MCP server.

The SDK keeps task groups and cancel scopes open while a connection is open, and the task that opened them must close
them in reverse order. So each connection has its own task, `run`, which holds it open while other tasks make calls.
After the task has ended, the connection reports why it ended.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from math import inf
from typing import Any

import httpx2
import msgspec
from anyio import CancelScope, Event, Lock, create_task_group, current_time, move_on_after
from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .. import __version__
from ..core.engine import ToolAnswer
from ..values.errors import Mistake, find_first_error
from ..values.json import JsonObject
from ..values.plain_text import cut_middle, escape_unprintable, truncate_text
from .server_place import ServerPlace
from .server_process import ServerProcess, launch_server_process
from .server_table import McpServer, McpTimeouts, ResolvedServer, ServerUnavailable
from .tool_definition import ToolDefinition

CLOSE_SECONDS = 5.0
HTTP_ERROR = "Server returned an error response"
"""What the SDK says about most HTTP statuses."""
MOST_PAGES = 100

# Without a handler, the SDK's warnings would be printed in the middle of Podium's output.
for _name in ("mcp", "client", "httpx2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class ServerConnection:
    """A connection to a server. `review` is called with its tools, at the start and whenever they may have changed."""

    def __init__(
        self,
        server: McpServer,
        *,
        place: ServerPlace,
        limits: McpTimeouts,
        review: Callable[[list[ToolDefinition]], Awaitable[None]],
    ) -> None:
        self._server = server
        self._place = place
        self._limits = limits
        self._review = review
        self._resolved_server: ResolvedServer | None = None
        self._program: ServerProcess | None = None
        self._client: Client | None = None
        self._scope = CancelScope()
        self._start_finished = Event()
        self._end_requested = Event()
        self._ended = Event()
        self._may_have_changed = Event()
        self._is_watched = True
        self._listing = Lock()
        self._end_reason = ""
        self._http_error = ""
        """The status of the last HTTP response that was an error."""
        self._is_session_lost = False

    @property
    def is_over(self) -> bool:
        return self._ended.is_set() or self._end_requested.is_set()

    # The connection's task

    async def run(self) -> None:
        """Open the connection, and keep it open until the server closes it or `request_end` is called.

        Errors end the connection and are not raised.
        """
        self._scope.deadline = current_time() + self._limits.start
        try:
            with self._scope:
                self._resolved_server = self._server.resolve_variables(self._place.environ)
                async with (
                    self._open_transport(self._resolved_server.server) as transport,
                    self._build_client(transport) as client,
                ):
                    await self._review(await _list_tools(client))
                    self._scope.deadline = inf
                    self._client = client
                    self._start_finished.set()
                    await self._hold_open(client)
                    self._client = None
                    self._scope.deadline = current_time() + CLOSE_SECONDS
            if self._scope.cancelled_caught and not self._start_finished.is_set():
                self._end_reason = f"it did not answer within {self._limits.start:g} s"
        except Exception as error:
            # A server error ends only its own connection.
            self._end_reason = self._name_http_error(_explain_end(error))
        finally:
            self._client = None
            self._ended.set()
            self._start_finished.set()

    def request_end(self) -> None:
        """Ask the connection to close. If it is not open yet, cancel opening it."""
        if not self._start_finished.is_set():
            self._scope.cancel()
        self._end_requested.set()

    async def _hold_open(self, client: Client) -> None:
        async with create_task_group() as group:
            group.start_soon(self._watch_tool_changes, client)
            group.start_soon(self._refresh_on_change)
            await self._end_requested.wait()
            group.cancel_scope.cancel()

    async def _watch_tool_changes(self, client: Client) -> None:
        """Subscribe to tool changes. Before protocol version 2026-07-28, servers report them without a subscription."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed or client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._may_have_changed.set()
        except (MCPError, SubscriptionLost, TimeoutError):
            pass
        self._is_watched = False

    async def _refresh_on_change(self) -> None:
        """Review the tools as soon as the server reports a change, and not only when a tool is called."""
        while True:
            await self._may_have_changed.wait()
            try:
                await self.refresh_tools()
            except (MCPError, ValueError, RuntimeError, Mistake):
                # The review failed. The next tool call reviews the tools again, and fails if that review fails.
                return

    # Methods for other tasks

    async def wait_open(self) -> None:
        """Wait until the connection is open. Raise ServerUnavailable if it does not open."""
        await self._start_finished.wait()
        if self._client is None:
            raise await self._explain_unavailable()

    async def refresh_tools(self) -> None:
        """Review the tools if they may have changed since the last review."""
        async with self._listing:
            if self._client is None or not (self._may_have_changed.is_set() or not self._is_watched):
                return
            self._may_have_changed = Event()
            try:
                await self._review(await _list_tools(self._client))
            except BaseException:
                self._may_have_changed.set()
                raise

    async def call_tool(
        self, tool: str, arguments: JsonObject, *, is_callable: Callable[[], bool]
    ) -> ToolAnswer | None:
        """Call a tool and return its answer, or None if `is_callable` returns False.

        If the server's tools may have changed, they are reviewed first. If the call fails, the answer is an error.
        Raise ServerUnavailable if the connection is closed. If the call is cancelled, the server is notified and the
        connection stays open.
        """
        try:
            await self.refresh_tools()
            if not is_callable():
                return None
            if self._client is None:
                raise await self._explain_unavailable()
            return self._redact_answer(_convert_result(await self._client.call_tool(tool, dict(arguments))))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or self._is_session_lost or self._end_requested.is_set():
                raise await self._explain_unavailable() from error
            return self._redact_answer(self._build_error_answer(error))
        except (ValueError, RuntimeError, Mistake) as error:
            return self._redact_answer(self._build_error_answer(error))

    def _build_error_answer(self, error: Exception) -> ToolAnswer:
        why = self._name_http_error(truncate_text(str(error), 2000))
        text = f"The call to the MCP server {self._server.name} failed: {why}"
        return ToolAnswer(text=text, is_error=True)

    def _name_http_error(self, text: str) -> str:
        """Return the text of an error. If the SDK says only that there was an error, name the HTTP status instead."""
        return f"it answered with {self._http_error}" if text == HTTP_ERROR and self._http_error else text

    async def _explain_unavailable(self) -> ServerUnavailable:
        """Close the connection, and return an error that says why the server is not available."""
        self._end_requested.set()
        with move_on_after(CLOSE_SECONDS + 2 * self._limits.grace):
            await self._ended.wait()
        reason, output = self._end_reason, ""
        if self._program is not None:
            reason, output = reason or self._program.exit_reason, self._program.last_output
        text = f"{reason or 'its connection was closed'}{f'; its last output: {output}' if output else ''}"
        return ServerUnavailable(self._redact_text(text))

    def _redact_answer(self, answer: ToolAnswer) -> ToolAnswer:
        return ToolAnswer(text=self._redact_text(answer.text), is_error=answer.is_error)

    def _redact_text(self, text: str) -> str:
        return text if self._resolved_server is None else self._resolved_server.redact_secrets(text)

    # The transport

    def _build_client(self, transport: Any) -> AbstractAsyncContextManager[Client]:
        async def handle_message(message: IncomingMessage) -> None:
            if isinstance(message, ToolListChangedNotification):
                self._may_have_changed.set()

        info = Implementation(name="podium", version=__version__)
        # The SDK's cache is turned off, because a listing must show the current tools.
        return Client(nullcontext(transport), message_handler=handle_message, client_info=info, cache=None)

    @asynccontextmanager
    async def _open_transport(self, server: McpServer) -> AsyncIterator[Any]:
        if server.url:
            timeout = httpx2.Timeout(self._limits.start, read=max(300.0, self._limits.call))
            async with (
                httpx2.AsyncClient(
                    headers=server.headers, timeout=timeout, event_hooks={"response": [self._note_http_error]}
                ) as http,
                streamable_http_client(server.url, http_client=http) as streams,
            ):
                yield streams
            return
        opening = self._place.open_program(server, _filter_environment(self._place.environ))
        async with launch_server_process(
            opening, grace=self._limits.grace, on_disconnect=self._end_requested.set
        ) as program:
            self._program = program
            yield program.read_stream, program.write_stream

    async def _note_http_error(self, response: httpx2.Response) -> None:
        if response.status_code < 400:
            return
        hint = "; check the headers in its definition" if response.status_code in (401, 403) else ""
        self._http_error = f"HTTP status {response.status_code}{hint}"
        # Servers send the reason in different words. According to the protocol, the status alone says it.
        if response.status_code == 404 and MCP_SESSION_ID in response.request.headers:
            self._is_session_lost, self._end_reason = True, "it has ended the session"


def _filter_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the few environment variables that a server program inherits. They contain no keys or tokens."""
    return {
        name: environ[name]
        for name in DEFAULT_INHERITED_ENV_VARS
        # A value that starts with "()" is a shell function that an old version of bash exported.
        if name in environ and not environ[name].startswith("()")
    }


async def _list_tools(client: Client) -> list[ToolDefinition]:
    if client.server_capabilities.tools is None:
        return []
    tools: list[ToolDefinition] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [_build_definition(tool) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _build_definition(tool: Tool) -> ToolDefinition:
    hints = tool.annotations
    return ToolDefinition(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.input_schema,
        is_read_only=bool(hints and hints.read_only_hint),
        is_idempotent=bool(hints and hints.idempotent_hint),
    )


def _explain_end(error: Exception) -> str:
    """Return why a connection ended, or "" if the error says only that the connection was closed."""
    first = find_first_error(error)
    if isinstance(first, MCPError) and first.code == CONNECTION_CLOSED:
        return ""
    if isinstance(first, Mistake):
        return str(first)
    if isinstance(first, OSError):
        return f"it cannot be started: {first.strerror or first}"
    if isinstance(first, httpx2.HTTPError):
        return f"it cannot be reached: {escape_unprintable(truncate_text(str(first) or type(first).__name__, 300))}"
    return escape_unprintable(truncate_text(f"{first}" or type(first).__name__, 500))


LONGEST = 256 * 1024


def _convert_result(result: CallToolResult) -> ToolAnswer:
    """Convert a result to an answer. Images, audio and resources are described instead of included."""
    parts = [_describe_block(block) for block in result.content]
    has_text = any(isinstance(block, TextContent) and block.text for block in result.content)
    if not has_text and result.structured_content is not None:
        parts.insert(0, msgspec.json.encode(result.structured_content).decode())
    text = "\n".join(part for part in parts if part) or "(nothing)"
    return ToolAnswer(text=cut_middle(text, LONGEST), is_error=bool(result.is_error))


def _describe_block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return (
                f"[an image, {_format_mime_type(block.mime_type)}, "
                f"{_count_decoded_bytes(block.data):,} bytes, not shown]"
            )
        case AudioContent():
            return (
                f"[audio, {_format_mime_type(block.mime_type)}, {_count_decoded_bytes(block.data):,} bytes, not shown]"
            )
        case ResourceLink():
            return f"[a link to the resource {escape_unprintable(truncate_text(block.uri, 500))}]"
        case EmbeddedResource(resource=inner):
            size = (
                _count_decoded_bytes(inner.blob)
                if isinstance(inner, BlobResourceContents)
                else len(inner.text.encode())
            )
            return (
                f"[the resource {escape_unprintable(truncate_text(inner.uri, 500))}, "
                f"{_format_mime_type(inner.mime_type)}, {size:,} bytes, not shown]"
            )


def _format_mime_type(mime_type: str | None) -> str:
    return escape_unprintable(truncate_text(mime_type or "of unknown type", 100))


def _count_decoded_bytes(data: str) -> int:
    """Return the number of bytes that a base64 string encodes."""
    return len(data.rstrip("=")) * 3 // 4
