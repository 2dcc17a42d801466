"""Goose alone: its ACP on standard input and output, every request allowed at once, no sandbox and no record."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from podium.engines.acp.agent_home import AgentModel, build_agent_environment

from ..agent_scenario import GOOSE, REQUEST, Ask, find_goose, make_memory_job, make_permission_job, make_start_job
from ..child import MODEL, serve

LONGEST_LINE = 2**24


class BareClient:
    """The least that an ACP client does."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    async def call(self, method: str, **params: Any) -> Any:
        """Make a call and return its result. Until then, allow every action that goose requests permission for."""
        self._send(id=1, method=method, params=params)
        while line := await self._output.readline():
            message = json.loads(line)
            if message.get("method") == "session/request_permission":
                options = message["params"]["options"]
                chosen = next(one["optionId"] for one in options if one["kind"] == "allow_once")
                self._send(id=message["id"], result={"outcome": {"outcome": "selected", "optionId": chosen}})
            elif "method" not in message:
                return message["result"]
        raise RuntimeError("goose exited")

    def _send(self, **message: Any) -> None:
        self._input.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


@asynccontextmanager
async def open_goose(url: str, folder: Path) -> AsyncIterator[Ask]:
    model = AgentModel(name=MODEL, wire="openai", url=url, key="none")
    environ = build_agent_environment(GOOSE, folder, {"PATH": os.environ["PATH"]}, model)
    argv = [find_goose(), *GOOSE.command[1:]]
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environ, cwd=folder / "repo", limit=LONGEST_LINE
    )
    client = BareClient(process)

    async def ask() -> None:
        await client.call("initialize", protocolVersion=1, clientCapabilities={})
        opened = await client.call("session/new", cwd=str(folder / "repo"), mcpServers=[])
        session = opened["sessionId"]
        await client.call("session/set_mode", sessionId=session, modeId=GOOSE.mode)
        prompt = [{"type": "text", "text": REQUEST}]
        await client.call("session/prompt", sessionId=session, prompt=prompt)

    try:
        yield ask
    finally:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    serve(
        start=make_start_job(open_goose), permission=make_permission_job(open_goose), memory=make_memory_job(open_goose)
    )
