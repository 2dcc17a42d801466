"""Coding agents beside agents of the model engine: in every role, in every mode, and with one inbox."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium import Agent, App, Result, Run
from podium.files.settings_document import Launch
from podium.store.fault_injection import refuse_after
from podium.testing import ModelServer, format_script
from podium.values.agent import Member, Team
from podium.values.errors import Mistake
from podium.values.event import (
    ActionBegan,
    AgentSessionOpened,
    Decision,
    Evaluated,
    HandedOff,
    ModelReplied,
    PermissionAsked,
    PlanStepCompleted,
    PlanStepReviewed,
    Routed,
    TurnStarted,
)
from podium.values.team_modes import Mode

from ...collaboration import Play, add_team, make_plan, make_step
from ...installed_agents import find_goose
from ...studio import Studio

MATE = Launch(command=sys.executable, args=("-m", "podium.testing.acp_agent"), mode="ask", sandbox=False)
DONE = "[[GROUP_REFLECT_COMPLETE]]"


@pytest.fixture
def mates(studio: Studio) -> Studio:
    """Return a studio whose settings define the coding agent `mate`, which plays the script in its first prompt."""
    studio.settings = structs.replace(studio.settings, engines={"mate": MATE})
    return studio


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


def add_mate(studio: Studio, name: str, *moves: Any, **keys: Any) -> Agent:
    prompt = f"You are {name}.\n{format_script(*moves)}"
    studio.agents[name] = Agent(name=name, engine="mate", prompt=prompt, **keys)
    return studio.agents[name]


def write(path: str, tool: str = "write_file") -> dict[str, Any]:
    return {"says": "I write.", "calls": [{"name": tool, "arguments": {"path": path, "content": "x\n"}}]}


async def run(studio: Studio, repo: Path, agent: str, request: str = "go", **options: Any) -> Result:
    async with studio.app(**options) as app:
        return await app.run(studio.agents[agent], request, repo=repo, agents=studio.agents.values())


async def allow_all(started: Run) -> None:
    """Allow every request of a run until it ends."""
    with started.entries() as entries:
        async for entry in entries:
            if isinstance(entry.event, PermissionAsked):
                await started.answer(entry.event.id, "once", by="ada")


async def test_coding_agents_route_advise_work_and_take_a_handoff(mates: Studio, repo: Path) -> None:
    add_mate(mates, "triage", '{"agent": "builder", "reason": "it builds"}', router=True, agents=["builder"])
    add_mate(mates, "expert", "Mind the gap.")
    add_mate(mates, "builder", "It is built.", advisors=["expert"], handoff="reviewer")
    add_mate(mates, "reviewer", "It is good.")

    result = await run(mates, repo, "triage")

    assert result.text == "It is good."
    assert [event.agent for event in mates.events(result, Routed)] == ["builder"]
    assert [event.receiver for event in mates.events(result, HandedOff)] == ["reviewer"]
    assert {event.model for event in mates.events(result, ModelReplied)} == {"mate"}
    prompts = [event.prompt for event in mates.events(result, TurnStarted) if event.agent == "builder"]
    assert "Mind the gap." in prompts[0]


@pytest.mark.parametrize("mode", ["broadcast", "sequential", "orchestrate", "discuss"])
async def test_a_coding_agent_is_a_member_in_every_mode(mates: Studio, repo: Path, mode: Mode) -> None:
    mates.agent("own", says=["own is done"] * 9)
    add_mate(mates, "helper", *["helper is done"] * 9)
    lead = {"orchestrate": ["@worker:own part one\n@worker:helper part two", "All is done."], "discuss": ["the end"]}
    members = (Member(agent="own"), Member(agent="helper"))
    team = Team(mode=mode, members=members, options={"max_rounds": 1} if mode == "discuss" else {})
    mates.agent("lead", says=lead.get(mode, ["ok"]), team=team)

    result = await run(mates, repo, "lead")

    assert result.succeeded
    assert [opened.agent for opened in mates.events(result, AgentSessionOpened)] == ["helper"]
    assert "helper is done" in [event.text for event in mates.events(result, ModelReplied)]


async def test_a_coding_agent_owns_and_reviews_steps_of_a_collaboration(mates: Studio, repo: Path) -> None:
    plan = make_plan(make_step("s1", "ada"), make_step("s2", "helper", "s1"))
    add_team(mates, Play(plan=plan, report="all is done"), "ada", "helper")
    add_mate(mates, "helper", *["ACCEPT\n1: MET"] * 9)

    result = await run(mates, repo, "lead")

    assert result.text == "all is done"
    steps = [(one.step, one.owner) for one in mates.events(result, PlanStepCompleted)]
    assert steps == [("s1", "ada"), ("s2", "helper")]
    assert [one.reviewer for one in mates.events(result, PlanStepReviewed)] == ["helper", "ada"]


async def test_a_coding_agent_evaluates_what_another_one_did(mates: Studio, repo: Path) -> None:
    add_mate(mates, "worker", "my work")
    add_mate(mates, "judge", "SCORE: 0.95\nRATIONALE: good")
    team = Team(mode="reflect", members=(Member(agent="worker"),), evaluator="judge", options={"max_iterations": 2})
    mates.agent("lead", says=["@worker:worker do it", f"It is good. {DONE}", "The end."], team=team)

    result = await run(mates, repo, "lead")

    assert result.succeeded
    assert [(event.score, event.rationale) for event in mates.events(result, Evaluated)] == [(0.95, "good")]


async def test_requests_of_both_kinds_of_members_are_in_one_inbox(mates: Studio, repo: Path) -> None:
    mates.agent("own", says=[write("own.txt"), "own is done"], tools=("Write",))
    add_mate(mates, "helper", write("helper.txt"), "helper is done")
    mates.agent("lead", team=Team(mode="broadcast", members=(Member(agent="own"), Member(agent="helper"))))

    async def answer_all(started: Run) -> None:
        with started.entries() as entries:
            async for entry in entries:
                if isinstance(entry.event, PermissionAsked):
                    decision: Decision = "once" if entry.event.action.agent == "helper" else "deny"
                    await started.answer(entry.event.id, decision, by="ada")

    async with mates.app() as app:
        opening = app.start(mates.agents["lead"], "go", repo=repo, agents=mates.agents.values(), is_attended=True)
        async with opening as started:
            await answer_all(started)
            result = await started.result()

    assert sorted(path.name for path in repo.iterdir()) == ["helper.txt"]
    assert [event.action.agent for event in mates.events(result, ActionBegan)] == ["helper"]
    assert {event.action.agent for event in mates.events(result, PermissionAsked)} == {"own", "helper"}


async def test_a_team_of_a_model_goose_and_another_agent_works_with_one_inbox(mates: Studio, repo: Path) -> None:
    goose = Path(find_goose())
    scripts: dict[str, list[Any]] = {
        "own": [write("own.txt"), "own is done"],
        "gosling": [write("goose.txt", "write"), "goose is done"],
    }
    names = ("own", "goose", "helper")
    async with ModelServer(scripts) as server:
        environ = {"PATH": f"{goose.parent}:{os.environ['PATH']}", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        members = [
            Agent(name="own", model="openai:own", tools=("Write",)),
            Agent(name="goose", engine="goose", model="openai:gosling"),
            add_mate(mates, "helper", write("helper.txt"), "helper is done"),
        ]
        team = Team(mode="broadcast", members=tuple(Member(agent=name) for name in names))
        lead = Agent(name="lead", model="openai:own", team=team)
        async with App(mates.settings, environ=environ) as app:
            async with app.start(lead, "go", repo=repo, agents=members, is_attended=True) as started:
                await allow_all(started)
                result = await started.result()

    assert [part.text for part in result.parts] == [f"{name} is done" for name in names]
    assert sorted(path.name for path in repo.iterdir()) == ["goose.txt", "helper.txt", "own.txt"]
    assert {event.allowed_by for event in mates.events(result, ActionBegan)} == {"ada"}
    assert {event.action.agent for event in mates.events(result, PermissionAsked)} == set(names)


async def test_a_crash_at_any_entry_loses_nothing_and_writes_once(mates: Studio, repo: Path) -> None:
    mates.settings = structs.replace(mates.settings, permission_mode="accept-edits")
    add_mate(mates, "helper", write("a.txt"), "It is written.")
    run_id, crashes = "", 0
    for crash_after in (4, 2, 2, 3, 20):
        fault = refuse_after(crash_after)
        if not run_id:
            result = await run(mates, repo, "helper", fault=fault)
        else:
            result = await mates.resume(run_id, fault=fault)
        run_id = result.run_id
        if result.outcome != "interrupted":
            break
        crashes += 1
        mates.expire_leases()

    assert crashes >= 2
    assert result.text == "It is written."
    assert (repo / "a.txt").read_text() == "x\n"
    assert len(mates.events(run_id, ActionBegan)) == 1


async def test_a_run_is_paused_while_a_coding_agent_waits_for_permission_and_continues_later(
    mates: Studio, repo: Path
) -> None:
    helper = add_mate(mates, "helper", write("a.txt"), "It is written.")
    async with mates.app() as app:
        async with app.start(helper, "go", repo=repo, is_attended=True) as started:
            with started.entries() as entries:
                async for entry in entries:
                    if isinstance(entry.event, PermissionAsked):
                        await started.pause()
            paused = await started.result()
        async with app.resume(paused.run_id, is_attended=True) as resumed:
            await allow_all(resumed)
            result = await resumed.result()

    assert paused.outcome == "paused"
    assert result.text == "It is written."
    assert len(mates.events(result, PermissionAsked)) == 1
    assert len(mates.events(result, AgentSessionOpened)) == 1


async def test_a_dry_run_starts_no_coding_agent(mates: Studio, repo: Path) -> None:
    mates.settings = structs.replace(mates.settings, model="rehearsal")
    add_mate(mates, "helper", write("a.txt"), "It is written.")

    result = await run(mates, repo, "helper")

    assert result.succeeded
    assert mates.events(result, AgentSessionOpened) == []


async def test_a_budget_in_usd_cannot_be_enforced_for_a_coding_agent(mates: Studio, repo: Path) -> None:
    add_mate(mates, "helper", "hi")

    async with mates.app() as app:
        with pytest.raises(Mistake, match="helper uses mate, whose price is not known"):
            await app.run(mates.agents["helper"], "go", repo=repo, budget={"usd": 1})


async def test_a_repositorys_agent_needs_consent_to_use_an_installed_agent(studio: Studio, tmp_path: Path) -> None:
    (tmp_path / "goose").write_text("#!/bin/sh\n")
    (tmp_path / "goose").chmod(0o755)
    agent = Agent(name="helper", engine="goose", source="repo")

    async with App(studio.settings, environ={"PATH": str(tmp_path)}) as app:
        with pytest.raises(Mistake, match=r"have not confirmed; .* to confirm it, run podium engines use goose"):
            await app.run(agent, "go")


async def test_an_agent_that_is_not_installed_is_reported_before_the_run(studio: Studio) -> None:
    studio.agent("helper", engine="goose")

    with pytest.raises(Mistake, match="goose, which is not installed; install it with: npm install --prefix"):
        await studio.run("helper", "go")


async def test_a_model_with_another_api_is_refused_before_the_run(mates: Studio, repo: Path) -> None:
    add_mate(mates, "helper", "hi", model="openai:gpt-5")

    with pytest.raises(Mistake, match="mate can use only its own configured model"):
        await run(mates, repo, "helper")
