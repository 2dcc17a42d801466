"""Tools for decisions: an agent proposes one to its team, and members vote while it is open."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from anyio import sleep

from podium import Result
from podium.engines.model.model_wire import ModelCall
from podium.engines.script import Move
from podium.files.agent_file import parse_agent_file
from podium.store.fault_injection import refuse_after
from podium.store.reader import StoreReader
from podium.testing import calls
from podium.tools.toolset import Toolbox
from podium.values.agent import Agent, Member, Team
from podium.values.event import (
    BallotCast,
    BallotRefused,
    DecisionCommitted,
    DecisionProposed,
    ToolAnswered,
    VoteClosed,
)

from ..studio import Studio

PROPOSAL = {"topic": "Which drink?", "options": ["tea", "coffee"], "evidence": "Coffee costs 3."}


class ScriptedTeam:
    """Agents that propose, vote and decide as they are told, however the calls are ordered."""

    def __init__(self, studio: Studio, proposer: str, ballots: dict[str, str], proposal: dict[str, Any]) -> None:
        self._proposer, self._ballots, self._proposal = proposer, ballots, proposal
        studio.respond = self.respond

    def respond(self, call: ModelCall) -> Move:
        tools = {tool.name: tool for tool in call.tools}
        if "decide" in tools:
            return calls("decide", option="coffee", reason="I said so.")
        if "enum" in tools.get("cast_ballot", _NONE).parameters["properties"].get("option", {}):
            return calls("cast_ballot", option=self._ballots[call.agent], reason=f"{call.agent} likes it")
        if call.agent == self._proposer and call.messages[-1].role == "user":
            return calls("propose_decision", **self._proposal)
        return Move(says=f"{call.agent} is done: {call.messages[-1].text}")


class _NONE:
    parameters: dict[str, Any] = {"properties": {}}  # noqa: RUF012 - never changed


def add_agents(studio: Studio, *names: str, proposer: str = "ada", **team: Any) -> None:
    for name in names:
        tools = ("propose_decision",) if name == proposer else ()
        studio.agents[name] = Agent(name=name, engine="scripted", tools=tools)
    members = team.pop("members", tuple(Member(agent=name) for name in names))
    studio.agents["lead"] = Agent(
        name="lead",
        engine="scripted",
        tools=("propose_decision",) if proposer == "lead" else (),
        team=Team(mode="broadcast", members=members, options=team) if members else None,
        agents=() if members else names,
    )


def read_commit(studio: Studio, result: Result) -> DecisionCommitted:
    [made] = studio.events(result, DecisionCommitted)
    assert isinstance(made, DecisionCommitted)
    return made


async def test_in_an_unattended_run_the_lead_breaks_a_tie_for_the_person_and_the_record_says_so(studio: Studio) -> None:
    add_agents(studio, "ada", "bob", decide_by="person")
    ScriptedTeam(studio, "ada", {"ada": "tea", "bob": "coffee"}, PROPOSAL)

    made = read_commit(studio, await studio.run("lead", "Have a drink."))

    assert (made.option, made.how) == ("coffee", "decided by lead (tie; no person was available to answer)")


async def test_a_member_lets_its_team_decide_and_gets_the_decision(studio: Studio) -> None:
    add_agents(studio, "ada", "bob", "cleo")
    ScriptedTeam(studio, "ada", {"ada": "coffee", "bob": "tea", "cleo": "tea"}, PROPOSAL)

    result = await studio.run("lead", "Serve drinks.")

    [proposed] = studio.events(result, DecisionProposed)
    assert (proposed.by, proposed.eligible, proposed.rule) == ("ada", ("ada", "bob", "cleo"), "majority")
    made = read_commit(studio, result)
    assert (made.option, made.how) == ("tea", "majority")
    said = f"Decided: tea (majority). The decision has the id {proposed.id}.\nReasons:\n"
    assert f"ada is done: {said}" in result.text
    assert "bob likes it" in result.text


async def test_the_team_says_how_it_decides(studio: Studio) -> None:
    members = (Member(agent="ada", weight=3), Member(agent="bob"), Member(agent="bob", name="rob"))
    add_agents(studio, "ada", "bob", members=members, vote="weighted", decide_by="person", vote_window=7)
    ScriptedTeam(studio, "ada", {"ada": "coffee", "bob": "tea", "rob": "tea"}, PROPOSAL)

    result = await studio.run("lead", "Serve drinks.")

    [proposed] = studio.events(result, DecisionProposed)
    assert (proposed.rule, proposed.decide_by, proposed.window) == ("weighted", "person", 7.0)
    assert (proposed.eligible, proposed.weights) == (("ada", "bob", "rob"), {"ada": 3.0})
    assert read_commit(studio, result).option == "coffee"


async def test_without_a_team_the_agents_of_the_run_decide_and_the_first_one_breaks_a_tie(studio: Studio) -> None:
    add_agents(studio, "ada", "bob", proposer="lead", members=())
    ScriptedTeam(studio, "lead", {"lead": "tea", "ada": "coffee", "bob": "abstain"}, PROPOSAL)

    result = await studio.run("lead", "Serve drinks.")

    made = read_commit(studio, result)
    assert (made.option, made.how, made.by) == ("coffee", "decided by lead (tie)", "lead")


async def test_an_agent_that_is_alone_does_not_vote_with_itself(studio: Studio) -> None:
    studio.agents["solo"] = Agent(name="solo", engine="scripted", tools=("propose_decision",))
    ScriptedTeam(studio, "solo", {}, PROPOSAL)

    result = await studio.run("solo", "Serve drinks.")

    made = read_commit(studio, result)
    assert (made.option, made.how) == ("coffee", "decided by lead (no person was available to answer)")
    assert not studio.events(result, BallotCast)


@pytest.mark.parametrize(
    ("proposal", "why"),
    [
        ({"topic": "Which?", "options": ["tea"]}, "propose_decision got an invalid `options`"),
        ({"options": ["tea", "coffee"]}, "propose_decision was called without the required argument `topic`"),
        (PROPOSAL | {"options": ["tea", "TEA"]}, "This cannot be decided: the option 'tea' is listed twice."),
        (PROPOSAL | {"repo": "/"}, "propose_decision has no argument `repo`"),
    ],
)
async def test_a_proposal_that_cannot_be_decided_is_an_answer_and_no_event(
    studio: Studio, proposal: dict[str, Any], why: str
) -> None:
    add_agents(studio, "ada")
    ScriptedTeam(studio, "ada", {"ada": "tea"}, proposal)

    result = await studio.run("lead", "Serve drinks.")

    [answered] = studio.events(result, ToolAnswered)
    assert answered.is_error
    assert answered.text.startswith(why)
    assert not studio.events(result, DecisionProposed)


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_proposal_that_dies_at_any_entry_is_decided_once(tmp_path: Path, stride: int) -> None:
    number = 0
    while True:
        number += stride
        studio = Studio(tmp_path / str(number))
        add_agents(studio, "ada", "bob")
        ScriptedTeam(studio, "ada", {"ada": "tea", "bob": "tea"}, PROPOSAL)
        result = await studio.run("lead", "Serve drinks.", fault=refuse_after(number))
        ended = result.outcome != "interrupted"
        if not ended:
            studio.expire_leases()
            result = await studio.resume(result.run_id)

        assert (result.outcome, read_commit(studio, result).option) == ("succeeded", "tea"), number
        assert len(studio.events(result, DecisionProposed)) == len(studio.events(result, VoteClosed)) == 1
        keys = Counter(entry.key for entry in studio.entries(result) if entry.key)
        assert max(keys.values()) == 1
        if ended:
            break
    assert number > 30


class LateVoter:
    """Proposes, and then votes on the decision with the tool of its own."""

    def __init__(self, studio: Studio, **ballot: str) -> None:
        self._studio, self._ballot = studio, ballot
        studio.respond = self.respond

    def respond(self, call: ModelCall) -> Move:
        texts = [message.text for message in call.messages]
        tools = {tool.name: tool for tool in call.tools}
        if "decide" in tools:
            return calls("decide", option="tea", reason="")
        if "propose_decision" in tools and len(texts) == 1:
            return calls("propose_decision", **PROPOSAL)
        if "cast_ballot" in tools and "propose_decision" in tools and texts[-1].startswith("Decided: "):
            id = texts[-1].partition("the id ")[2].partition(".")[0]
            return calls("cast_ballot", **({"decision": id, "option": "coffee"} | self._ballot))
        return Move(says="VOTE: tea" if "no tools" in texts[0] else f"done: {texts[-1]}")


@pytest.mark.parametrize(
    ("ballot", "why"),
    [
        ({}, "Your ballot was refused: the vote is closed."),
        ({"decision": "nope"}, "There is no decision 'nope' in this run; open decisions: none."),
    ],
)
async def test_a_late_ballot_is_refused_and_recorded(studio: Studio, ballot: dict[str, str], why: str) -> None:
    studio.agents["solo"] = Agent(name="solo", engine="scripted", tools=("propose_decision", "cast_ballot"))
    LateVoter(studio, **ballot)

    result = await studio.run("solo", "Serve drinks.")

    assert result.text == f"done: {why}"
    refused = [(one.voter, one.option, one.reason) for one in studio.events(result, BallotRefused)]
    assert refused == ([] if ballot else [("solo", "coffee", "the vote is closed")])


class BusyVoter:
    """A member that works on something else and votes with the tool of its own while the vote is open."""

    def respond(self, call: ModelCall) -> Move:
        tools = {tool.name: tool.parameters["properties"] for tool in call.tools}
        if "enum" in tools.get("cast_ballot", {}).get("option", {}):
            return calls("cast_ballot", option="tea") if call.agent == "ada" else Move(silent=True)
        if "propose_decision" in tools and call.messages[-1].role == "user":
            return calls("propose_decision", **PROPOSAL)
        if "find_decision" in tools and call.messages[-1].role == "user":
            return calls("find_decision")
        if "find_decision" in tools and call.messages[-1].text.startswith("d:"):
            return calls("cast_ballot", decision=call.messages[-1].text[2:], option="tea", reason="I am busy.")
        return Move(says="done")


async def test_a_member_that_is_busy_votes_with_its_own_tool_while_the_vote_is_open(studio: Studio) -> None:
    async def find_decision() -> str:
        """Return the id of the open decision, as soon as there is one."""
        while True:
            with StoreReader(studio.settings.store) as reader:
                for entry in reader.read_decision_entries():
                    if isinstance(entry.event, DecisionProposed):
                        return f"d:{entry.event.id}"
            await sleep(0.01)

    studio.respond = BusyVoter().respond
    tools = {"ada": ("propose_decision",), "bob": (), "zoe": ("cast_ballot", "find_decision")}
    agents = [Agent(name=name, engine="scripted", tools=listed) for name, listed in tools.items()]
    members = tuple(Member(agent=name) for name in tools)
    lead = Agent(
        name="lead", engine="scripted", team=Team(mode="broadcast", members=members, options={"vote_window": 1})
    )

    async with studio.app() as app:
        result = await app.run(lead, "Serve drinks.", agents=agents, tools=[find_decision])

    made = read_commit(studio, result)
    assert (made.option, made.how, made.participants) == ("tea", "majority", ("ada", "zoe"))
    assert [one.why for one in studio.events(result, VoteClosed)] == ["decided"]
    cast = [entry.operation for entry in studio.entries(result) if isinstance(entry.event, BallotCast)]
    assert "lead/member:zoe#1" in cast


def test_files_may_list_the_tools() -> None:
    text = b"---\ndescription: d\ntools: [propose_decision, cast_ballot]\n---\nYou decide.\n"
    read = parse_agent_file(text, path=Path("ada.md"), source="repo")

    assert read.agent is not None
    assert Toolbox({}).find_unknown_tools(read.agent.tools or ()) == []
