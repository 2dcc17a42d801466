"""Advisors: agents that are heard, all at once, before the agent itself begins."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import create_task_group
from msgspec import structs

from ..core.operation import Operation
from ..values.agent import Advisors
from ..values.event import Advised
from ..values.request import Part, Request, escaped


async def advise(op: Operation, request: Request) -> Request:
    """The request with every advisor's analysis; the request itself for an agent without advisors."""
    advisors = op.agent.advisors
    if advisors is None:
        return request
    parts = await side_by_side(op, advisors.agents, request, timeout=advisors.timeout)
    unavailable = tuple(part for part in parts if part.failure is not None)
    heard = tuple(part.agent for part in parts if part.failure is None)
    op.scope.record(Advised(heard=heard, unavailable=unavailable))
    if len(heard) < needed(advisors):
        reasons = "; ".join(str(part.failure) for part in unavailable)
        raise op.failed(
            "advice", f"{len(heard)} of {len(parts)} advisors answered and {needed(advisors)} must ({reasons})"
        )
    return structs.replace(request, text=enriched(request.text, parts), origin=request.original)


async def side_by_side(op: Operation, names: Sequence[str], request: Request, *, timeout: float) -> list[Part]:
    """How each did, in the listed order. One that fails is an outcome; cancelling `op` cancels them all."""
    children = [op.child(name, "advice") for name in names]
    parts: dict[int, Part] = {}

    async def one(place: int, child: Operation) -> None:
        parts[place] = await child.outcome(request, timeout=timeout)

    async with create_task_group() as group:
        for place, child in enumerate(children):
            group.start_soon(one, place, child)
    return [parts[place] for place in range(len(children))]


def needed(advisors: Advisors) -> int:
    """How many advisors must have answered."""
    match advisors.require:
        case "all":
            return len(advisors.agents)
        case "any":
            return min(1, len(advisors.agents))
        case "none":
            return 0
        case number:
            return min(number, len(advisors.agents))


def enriched(request: str, parts: Sequence[Part]) -> str:
    """The request and the analyses under headings that nothing inside them can forge."""
    sections = "".join(
        f"\n\n### From {part.agent}\n\n{escaped(part.text, _HEADING) if part.failure is None else unavailable(part)}"
        for part in parts
    )
    return f"## ORIGINAL USER REQUEST\n\n{escaped(request, _HEADING)}\n\n## ANALYSIS GATHERED{sections}"


def unavailable(part: Part) -> str:
    """What stands in the place of an analysis that there is not."""
    failure = part.failure
    assert failure is not None
    return escaped(f"unavailable: {failure.told_to(part.agent)}", _HEADING)


_HEADING = r"#{2,3}\s+(?:ORIGINAL USER REQUEST|ANALYSIS GATHERED|From\b)"
