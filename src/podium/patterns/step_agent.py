"""Build the agent that works on one step of a plan: a member with the step's narrower rules and budget."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from ..core.budget import combine_strictest
from ..policy.rule import normalise_tool_name
from ..values.agent import Agent, Budget, Permissions
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
        ask=(*own.ask, *list_asked_tools(member, policy)),
        deny=(*own.deny, *list_denied_tools(member, policy)),
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


def list_denied_tools(member: Agent, policy: StepPolicy) -> list[str]:
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


def list_asked_tools(member: Agent, policy: StepPolicy) -> list[str]:
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
