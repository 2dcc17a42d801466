"""Broadcast: every member gets the same request at once, and the answer contains all their answers."""

from __future__ import annotations

from anyio import create_task_group

from ..core.operation import Operation
from ..values.request import Answer, Part, Request
from .member_tasks import add_shared_context, format_answers, get_team_options, make_team_failure, resolve_members


async def run_broadcast(op: Operation, request: Request) -> Answer:
    """Send the request to every member at once and return all answers, in member order. The lead has no turn."""
    own = get_team_options(op)
    children = [op.child(agent, "member") for agent in resolve_members(op).values()]
    parts: dict[int, Part] = {}

    async def run_member(place: int, child: Operation) -> None:
        asked = add_shared_context(own, request, child.agent)
        parts[place] = await child.run_as_part(asked, timeout=min(own.worker_timeout, own.collection_timeout))

    async with create_task_group() as group:
        for place, child in enumerate(children):
            group.start_soon(run_member, place, child)
    answers = tuple(parts[place] for place in range(len(children)))
    if not any(part.failure is None for part in answers):
        raise make_team_failure(op, answers)
    return Answer(text=format_answers(answers), parts=answers)
