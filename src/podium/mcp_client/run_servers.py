"""Connect a run to its MCP servers. All agents share one connection to each server, which closes when the run ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from types import TracebackType

from anyio import create_task_group
from anyio.abc import TaskGroup

from ..core.engine import ToolAnswer
from ..core.gate import ActingTool, InvalidCall, PreparedCall, make_interrupted_answer
from ..files.trust import Trust
from ..system.checkouts import find_checkouts
from ..values.action import Action
from ..values.errors import Mistake
from ..values.event import ToolUse
from ..values.json import JsonObject, JsonSchema
from ..values.plain_text import escape_unprintable, truncate_text
from ..values.worker_task import RunCheckout, list_folders
from .server_place import OpenInSandbox, ServerPlace
from .server_table import McpServer, McpTimeouts, ServerUnavailable
from .shared_server import SharedServer
from .tool_definition import TooComplex, ToolDefinition, build_mcp_tool_name, iter_schema_errors

PREFIX = "mcp__"


class Servers:
    """The MCP servers of a run, as an async context manager.

    A server starts on first use and stops at the end of the block. `checkouts` are those of the run; the user's trust
    applies in the repository of the first one. Programs start outside the checkouts, unless a definition names files
    there: then `open_in_sandbox` starts them. `environ` contains the values of variables. `notice` is called once with
    each message for the user.
    """

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        *,
        checkouts: Sequence[RunCheckout],
        environ: Mapping[str, str],
        trust: Trust,
        notice: Callable[[str], None],
        limits: McpTimeouts | None = None,
        open_in_sandbox: OpenInSandbox | None = None,
    ) -> None:
        self._servers = servers
        self._place = ServerPlace(
            directory=Path(checkouts[0].path) if checkouts else None,
            root=Path(checkouts[0].root) if checkouts else None,
            checkouts=find_checkouts(*list_folders(checkouts)),
            environ=environ,
            trust=trust,
            open_in_sandbox=open_in_sandbox,
        )
        self._notice = notice
        self._limits = limits or McpTimeouts()
        self._group: TaskGroup | None = None
        self._shared: dict[str, SharedServer] = {}
        self._noticed: set[str] = set()

    async def __aenter__(self) -> Servers:
        self._group = create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._group is not None
        for shared in self._shared.values():
            shared.request_end()
        return await self._group.__aexit__(kind, error, trace)

    async def acting(self, names: Sequence[str], *, disallowed: Sequence[str] = ()) -> list[ActingTool]:
        """Return the MCP tools in an agent's list of names, without those in `disallowed`.

        A name is `mcp__SERVER`, for all tools, or `mcp__SERVER__TOOL`, where TOOL can contain wildcards such as `*`.
        Other names are ignored. If a server or tool does not exist, or a server is not trusted or does not start, the
        user gets a notice and the agent works without the tools.
        """
        wanted = [entry for entry in map(_parse_entry, names) if entry is not None]
        refused = [entry for entry in map(_parse_entry, disallowed) if entry is not None]
        offered: dict[str, dict[str, ToolDefinition]] = {}

        async def collect_tools(server: str) -> None:
            offered[server] = await self._start_server(server)

        async with create_task_group() as group:
            for server in dict.fromkeys(server for server, _ in wanted):
                if self._is_known(server):
                    group.start_soon(collect_tools, server)
        found: dict[str, ActingTool] = {}
        for server, pattern in wanted:
            tools = offered.get(server, {})
            meant = {name: tool for name, tool in tools.items() if _matches_pattern(tool, server, pattern)}
            if tools and not meant:
                has = ", ".join(tool.name for tool in tools.values())
                self._notify_once(
                    f"the MCP server {server!r} has no tool {pattern!r}; available: {truncate_text(has, 500)}"
                )
            for name, tool in meant.items():
                if not any(other == server and _matches_pattern(tool, server, not_this) for other, not_this in refused):
                    found[name] = McpTool(name=name, definition=tool, shared=self._shared[server])
        return list(found.values())

    def _is_known(self, server: str) -> bool:
        if server in self._servers:
            return True
        there = f"available: {', '.join(self._servers)}" if self._servers else "add it under mcpServers in the settings"
        self._notify_once(f"MCP server {server!r} not found; {there}")
        return False

    async def _start_server(self, server: str) -> dict[str, ToolDefinition]:
        """Start a server and return its tools. If it is not trusted or cannot be started, return no tools."""
        try:
            shared = self._get_shared_server(server)
            if distrust := await shared.explain_distrust():
                self._notify_once(distrust)
                return {}
            await shared.open_connection()
        except ServerUnavailable as gone:
            self._notify_once(f"the MCP server {server!r} cannot be used: {gone}")
            return {}
        except Mistake as mistake:
            self._notify_once(f"the MCP server {server!r} cannot be used: {mistake}")
            return {}
        return shared.tools

    def _get_shared_server(self, server: str) -> SharedServer:
        assert self._group is not None, "a Servers object can be used only inside its async with block"
        if server not in self._shared:
            self._shared[server] = SharedServer(
                self._servers[server],
                group=self._group,
                place=self._place,
                limits=self._limits,
                notice=self._notify_once,
            )
        return self._shared[server]

    def _notify_once(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notice(escape_unprintable(text))


def _parse_entry(name: str) -> tuple[str, str] | None:
    """Split a tool list entry into the server and the pattern for its tools. Return None if it is not an MCP entry."""
    if not name.startswith(PREFIX):
        return None
    server, _, tool = name.removeprefix(PREFIX).partition("__")
    return server, tool or "*"


def _matches_pattern(tool: ToolDefinition, server: str, pattern: str) -> bool:
    """Return whether the pattern matches the tool's original name, or is the name that models use for the tool."""
    offered = build_mcp_tool_name(server, tool.name) == f"{PREFIX}{server}__{pattern}"
    return offered or pattern == tool.name or fnmatchcase(tool.name, pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool from an MCP server. The server's hints are not trusted: they do not exempt calls from the rules."""

    name: str
    definition: ToolDefinition
    shared: SharedServer

    @property
    def description(self) -> str:
        return self.definition.description or f"The tool {self.definition.name} from {self.shared.server.name}."

    @property
    def parameters(self) -> JsonSchema:
        return {"type": "object", **self.definition.parameters}

    @property
    def timeout(self) -> float:
        return self.shared.limits.call

    @property
    def is_parallel(self) -> bool:
        return False

    async def prepare(self, call: ToolUse) -> PreparedCall:
        """Prepare the call. Raise InvalidCall if the tool must not be called or the arguments are invalid."""
        if (refusal := self.shared.explain_refusal(self.definition.name)) is not None:
            raise InvalidCall(refusal)
        if call.unreadable:
            raise InvalidCall(f"The arguments for {self.name} are not a JSON object.")
        misfits = list(islice(_find_schema_errors(self.definition.parameters, call.arguments), 3))
        if misfits:
            raise InvalidCall(f"Invalid arguments for {self.name}: {'; '.join(misfits)}.")

        async def call_server() -> ToolAnswer:
            return await self.shared.call_tool(self.definition.name, call.arguments)

        return PreparedCall(arguments=call.arguments, act=call_server)

    async def recover(self, began: Action) -> ToolAnswer | None:
        """Return None if the call can safely be repeated, and otherwise an answer saying that it was interrupted.

        A call can be repeated if the user added the server and the server's hints say that the tool is read-only or
        idempotent.
        """
        is_harmless = self.definition.is_read_only or self.definition.is_idempotent
        return None if is_harmless and self.shared.server.source == "user" else make_interrupted_answer(self.name)


def _find_schema_errors(schema: JsonSchema, arguments: JsonObject) -> Iterator[str]:
    from referencing.exceptions import Unresolvable  # imported here, because only runs with MCP tools need it

    try:
        for place, message in iter_schema_errors(schema, arguments):
            yield escape_unprintable(truncate_text(f"{place}: {message}" if place else message, 300))
    except (TooComplex, Unresolvable):
        # If the schema is too complex or refers to other documents, only the server checks the arguments.
        return
