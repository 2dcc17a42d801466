"""Run a team in sequential mode: members run one after another, and each gets the earlier members' answers."""

from __future__ import annotations

from msgspec import structs

from ..core.operation import Operation
from ..values.request import Answer, Part, Request
from ..values.team_modes import SequentialOptions
from .member_tasks import add_shared_context, get_team_options, make_answer_notes, make_team_failure, resolve_members


async def run_sequential(op: Operation, request: Request) -> Answer:
    """Run the members in order. Return the last successful answer, with every member's result as a part.

    Raise AgentFailed if no member succeeds.
    """
    own = get_team_options(op, SequentialOptions)
    parts: list[Part] = []
    for agent in resolve_members(op).values():
        asked = structs.replace(request, origin=request.original, notes=(*request.notes, *make_answer_notes(parts)))
        asked = add_shared_context(own, asked, agent)
        parts.append(await op.child(agent, "member").run_as_part(asked, timeout=own.worker_timeout))
    good = [part for part in parts if part.failure is None]
    if not good:
        raise make_team_failure(op, parts)
    return Answer(text=good[-1].text, parts=tuple(parts))
