"""A real coding agent in the sandbox: goose reaches the model through its relay, with a key that it never has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.engines.coordination.coordination_router import PATH, open_coordination_service
from podium.engines.coordination.coordination_session import (
    SHIM,
    TOKEN_VARIABLE,
    CoordinationSession,
    build_shim_command,
)
from podium.store.run_store import RunStore
from podium.testing.model_server import ModelServer
from podium.tools.toolset import report_status_tool
from podium.values.event import StatusReported
from podium.workspace.relay.sandbox_relay import COORDINATION_URL, MODEL_URL, ModelEndpoint
from podium.workspace.sandbox.sandboxed_agent import start_agent

from ...installed_agents import find_goose
from .agents import AgentLab, new_agent_lab, read_streams

KEY = "sk-canary-0b8e35d7"
ENVIRONMENT = {
    "GOOSE_PROVIDER": "openai",
    "GOOSE_MODEL": "m",
    "OPENAI_HOST": MODEL_URL,
    "OPENAI_API_KEY": "x",
    "GOOSE_MODE": "auto",
    "GOOSE_DISABLE_KEYRING": "1",
    "GOOSE_TELEMETRY_ENABLED": "false",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab() -> Iterator[AgentLab]:
    with new_agent_lab() as made:
        yield made


async def run_goose(
    lab: AgentLab, server: ModelServer, prompt: str, readable: Sequence[Path] = (), **more: Any
) -> tuple[int, str]:
    model = ModelEndpoint(url=server.url.removesuffix("/v1"), headers={"Authorization": f"Bearer {KEY}"})
    argv = [str(Path(find_goose()).resolve()), "run", "--no-session", "--with-builtin", "developer", "-t", prompt]
    relay = lab.configure(model=model, **more)
    with anyio.fail_after(120):
        async with start_agent(
            lab.sandbox, argv, home=lab.agent_home, relay=relay, env=ENVIRONMENT, readable=readable
        ) as agent:
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
    steps: list[Any] = [{"calls": [{"name": "developer__shell", "arguments": {"command": script}}]}, "finished"]
    async with ModelServer({"m": steps}, api_key=KEY) as server:
        _, output = await run_goose(lab, server, "work")

    assert "finished" in output
    assert (lab.repo / "inside.txt").read_text() == "ours\n"
    assert not Path("/usr/outside.txt").exists()
    assert KEY not in output


def build_extension(kind: str, token: str) -> dict[str, Any]:
    """Return goose's configuration of the coordination tools."""
    url = f"{COORDINATION_URL}{PATH}"
    if kind == "http":
        place = {"type": "streamable_http", "uri": url, "headers": {"Authorization": f"Bearer {token}"}}
    else:
        program, *args = build_shim_command(url)
        place = {"type": "stdio", "cmd": program, "args": args, "envs": {TOKEN_VARIABLE: token}}
    return {"enabled": True, "name": "podium", "description": "", "timeout": 60, "bundled": False, **place}


@pytest.mark.parametrize("kind", ["http", "stdio"])
async def test_goose_calls_a_coordination_tool(lab: AgentLab, tmp_path: Path, kind: str) -> None:
    session = CoordinationSession([report_status_tool()], agent="goose")
    configuration = lab.agent_home / ".config" / "goose" / "config.yaml"
    configuration.parent.mkdir(parents=True, exist_ok=True)
    configuration.write_text(yaml.safe_dump({"extensions": {"podium": build_extension(kind, session.token)}}))
    call = {"calls": [{"name": "podium__report_status", "arguments": {"text": f"over {kind}"}}]}
    async with (
        RunStore(tmp_path / "s.db") as store,
        open_coordination_service(session) as application,
        ModelServer({"m": [call, "reported"]}, api_key=KEY) as server,
    ):
        timeline = Timeline("r", store.begin_run("r"))
        turn = Scope(timeline, "goose/turn#1", operation="goose", digest="d")
        async with session.open_turn(turn):
            _, output = await run_goose(lab, server, "report", readable=[SHIM], coordination=application)
        reported = timeline.find_events_below("goose", StatusReported)

    assert "reported" in output
    assert [event.text for event in reported] == [f"over {kind}"], output
