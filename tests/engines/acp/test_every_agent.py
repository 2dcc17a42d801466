"""What every coding agent does as an engine, in the sandbox: the scripted one, and goose with a scripted model."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import create_task_group

from podium.engines.acp import agent_session
from podium.policy import Rules
from podium.values.event import (
    ActionBegan,
    ActionRefused,
    AgentSessionOpened,
    CallCut,
    ModelReplied,
    PermissionAsked,
    TextStreamed,
    ToolAnswered,
    ToolCalled,
)

from ...installed_agents import find_goose
from .agent_lab import AgentLab


@pytest.fixture(params=["scripted", "goose"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AgentLab:
    if request.param == "goose":
        find_goose()
    return AgentLab(request.param, tmp_path, is_sandboxed=True)


async def test_it_answers_and_its_usage_and_session_are_recorded(lab: AgentLab) -> None:
    used = {"input_tokens": 30, "output_tokens": 7}

    async with lab.session([{"says": "The answer.", "usage": used}]) as session:
        reply = await session.ask("What is it?")

    [opened] = lab.events(AgentSessionOpened)
    [replied] = lab.events(ModelReplied)
    assert reply.text == "The answer."
    assert (opened.agent, opened.mode) == ("worker", lab.program.mode)
    assert opened.session
    assert (replied.usage.input_tokens, replied.usage.output_tokens, replied.usage.unpriced) == (30, 7, 1)


async def test_what_a_person_allows_is_written_and_on_record_from_request_to_end(lab: AgentLab) -> None:
    async with lab.session([lab.write(), "It is written."]) as session, create_task_group() as group:
        group.start_soon(lab.answer_request, "once")
        reply = await session.ask("Write it.")

    [asked] = lab.events(PermissionAsked)
    assert reply.text == "It is written."
    assert (lab.repo / "made.txt").read_text() == "hello\n"
    assert (asked.action.tool, asked.action.arguments) == ("write_file", {"path": "made.txt", "content": "hello\n"})
    assert asked.agent_reason == "I call write_file."
    ends = [type(event) for event in lab.events(ToolCalled, PermissionAsked, ActionBegan, ToolAnswered)]
    assert ends == [ToolCalled, PermissionAsked, ActionBegan, ToolAnswered]
    assert lab.events(ActionBegan)[0].action.id == asked.action.id
    assert [call.name for call in reply.calls] == ["write_file"]


async def test_what_a_person_denies_is_not_written_and_the_reason_is_in_the_reply_and_the_next_prompt(
    lab: AgentLab,
) -> None:
    script = [lab.write(), "I could not.", "I understand."]
    async with lab.session(script) as session, create_task_group() as group:
        group.start_soon(lab.answer_request, "deny", "wrong folder")
        reply = await session.ask("Write it.")
        again = await session.ask("And now?")

    assert not (lab.repo / "made.txt").exists()
    assert lab.events(ActionBegan) == []
    assert reply.text == "I could not.\n\n[not permitted] write_file made.txt: ada refused it: wrong folder"
    assert again.text == "I understand."
    if lab.server is not None:
        assert "write_file made.txt: ada refused it: wrong folder" in lab.server.calls[-1].call.messages[-1].text


async def test_rules_decide_without_a_person(lab: AgentLab) -> None:
    lab.rules = Rules(allow=("Bash(touch *)",), deny=("Write(/made.txt)",))

    async with lab.session([lab.call("bash", command="touch a.txt"), lab.write(), "Done."]) as session:
        await session.ask("Do both.")

    assert [path.name for path in lab.repo.iterdir()] == ["a.txt"]
    assert lab.events(PermissionAsked) == []
    assert [event.allowed_by for event in lab.events(ActionBegan)] == ["Bash(touch *)"]
    assert [event.reason for event in lab.events(ActionRefused)] == ["Write(/made.txt) denies it"]


async def test_a_cancelled_turn_stops_the_agent_and_what_it_said_is_kept(
    lab: AgentLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_session, "CANCEL_SECONDS", 0.5)
    script = [{"says": "one two three four", "pieces": 4, "pace": 0.4}, lab.write(), "Done."]
    async with lab.session(script) as session:
        async with create_task_group() as group:
            group.start_soon(session.ask, "Count, then write.")
            await lab.wait_for(TextStreamed)
            group.cancel_scope.cancel()

    [cut] = lab.events(CallCut)
    assert cut.text.startswith("one")
    assert cut.usage.estimated == 1
    assert all(child.returncode is not None for child in lab.children)


async def test_an_agent_that_is_killed_in_the_middle_loads_its_session_and_continues(lab: AgentLab) -> None:
    async with lab.session([lab.write(), "It is written."]) as session, create_task_group() as group:

        async def kill_and_allow() -> None:
            await lab.wait_for(PermissionAsked)
            await lab.children[0].end(grace=0)
            await lab.answer_request("once")

        group.start_soon(kill_and_allow)
        reply = await session.ask("Write it.")

    assert reply.text == "It is written."
    assert (lab.repo / "made.txt").read_text() == "hello\n"
    assert len(lab.children) == 2
    assert len(lab.events(AgentSessionOpened)) == 1


async def test_after_a_crash_of_podium_the_open_request_is_still_the_same_and_is_not_asked_twice(lab: AgentLab) -> None:
    script = [lab.write(), "It is written."]
    async with lab.session(script) as session, create_task_group() as group:
        group.start_soon(session.ask, "Write it.")
        await lab.wait_for(PermissionAsked)
        group.cancel_scope.cancel()

    async with lab.session(script) as session, create_task_group() as group:
        group.start_soon(lab.answer_request, "once")
        reply = await session.ask("Write it.")

    assert reply.text == "It is written."
    assert (lab.repo / "made.txt").exists()
    assert len(lab.events(PermissionAsked)) == 1
    assert len(lab.events(AgentSessionOpened)) == 1


async def test_a_restart_between_turns_continues_the_agents_own_session(lab: AgentLab) -> None:
    script = ["First.", "Second."]
    async with lab.session(script) as session:
        await session.ask("One?")

    async with lab.session(script) as session:
        await session.ask("One?")
        reply = await session.ask("Two?")

    assert reply.text == "Second."
    assert len(lab.events(AgentSessionOpened)) == 1


async def test_a_lost_session_is_replaced_by_one_that_knows_the_conversation(lab: AgentLab) -> None:
    async with lab.session(["First."]) as session:
        await session.ask("One?")
    lab.forget_sessions()

    async with lab.session(["Again."]) as session:
        await session.ask("One?")
        reply = await session.ask("Two?")

    assert reply.text == "Again."
    assert len(lab.events(AgentSessionOpened)) == 2
    if lab.server is not None:
        told = lab.server.calls[-1].call.messages[-1].text
        assert "[you were asked]\n> One?\n\n[you replied]\n> First." in told
