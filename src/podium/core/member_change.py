"""Changing an agent of a run that is under way: it holds from that agent's next part on.

A part that began before the change goes on as it began, also when it is resumed after it.
"""

from __future__ import annotations

from msgspec import structs

from ..values.agent import Agent
from ..values.event import MemberChanged
from .scope import Scope


def as_changed(agent: Agent, place: Scope) -> Agent:
    """The agent as it works at this place: with the change that was in force when its part began."""
    changes = place.timeline.members
    if not changes:
        return agent
    change = place.at("change").recall(MemberChanged)
    if change is None and agent.name in changes and not place.at("operation_started#1").is_settled:
        change = place.at("change").settle(changes[agent.name])
    return agent if change is None else changed(agent, change)


def changed(agent: Agent, change: MemberChanged) -> Agent:
    """The agent with what a change says; what it leaves empty stays."""
    return structs.replace(agent, model=change.model or agent.model, prompt=change.prompt or agent.prompt)
