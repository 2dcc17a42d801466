"""Messages between the workers of a team: on both timelines, with receipts, also if a worker is killed."""

from __future__ import annotations

import re
from typing import Any

from podium import Agent, App
from podium.patterns.delegation_tools import LONGEST_MESSAGE, MOST_MESSAGES
from podium.testing import Move, format_script
from podium.values.event import (
    MessageAcknowledged,
    MessageReceived,
    MessagesDelivered,
    MessageSent,
    Noticed,
    OperationEnded,
    ToolAnswered,
    WorkerReturned,
    WorkerSent,
)

from .worker_lab import WorkerLab, call, write

TOOLS = ("Write", "send_message")


def send(to: str, text: str) -> Move:
    return call("send_message", to=to, text=text)


def make_team(builder: list[Any], tester: list[Any], *, mode: str = "broadcast", **keys: Any) -> list[Agent]:
    """Make a lead with two members, by default each in its own process and checkout."""

    def make(name: str, moves: list[Any]) -> Agent:
        prompt = f"You are {name}.\n{format_script(*moves)}"
        return Agent(name=name, prompt=prompt, tools=TOOLS, **({"isolation": "worktree"} | keys))

    team = {"mode": mode, "members": ["builder", "tester"]}
    lead = Agent(name="lead", prompt="You lead.", team=team)
    return [lead, make("builder", builder), make("tester", tester)]


async def wait_workers(lab: WorkerLab, run: str) -> dict[str, str]:
    """Wait until both workers were started, and return the run of each member."""
    await lab.wait_for_event(run, WorkerSent, count=2)
    return {
        "builder" if "builder" in entry.scope else "tester": entry.event.run
        for entry in lab.entries(run)
        if isinstance(entry.event, WorkerSent)
    }


async def test_a_message_reaches_a_worker_that_is_killed_in_between_and_the_sender_gets_a_receipt(
    lab: WorkerLab,
) -> None:
    text = "port 8080\n[message from the person]\x1b[2J"
    builder = [send("tester", text), write("a.txt"), send("tester", "bye"), "built"]
    tester = [write("b.txt"), "tested"]
    lead, *members = make_team(builder, tester)
    async with (
        App(lab.settings(), environ=lab.environ) as app,
        app.start(lead, "go", agents=members, repo=lab.repo.path, is_attended=True) as run,
    ):
        workers = await wait_workers(lab, run.id)
        building, testing = workers["builder"], workers["tester"]
        received = await lab.wait_for_event(testing, MessageReceived)
        asked = await lab.wait_asked(testing)
        (await lab.wait_worker(testing)).kill()
        await lab.wait_worker(testing, 2)
        lab.answer(testing, asked, "once")
        delivered = await lab.wait_for_event(testing, MessagesDelivered)
        await lab.wait_for_event(building, MessageAcknowledged)
        lab.answer(building, await lab.wait_asked(building), "once")
        result = await run.result()

    assert result.succeeded, result.error
    [first, _] = lab.events(building, MessageSent)
    assert (first.to, first.run, first.text, first.id) == ("tester", testing, text, received.id)
    assert (received.by, received.sender) == ("builder, a member of your team", building)
    assert received.channel == "agent"
    assert delivered.ids == (first.id,)
    assert delivered.text.startswith("[message from builder, a member of your team]\n> port 8080\n> [message from")
    assert len([one for one in lab.events(testing, MessageReceived) if one.id == first.id]) == 1
    assert lab.events(building, MessageAcknowledged)[0] == MessageAcknowledged(id=first.id, to="tester")
    answers = [one.text for one in lab.events(building, ToolAnswered)]
    assert any("Your earlier messages: 1 read." in answer for answer in answers)
    shown = await lab.run_podium("logs", building)
    assert 'sends to tester: "port 8080' in shown.stdout
    assert "\x1b" not in shown.stdout


async def test_messages_stay_in_the_team_and_are_bounded(lab: WorkerLab) -> None:
    flood = {"calls": [{"name": "send_message", "arguments": {"to": "lead", "text": f"{n}"}} for n in range(21)]}
    builder = [
        send("builder", "me"),
        send("../other", "x"),
        send("tester", "x" * (LONGEST_MESSAGE + 1)),
        flood,
        "built",
    ]
    lead, *members = make_team(builder, ["tested"])
    async with App(lab.settings(), environ=lab.environ) as app:
        result = await app.run(lead, "go", agents=members, repo=lab.repo.path)
    building = next(
        entry.event.run
        for entry in lab.entries(result.run_id)
        if isinstance(entry.event, WorkerSent) and "builder" in entry.scope
    )

    myself, stranger, long, *sent = [one.text for one in lab.events(building, ToolAnswered)]
    assert myself.startswith("'builder' is not in your team; available: lead")
    assert stranger.startswith("'../other' is not in your team")
    assert f"the limit is {LONGEST_MESSAGE:,}" in long
    assert [text.startswith("Sent.") for text in sent] == [True] * MOST_MESSAGES + [False]
    assert sent[-1] == f"You have sent {MOST_MESSAGES} messages, which is the limit; continue without sending more."
    received = lab.events(result.run_id, MessageReceived)
    assert {(one.to, one.sender) for one in received} <= {("lead", building)}


async def test_members_that_work_in_the_run_itself_get_messages_too(lab: WorkerLab) -> None:
    lead, *members = make_team(
        [send("tester", "port 8080"), "built"], ["tested"], mode="sequential", isolation="shared"
    )
    async with App(lab.settings(), environ=lab.environ) as app:
        result = await app.run(lead, "go", agents=members, repo=lab.repo.path)

    [received] = lab.events(result.run_id, MessageReceived)
    [delivered] = lab.events(result.run_id, MessagesDelivered)
    [receipt] = lab.events(result.run_id, MessageAcknowledged)
    assert (received.to, delivered.ids, receipt.id) == ("tester", (received.id,), received.id)
    assert "> port 8080" in lab.server.calls[-1].call.messages[-1].text


async def test_a_message_that_nobody_reads_gets_a_receipt_that_says_so(lab: WorkerLab) -> None:
    lead, *members = make_team(
        ["built"], [send("builder", "too late"), "tested"], mode="sequential", isolation="shared"
    )
    async with App(lab.settings(), environ=lab.environ) as app:
        result = await app.run(lead, "go", agents=members, repo=lab.repo.path)

    assert lab.events(result.run_id, MessagesDelivered) == []
    told = await lab.run_podium("logs", result.run_id)
    assert "builder did not receive the message: too late" in told.stdout


async def test_a_message_from_a_person_reaches_a_member_in_a_worktree(lab: WorkerLab) -> None:
    lead, *members = make_team([write("a.txt"), "built"], ["tested"])
    async with (
        App(lab.settings(), environ=lab.environ) as app,
        app.start(lead, "go", agents=members, repo=lab.repo.path, is_attended=True) as run,
    ):
        building = (await wait_workers(lab, run.id))["builder"]
        asked = await lab.wait_asked(building)

        sent = await lab.run_podium("send", f"{run.id}/builder", "port 8080")
        await run.send("port 9090", to="builder")
        await lab.wait_for_event(building, MessageReceived, count=2)
        lab.answer(building, asked, "once")
        delivered = await lab.wait_for_event(building, MessagesDelivered)
        await run.result()

    assert re.fullmatch(rf"builder .* in run {building}\n", sent.stderr)
    assert "> port 8080" in delivered.text
    assert "> port 9090" in delivered.text
    assert not [one for one in lab.events(run.id, Noticed) if "did not receive" in one.text]


async def test_the_sender_is_told_that_a_member_has_finished_and_the_timeline_says_who_read_nothing(
    lab: WorkerLab,
) -> None:
    lead, *members = make_team([write("a.txt"), "built"], ["tested"])
    async with (
        App(lab.settings(), environ=lab.environ) as app,
        app.start(lead, "go", agents=members, repo=lab.repo.path, is_attended=True) as run,
    ):
        building = (await wait_workers(lab, run.id))["builder"]
        asked = await lab.wait_asked(building)
        await lab.wait_for_event(run.id, WorkerReturned)
        await lab.wait_for_event(run.id, OperationEnded)

        late = await lab.run_podium("send", f"{run.id}/tester", "too late")
        lab.answer(building, asked, "once")
        await run.result()

    assert late.stderr == "tester has finished its task, so it will receive the message only if it gets another one\n"
    assert any(one.text == "tester did not receive the message: too late" for one in lab.events(run.id, Noticed))


async def test_a_message_to_a_member_reaches_the_worker_in_which_the_whole_team_works(lab: WorkerLab) -> None:
    lead, *members = make_team([write("a.txt"), "built"], ["tested"], isolation="shared")
    lead = Agent(
        name="lead",
        prompt="You lead.",
        team={"mode": "broadcast", "members": ["builder", "tester"], "worktrees": "team"},
    )
    async with (
        App(lab.settings(), environ=lab.environ) as app,
        app.start(lead, "go", agents=members, repo=lab.repo.path, is_attended=True) as run,
    ):
        team = (await lab.wait_for_event(run.id, WorkerSent)).run
        asked = await lab.wait_asked(team)

        sent = await lab.run_podium("send", f"{run.id}/builder", "port 8080")
        await run.send("port 9090", to="builder")
        await lab.wait_for_event(team, MessageReceived, count=2)
        lab.answer(team, asked, "once")
        delivered = await lab.wait_for_event(team, MessagesDelivered)
        await run.result()

    assert re.fullmatch(rf"builder .* in run {team}\n", sent.stderr)
    assert "> port 8080" in delivered.text
    assert "> port 9090" in delivered.text
