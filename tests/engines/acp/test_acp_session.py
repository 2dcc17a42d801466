"""Turns of a coding agent that are not straightforward: refusals, messages, limits and agents with habits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from anyio import create_task_group
from msgspec import structs

from podium.core.session import Session
from podium.engines.acp import agent_process, prompt_handler
from podium.policy import Rules
from podium.values.agent import Budget
from podium.values.errors import AgentFailed
from podium.values.event import (
    ActionBegan,
    ActionRefused,
    AgentSessionOpened,
    CallCut,
    MessageReceived,
    MessagesDelivered,
    ModelReplied,
    PermissionAsked,
    TextStreamed,
    ToolAnswered,
    TurnEnded,
)
from podium.values.usage import TurnLimits

from .agent_lab import AgentLab


@pytest.fixture
def lab(tmp_path: Path) -> AgentLab:
    return AgentLab("scripted", tmp_path)


async def test_an_agent_that_stops_at_a_refusal_is_told_why_and_goes_on_in_the_same_turn(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--after-denial", "ends_turn")
    lab.program = structs.replace(lab.program, after_denial="ends_turn")
    lab.rules = Rules(deny=("Write",))

    async with lab.session([lab.write(), "I did without it."]) as session:
        reply = await session.ask("Write it.")

    assert reply.text == "I did without it.\n\n[not permitted] write_file made.txt: Write denies it"
    assert [replied.text for replied in lab.events(ModelReplied)] == ["I call write_file.", "I did without it."]
    assert len(lab.events(TurnEnded)) == 1


async def test_an_agent_that_only_stops_at_refusals_has_failed_and_is_not_done(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--after-denial", "ends_turn")
    lab.program = structs.replace(lab.program, after_denial="ends_turn")
    lab.rules = Rules(deny=("Write",))
    silent = {**lab.write(), "says": ""}

    async with lab.session([silent] * 8) as session:
        with pytest.raises(
            AgentFailed, match=r"it stopped after \[not permitted\] write_file made.txt: Write denies it"
        ):
            await session.ask("Write it.")

    assert not (lab.repo / "made.txt").exists()


async def test_an_agent_that_ignores_a_denial_is_on_record(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--after-denial", "ignores")
    lab.rules = Rules(deny=("Write",))

    async with lab.session([lab.write(), "Done."]) as session:
        reply = await session.ask("Write it.")

    assert "[not permitted]" in reply.text
    assert len(lab.events(ActionRefused)) == 1
    assert [(answer.text, answer.is_error) for answer in lab.events(ToolAnswered)] == [("Wrote made.txt.", False)]


async def test_an_action_without_a_request_is_on_record(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--unasked")
    (lab.repo / "there.txt").write_text("text")

    async with lab.session([lab.call("read_file", path="there.txt"), lab.write(), "Done."]) as session:
        await session.ask("Write it.")

    [began] = lab.events(ActionBegan)
    assert (began.action.tool, began.allowed_by) == ("write_file", "nobody (the agent did not request permission)")


async def test_a_message_of_a_person_is_the_next_prompt_of_the_same_turn(lab: AgentLab) -> None:
    async with lab.session([{"says": "First.", "pieces": 2, "pace": 0.6}, "Second."]) as session:
        async with create_task_group() as group:

            async def send_message() -> None:
                await lab.wait_for(TextStreamed)
                lab.timeline.append(MessageReceived(id="m", to="worker", text="Also this."), scope="")

            group.start_soon(send_message)
            reply = await session.ask("Begin.")

    assert reply.text == "First.\n\nSecond."
    assert len(lab.events(ModelReplied)) == 2


SLOW = {"says": "one two three four", "pieces": 4, "pace": 0.3}


async def ask_and_interject(lab: AgentLab, session: Session, prompt: str) -> str:
    """Take a turn, send the agent a message as soon as it begins to answer, and return the reply."""
    async with create_task_group() as group:

        async def send_message() -> None:
            await lab.wait_for(TextStreamed)
            lab.timeline.append(MessageReceived(id="m", to="worker", text="Also this."), scope="")

        group.start_soon(send_message)
        reply = await session.ask(prompt)
    return reply.text


async def test_an_agent_that_can_be_steered_gets_a_message_while_it_works(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--steering")

    async with lab.session([SLOW]) as session:
        reply = await ask_and_interject(lab, session, "Begin.")

    assert "[heard > Also this.]" in reply
    assert len(lab.events(ModelReplied)) == 1


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentLab:
    """An agent that says that it can be steered, and never replies to a message."""
    monkeypatch.setattr(prompt_handler, "STEERING_SECONDS", 0.1)
    return AgentLab("scripted", tmp_path, "--steering", "silent")


async def test_a_message_that_an_agent_does_not_reply_to_is_part_of_its_next_prompt(silent: AgentLab) -> None:
    async with silent.session([SLOW, "Second."]) as session:
        reply = await ask_and_interject(silent, session, "Begin.")

    assert reply == "one two three four\n\nSecond."
    assert len(silent.events(MessagesDelivered)) == 1


async def test_a_message_that_an_agent_did_not_reply_to_survives_an_interruption(silent: AgentLab) -> None:
    script = [SLOW, {"says": "Second.", "delay": 3}]
    async with silent.session(script) as session, create_task_group() as group:
        group.start_soon(ask_and_interject, silent, session, "Begin.")
        await silent.wait_for(MessagesDelivered)
        group.cancel_scope.cancel()

    async with silent.session(script) as session:
        reply = await session.ask("Begin.")

    assert "Also this." in read_prompts(silent)[-1]
    assert reply.text == "one two three four\n\nSecond."


async def test_a_message_that_an_agent_did_not_reply_to_is_part_of_the_turn_after_a_failed_one(
    silent: AgentLab,
) -> None:
    (silent.repo / "a.txt").touch()
    reading = {**SLOW, "calls": silent.call("read_file", path="a.txt")["calls"]}
    async with silent.session([reading, {"fails": {"message": "no credit left"}}]) as session:
        with pytest.RaisesGroup(pytest.RaisesExc(AgentFailed, match="no credit left")):
            await ask_and_interject(silent, session, "Begin.")
        assert silent.events(MessagesDelivered) == []
        with pytest.raises(AgentFailed, match="no credit left"):
            await session.ask("Go on.")

    [told] = [prompt for prompt in read_prompts(silent) if "Go on." in prompt]
    assert "Also this." in told


async def test_an_agent_that_forgets_its_session_gets_a_message_that_it_had_accepted_again(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--steering", "--forgetful")
    async with lab.session([SLOW]) as session, create_task_group() as group:
        group.start_soon(ask_and_interject, lab, session, "Begin.")
        await lab.wait_for(MessagesDelivered)
        lab.children[-1].signal_group(signal.SIGKILL)

    assert len(lab.children) == 2
    assert sorted("Also this." in prompt for prompt in read_prompts(lab)) == [False, True]


def read_prompts(lab: AgentLab) -> list[str]:
    """Return the prompts in the sessions that the scripted agent has saved."""
    saved = [json.loads(path.read_text()) for path in (lab.folder / "home").rglob("session-*.json")]
    return [text for session in saved for role, text in session["said"] if role == "user"]


async def test_junk_between_messages_changes_nothing(lab: AgentLab) -> None:
    async with lab.session([{"says": "Clear.", "garbled": True, "stop": "because_of_the_moon"}]) as session:
        reply = await session.ask("Speak.")

    assert reply.text == "Clear."
    assert lab.events(ModelReplied)[0].stop == "because_of_the_moon"


async def test_usage_that_is_not_reported_is_estimated_and_marked(lab: AgentLab) -> None:
    async with lab.session(["The answer."]) as session:
        await session.ask("What?")

    [replied] = lab.events(ModelReplied)
    assert (replied.usage.estimated, replied.usage.unpriced, replied.usage.output_tokens) == (1, 1, 3)


async def test_an_agent_that_dies_again_and_again_fails_the_turn_with_how_it_ended(lab: AgentLab) -> None:
    async with lab.session([{"says": "I will now", "half": True}]) as session:
        with pytest.raises(AgentFailed, match="scripted exited with code 3"):
            await session.ask("Speak.")

    assert len(lab.children) == 2
    assert len(lab.events(CallCut)) == 2


async def test_an_error_of_the_agent_is_reported_in_its_words(lab: AgentLab) -> None:
    async with lab.session([{"fails": {"message": "no credit left"}}]) as session:
        with pytest.raises(AgentFailed, match="scripted reports an error: no credit left"):
            await session.ask("Speak.")


async def test_silence_ends_the_turn(lab: AgentLab) -> None:
    async with lab.session([{"silent": True}], turn_limits=TurnLimits(thinking=3)) as session:
        with pytest.raises(AgentFailed, match="timed out after 3 s without output"):
            await session.ask("Speak.")


async def test_an_exhausted_budget_stops_the_next_prompt(lab: AgentLab) -> None:
    lab.budget = Budget(turns=1)

    async with lab.session(["First.", "Second."]) as session:
        await session.ask("One?")
        with pytest.raises(AgentFailed, match="budget of 1 model calls is not enough"):
            await session.ask("Two?")


async def test_a_limit_on_changed_files_stops_the_agent(lab: AgentLab) -> None:
    lab.budget = Budget(files_changed=0)
    lab.rules = Rules(allow=("Write",))

    async with lab.session([lab.write(), "Done."]) as session:
        with pytest.raises(AgentFailed, match="budget of 0 changed files would be exceeded"):
            await session.ask("Write it.")

    assert not (lab.repo / "made.txt").exists()


async def test_an_agent_without_the_mode_in_which_it_asks_is_not_used(lab: AgentLab) -> None:
    lab.program = structs.replace(lab.program, mode="careful")

    async with lab.session(["Hi."]) as session:
        with pytest.raises(
            AgentFailed, match="not offer careful, the mode in which it asks for permission; it offers: auto, ask"
        ):
            await session.ask("Speak.")


async def test_an_agent_that_cannot_load_sessions_gets_the_conversation_as_text(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--forgetful")
    async with lab.session(["First."]) as session:
        await session.ask("One?")

    async with lab.session([]) as session:
        await session.ask("One?")
        reply = await session.ask("Two?")

    assert reply.text == "ok: [your instructions]"
    assert len(lab.events(AgentSessionOpened)) == 2


async def test_a_reply_that_was_refused_is_not_in_the_conversation_any_more(lab: AgentLab) -> None:
    async with lab.session(["Wrong.", "Right."]) as session:
        await session.ask("One?")
        await session.refuse_reply()
        reply = await session.ask("Again?")

    assert reply.text == "Wrong."  # the first step of the script, because the session is a new one
    assert len(lab.events(AgentSessionOpened)) == 2


async def test_an_answer_to_a_request_of_a_dead_agent_does_not_begin_an_action_that_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_process, "DRAIN_SECONDS", 2.0)
    lab = AgentLab("scripted", tmp_path, "--forgetful")
    async with lab.session([lab.write(), "It is written."]) as session, create_task_group() as group:

        async def kill_and_allow() -> None:
            await lab.wait_for(PermissionAsked)
            lab.script.write_text(json.dumps(["I leave it."]))
            [agent] = lab.children
            output = os.open(f"/proc/{agent.pid}/fd/1", os.O_WRONLY)  # a child that left its group could hold it too
            await agent.end(grace=0)
            await lab.answer_request("once")
            await lab.wait_for(CallCut)
            os.close(output)

        group.start_soon(kill_and_allow)
        reply = await session.ask("Write it.")

    assert reply.text == "I leave it."
    assert len(lab.children) == 2
    assert lab.events(ActionBegan) == []
    assert not (lab.repo / "made.txt").exists()
