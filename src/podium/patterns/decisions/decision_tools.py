"""Create the tools that an agent uses to propose decisions, vote on open ones, and read those in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from ...core.decision_state import find_proposal_problem, shorten_proposal
from ...core.engine import Tool, ToolAnswer
from ...core.gate import InvalidCall
from ...core.operation import Operation
from ...core.scope import Scope
from ...core.tool_call import Arguments, build_schema, parse_arguments
from ...values.agent import Agent
from ...values.errors import Mistake
from ...values.event import DecisionCommitted, DecisionProposed, ToolUse, VoteClosed
from ...values.plain_text import truncate_text
from ...values.team_modes import TeamOptions
from ..member_tasks import list_members, read_team_options
from ..step_tools import make_blocker, make_signal_tool, owns_step_in_worker
from .ballot import Ballot, answer_ballot, cast_ballot
from .decision import find_root, list_team_weights, read_decision, run_decision

LONGEST_EVIDENCE = 8000

DEFAULT_OPTIONS = TeamOptions()


class ProposeDecisionArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of propose_decision."""

    topic: Annotated[str, Meta(min_length=1, description="The question to decide")]
    options: Annotated[tuple[str, ...], Meta(min_length=2)]
    evidence: Annotated[str, Meta(max_length=LONGEST_EVIDENCE, description="Facts that the voters need")] = ""


class CastBallotArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of cast_ballot."""

    decision: Annotated[str, Meta(min_length=1, description="The id of the decision")]
    option: Annotated[str, Meta(description="One of the options, or abstain")]
    reason: str = ""


class ListDecisionsArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of list_decisions."""

    id: Annotated[str, Meta(description="The id of a decision to read in full")] = ""


def make_decision_tools(op: Operation) -> tuple[Tool, ...]:
    """Create the decision tools listed in the agent's file. An agent without a list can only read decisions."""
    listed = op.agent.tools
    wanted = (("list_decisions",) if op.decisions.in_force else ()) if listed is None else dict.fromkeys(listed)
    return tuple(
        _TOOL_MAKERS[name](op) for name in wanted if name in _TOOL_MAKERS and name not in op.agent.disallowed_tools
    )


class Electorate(NamedTuple):
    """The agents that vote on a decision, and the lead that decides if the vote is inconclusive."""

    voters: Mapping[str, Agent]
    weights: Mapping[str, float]
    lead: Agent
    options: TeamOptions
    decide_by: Literal["lead", "person"]


def _find_electorate(op: Operation) -> Electorate:
    """Return the agents that vote on a proposal by the operation's agent, and the rules of the vote.

    The voters are the members of the agent's team. If the agent has no team, all agents of the run vote.
    """
    lead = _find_lead(op)
    if lead is not None and lead.team is not None:
        own = read_team_options(lead)
        members = list_members(lead, op.agents)
        return Electorate(members, list_team_weights(lead, members), lead, own, own.decide_by)
    voters = {name: agent for name, agent in op.agents.items() if len(op.agents) > 1}
    # If the run has only one agent, nobody votes, and a person decides.
    return Electorate(voters, {}, find_root(op).agent, DEFAULT_OPTIONS, "lead" if voters else "person")


def _find_lead(op: Operation) -> Agent | None:
    """Return the lead of the team that the operation's agent leads or belongs to, or None if there is no such team.

    If several leads qualify, the agents of this operation and its ancestors take precedence over other agents.
    """
    above: list[Agent] = []
    at: Operation | None = op
    while at is not None:
        above.append(at.agent)
        at = at.parent
    return next((lead for lead in (*above, *op.agents.values()) if _leads_agent(lead, op.agent)), None)


def _leads_agent(lead: Agent, agent: Agent) -> bool:
    if lead.team is None:
        return False
    return lead.name == agent.name or any(agent.name in (one.name, one.agent) for one in lead.team.members)


def _make_proposal_tool(op: Operation) -> Tool:
    if owns_step_in_worker(op):
        return _make_blocking_tool()

    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            given = parse_arguments(call, ProposeDecisionArguments)
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        electorate = _find_electorate(op)
        proposal = shorten_proposal(
            DecisionProposed(
                id="",
                topic=given.topic,
                options=given.options,
                evidence=given.evidence,
                eligible=tuple(electorate.voters),
                weights=dict(electorate.weights),
                rule=electorate.options.vote,
                decide_by=electorate.decide_by,
                window=electorate.options.vote_window,
                by=op.agent.name,
            )
        )
        if problem := find_proposal_problem(proposal):
            return ToolAnswer(text=f"This cannot be decided: {problem}.", is_error=True)
        made = await run_decision(op, proposal, electorate.voters, at=scope, lead=electorate.lead)
        return ToolAnswer(text=format_outcome(made))

    return Tool(
        name="propose_decision",
        description="Let your team decide between options, and wait for the decision.",
        parameters=build_schema(ProposeDecisionArguments),
        answer=answer_call,
        timeout=inf,
        is_step=True,
        is_parallel=False,
    )


def _make_blocking_tool() -> Tool:
    """Create propose_decision for the owner of a step that runs in a worker.

    A call ends the owner's turn, because the team that decides is in another run.
    """
    return make_signal_tool(
        "propose_decision",
        "Let your team decide between options. Your work continues after the decision.",
        ProposeDecisionArguments,
        lambda given: make_blocker(given.topic, given.options, given.evidence),
    )


def format_outcome(made: DecisionCommitted) -> str:
    """Format a decision for the agent that proposed it: what was decided, how and why."""
    why = f"\nReasons:\n{made.rationale}" if made.rationale.strip() else ""
    return f"Decided: {made.option} ({made.how}). The decision has the id {made.decision}.{why}"


def _make_open_ballot_tool(op: Operation) -> Tool:
    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            given = parse_arguments(call, CastBallotArguments)
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        state = read_decision(op, given.decision.strip())
        if state is None:
            return ToolAnswer(text=_explain_unknown(op, given.decision), is_error=True)
        return answer_ballot(cast_ballot(scope, state, op.agent.name, Ballot(given.option, given.reason)))

    return Tool(
        name="cast_ballot",
        description="Vote on an open decision of your team; your last ballot counts.",
        parameters=build_schema(CastBallotArguments),
        answer=answer_call,
        is_step=True,
        is_parallel=False,
    )


def _explain_unknown(op: Operation, id: str) -> str:
    root = find_root(op).scope
    proposed = root.timeline.find_events_below(root.path, DecisionProposed)
    closed = {one.decision for one in root.timeline.find_events_below(root.path, VoteClosed)}
    open = ", ".join(one.id for one in proposed if one.id not in closed) or "none"
    return f"There is no decision {truncate_text(id)!r} in this run; open decisions: {open}."


def _make_list_tool(op: Operation) -> Tool:
    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            given = parse_arguments(call, ListDecisionsArguments)
            return ToolAnswer(text=await op.decisions.read(given.id.strip()))
        except (InvalidCall, Mistake) as error:
            return ToolAnswer(text=str(error), is_error=True)

    return Tool(
        name="list_decisions",
        description="List the decisions in force, or read one of them.",
        parameters=build_schema(ListDecisionsArguments),
        answer=answer_call,
        is_step=True,
    )


_TOOL_MAKERS: dict[str, Callable[[Operation], Tool]] = {
    "propose_decision": _make_proposal_tool,
    "cast_ballot": _make_open_ballot_tool,
    "list_decisions": _make_list_tool,
}
