"""Real coding agents in the sandbox, with a scripted model. They must be installed: make agents, pytest -m engines."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import create_task_group, fail_after
from msgspec import structs

from podium.tools.toolset import report_status_tool
from podium.values.event import (
    ActionBegan,
    ActionRefused,
    AgentSessionOpened,
    CallCut,
    PermissionAsked,
    StatusReported,
    ToolAnswered,
    ToolCalled,
)

from .real_agent_lab import COMMANDERS, TEXT, WRITES, RealAgentLab

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(600)]

SESSIONS = {"gemini": (1, 2), "claude": (1, 2)}
"""How many sessions an agent opens if it is killed in between; others load their first one. These two can load it only
if they had saved it before they were killed. Otherwise, a new session gets the conversation as text."""

TRUSTS = {"gemini": {"GEMINI_CLI_TRUST_WORKSPACE": "true"}}
"""What makes an agent connect to MCP servers that does so only in a folder that it trusts."""


@pytest.fixture(params=[*WRITES, *COMMANDERS])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> RealAgentLab:
    return RealAgentLab(request.param, tmp_path)


async def test_what_a_person_allows_is_written(lab: RealAgentLab) -> None:
    async with lab.session([lab.write(), "It is written."]) as session, create_task_group() as group:
        group.start_soon(lab.answer_request, "once")
        reply = await session.ask("Write it.")

    assert reply.text == "It is written."
    assert (lab.repo / "made.txt").read_text() == TEXT
    assert [event.allowed_by for event in lab.events(ActionBegan)] == ["ada"]


async def test_what_a_person_denies_is_not_written_and_the_agent_goes_on(lab: RealAgentLab) -> None:
    async with lab.session([lab.write(), "I could not.", "I could not."]) as session, create_task_group() as group:
        group.start_soon(lab.answer_request, "deny", "wrong folder")
        reply = await session.ask("Write it.")

    assert not (lab.repo / "made.txt").exists()
    assert lab.events(ActionBegan) == []
    assert "I could not." in reply.text
    assert "ada refused it: wrong folder" in reply.text


async def test_a_cancelled_turn_stops_the_agent(lab: RealAgentLab) -> None:
    async with lab.session([{"silent": True}]) as session:
        with fail_after(lab.patience):
            async with create_task_group() as group:
                group.start_soon(session.ask, "Do nothing.")
                await lab.wait_for(AgentSessionOpened)
                assert lab.server is not None
                await lab.server.wait_calls(1)
                group.cancel_scope.cancel()

    assert len(lab.events(CallCut)) == 1
    assert all(child.returncode is not None for child in lab.children)


async def test_an_agent_that_is_killed_in_the_middle_continues(lab: RealAgentLab) -> None:
    async with lab.session(()) as session, create_task_group() as group:

        async def kill_and_allow() -> None:
            await lab.wait_for(PermissionAsked)
            await lab.children[0].end(grace=0)
            while True:
                await lab.answer_request("once")

        group.start_soon(kill_and_allow)
        reply = await session.ask("Write it.")
        group.cancel_scope.cancel()

    assert reply.text.endswith("It is written.")  # codex warns first that it does not know the model
    assert (lab.repo / "made.txt").read_text() == TEXT
    assert len(lab.children) == 2
    assert len(lab.events(AgentSessionOpened)) in SESSIONS.get(lab.kind, (1,))


async def test_it_calls_podiums_tools_and_the_call_is_on_record_once_without_a_request(lab: RealAgentLab) -> None:
    lab.tools = (report_status_tool(),)
    if lab.kind in TRUSTS:
        lab.program = structs.replace(lab.program, env={**lab.program.env, **TRUSTS[lab.kind]})
    async with lab.session([lab.call("report_status", text="half done"), "It is done."]) as session:
        reply = await session.ask("Report.")

    assert reply.text.endswith("It is done.")
    assert [event.text for event in lab.events(StatusReported)] == ["half done"]
    assert [event.action.tool for event in lab.events(ToolCalled)] == ["report_status"]
    assert [event.is_error for event in lab.events(ToolAnswered)] == [False]
    assert lab.events(PermissionAsked, ActionBegan, ActionRefused) == []
