"""A real coding agent from npm behind the ACP engine, in the sandbox, with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from anyio.abc import TaskGroup

from podium.engines.acp.acp_engine import AcpEngine
from podium.engines.acp.agent_home import AgentModel
from podium.engines.acp.agent_process import AgentProcesses
from podium.engines.acp.agent_program import AGENT_PROGRAMS
from podium.engines.model.model_wire import ModelCall
from podium.engines.script import Move, parse_script
from podium.testing import ModelServer, make_repository

from ...installed_agents import build_search_path, find_agent
from .agent_lab import KEY, AgentLab

TEXT = "hello\n"
WRITES = {
    "copilot": ("create", "path", "file_text"),
    "opencode": ("write", "filePath", "content"),
    "claude": ("Write", "file_path", "content"),
    "qwen": ("write_file", "file_path", "content"),
    "gemini": ("write_file", "file_path", "content"),
}
"""The name of each agent's tool that writes files, and of its arguments."""
COMMANDERS = ("kimi", "codex")
"""Agents that are tested with a command, because they ask before they run one, but not before they write a file."""

PODIUMS_NAMES = {
    "copilot": "podium-{}",
    "codex": "mcp__podium__{}",
    "claude": "mcp__podium__{}",
    "opencode": "podium_{}",
    "gemini": "mcp_podium_{}",
    "qwen": "mcp__podium__{}",
    "kimi": "mcp__podium__{}",
}
"""What each agent calls Podium's tools when it offers them to its model."""


class RealAgentLab(AgentLab):
    """A real coding agent, in the version of its row in the table of agents."""

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder, program=AGENT_PROGRAMS[kind], is_sandboxed=True)
        self.executable = find_agent(kind)
        make_repository(self.repo)
        self.patience = 120.0  # some of them take long to start

    def write(self, path: str = "made.txt") -> dict[str, Any]:
        arguments: dict[str, Any]
        if self.kind == "codex":
            # Its own sandbox cannot run in Podium's, so its model requests to run each command without it.
            tool, arguments = "exec_command", {"cmd": f"echo hello >{path}", "sandbox_permissions": "require_escalated"}
            arguments["justification"] = "May I?"
        elif self.kind == "kimi":
            tool, arguments = "Bash", {"command": f"echo hello >{path}"}
        else:
            tool, file, content = WRITES[self.kind]
            arguments = {file: str(self.repo / path), content: TEXT}
        return {"says": "I write it.", "calls": [{"name": tool, "arguments": arguments}]}

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return a step that calls one of Podium's tools."""
        name = PODIUMS_NAMES[self.kind].format(tool)
        return {"says": f"I call {tool}.", "calls": [{"name": name, "arguments": arguments}]}

    def write_until_done(self, call: ModelCall) -> Move:
        """Return the reply of a model that repeats its call until it gets a result, whatever the agent remembers."""
        last_reply = max((at for at, one in enumerate(call.messages) if one.role == "assistant"), default=-1)
        news = call.messages[last_reply + 1 :]
        is_restored = "your session was restored" in news[-1].text
        is_done = any(one.role == "tool" for one in news) and not is_restored
        return parse_script(["It is written." if is_done else self.write()])[0]

    @asynccontextmanager
    async def engine(self, script: Sequence[Any], group: TaskGroup) -> AsyncIterator[AcpEngine]:
        environ = {"PATH": build_search_path(), "HOME": str(self.folder / "user")}
        processes = AgentProcesses(group)
        server = ModelServer(script, otherwise=self.write_until_done, port=self.port, api_key=KEY)
        async with server as self.server:
            self.port = urlsplit(self.server.url).port or 0
            wire = next(iter(self.program.model_env))
            url = self.server.url if wire == "openai" else self.server.url.removesuffix("/v1")
            yield self.make_engine(
                self.executable, AgentModel(name="m", wire=wire, url=url, key=KEY), environ, processes
            )
