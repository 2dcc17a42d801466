"""A real coding agent in the sandbox: goose reaches the model through its relay, with a key that it never has.

Set PODIUM_GOOSE to the program, or install it: npm install @aaif/goose-binary-linux-x64@1.52.0
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from podium.testing.model_server import ModelServer
from podium.workspace.relay.sandbox_relay import MODEL_URL, ModelEndpoint
from podium.workspace.sandbox.agent_process import start_agent

from .agents import AgentLab, new_agent_lab, read_streams

KEY = "sk-canary-0b8e35d7"
GOOSE = os.environ.get("PODIUM_GOOSE") or shutil.which("goose")
ENVIRONMENT = {
    "GOOSE_PROVIDER": "openai",
    "GOOSE_MODEL": "m",
    "OPENAI_HOST": MODEL_URL,
    "OPENAI_API_KEY": "x",
    "GOOSE_MODE": "auto",
    "GOOSE_DISABLE_KEYRING": "1",
    "GOOSE_TELEMETRY_ENABLED": "false",
}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(GOOSE is None, reason="goose is not installed")]


@pytest.fixture(scope="module")
def lab() -> Iterator[AgentLab]:
    with new_agent_lab() as made:
        yield made


async def run_goose(lab: AgentLab, server: ModelServer, prompt: str) -> tuple[int, str]:
    assert GOOSE is not None
    model = ModelEndpoint(url=server.url.removesuffix("/v1"), headers={"Authorization": f"Bearer {KEY}"})
    argv = [str(Path(GOOSE).resolve()), "run", "--no-session", "--with-builtin", "developer", "-t", prompt]
    relay = lab.configure(model=model)
    with anyio.fail_after(120):
        async with start_agent(lab.sandbox, argv, home=lab.agent_home, relay=relay, env=ENVIRONMENT) as agent:
            await agent.close_stdin()
            out, err = await read_streams(agent)
            return await agent.wait(), out + err


async def test_goose_reaches_the_model_through_the_relay(lab: AgentLab) -> None:
    async with ModelServer({"m": ["hello from the model"]}, api_key=KEY) as server:
        code, output = await run_goose(lab, server, "say hello")

    assert (code, "hello from the model" in output) == (0, True), output
    assert all(call.headers["authorization"] == f"Bearer {KEY}" for call in server.calls)
    assert KEY not in output
    for file in lab.folder.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


async def test_goose_writes_in_its_checkout_and_nowhere_else(lab: AgentLab) -> None:
    script = "echo ours >inside.txt; echo theirs >/usr/outside.txt; curl -s https://example.com; env"
    steps: list[dict[str, Any] | str] = [
        {"calls": [{"name": "developer__shell", "arguments": {"command": script}}]},
        "finished",
    ]
    async with ModelServer({"m": steps}, api_key=KEY) as server:
        _, output = await run_goose(lab, server, "work")

    assert "finished" in output
    assert (lab.repo / "inside.txt").read_text() == "ours\n"
    assert not Path("/usr/outside.txt").exists()
    assert KEY not in output
