"""Change an agent while its run is in progress: the change applies to the agent's later operations.

An operation that started before the change continues unchanged, even if it is resumed after the change.
"""

from __future__ import annotations

from msgspec import structs

from ..values.agent import Agent
from ..values.event import MemberChanged
from .scope import Scope


def apply_recorded_change(agent: Agent, place: Scope) -> Agent:
    """Return the agent with the latest change, if any, that was made before the operation at this scope started."""
    changes = place.timeline.index.member_changes
    if not changes:
        return agent
    change = place.child("change").find_outcome(MemberChanged)
    if change is None and agent.name in changes and not place.has_child_outcome("operation_started#1"):
        change = place.child("change").record_outcome(changes[agent.name])
    return agent if change is None else apply_change(agent, change)


def apply_change(agent: Agent, change: MemberChanged) -> Agent:
    """Return the agent with a change applied. Empty fields of the change are ignored."""
    return structs.replace(agent, model=change.model or agent.model, prompt=change.prompt or agent.prompt)
