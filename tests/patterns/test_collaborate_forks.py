"""Forks of a collaborating team's work: finished steps are kept, and the rest can go another way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium import App, Result, Settings
from podium.engines.model.model_wire import ModelCall
from podium.engines.script import Move, last_request
from podium.runs.fork_position import HOW_DECIDED
from podium.runs.queries.repository_decisions import find_decision, list_decisions
from podium.testing import ModelServer, read_events
from podium.testing import run_git as git
from podium.values.event import (
    DecisionCommitted,
    ModelReplied,
    PermissionAsked,
    PlanStepCompleted,
    PlanStepStarted,
    PlanStepUnblocked,
    QuestionAsked,
    RunStarted,
    SnapshotTaken,
    WorkEnded,
)

from ..collaboration import Play, add_team, make_plan, make_step, use_tool
from ..studio import Studio
from .test_collaborate import STEP_EVENTS
from .test_collaborate_repository import CODER, repo, run_in, write
from .test_collaborate_worktrees import list_files, make_agents, play, server, settings

__all__ = ["play", "repo", "server", "settings"]

BLOCKER = use_tool("raise_blocker", topic="Tabs or spaces?", options=["tabs", "spaces"], evidence="see the guide")
VOTE = use_tool("cast_ballot", option="tabs", reason="wide")


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    studio = Studio(tmp_path / "home")
    studio.settings = structs.replace(studio.settings, permission_mode="accept-edits")
    return studio


def answer_alike(play: Play) -> Any:
    """Return the replies of a play, the same for the same call of a run and of its forks."""

    def reply(call: ModelCall) -> Move:
        return play(structs.replace(call, key=call.key.partition("/")[2]))

    return reply


async def finish(app: App, run: str) -> Result:
    async with app.resume(run) as live:
        return await live.result()


def list_calls(studio: Studio, run: str, up_to: int) -> set[str]:
    """Return the model calls that a run had finished at an entry."""
    finished = [entry for entry in studio.entries(run) if isinstance(entry.event, ModelReplied) and entry.seq <= up_to]
    return {without_decision(entry.key) for entry in finished}


def without_decision(key: str) -> str:
    """Return a key without the id of the decision in it, which differs between a run and its fork."""
    return re.sub(r"decision:\w+", "decision", key)


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_fork_at_any_entry_ends_the_same_and_makes_no_earlier_call_again(studio: Studio, stride: int) -> None:
    steps = [make_step("s1", "ada"), make_step("s2", "bob"), make_step("s3", "ada", "s1", "s2")]
    play = Play(
        plan=make_plan(*steps),
        vote=VOTE,
        **{
            "ada/step:s1": [use_tool("handoff_step", to="bob", reason="r")],
            "bob/step:s2": [BLOCKER, "done"],
            "review:s3": ["1: NOT MET: no", "1: MET"],
        },
    )
    add_team(studio, play, "ada", "bob", "cid")
    studio.respond = answer_alike(play)
    source = await studio.run("lead", "go")
    changes = len(studio.events(source, *STEP_EVENTS))
    last = next(entry.seq for entry in studio.entries(source) if entry.key == "lead")

    async with studio.app() as app:
        for at in range(1, last, stride):
            studio.calls.clear()
            shared = list_calls(studio, source.run_id, at)
            fork = await app.fork(source.run_id, at=str(at))
            result = await finish(app, fork)

            assert (result.outcome, result.text) == (source.outcome, source.text), (at, result.error)
            made = {without_decision(call.key.removeprefix(f"{fork}/")) for call in studio.calls}
            assert not made & shared, at
            assert made | shared == list_calls(studio, source.run_id, last), at
            assert len(studio.events(fork, *STEP_EVENTS)) == changes, at
            [unblocked] = studio.events(fork, PlanStepUnblocked)
            assert [unblocked.decision] == [one.decision for one in studio.events(fork, DecisionCommitted)], at


async def test_a_fork_decides_differently_with_the_files_of_the_finished_steps(studio: Studio, repo: Path) -> None:
    play = Play(
        plan=make_plan(make_step("s1", "ada"), make_step("s2", "bob", "s1")),
        vote=VOTE,
        **{"ada/step:s1": [write("a.txt"), "done"], "bob/step:s2": [BLOCKER, write("b.txt"), "done"]},
    )
    add_team(studio, play, "ada", "bob", agents={"ada": CODER, "bob": CODER}, adr=True)
    studio.respond = answer_alike(play)
    source = await run_in(studio, repo)
    [made] = studio.events(source, DecisionCommitted)
    studio.calls.clear()

    async with studio.app() as app:
        fork = await app.fork(source.run_id, decide=(made.decision, "spaces"), by="ada lovelace")
        result = await finish(app, fork)

    [started] = studio.events(fork, RunStarted)
    folder = Path(started.repo)
    assert result.succeeded, result.error
    assert [call.key.split("/")[2] for call in studio.calls] == [
        "plan_step:s2",
        "plan_step:s2",
        "plan_step:s2",
        "turn#1",
    ]
    [changed] = studio.events(fork, DecisionCommitted)
    assert (changed.option, changed.how, changed.by) == ("spaces", HOW_DECIDED, "ada lovelace")
    assert any("> spaces" in text for text in studio.heard("bob"))
    assert ((folder / "a.txt").exists(), (folder / "b.txt").exists()) == (True, True)
    theirs, ours = (next((place / "docs" / "adr").glob("*.md")).read_text() for place in (repo, folder))
    assert "tabs" in theirs.partition("## Decision")[2]
    assert "spaces" in ours.partition("## Decision")[2]


async def test_a_decision_that_a_fork_shares_or_changes_is_listed_once(studio: Studio, repo: Path) -> None:
    play = Play(
        plan=make_plan(make_step("s1", "ada"), make_step("s2", "bob", "s1")),
        vote=VOTE,
        **{"ada/step:s1": [BLOCKER, "done"]},
    )
    add_team(studio, play, "ada", "bob")
    studio.respond = answer_alike(play)
    source = (await run_in(studio, repo)).run_id
    [made] = studio.events(source, DecisionCommitted)
    store = studio.settings.store

    async with studio.app() as app:
        await app.fork(source, at="s1")
        [once] = list_decisions(store, str(repo))
        fork = await app.fork(source, decide=(made.decision, "spaces"))

    assert (once.run, once.id) == (source, made.decision)
    options = {one.run: one.state.committed.option for one in list_decisions(store, str(repo)) if one.state.committed}
    assert options == {fork: "spaces"}
    found = find_decision(store, str(repo), f"{fork[:6]}/{made.decision}").state.committed
    assert found is not None
    assert found.option == "spaces"


async def test_what_a_person_allowed_by_approving_a_plan_is_asked_again(studio: Studio, repo: Path) -> None:
    step = make_step("s1", "ada", policy={"allow": ["Bash(touch:*)"]})
    play = Play(plan=make_plan(step), **{"ada/step:s1": [use_tool("bash", command="touch a.txt"), "done"]})
    add_team(studio, play, "ada", "bob", agents={"ada": CODER}, approve_plan="person")
    studio.settings = structs.replace(studio.settings, sandbox=False)
    studio.respond = answer_alike(play)
    async with studio.app() as app:
        start = app.start(studio.agents["lead"], "ship it", agents=studio.agents.values(), repo=repo, is_attended=True)
        async with start as run:
            async for entry in run.entries():
                if isinstance(entry.event, QuestionAsked):
                    await run.reply(entry.event.id, "approve", by="ada lovelace")

        fork = await app.fork(run.id, at="plan")
        async with app.resume(fork, is_attended=True) as resumed:
            async for entry in resumed.entries():
                if isinstance(entry.event, PermissionAsked):
                    await resumed.answer(entry.event.id, "deny", by="me")

    assert studio.events(run.id, PermissionAsked) == []
    assert [one.action.arguments["command"] for one in studio.events(fork, PermissionAsked)] == ["touch a.txt"]


async def test_a_run_is_retried_from_a_plan_step(studio: Studio, repo: Path) -> None:
    play = Play(
        plan=make_plan(make_step("s1", "ada"), make_step("s2", "bob", "s1")),
        **{"ada/step:s1": [write("a.txt"), "done"], "bob/step:s2": [write("b.txt"), "done"]},
    )
    add_team(studio, play, "ada", "bob", agents={"ada": CODER, "bob": CODER})
    studio.respond = answer_alike(play)
    source = await run_in(studio, repo)
    studio.calls.clear()

    async with studio.app() as app:
        again = await app.retry(source.run_id, start="s2")
        result = await finish(app, again)

    assert result.succeeded, result.error
    assert [one.step for one in studio.events(again, PlanStepStarted)] == ["s1", "s2"]
    assert not [call.key for call in studio.calls if "plan_step:s1" in call.key or "plan#1" in call.key]
    [started] = studio.events(again, RunStarted)
    assert (Path(started.repo) / "a.txt").exists()
    assert (Path(started.repo) / "b.txt").exists()


async def test_work_that_was_not_accepted_is_retried_from_its_first_failed_step(studio: Studio) -> None:
    play = Play(
        plan=make_plan(make_step("s1", "ada"), make_step("s2", "bob", "s1"), make_step("s3", "ada", "s2")),
        **{"review:s2": "1: NOT MET: it is wrong"},
    )
    add_team(studio, play, "ada", "bob")
    studio.respond = answer_alike(play)
    source = await studio.run("lead", "go")
    studio.respond = answer_alike(Play())
    studio.calls.clear()

    async with studio.app() as app:
        result = await finish(app, await app.retry(source.run_id))

    assert (source.outcome, result.outcome) == ("failed", "succeeded")
    assert [one.step for one in studio.events(result, PlanStepCompleted)] == ["s1", "s2", "s3"]
    assert not [call.key for call in studio.calls if "plan_step:s1" in call.key or "plan#" in call.key]


@pytest.mark.slow
async def test_a_fork_builds_on_the_branches_of_finished_steps_and_delivers_its_own(
    settings: Settings, repo: Path, play: Play, server: ModelServer
) -> None:
    play.replies |= {
        "plan": make_plan(make_step("s1", "ada"), make_step("s2", "bob"), make_step("s3", "ada", "s1", "s2")),
        "step:s1": [write("a.txt"), "wrote a"],
        "step:s2": [write("b.txt"), "wrote b"],
        "step:s3": [write("c.txt"), "wrote c", write("d.txt"), "wrote d"],
    }
    agents = make_agents("ada", "bob")
    async with App(settings, environ={}) as app:
        source = await app.run(agents[0], "ship it", agents=agents, repo=repo)
        entries = await app.runs.read_entries(source.run_id)
        at = [entry.event.name for entry in entries if isinstance(entry.event, SnapshotTaken)][2]
        before = len(server.calls)

        fork = await app.fork(source.run_id, at=at)
        result = await finish(app, fork)

    assert result.succeeded, result.error
    assert [one.step for one in read_events(settings.store, fork, PlanStepCompleted)][-1] == "s3"
    (theirs,), (ours,) = (read_events(settings.store, run, WorkEnded) for run in (source.run_id, fork))
    assert (theirs.branch, ours.branch) == (f"podium/{source.run_id}/result", f"podium/{fork}/result")
    assert list_files(repo, theirs.branch) == ["a.txt", "b.txt", "c.txt", "kept.txt"]
    assert list_files(repo, ours.branch) == ["a.txt", "b.txt", "d.txt", "kept.txt"]
    # The owner of s3 writes a file and reports, another member reviews it, and the lead reports.
    assert len(server.calls) - before == 4


@pytest.mark.slow
async def test_a_fork_merges_the_finished_work_of_deleted_branches_and_its_request_reaches_workers(
    settings: Settings, repo: Path, play: Play, server: ModelServer
) -> None:
    play.replies |= {
        "plan": make_plan(make_step("s1", "ada"), make_step("s2", "bob", "s1")),
        "step:s1": [write("a.txt"), "wrote a"],
        "step:s2": [write("b.txt"), "wrote b", write("c.txt"), "wrote c"],
    }
    agents = make_agents("ada", "bob")
    async with App(settings, environ={}) as app:
        source = await app.run(agents[0], "ship it", agents=agents, repo=repo)
        fork = await app.fork(source.run_id, at="s1", request="Mention the price.", by="ada lovelace")
        for ref in git(repo, "for-each-ref", "--format=%(refname)", f"refs/heads/podium/{source.run_id}").split():
            git(repo, "update-ref", "-d", ref)

        result = await finish(app, fork)

    assert result.succeeded, result.error
    assert list_files(repo, f"podium/{fork}/result") == ["a.txt", "c.txt", "kept.txt"]
    owner = next(call.call for call in server.calls if "Mention the price." in last_request(call.call))
    assert owner.messages[-1].text.startswith("You own one step")
    assert "[message from ada lovelace]\n> Mention the price." in owner.messages[-1].text


async def test_an_owner_knows_the_request_of_a_fork_even_if_it_first_heard_it_as_a_reviewer(
    studio: Studio, repo: Path
) -> None:
    play = Play(plan=make_plan(make_step("s1", "ada"), make_step("s2", "bob", "s1")))
    add_team(studio, play, "ada", "bob")
    studio.respond = answer_alike(play)
    source = await run_in(studio, repo)
    studio.calls.clear()

    async with studio.app() as app:
        result = await finish(app, await app.fork(source.run_id, at="plan", request="Mention the price."))

    assert result.succeeded, result.error
    review, step = (text for text in studio.heard("bob") if "Mention the price." in text)
    assert review.startswith("Review one step")
    assert step.startswith("You own one step")
    assert "[context for you only: earlier messages to bob]" in step
