"""Coding agents use Podium's tools in their roles: in discussions, decisions and collaborations, and to delegate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from podium import Agent, App
from podium.testing import ModelServer
from podium.testing import calls as call
from podium.values.agent import Member, Team
from podium.values.event import (
    BallotCast,
    DecisionCommitted,
    DecisionProposed,
    DiscussionEnded,
    ModelReplied,
    PermissionAsked,
    PlanStepCompleted,
    PlanStepHandedOver,
    Voted,
)

from ...collaboration import Play, add_team, make_plan, make_step
from ...installed_agents import find_goose
from ...patterns.test_teams import add_lead, ready_moves
from ...studio import Studio
from .test_agent_members import add_mate, mates, repo, run

__all__ = ("mates", "repo")


async def test_a_coding_agent_broadcasts_and_votes_in_a_discussion(mates: Studio, repo: Path) -> None:
    add_mate(mates, "helper", call("broadcast", message="tea"), call("vote_conclude", ready=True), "done")
    mates.agent("b", says=ready_moves())
    add_lead(mates, "discuss", "helper", "b", says=["go on", "tea it is"])

    result = await run(mates, repo, "lead")

    assert result.text == "tea it is"
    assert {(vote.author, vote.ready) for vote in mates.events(result, Voted)} == {("helper", True), ("b", True)}
    assert any("[helper, round 1]\n> tea" in heard for heard in mates.heard("lead"))
    assert mates.events(result, DiscussionEnded)[0].by == "consensus"
    assert mates.events(result, PermissionAsked) == []


async def test_coding_agents_vote_in_a_decision(mates: Studio, repo: Path) -> None:
    goose = Path(find_goose())
    proposal = DecisionProposed(id="", topic="Which drink?", options=("tea", "coffee"))
    scripts: dict[str, list[Any]] = {"gosling": [call("podium__cast_ballot", option="tea", reason="good")] * 2}
    async with ModelServer(scripts) as server:
        environ = {"PATH": f"{goose.parent}:{os.environ['PATH']}", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        members = [
            Agent(name="goose", engine="goose", model="openai:gosling"),
            add_mate(mates, "helper", call("cast_ballot", option="tea", reason="cheap"), "never said"),
        ]
        team = Team(mode="broadcast", members=(Member(agent="goose"), Member(agent="helper")))
        lead = Agent(name="lead", model="openai:gosling", team=team)
        async with App(mates.settings, environ=environ) as app:
            result = await app.run(lead, proposal.topic, agents=members, decision=proposal, repo=repo)

    [made] = mates.events(result, DecisionCommitted)
    assert (result.text, made.option, made.how) == ("tea", "tea", "majority")
    assert {(one.voter, one.option) for one in mates.events(result, BallotCast)} == {
        ("goose", "tea"),
        ("helper", "tea"),
    }
    assert {event.stop for event in mates.events(result, ModelReplied)} == {"tool"}
    assert mates.events(result, PermissionAsked) == []


async def test_a_coding_agent_hands_its_step_of_a_collaboration_over(mates: Studio, repo: Path) -> None:
    plan = make_plan(make_step("s1", "helper"))
    add_team(mates, Play(plan=plan, report="all is done"), "ada", "helper")
    handover = call("handoff_step", to="ada", reason="it needs SQL", context="the schema is done")
    add_mate(mates, "helper", handover, *["ACCEPT\n1: MET"] * 9)

    result = await run(mates, repo, "lead")

    assert result.text == "all is done"
    [over] = mates.events(result, PlanStepHandedOver)
    assert (over.sender, over.receiver, over.reason) == ("helper", "ada", "it needs SQL")
    assert [(one.step, one.owner) for one in mates.events(result, PlanStepCompleted)] == [("s1", "ada")]
