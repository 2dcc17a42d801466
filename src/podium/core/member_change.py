"""Changing an agent of a run that is under way: it holds from that agent's next part on.

A part that began before the change goes on as it began, also when it is resumed after it.
"""

from __future__ import annotations

from msgspec import structs

from ..values.agent import Agent
from ..values.event import MemberChanged
from .scope import Scope


def apply_recorded_change(agent: Agent, place: Scope) -> Agent:
    """The agent as it works at this place: with the change that was in force when its part began."""
    changes = place.timeline.member_changes
    if not changes:
        return agent
    change = place.child("change").find_outcome(MemberChanged)
    if change is None and agent.name in changes and not place.child("operation_started#1").has_outcome:
        change = place.child("change").record_outcome(changes[agent.name])
    return agent if change is None else apply_change(agent, change)


def apply_change(agent: Agent, change: MemberChanged) -> Agent:
    """The agent with what a change says; what it leaves empty stays."""
    return structs.replace(agent, model=change.model or agent.model, prompt=change.prompt or agent.prompt)
