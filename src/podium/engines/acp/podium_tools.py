"""Offer Podium's own tools to a coding agent's session as an MCP server.

An agent reports its calls to these tools like all its other calls, and may ask for permission to make them. Podium
grants the permission at once and does not record the reports, because it receives, checks and records the calls
themselves.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager

from ...core.engine import Tool
from ...system.json_rpc import Params
from ..coordination.coordination_router import PATH, Application
from ..coordination.coordination_session import (
    SERVER_NAME,
    WAIT_TOOL,
    CoordinationSession,
    select_coordination_tools,
)
from ..coordination.stdio_shim import TOKEN_VARIABLE, build_shim_command
from .agent_process import AgentProcess, read_mapping
from .agent_program import McpTransport
from .agent_tool_call import KIND_TOOLS, find_own_name, is_mcp_call

LIST_SECONDS = 10.0
"""How long the first prompt waits for the agent to request the list of tools."""
OWN_NAME = re.compile(
    rf"(?:(?:Tool: )?(?:mcp(?:__|[.:_-]))?{SERVER_NAME}(?:__|: |[./:_-])(?P<tool>\w[\w ]*)"
    rf"|(?P<first>\w+) \({SERVER_NAME} MCP Server\).*)",
    re.DOTALL,
)
"""Matches agents' names for Podium's tools: `mcp__podium__ask_person`, `podium-ask_person`, `podium: ask person`, …"""


class PodiumTools:
    """The tools of one agent session. `application` answers the agent's calls."""

    def __init__(self, session: CoordinationSession, application: Application) -> None:
        self.session = session
        self._application = application
        self._names = {WAIT_TOOL, *(tool.name for tool in session.tools)}
        self._connected = ExitStack()

    def connect(self, agent: AgentProcess, transport: McpTransport) -> list[Params]:
        """Let a process call the tools, and return the MCP servers for its session."""
        self.disconnect()
        if not agent.coordination_url or transport == "off":
            return []
        self._connected.enter_context(agent.coordination.add_session(self.session, self._application))
        self.session.expect_listing()
        url = f"{agent.coordination_url}{PATH}"
        if transport == "http" or (not transport and read_mapping(agent.capabilities, "mcpCapabilities").get("http")):
            headers = [{"name": "Authorization", "value": f"Bearer {self.session.token}"}]
            return [{"type": "http", "name": SERVER_NAME, "url": url, "headers": headers}]
        program, *args = build_shim_command(url)
        env = [{"name": TOKEN_VARIABLE, "value": self.session.token}]
        return [{"name": SERVER_NAME, "command": program, "args": args, "env": env}]

    def recognise_call(self, message: Params, earlier: str) -> str:
        """Return the Podium tool that a message about a tool call refers to, or "" if the call is to another tool.

        `earlier` is the tool found in earlier messages about the same call; it is returned if this message names no
        tool. A call that the agent reports as access to files, commands or the network is not a call to a Podium tool,
        unless the agent marks it as an MCP call. The title of a call with this mark is ignored.
        """
        is_marked, own_name = is_mcp_call(message), find_own_name(message)
        title = None if is_marked else message.get("title")
        if message.get("kind") in KIND_TOOLS and not is_marked:
            return ""
        if not title and not own_name:
            return earlier
        found = next(filter(None, map(self._match_name, (own_name, title))), "")
        return found or (earlier if earlier and title == earlier else "")

    def _match_name(self, name: object) -> str:
        """Return the tool that an agent means by this name, or an empty string."""
        if not isinstance(name, str) or (found := OWN_NAME.fullmatch(name)) is None:
            return ""
        tool = (found["tool"] or found["first"]).replace(" ", "_")  # some agents write `ask person` for `ask_person`
        return tool if tool in self._names else ""

    def disconnect(self) -> None:
        """Refuse calls from now on."""
        self._connected.close()


@asynccontextmanager
async def open_podium_tools(tools: Sequence[Tool], *, agent: str) -> AsyncIterator[PodiumTools | None]:
    """Yield the tools that coding agents do not have built in, or None if `tools` contains no such tool."""
    offered = select_coordination_tools(tools)
    if not offered:
        yield None
        return
    # Imported here for start-up time: the MCP library takes longer to import than most agents take to start.
    from ..coordination.mcp_service import open_coordination_service

    session = CoordinationSession(offered, agent=agent)
    async with open_coordination_service(session) as application:
        found = PodiumTools(session, application)
        try:
            yield found
        finally:
            found.disconnect()
