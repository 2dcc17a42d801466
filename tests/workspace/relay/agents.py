"""Agents in the sandbox, for tests: programs whose whole process runs in it, with a relay as their only connection."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from podium.system.process_group import ChildProcess
from podium.testing import make_repository
from podium.workspace.relay.sandbox_relay import RelayConfiguration
from podium.workspace.sandbox.bubblewrap import Sandbox
from podium.workspace.sandbox.sandboxed_agent import start_agent

from ..sandboxed import PYTHON


@dataclass
class AgentResult:
    """What an agent wrote to its streams, and its exit code."""

    code: int
    out: str
    err: str


@dataclass
class AgentLab:
    """A repository, its sandbox and the home of one agent. `reports` are the sentences that the relay reported."""

    folder: Path
    sandbox: Sandbox
    reports: list[str] = field(default_factory=list)

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def agent_home(self) -> Path:
        return self.folder / "agent-home"

    async def bash(self, script: str, *args: str, **relay: Any) -> AgentResult:
        return await self.run(["/bin/bash", "-c", script, "bash", *args], **relay)

    async def python(self, script: str, *args: str, **relay: Any) -> AgentResult:
        return await self.run([PYTHON, "-c", script, *args], **relay)

    async def run(self, argv: Sequence[str], stdin: bytes = b"", **relay: Any) -> AgentResult:
        """Run an agent to its end."""
        with anyio.fail_after(60):
            async with start_agent(self.sandbox, argv, home=self.agent_home, relay=self.configure(**relay)) as agent:
                await agent.write_stdin(stdin)
                await agent.close_stdin()
                out, err = await read_streams(agent)
                return AgentResult(await agent.wait(), out, err)

    def configure(self, **relay: Any) -> RelayConfiguration:
        return RelayConfiguration(**{"coordination": answer_hello, "report": self.reports.append, **relay})


async def answer_hello(scope: object, receive: object, send: object) -> None:
    """Answer every request: an ASGI application."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b"hello"})  # type: ignore[operator]


async def read_streams(agent: ChildProcess) -> tuple[str, str]:
    """Read both outputs of an agent until they end."""
    found = {"out": bytearray(), "err": bytearray()}

    async def read_all(name: str, read: object) -> None:
        while chunk := await read():  # type: ignore[operator]
            found[name] += chunk

    async with anyio.create_task_group() as group:
        group.start_soon(read_all, "out", agent.read_stdout)
        group.start_soon(read_all, "err", agent.read_stderr)
    return found["out"].decode(errors="replace"), found["err"].decode(errors="replace")


@contextmanager
def new_agent_lab() -> Iterator[AgentLab]:
    """Make a repository with its sandbox."""
    folder = Path(tempfile.mkdtemp(prefix="agents-")).resolve()
    try:
        make_repository(folder / "repo")
        sandbox = anyio.run(find_sandbox, folder)
        yield AgentLab(folder, sandbox)
        sandbox.remove_placeholders()
    finally:
        shutil.rmtree(folder)


async def find_sandbox(folder: Path) -> Sandbox:
    return await Sandbox.find(folder / "repo", home=folder / "podium")
