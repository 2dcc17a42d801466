"""A server of the run as its agents share it.

It is started when the first of them needs it, and again when it died. Its tools are held against
what is trusted, at its start and whenever they change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from anyio.abc import TaskGroup

from ..config.trust import Trust, Trusted
from ..core.engine import ToolAnswer
from ..values.mcp_server import McpServer, trusted_name, trusted_tool
from .gone import Gone
from .limits import Limits
from .plain import cut, plain
from .tool_definition import Definition, change, offered_name

if TYPE_CHECKING:
    from .server_connection import Connection


class Shared:
    """One server. `tools` are those that agents may have, as they are trusted, by the names they are offered under."""

    def __init__(
        self,
        server: McpServer,
        *,
        group: TaskGroup,
        directory: Path | None,
        environ: Mapping[str, str],
        trust: Trust,
        limits: Limits,
        notice: Callable[[str], None],
    ) -> None:
        self.server = server
        self.limits = limits
        self.tools: dict[str, Definition] = {}
        self._changed: dict[str, str] = {}
        self._group = group
        self._directory = directory
        self._place = trusted_name(server, directory)
        self._environ = environ
        self._trust = trust
        self._notice = notice
        self._connection: Connection | None = None
        self._starts_left = 2

    @property
    def is_trusted(self) -> bool:
        """Whether it may be started at all."""
        return self.server.source == "user" or self._trust.is_trusted("server", self._place, self.server.digest)

    async def open(self) -> Connection:
        """The connection to it, made if there is none. Raises Gone.

        A server that dies again before it has answered a single call stays dead: starting it
        for every call of every agent would help nobody.
        """
        connect = await to_thread.run_sync(_connection_class)
        # Nothing is waited for between looking and starting, so that no two agents start it.
        if self._connection is None or (self._connection.is_over and self._starts_left):
            self._starts_left -= 1
            self._connection = connect(
                self.server,
                directory=self._directory,
                environ=self._environ,
                limits=self.limits,
                review=self._review,
            )
            self._group.start_soon(self._connection.run)
        await self._connection.wait_open()
        return self._connection

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """What the tool answers, or why it does not."""
        try:
            connection = await self.open()
            answer = await connection.call(tool, arguments, is_callable=lambda: tool not in self._changed)
        except Gone as gone:
            return ToolAnswer(text=self.told(gone), is_error=True)
        if answer is None:
            return ToolAnswer(text=self.refusal(tool) or f"{tool} is gone.", is_error=True)
        self._starts_left = 1
        return answer

    def end(self) -> None:
        """Let its connection end."""
        if self._connection is not None:
            self._connection.end()

    def told(self, gone: Gone) -> str:
        """The sentence for a server that is not there."""
        again = "" if self._starts_left else "; it is not started again in this run"
        return f"the MCP server {self.server.name} is gone: {gone}{again}"

    def refusal(self, tool: str) -> str | None:
        """Why a tool is not called; None where it may be."""
        if tool not in self._changed:
            return None
        return (
            f"the tool {plain(cut(tool, 100))} of the MCP server {self.server.name} is not what it was when it was "
            f"trusted, and is not called until a person trusts it anew with podium trust: {self._changed[tool]}"
        )

    # Looking at its tools

    async def _review(self, listed: list[Definition]) -> None:
        """Take over its tools: new ones are trusted as they are first seen, changed ones are not called any more."""
        offered: dict[str, Definition] = {}
        for tool in listed:
            name = offered_name(self.server.name, tool.name)
            if name in offered:
                self._notice(f"the MCP server {self.server.name} has two tools named {plain(name)}; the first counts")
            elif (flaw := _flaw(tool)) is not None:
                self._notice(f"the tool {plain(cut(name, 100))} is left out: {flaw}")
            else:
                offered[name] = tool
        new: dict[str, Trusted] = {}
        changed: dict[str, str] = {}
        now: dict[str, Trusted] = {}
        same: set[str] = set()
        for name, tool in offered.items():
            place = trusted_tool(self.server, self._directory, tool.name)
            seen = Trusted(digest=tool.digest, content=tool.content)
            known = self._trust.known("tool", place)
            if known is None:
                new[place] = seen
            elif known.digest == tool.digest:
                same.add(place)
            else:
                trusted = Definition.read(known.content)
                changed[tool.name], now[place] = change(trusted, tool), seen
                # No model shall read the new description before a person did.
                offered[name] = trusted or Definition(name=tool.name)
        if new:
            await to_thread.run_sync(self._trust.trust_all, "tool", new)
        if now or same:
            await to_thread.run_sync(partial(self._trust.saw, changed=now, unchanged=same))
        fresh = [one for one, how in changed.items() if self._changed.get(one) != how]
        self.tools, self._changed = offered, changed
        for one in fresh:
            self._notice(str(self.refusal(one)))


def _connection_class() -> type[Connection]:
    # The SDK takes longer to import than all the rest of us, and most runs have no MCP tools.
    from .server_connection import Connection

    return Connection


def _flaw(tool: Definition) -> str | None:
    """What makes a schema useless to models and to us."""
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    if tool.parameters.get("type", "object") != "object":
        return "its arguments are not an object"
    try:
        validator_for(tool.parameters, default=Draft202012Validator).check_schema(tool.parameters)
    except SchemaError as error:
        return f"its schema is not valid: {plain(cut(error.message, 200))}"
    return None
