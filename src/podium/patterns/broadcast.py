"""Broadcast: the same request to every member at once; all their answers side by side."""

from __future__ import annotations

from anyio import create_task_group

from ..core.operation import Operation
from ..values.request import Answer, Part, Request
from .team_members import members, nobody_succeeded, options, sections


async def broadcast(op: Operation, request: Request) -> Answer:
    """What each member answers, in member order. The lead has no turn."""
    own = options(op)
    children = [op.child(agent, "member") for agent in members(op).values()]
    parts: dict[int, Part] = {}

    async def one(place: int, child: Operation) -> None:
        parts[place] = await child.outcome(request, timeout=min(own.worker_timeout, own.collection_timeout))

    async with create_task_group() as group:
        for place, child in enumerate(children):
            group.start_soon(one, place, child)
    answers = tuple(parts[place] for place in range(len(children)))
    if not any(part.failure is None for part in answers):
        raise nobody_succeeded(op, answers)
    return Answer(text=sections(answers), parts=answers)
