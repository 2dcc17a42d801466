"""One connection to an MCP server, from its start to its end.

The SDK holds task groups and cancel scopes while a connection is open, and those must end in the
task and in the order in which they began. So a connection is held by a task of its own, `run`, and
everybody else calls through it. How it ended, and why, it tells afterwards.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from math import inf
from pathlib import Path
from typing import Any

import httpx2
from anyio import CancelScope, Event, Lock, create_task_group, current_time, move_on_after
from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, Implementation, Tool, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..core.engine import ToolAnswer
from ..values.errors import Mistake, first_error
from .gone import Gone
from .limits import Limits
from .plain import cut, plain
from .server_process import Program, launched
from .server_table import Filled, McpServer
from .tool_definition import Definition
from .tool_result import told

CLOSE_SECONDS = 5.0
MOST_PAGES = 100

# Without a handler of their own the SDK's warnings would be printed into the middle of ours.
for _name in ("mcp", "client", "httpx2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Connection:
    """A server while it is connected. `review` looks at its tools, at the start and whenever they may have changed."""

    def __init__(
        self,
        server: McpServer,
        *,
        directory: Path | None,
        environ: Mapping[str, str],
        limits: Limits,
        review: Callable[[list[Definition]], Awaitable[None]],
    ) -> None:
        self._server = server
        self._directory = directory
        self._environ = environ
        self._limits = limits
        self._review = review
        self._filled: Filled | None = None
        self._program: Program | None = None
        self._client: Client | None = None
        self._scope = CancelScope()
        self._is_settled = Event()
        self._shall_end = Event()
        self._is_over = Event()
        self._may_have_changed = Event()
        self._is_watched = True
        self._listing = Lock()
        self._ending = ""

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set() or self._shall_end.is_set()

    # Its task

    async def run(self) -> None:
        """Hold the connection until it ends or shall end. Nothing is raised but cancellation."""
        self._scope.deadline = current_time() + self._limits.start
        try:
            with self._scope:
                self._filled = self._server.filled(self._environ)
                async with self._transport(self._filled.server) as transport, self._connected(transport) as client:
                    await self._review(await _listed(client))
                    self._scope.deadline = inf
                    self._client = client
                    self._is_settled.set()
                    await self._kept(client)
                    self._client = None
                    self._scope.deadline = current_time() + CLOSE_SECONDS
            if self._scope.cancelled_caught and not self._is_settled.is_set():
                self._ending = f"it did not answer within {self._limits.start:g} s"
        except Exception as error:
            # What the outside trips over ends its connection and nothing else.
            self._ending = _reason(error)
        finally:
            self._client = None
            self._is_over.set()
            self._is_settled.set()

    def end(self) -> None:
        """Let it end in good order, or give up its start."""
        if not self._is_settled.is_set():
            self._scope.cancel()
        self._shall_end.set()

    async def _kept(self, client: Client) -> None:
        async with create_task_group() as group:
            group.start_soon(self._watch, client)
            group.start_soon(self._relist)
            await self._shall_end.wait()
            group.cancel_scope.cancel()

    async def _watch(self, client: Client) -> None:
        """Hear of changed tools. Protocol versions before 2026-07-28 tell them unasked."""
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

    async def _relist(self) -> None:
        """Look at changed tools as soon as it is known that there are some, not only when one is called."""
        while True:
            await self._may_have_changed.wait()
            try:
                await self.refresh()
            except (MCPError, ValueError, RuntimeError, Mistake):
                # Not looked at: the next call tries again, and is not made if that fails too.
                return

    # What others call

    async def wait_open(self) -> None:
        """Wait until it is open. Raises Gone."""
        await self._is_settled.wait()
        if self._client is None:
            raise await self._gone()

    async def refresh(self) -> None:
        """Have its tools reviewed, if they may have changed since they were."""
        async with self._listing:
            if self._client is None or not (self._may_have_changed.is_set() or not self._is_watched):
                return
            self._may_have_changed = Event()
            try:
                await self._review(await _listed(self._client))
            except BaseException:
                self._may_have_changed.set()
                raise

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, is_callable: Callable[[], bool]
    ) -> ToolAnswer | None:
        """What the tool answers; None where `is_callable` denies it after the last look at the tools. Raises Gone.

        Cancelling it tells the server so, and leaves the connection as it is.
        """
        try:
            await self.refresh()
            if not is_callable():
                return None
            if self._client is None:
                raise await self._gone()
            return self._hidden(told(await self._client.call_tool(tool, dict(arguments))))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or error.message == "Session terminated" or self._shall_end.is_set():
                raise await self._gone() from error
            return self._hidden(self._refused(error))
        except (ValueError, RuntimeError, Mistake) as error:
            return self._hidden(self._refused(error))

    def _refused(self, error: Exception) -> ToolAnswer:
        text = f"The MCP server {self._server.name} did not do it: {cut(str(error), 2000)}"
        return ToolAnswer(text=text, is_error=True)

    async def _gone(self) -> Gone:
        """How it ended, as soon as that is known."""
        self._shall_end.set()
        with move_on_after(CLOSE_SECONDS + 2 * self._limits.grace):
            await self._is_over.wait()
        ending, words = self._ending, ""
        if self._program is not None:
            ending, words = ending or self._program.ending, self._program.last_words
        text = f"{ending or 'its connection was closed'}{f'; its last words: {words}' if words else ''}"
        return Gone(self._text(text))

    def _hidden(self, answer: ToolAnswer) -> ToolAnswer:
        return ToolAnswer(text=self._text(answer.text), is_error=answer.is_error)

    def _text(self, text: str) -> str:
        return text if self._filled is None else self._filled.hidden(text)

    # How it is reached

    def _connected(self, transport: Any) -> AbstractAsyncContextManager[Client]:
        from .. import __version__

        async def heard(message: IncomingMessage) -> None:
            if isinstance(message, ToolListChangedNotification):
                self._may_have_changed.set()

        info = Implementation(name="podium", version=__version__)
        # Without the SDK's cache: a list that we ask for is the list as it is now.
        return Client(nullcontext(transport), message_handler=heard, client_info=info, cache=None)

    @asynccontextmanager
    async def _transport(self, server: McpServer) -> AsyncIterator[Any]:
        if server.url:
            timeout = httpx2.Timeout(self._limits.start, read=max(300.0, self._limits.call))
            async with (
                httpx2.AsyncClient(headers=server.headers, timeout=timeout) as http,
                streamable_http_client(server.url, http_client=http) as streams,
            ):
                yield streams
            return
        env = {**inherited(self._environ), **server.env}
        command = [_found(server.command, env, self._directory), *server.args]
        async with launched(
            command, env=env, directory=self._directory, grace=self._limits.grace, on_gone=self._shall_end.set
        ) as program:
            self._program = program
            yield program.received, program.sent


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The little of our environment that a program gets: keys and tokens are not among it."""
    return {
        name: environ[name]
        for name in DEFAULT_INHERITED_ENV_VARS
        # A value that begins so is a function of an old shell.
        if name in environ and not environ[name].startswith("()")
    }


def _found(command: str, env: Mapping[str, str], directory: Path | None) -> str:
    """The program to start; one without a path comes from the absolute folders of the search path only."""
    if os.sep in command:
        return command if directory is None else str(directory / command)
    folders = [folder for folder in env.get("PATH", os.defpath).split(os.pathsep) if Path(folder).is_absolute()]
    found = shutil.which(command, path=os.pathsep.join(folders))
    if found is None:
        raise Mistake(f"there is no program {plain(cut(command, 200))!r} on the search path")
    return found


async def _listed(client: Client) -> list[Definition]:
    if client.server_capabilities.tools is None:
        return []
    tools: list[Definition] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [_defined(tool) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _defined(tool: Tool) -> Definition:
    hints = tool.annotations
    return Definition(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.input_schema,
        is_read_only=bool(hints and hints.read_only_hint),
        is_idempotent=bool(hints and hints.idempotent_hint),
    )


def _reason(error: Exception) -> str:
    """Why a connection came to its end; empty where it just did."""
    first = first_error(error)
    if isinstance(first, MCPError) and first.code == CONNECTION_CLOSED:
        return ""
    if isinstance(first, Mistake):
        return str(first)
    if isinstance(first, OSError):
        return f"it cannot be started: {first.strerror or first}"
    if isinstance(first, httpx2.HTTPError):
        return f"it cannot be reached: {plain(cut(str(first) or type(first).__name__, 300))}"
    return plain(cut(f"{first}" or type(first).__name__, 500))
