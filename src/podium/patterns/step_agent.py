"""Build the agent that works on one step of a plan: a member with the step's narrower rules and budget."""

from __future__ import annotations

from msgspec import structs

from ..core.budget import combine_strictest
from ..policy.rule import CHANGING, READING, normalise_tool_name
from ..values.agent import Agent, Budget, Permissions
from ..values.plan import PlanStep, StepPolicy
from .step_tools import STEP_TOOLS
from .work_plan import READING_TOOLS, list_tool_names


def make_step_agent(member: Agent, step: PlanStep, *, can_signal: bool = True) -> Agent:
    """Return the member as the owner of a step, with the step's limits and the tools to hand over and raise blockers.

    Tools outside the step's policy stay visible, but calls to them are denied and recorded. An owner that is a router
    or leads its own team cannot hand its step over or raise blockers.
    """
    tools = READING_TOOLS if member.tools is None else member.tools
    signals = STEP_TOOLS if can_signal and member.team is None and member.router is None else ()
    own = member.permissions or Permissions()
    narrowed = Permissions(
        allow=own.allow,
        ask=(*own.ask, *list_asked_tools(member, step.policy)),
        deny=(*own.deny, *list_denied_tools(member, step.policy)),
    )
    return structs.replace(
        member,
        tools=(*tools, *signals),
        permissions=narrowed if narrowed != Permissions() else None,
        budget=combine_strictest(member.budget, make_step_budget(step.policy)),
    )


def list_denied_tools(member: Agent, policy: StepPolicy) -> list[str]:
    """Return deny rules for the member's tools that the step's policy does not list."""
    if policy.tools is None:
        return []
    allowed = {normalise_tool_name(tool) for tool in policy.tools}
    if allowed & CHANGING:
        # A rule that denies Edit also denies Write, so if the policy lists either of them, Edit must not be denied.
        allowed |= {"Edit"}
    if allowed & READING:
        allowed |= {"Read"}
    return sorted(list_tool_names(member) - allowed)


def list_asked_tools(member: Agent, policy: StepPolicy) -> list[str]:
    """Return ask rules for the member's tools that do more than read, if the step's policy asks for every action."""
    return sorted(list_tool_names(member) - READING) if policy.approval == "ask" else []


def make_step_budget(policy: StepPolicy) -> Budget | None:
    """Return the step's limits as a budget, or None if it has none."""
    if policy.seconds is None and policy.tokens is None and policy.files is None:
        return None
    return Budget(seconds=policy.seconds, tokens=policy.tokens, files_changed=policy.files)
