"""Share one MCP server among a run's agents.

The server is started on first use and restarted after a crash. Its tools are compared with the trusted
definitions at the start and whenever they change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread
from anyio.abc import TaskGroup

from ..core.engine import ToolAnswer
from ..files.program_start import join_paths
from ..files.trust import TrustRecord
from ..values.errors import Mistake
from ..values.json import JsonObject
from ..values.mcp_server import McpServer, build_tool_trust_name
from ..values.plain_text import escape_unprintable, truncate_text
from .server_place import ServerPlace
from .server_table import McpTimeouts, ServerUnavailable
from .tool_definition import ToolDefinition, build_mcp_tool_name, describe_change

if TYPE_CHECKING:
    from .server_connection import ServerConnection


class SharedServer:
    """An MCP server. `tools` maps the names that models use to the trusted definitions of its tools."""

    def __init__(
        self,
        server: McpServer,
        *,
        group: TaskGroup,
        place: ServerPlace,
        limits: McpTimeouts,
        notice: Callable[[str], None],
    ) -> None:
        self.server = server
        self.limits = limits
        self.tools: dict[str, ToolDefinition] = {}
        self._changed: dict[str, str] = {}
        self._group = group
        self._place = place
        self._trust = place.trust
        self._notice = notice
        self._connection: ServerConnection | None = None
        self._starts_left = 2

    async def explain_distrust(self) -> str:
        """Return why the server must not start, or "" if it may. Raise Mistake if its definition cannot be used."""
        return await to_thread.run_sync(self._explain_distrust)

    def _explain_distrust(self) -> str:
        server = self.server.fill_in_known_variables(self._place.environ)
        plan = self._place.plan_start(server)
        if self._place.is_trusted(self.server, plan):
            return ""
        if self.server.source == "repo":
            what = "comes with the repository"
        else:
            what = (
                f"uses the checkout ({join_paths(plan.content) or self.server.cwd}), which agents' commands can change,"
            )
        return (
            f"the MCP server {self.server.name!r} {what} and is not started until you trust it with podium trust; "
            f"starting it would {self.server.launch_summary}"
        )

    async def open_connection(self) -> ServerConnection:
        """Return the connection, and open one if necessary. Raise ServerUnavailable if no connection can be opened.

        A server is restarted after a crash, but not if it crashes again before it has answered a call.
        """
        connect = await to_thread.run_sync(_import_connection_class)
        if self._connection is None or (self._connection.is_over and self._starts_left):
            # Before every start: its files may have changed since the last one.
            await self._require_trust()
        # There is no await between this check and the start, so two agents cannot both start the server.
        if self._connection is None or (self._connection.is_over and self._starts_left):
            self._starts_left -= 1
            self._connection = connect(
                self.server,
                place=self._place,
                limits=self.limits,
                review=self._review_tools,
            )
            self._group.start_soon(self._connection.run)
        await self._connection.wait_open()
        return self._connection

    async def _require_trust(self) -> None:
        try:
            distrust = await self.explain_distrust()
        except Mistake as mistake:
            raise ServerUnavailable(str(mistake)) from mistake
        if distrust:
            raise ServerUnavailable(distrust)

    async def call_tool(self, tool: str, arguments: JsonObject) -> ToolAnswer:
        """Call a tool and return its result, or an error result that says why the call failed."""
        try:
            connection = await self.open_connection()
            answer = await connection.call_tool(tool, arguments, is_callable=lambda: tool not in self._changed)
        except ServerUnavailable as gone:
            return ToolAnswer(text=self.describe_unavailable(gone), is_error=True)
        if answer is None:
            return ToolAnswer(text=self.explain_refusal(tool) or f"{tool} is no longer available.", is_error=True)
        self._starts_left = 1
        return answer

    def request_end(self) -> None:
        """Ask the connection to close."""
        if self._connection is not None:
            self._connection.request_end()

    def describe_unavailable(self, error: ServerUnavailable) -> str:
        """Return a message that says why the server is not available."""
        again = "" if self._starts_left else "; it will not be restarted in this run"
        return f"the MCP server {self.server.name} is not available: {error}{again}"

    def explain_refusal(self, tool: str) -> str | None:
        """Return why a tool must not be called, or None if it can be called."""
        if tool not in self._changed:
            return None
        return (
            f"the tool {escape_unprintable(truncate_text(tool, 100))} from the MCP server "
            f"{self.server.name} has changed since it was "
            f"trusted, and will not be called until a person trusts it again with podium trust: {self._changed[tool]}"
        )

    # Reviewing the tools

    async def _review_tools(self, listed: list[ToolDefinition]) -> None:
        """Compare the listed tools with the trusted tools. Trust new tools, and reject calls to changed tools."""
        offered: dict[str, ToolDefinition] = {}
        for tool in listed:
            name = build_mcp_tool_name(self.server.name, tool.name)
            if name in offered:
                self._notice(
                    f"the MCP server {self.server.name} has two tools named "
                    f"{escape_unprintable(name)}; the first is used"
                )
            elif (flaw := _find_schema_flaw(tool)) is not None:
                self._notice(
                    f"the tool {escape_unprintable(truncate_text(name, 100))} is not available to agents: {flaw}"
                )
            else:
                offered[name] = tool
        new: dict[str, TrustRecord] = {}
        changed: dict[str, str] = {}
        now: dict[str, TrustRecord] = {}
        same: set[str] = set()
        for name, tool in offered.items():
            place = build_tool_trust_name(self.server, self._place.root, tool.name)
            seen = TrustRecord(digest=tool.digest, content=tool.canonical_json)
            known = self._trust.find_record("tool", place)
            if known is None:
                new[place] = seen
            elif known.digest == tool.digest:
                same.add(place)
            else:
                trusted = ToolDefinition.from_json(known.content)
                changed[tool.name], now[place] = describe_change(trusted, tool), seen
                # No model gets the new description before a person has read it.
                offered[name] = trusted or ToolDefinition(name=tool.name)
        if new:
            await to_thread.run_sync(self._trust.trust_all, "tool", new)
        if now or same:
            await to_thread.run_sync(partial(self._trust.record_seen_tools, changed=now, unchanged=same))
        fresh = [one for one, how in changed.items() if self._changed.get(one) != how]
        self.tools, self._changed = offered, changed
        for one in fresh:
            self._notice(str(self.explain_refusal(one)))


def _import_connection_class() -> type[ServerConnection]:
    # Importing the SDK takes longer than importing all of Podium, and most runs have no MCP tools.
    from .server_connection import ServerConnection

    return ServerConnection


def _find_schema_flaw(tool: ToolDefinition) -> str | None:
    """Return why a tool's schema cannot be used, or None if it can be used."""
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    if tool.parameters.get("type", "object") != "object":
        return "its arguments are not an object"
    try:
        validator_for(tool.parameters, default=Draft202012Validator).check_schema(tool.parameters)
    except SchemaError as error:
        return f"its schema is not valid: {escape_unprintable(truncate_text(error.message, 200))}"
    except RecursionError:
        return "its schema is nested too deeply"
    return None
