"""Run a team in broadcast mode: every member gets the same request, and the result contains all answers."""

from __future__ import annotations

from ..core.operation import Operation
from ..values.request import Answer, Request
from ..values.team_modes import BroadcastOptions
from .member_tasks import (
    add_shared_context,
    format_answers,
    get_team_options,
    make_team_failure,
    resolve_members,
    run_members,
)


async def run_broadcast(op: Operation, request: Request) -> Answer:
    """Send the request to every member and return all answers, in member order. The lead does not take part.

    Members run in parallel, as many at once as the team allows. If the team has `choose`, only the best answer is
    returned. Raise AgentFailed if no member succeeds, or if none can be chosen.
    """
    own = get_team_options(op, BroadcastOptions)
    children = [op.child(agent, "member") for agent in resolve_members(op).values()]
    requests = [add_shared_context(own, request, child.agent) for child in children]
    parts = await run_members(
        children,
        requests,
        max_concurrent=own.max_concurrent,
        timeout=own.worker_timeout,
        collection_timeout=own.collection_timeout,
    )
    if not any(part.failure is None for part in parts):
        raise make_team_failure(op, parts)
    if own.choose:
        from .best_of import choose_best  # imported here for start-up time: most teams return all answers

        return await choose_best(op, own, request, children, parts)
    return Answer(text=format_answers(parts), parts=tuple(parts))
