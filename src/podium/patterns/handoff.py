"""Hand off work: after an agent has done its part, the next agent gives the final answer.

This module records the handoff and builds the next request. The operation runs the next agent, which the agent's
definition specifies.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from ..core.operation import Operation
from ..values.agent import Agent
from ..values.errors import AgentFailed
from ..values.event import HandedOff
from ..values.request import Answer, Note, Request


async def hand_off(op: Operation, request: Request, answer: Answer) -> Answer:
    """Return the next agent's answer, or `answer` itself if there is no next agent."""
    if op.agent.handoff is None:
        return answer
    op.scope.record(HandedOff(sender=op.agent.name, receiver=op.agent.handoff))
    return await op.child(op.agent.handoff, "handoff").run(_next_request(request, answer, sender=op.agent))


def _next_request(request: Request, answer: Answer, *, sender: Agent) -> Request:
    """Build the next agent's request: the answer verbatim, with the original request and the sender as context."""
    return Request(
        text=answer.text,
        origin=request.original,
        notes=(Note(title="original request", text=request.original), Note(title=f"handoff from {sender.name}")),
    )


@dataclass(frozen=True, slots=True)
class Stage:
    """The position of an agent in a chain of handoffs."""

    number: int
    total: int


def _find_stage(op: Operation) -> Stage:
    """Return the operation's position in its chain. An operation outside any chain is stage 1 of 1."""
    number, place = 1, op
    while place.trigger == "handoff" and place.parent is not None:
        number, place = number + 1, place.parent
    total, agent = number, op.agent
    while agent.handoff is not None:
        total, agent = total + 1, op.agents[agent.handoff]
    return Stage(number, total)


def add_stage_to_failure(op: Operation, error: AgentFailed) -> AgentFailed:
    """Return the failure with the handoff stage in which it happened, or unchanged if there are no handoffs."""
    place = _find_stage(op)
    if place.total == 1:
        return error
    name = op.agent.name
    return AgentFailed(
        structs.replace(
            error.failure,
            agent=name,
            where=f"handoff stage {place.number} of {place.total} ({name})",
            message=error.failure.describe_to(name),
        ),
        so_far=error.so_far,
    )
