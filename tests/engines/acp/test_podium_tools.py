"""Podium's own tools in the hands of coding agents: called without a request, once, and never with a forged token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group
from msgspec import structs

from podium.core.engine import Tool, ToolAnswer
from podium.core.scope import Scope
from podium.engines.acp import agent_session
from podium.engines.acp.agent_tool_call import PodiumTools
from podium.engines.coordination.coordination_session import CoordinationSession
from podium.policy import Rules
from podium.tools.toolset import ask_person_tool, report_status_tool
from podium.values.event import (
    ActionBegan,
    ActionRefused,
    AgentSessionOpened,
    ModelReplied,
    Noticed,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    StatusReported,
    ToolAnswered,
    ToolCalled,
    ToolUse,
    TurnEnded,
)

from ...installed_agents import find_goose
from .agent_lab import AgentLab

CALL, APPROVAL = {"is_mcp_tool_call": True}, {"is_mcp_tool_approval": True}


def hand_in_tool() -> Tool:
    """Return a tool that records a status and ends the turn."""

    async def hand_in(call: ToolUse, scope: Scope) -> ToolAnswer:
        scope.record(StatusReported(text=f"handed in {call.arguments['text']}"))
        return ToolAnswer(text="noted", ends_turn=True, is_reply=True)

    return Tool(name="hand_in", description="Hand it in.", parameters=report_status_tool().parameters, answer=hand_in)


@pytest.fixture(params=["scripted", "goose"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AgentLab:
    if request.param == "goose":
        find_goose()
    return AgentLab(request.param, tmp_path, is_sandboxed=True)


async def answer_question(lab: AgentLab, text: str) -> None:
    question = await lab.wait_for(QuestionAsked)
    lab.timeline.append(QuestionAnswered(id=question.id, text=text), scope="")


async def test_it_calls_a_tool_at_once_and_the_call_is_on_record_once(lab: AgentLab) -> None:
    lab.tools = (report_status_tool(),)
    script = [lab.call("report_status", text="half done"), lab.call("report_status", text=""), "It is done."]

    async with lab.session(script) as session:
        reply = await session.ask("Report.")

    assert reply.text == "It is done."
    assert [call.name for call in reply.calls] == ["report_status", "report_status"]
    assert [event.text for event in lab.events(StatusReported)] == ["half done"]
    called, answered = lab.events(ToolCalled), lab.events(ToolAnswered)
    assert [(event.action.agent, event.action.tool) for event in called] == [("worker", "report_status")] * 2
    assert [event.is_error for event in answered] == [False, True]
    assert lab.events(PermissionAsked, ActionBegan, ActionRefused, Noticed) == []


async def test_a_tool_that_ends_the_turn_stops_the_agent_which_goes_on_in_the_next_turn(lab: AgentLab) -> None:
    lab.tools = (hand_in_tool(),)
    script = [lab.call("hand_in", text="it"), "Second.", "Third."]

    async with lab.session(script) as session:
        reply = await session.ask("Hand it in.")
        assert [event.text for event in lab.events(StatusReported)] == ["handed in it"]
        again = await session.ask("And now?")

    assert ([call.name for call in reply.calls], reply.text) == (["hand_in"], "I call hand_in.")
    assert lab.events(ModelReplied)[0].stop == "tool"
    assert [end.outcome for end in lab.events(TurnEnded)] == ["succeeded", "succeeded"]
    if lab.server is None:
        assert again.text in ("Second.", "Third.")  # a fast agent has gone on before it is stopped
    else:  # goose forgets a turn in which it was stopped
        told = [call.call.messages[-1].text for call in lab.server.calls]
        assert any('do not repeat them:\n- hand_in {"text":"it"}\n\nAnd now?' in text for text in told)


async def test_after_a_crash_the_open_question_is_not_asked_again(lab: AgentLab) -> None:
    lab.tools = (ask_person_tool(None), report_status_tool())
    ask = lab.call("ask_person", question="Which?")
    script = [lab.call("report_status", text="begun"), ask, "It is done."]
    async with lab.session(script) as session, create_task_group() as group:
        group.start_soon(session.ask, "Ask.")
        await lab.wait_for(QuestionAsked)
        group.cancel_scope.cancel()

    async with lab.session(script) as session, create_task_group() as group:
        group.start_soon(answer_question, lab, "the blue one")
        reply = await session.ask("Ask.")

    assert reply.text == "It is done."
    assert {call.name for call in reply.calls} == {"report_status", "ask_person"}
    assert len(lab.events(QuestionAsked)) == 1
    assert [event.text for event in lab.events(StatusReported)] == ["begun"]
    assert [event.text for event in lab.events(ToolAnswered)] == ["noted", "the blue one"]
    assert len(lab.events(AgentSessionOpened)) == 1


async def test_an_agent_that_is_killed_after_a_call_does_not_make_it_again(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path)
    lab.tools = (report_status_tool(), ask_person_tool(None))
    calls = [{"name": "report_status", "arguments": {"text": "begun"}}]
    calls += [{"name": "ask_person", "arguments": {"question": "Which?"}}]

    async with (
        lab.session([{"says": "I ask.", "calls": calls}, "It is done."]) as session,
        create_task_group() as group,
    ):

        async def kill_and_answer() -> None:
            await lab.wait_for(QuestionAsked)
            await lab.children[0].end(grace=0)
            await answer_question(lab, "blue")

        group.start_soon(kill_and_answer)
        reply = await session.ask("Ask.")

    assert reply.text == "It is done."
    assert len(lab.children) == 2
    assert [type(event) for event in lab.events(StatusReported, QuestionAsked)] == [StatusReported, QuestionAsked]
    assert [event.text for event in lab.events(ToolAnswered)] == ["noted", "blue"]


async def test_a_call_that_ended_the_turn_is_the_reply_even_if_podium_crashed_right_after_it(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path)
    lab.tools = (hand_in_tool(),)
    async with lab.session([lab.call("hand_in", text="it"), "Never said."]) as session, create_task_group() as group:
        group.start_soon(session.ask, "Hand it in.")
        await lab.wait_for(ToolAnswered)
        group.cancel_scope.cancel()
    assert lab.events(ModelReplied) == []

    async with lab.session([]) as session:
        reply = await session.ask("Hand it in.")

    assert [call.name for call in reply.calls] == ["hand_in"]
    assert [event.text for event in lab.events(StatusReported)] == ["handed in it"]
    assert [event.stop for event in lab.events(ModelReplied)] == ["tool"]
    assert len(lab.children) == 1


@pytest.mark.parametrize("is_sandboxed", [True, False])
async def test_an_agent_without_http_gets_the_tools_on_stdio(tmp_path: Path, is_sandboxed: bool) -> None:
    lab = AgentLab("scripted", tmp_path, "--no-http", is_sandboxed=is_sandboxed)
    lab.tools = (report_status_tool(),)

    async with lab.session([lab.call("report_status", text="over stdio"), "Done."]) as session:
        await session.ask("Report.")

    assert [event.text for event in lab.events(StatusReported)] == ["over stdio"]
    assert lab.events(PermissionAsked) == []


async def test_a_call_that_an_agent_reports_as_a_command_needs_no_request_if_it_is_marked(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--marked-mcp")
    lab.tools = (report_status_tool(),)

    async with lab.session([lab.call("report_status", text="half done"), "Done."]) as session:
        reply = await session.ask("Report.")

    assert reply.text == "Done."
    assert [event.text for event in lab.events(StatusReported)] == ["half done"]
    assert [event.action.tool for event in lab.events(ToolCalled)] == ["report_status"]
    assert lab.events(PermissionAsked, ActionBegan, ActionRefused) == []


async def test_two_agents_in_one_process_have_their_own_tools(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path)
    lab.program = structs.replace(lab.program, shares_process=True)
    lab.tools = (report_status_tool(),)

    async with lab.session([lab.call("report_status", text="here"), "Done."]) as session:
        other = lab.make_session("other")
        async with create_task_group() as group:
            group.start_soon(session.ask, "Report.")
            group.start_soon(other.ask, "Report.")
        await other.aclose()

    assert len(lab.children) == 1
    assert sorted(event.action.agent for event in lab.events(ToolCalled)) == ["other", "worker"]


async def test_an_agent_that_never_asks_for_the_tools_is_prompted_all_the_same_and_that_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_session, "LIST_SECONDS", 0.1)
    lab = AgentLab("scripted", tmp_path, "--no-mcp")
    lab.tools = (report_status_tool(),)

    async with lab.session(["Done."]) as session:
        reply = await session.ask("Report.")

    assert reply.text == "Done."
    assert (
        lab.events(Noticed)[-1].text == "scripted has not requested the list of Podium's tools, so it cannot use them."
    )


async def test_a_row_can_turn_the_tools_off(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path)
    lab.program = structs.replace(lab.program, mcp="off")
    lab.tools = (report_status_tool(),)
    lab.rules = Rules(allow=("scripted__other",))

    async with lab.session([lab.call("report_status", text="x"), "Done."]) as session:
        await session.ask("Report.")

    assert [event.text for event in lab.events(ToolAnswered)] == ["no tool report_status"]


@pytest.mark.parametrize(
    ("message", "earlier", "found"),
    [
        ({"title": "podium: ask person", "_meta": {"goose": {"toolCall": {"toolName": "podium__ask_person"}}}}, "", 1),
        ({"title": "podium: ask person", "kind": "other"}, "", 1),
        ({"title": "podium-ask_person", "kind": "other"}, "", 1),
        ({"title": "podium_ask_person"}, "", 1),
        ({"title": "mcp__podium__ask_person"}, "", 1),
        ({"title": "mcp.podium.ask_person"}, "", 1),
        ({"title": "Tool: podium/ask_person"}, "", 1),
        ({"title": "ask_person (podium MCP Server)"}, "", 1),
        ({"title": "ask_person", "kind": "other"}, "ask_person", 1),
        ({"status": "completed"}, "ask_person", 1),
        ({"title": "ask_person", "kind": "other"}, "", 0),
        ({"title": "podium__remove_all"}, "", 0),
        ({"title": "other__ask_person"}, "", 0),
        ({"title": "podium-ask_person", "kind": "execute"}, "ask_person", 0),
        ({"title": "rm -rf .", "kind": "other"}, "ask_person", 0),
        ({"title": "podium-ask_person; rm -rf ."}, "", 0),
        ({"kind": "execute", "_meta": CALL, "rawInput": {"server": "podium", "tool": "ask_person"}}, "", 1),
        ({"kind": "execute", "_meta": APPROVAL}, "ask_person", 1),
        ({"kind": "execute", "_meta": APPROVAL}, "", 0),
        ({"kind": "execute"}, "ask_person", 0),
        ({"kind": "execute", "rawInput": {"server": "podium", "tool": "ask_person"}}, "", 0),
        ({"kind": "execute", "_meta": CALL, "rawInput": {"server": "other", "tool": "ask_person"}}, "ask_person", 0),
        ({"kind": "execute", "_meta": CALL, "rawInput": {"server": "podium", "tool": "remove_all"}}, "", 0),
        ({"kind": "execute", "_meta": CALL, "rawInput": {"command": "ls"}, "title": "podium-ask_person"}, "", 0),
    ],
)
def test_podiums_tools_are_recognised_by_the_names_that_agents_give_them(
    message: dict[str, Any], earlier: str, found: int
) -> None:
    async def refuse(*asked: Any) -> None:
        raise AssertionError

    tools = PodiumTools(CoordinationSession((ask_person_tool(None),), agent="a"), refuse)

    assert tools.recognise_call(message, earlier) == ("ask_person" if found else "")
