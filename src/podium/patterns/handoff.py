"""Handing the answer on: an agent does its part, another gives the final answer.

This module finds the words and the order. Starting the next stage, recording it and cancelling
it belong to the operation; which agent comes next belongs to the agent's file.
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
    """What the next agent makes of `answer`; `answer` itself where there is no next agent."""
    if op.agent.handoff is None:
        return answer
    op.scope.record(HandedOff(sender=op.agent.name, receiver=op.agent.handoff))
    return await op.child(op.agent.handoff, "handoff").run(next_request(request, answer, sender=op.agent))


def next_request(request: Request, answer: Answer, *, sender: Agent) -> Request:
    """The next stage's request: the answer verbatim, the original request and the reason as context."""
    return Request(
        text=answer.text,
        origin=request.original,
        notes=(Note(title="original request", text=request.original), Note(title=f"handoff from {sender.name}")),
    )


@dataclass(frozen=True, slots=True)
class Stage:
    """Where an agent stands in a chain of handoffs."""

    number: int
    total: int


def find_stage(op: Operation) -> Stage:
    """The operation's place in its chain; an agent without handoff is stage 1 of 1."""
    number, place = 1, op
    while place.trigger == "handoff" and place.parent is not None:
        number, place = number + 1, place.parent
    total, agent = number, op.agent
    while agent.handoff is not None:
        total, agent = total + 1, op.agents[agent.handoff]
    return Stage(number, total)


def add_stage_to_failure(op: Operation, error: AgentFailed) -> AgentFailed:
    """The failure of an agent's own part, saying which stage of a chain it ended."""
    place = find_stage(op)
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
