"""Attacks by a coding agent that takes part in a run: its whole process is in the sandbox, with a relay.

The agent is a real program that calls the coordination tools with the official MCP client.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from podium.core.engine import EngineSessionSpec, Finished, Piece, Text
from podium.core.scope import Scope
from podium.engines.coordination.coordination_router import PATH, open_coordination_service
from podium.engines.coordination.coordination_session import CoordinationSession, select_coordination_tools
from podium.policy import Rules
from podium.tools.toolset import report_status_tool
from podium.values.event import (
    ActionRefused,
    Noticed,
    QuestionAsked,
    StatusReported,
    ToolAnswered,
    ToolCalled,
)
from podium.workspace.relay.sandbox_relay import COORDINATION_URL, RelayConfiguration
from podium.workspace.sandbox.bubblewrap import Sandbox
from podium.workspace.sandbox.sandboxed_agent import start_agent

from ..engines.acp.agent_lab import AgentLab
from ..studio import Studio
from ..workspace.relay.agents import read_streams

CLIENT = """
import sys, anyio, httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def connect(token, act):
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer " + token}) as http:
        async with Client(streamable_http_client(sys.argv[1], http_client=http)) as client:
            await act(client)

async def work(client):
    names = [tool.name for tool in (await client.list_tools()).tools]
    print("tools", *sorted(names))
    await client.call_tool("report_status", {"text": "from the sandbox"})
    answer = await client.call_tool("ask_person", {"question": "Which one?"})
    print("answer", answer.content[0].text)

"""
HONEST = CLIENT + "anyio.run(connect, sys.argv[2], work)"
FORGER = (
    CLIENT
    + """
for token in (sys.argv[3], "x"):
    try:
        anyio.run(connect, token, work)
        print("accepted")
    except BaseException:
        print("refused")
"""
)


class AgentEngine:
    """An engine whose sessions are programs in the sandbox; each reply is what the program prints."""

    name = "outside"
    is_restored = False

    def __init__(self, folder: Path, podium_home: Path, program: str) -> None:
        self._folder = folder
        self._podium_home = podium_home
        self._program = program
        self.others: list[CoordinationSession] = []
        self.reports: list[str] = []

    @asynccontextmanager
    async def open(self, spec: EngineSessionSpec) -> AsyncIterator[AgentEngine]:
        self._coordination = CoordinationSession(select_coordination_tools(spec.tools), agent=spec.agent.name)
        self.others.append(CoordinationSession((), agent="another"))
        async with open_coordination_service(self._coordination) as self._application:
            yield self

    @asynccontextmanager
    async def ask(self, prompt: str, turn: Scope) -> AsyncIterator[AsyncIterator[Piece]]:
        async def pieces() -> AsyncIterator[Piece]:
            sandbox = await Sandbox.find(self._folder / "repo", home=self._podium_home)
            relay = RelayConfiguration(coordination=self._application, report=self.reports.append)
            token, other = self._coordination.token, self.others[-1].token
            argv = [sys.executable, "-c", self._program, f"{COORDINATION_URL}{PATH}", token, other]
            async with (
                self._coordination.open_turn(turn),
                start_agent(sandbox, argv, home=self._folder / "home", relay=relay) as agent,
            ):
                await agent.close_stdin()
                out, err = await read_streams(agent)
            yield Text(out or err)
            yield Finished()

        yield pieces()


async def run_agent(studio: Studio, repo: Path, program: str) -> tuple[str, str, AgentEngine]:
    engine = AgentEngine(repo.parent, studio.settings.home, program)
    agent = studio.agent("goose", engine="outside", tools=("ask_person", "report_status", "Bash"))
    async with studio.app(engines={"outside": engine}) as app:
        with anyio.fail_after(60):
            result = await app.run(agent, "go", repo=repo)
    assert result.outcome == "succeeded", result
    return result.run_id, result.text, engine


async def test_a_program_in_the_sandbox_uses_the_tools_of_its_role(studio: Studio, repo: Path) -> None:
    run, text, _ = await run_agent(studio, repo, HONEST)

    assert "tools ask_person report_status wait_for_result" in text
    assert "answer Nobody is available to answer" in text
    assert [event.text for event in studio.events(run, StatusReported)] == ["from the sandbox"]
    assert len(studio.events(run, QuestionAsked)) <= 1


async def test_calls_with_a_forged_token_are_refused_and_on_record(studio: Studio, repo: Path) -> None:
    run, text, _ = await run_agent(studio, repo, FORGER)

    assert text.split() == ["refused", "refused"]
    refused = studio.events(run, ActionRefused)
    assert {event.action.agent for event in refused} == {"goose"}
    assert all("token" in event.reason for event in refused)
    assert len(refused) >= 2
    assert studio.events(run, ToolCalled, StatusReported, Noticed) == []


async def test_an_agent_of_the_acp_engine_is_refused_with_another_token_or_none_and_on_record(
    tmp_path: Path,
) -> None:
    lab = AgentLab("scripted", tmp_path, is_sandboxed=True)
    lab.tools = (report_status_tool(),)
    lab.rules = Rules(allow=("Bash",))
    other = CoordinationSession((report_status_tool(),), agent="another")
    message = {"name": "report_status", "arguments": {"text": "forged"}}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": message})
    curl = f"curl -s -o /dev/null -w '%{{http_code}}' -H 'Content-Type: application/json' -d '{call}'"
    forged = (f"-H 'Authorization: Bearer {other.token}'", "-H 'Authorization: Bearer x'", "")
    calls = [lab.call("bash", command=f"{curl} {header} http://127.0.0.1:47702/mcp") for header in forged]

    async with lab.session([*calls, "Done."]) as session:
        reply = await session.ask("Forge.")

    assert reply.text == "Done."
    assert [event.text for event in lab.events(ToolAnswered)] == ["403", "403", "401"]
    assert [event.action.tool for event in lab.events(ActionRefused)] == ["coordination"] * 3
    assert {event.action.agent for event in lab.events(ActionRefused)} == {"worker"}
    assert lab.events(StatusReported) == []
