"""MCP servers for tests, and a helper that records what they report."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podium.core.engine import ToolAnswer
from podium.core.gate import ActingTool
from podium.files.trust import Trust
from podium.mcp_client.run_servers import Servers
from podium.mcp_client.server_table import McpServer, McpTimeouts, Source, build_trust_name
from podium.values.event import ToolUse
from podium.values.worker_task import RunCheckout

HERE = Path(__file__).parent
SDK = str(HERE / "sdk_server.py")
RAW = str(HERE / "raw_server.py")
SHORT_TIMEOUTS = McpTimeouts(grace=0.2)


def python_server(name: str, *args: str, source: Source = "user", env: Mapping[str, str] | None = None) -> McpServer:
    return McpServer(name=name, command=sys.executable, args=args, source=source, env=dict(env or {}))


class Bench:
    """The servers of a run with a temporary home, and the notices about them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.notices: list[str] = []

    def servers(
        self,
        *servers: McpServer,
        environ: Mapping[str, str] | None = None,
        limits: McpTimeouts = SHORT_TIMEOUTS,
        at: str = "repo",
    ) -> Servers:
        directory = self.home / at
        directory.mkdir(parents=True, exist_ok=True)
        return Servers(
            {server.name: server for server in servers},
            checkouts=[RunCheckout(root=str(directory), path=str(directory))],
            environ={"PATH": os.environ["PATH"], **(environ or {})},
            trust=Trust.load(self.home),
            notice=self.notices.append,
            limits=limits,
        )

    def trust(self, server: McpServer, *, at: str = "repo") -> None:
        """Trust a server, as `podium trust` does."""
        Trust.load(self.home).trust("server", build_trust_name(server, self.home / at), server.digest)


async def find_tool(servers: Servers, name: str) -> ActingTool:
    (found,) = await servers.acting([name])
    return found


async def call_tool(acting: ActingTool, **arguments: Any) -> ToolAnswer:
    prepared = await acting.prepare(make_tool_use(acting, **arguments))
    return await prepared.act()


def make_tool_use(acting: ActingTool, **arguments: Any) -> ToolUse:
    return ToolUse(id="1", name=acting.name, arguments=arguments)


def is_alive(pid: int) -> bool:
    """Return whether the process is running; a zombie process is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
