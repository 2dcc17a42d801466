"""Create the tools that a step's owner uses to hand the step over to another member or to raise a blocker.

These tools record a request on the owner's own timeline and end the owner's turn. The team then acts on the request,
whether the owner runs in this process or in a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, TypeVar

from msgspec import Meta, structs

from ..core.budget import combine_strictest
from ..core.engine import Tool, ToolAnswer
from ..core.gate import InvalidCall
from ..core.operation import Operation
from ..core.scope import Scope
from ..core.tool_call import Arguments, build_schema, parse_arguments
from ..policy.rule import normalise_tool_name
from ..values.agent import Agent, Budget, Permissions
from ..values.event import BlockerRaised, DecisionProposed, HandoverAsked, ToolUse
from ..values.operation_path import owns_plan_step
from ..values.plan import PlanStep, StepPolicy
from ..values.tool_table import (
    ACTING_RULES,
    AGENT_RULE,
    CHANGING_RULES,
    DECISION_TOOLS,
    DEFAULT_STEP_TOOLS,
    READING_RULES,
    STEP_TOOLS,
)
from .work_plan import list_tool_names

MOST_OPTIONS = 10
A = TypeVar("A", bound=Arguments)
Words = Annotated[str, Meta(min_length=1, max_length=4000)]


class HandoffStepArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of handoff_step."""

    to: Annotated[str, Meta(min_length=1, description="The member who takes over the step.")]
    reason: Annotated[Words, Meta(description="The reason why another member should finish this step.")]
    context: Annotated[
        str,
        Meta(
            max_length=8000,
            description="The finished work, the open work, and anything else that the next owner needs to know.",
        ),
    ] = ""


class RaiseBlockerArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of raise_blocker."""

    topic: Annotated[Words, Meta(description="The question that has to be decided.")]
    options: Annotated[
        tuple[Words, ...], Meta(min_length=2, max_length=MOST_OPTIONS, description="The options to choose from.")
    ]
    evidence: Annotated[str, Meta(max_length=8000, description="Arguments for and against the options.")] = ""


def make_step_tools(op: Operation) -> tuple[Tool, ...]:
    """Create the step tools that are in the agent's list of tools, or none if the agent does not own a plan step.

    A worker's first agent can also own a step: the plan step that the worker was started for.
    """
    names = [name for name in dict.fromkeys(op.agent.tools or ()) if name in STEP_TOOLS]
    if not names or not (owns_plan_step(op.scope.path) or owns_step_in_worker(op)):
        return ()
    return tuple(_build_tools()[name] for name in names)


def owns_step_in_worker(op: Operation) -> bool:
    """Return whether the operation is the first one in a worker that was started to work on a plan step."""
    return op.parent is None and op.placement is not None and owns_plan_step(op.placement.parent_operation)


def make_signal_tool(
    name: str, description: str, arguments: type[A], make_event: Callable[[A], HandoverAsked | BlockerRaised]
) -> Tool:
    """Create a tool that records an event for the team and ends the turn. Invalid arguments result in an error."""

    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            event = make_event(parse_arguments(call, arguments))
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        scope.record(event)
        return ToolAnswer(text="noted", ends_turn=True, is_reply=True)

    return Tool(name=name, description=description, parameters=build_schema(arguments), answer=answer_call)


def make_blocker(topic: str, options: tuple[str, ...], evidence: str) -> BlockerRaised:
    """Return the event that asks the team to decide. Raise InvalidCall if the question or its options are invalid."""
    # Imported here to keep start-up fast: few runs make decisions.
    from ..core.decision_state import find_proposal_problem, shorten_proposal

    proposal = shorten_proposal(DecisionProposed(id="", topic=topic, options=options, evidence=evidence))
    if problem := find_proposal_problem(proposal):
        raise InvalidCall(f"This cannot be decided: {problem}.")
    return BlockerRaised(topic=topic, options=options, evidence=evidence)


@cache
def _build_tools() -> dict[str, Tool]:
    """Build the tools on first use, because most runs have no plan steps."""
    handoff_step = make_signal_tool(
        "handoff_step",
        "Hand your step over to another member, who finishes it. This ends your work on the step.",
        HandoffStepArguments,
        lambda given: HandoverAsked(to=given.to.strip(), reason=given.reason, context=given.context),
    )
    raise_blocker = make_signal_tool(
        "raise_blocker",
        "Ask the team for a decision that you need before you can continue. Your work continues after the decision.",
        RaiseBlockerArguments,
        lambda given: make_blocker(given.topic, given.options, given.evidence),
    )
    return {tool.name: tool for tool in (handoff_step, raise_blocker)}


def make_step_agent(member: Agent, step: PlanStep) -> Agent:
    """Return a copy of the member for its work as the owner of a step.

    The copy has the step's limits, and the tools for handing over the step and for raising blockers.

    Tools outside the step's policy stay visible, but calls to them are denied and recorded; only sub-agents are
    removed, because their calls do not pass the gate. An owner that is a router or leads its own team cannot hand its
    step over or raise blockers. An owner with its own checkout cannot vote while it works, because its worker cannot
    reach the team's decisions.
    """
    own, policy = member.permissions or Permissions(), step.policy
    narrowed = Permissions(
        allow=own.allow,
        ask=(*own.ask, *_list_asked_tools(member, policy)),
        deny=(*own.deny, *_list_denied_tools(member, policy)),
    )
    return structs.replace(
        member,
        tools=tuple(_iter_tools(member, policy)),
        agents=member.agents if policy.tools is None else (),
        permissions=narrowed if narrowed != Permissions() else None,
        budget=combine_strictest(member.budget, make_step_budget(policy)),
    )


def _iter_tools(member: Agent, policy: StepPolicy) -> Iterator[str]:
    in_worker = member.isolation != "shared"
    for entry in DEFAULT_STEP_TOOLS if member.tools is None else member.tools:
        is_ballot = in_worker and entry == "cast_ballot"
        is_agent = policy.tools is not None and entry.startswith("Agent(")
        if entry not in STEP_TOOLS and not is_ballot and not is_agent:
            yield entry
    if member.team is None and member.router is None:
        yield from STEP_TOOLS


def _list_denied_tools(member: Agent, policy: StepPolicy) -> list[str]:
    """Return deny rules for tools that the member or its sub-agents may have but the step's policy does not list."""
    if policy.tools is None:
        return []
    allowed = {normalise_tool_name(tool) for tool in policy.tools} | {AGENT_RULE, *STEP_TOOLS, *DECISION_TOOLS}
    if allowed & CHANGING_RULES:
        # A rule that denies Edit also denies Write, so if the policy lists either of them, Edit must not be denied.
        allowed |= {"Edit"}
    if allowed & READING_RULES:
        allowed |= {"Read"}
    return sorted((list_tool_names(member) | ACTING_RULES) - allowed)


def _list_asked_tools(member: Agent, policy: StepPolicy) -> list[str]:
    """Return ask rules for the tools that require approval in a step, or an empty list if the policy requires none.

    Tools that only read files or only coordinate agents never require approval.
    """
    if policy.approval == "auto":
        return []
    return sorted((list_tool_names(member) | ACTING_RULES) - READING_RULES - {AGENT_RULE, *STEP_TOOLS, *DECISION_TOOLS})


def make_step_budget(policy: StepPolicy) -> Budget | None:
    """Return the step's limits as a budget, or None if the step has no limits."""
    if policy.seconds is None and policy.tokens is None and policy.files is None:
        return None
    return Budget(seconds=policy.seconds, tokens=policy.tokens, files_changed=policy.files)
