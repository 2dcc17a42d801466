"""Sequential: one member after the other, each with the answers of those before it."""

from __future__ import annotations

from msgspec import structs

from ..core.operation import Operation
from ..values.request import Answer, Part, Request
from .team_members import before, members, nobody_succeeded, options


async def sequential(op: Operation, request: Request) -> Answer:
    """The last answer that there is, and everybody's part."""
    own = options(op)
    parts: list[Part] = []
    for agent in members(op).values():
        asked = structs.replace(request, origin=request.original, notes=(*request.notes, *before(parts)))
        parts.append(await op.child(agent, "member").outcome(asked, timeout=own.worker_timeout))
    good = [part for part in parts if part.failure is None]
    if not good:
        raise nobody_succeeded(op, parts)
    return Answer(text=good[-1].text, parts=tuple(parts))
