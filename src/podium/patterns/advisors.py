"""Run an agent's advisors: other agents that all analyse the request at once before the agent itself starts."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import create_task_group
from msgspec import structs

from ..core.operation import Operation
from ..values.agent import Advisors
from ..values.errors import format_failures
from ..values.event import Advised
from ..values.request import Part, Request, escape_headings


async def gather_advice(op: Operation, request: Request) -> Request:
    """Return the request with every advisor's analysis added. Without advisors, return the request unchanged.

    Raise AgentFailed if fewer advisors answer than required.
    """
    advisors = op.agent.advisors
    if advisors is None:
        return request
    parts = await run_advisors(op, advisors.agents, request, timeout=advisors.timeout)
    unavailable = tuple(part for part in parts if part.failure is not None)
    heard = tuple(part.agent for part in parts if part.failure is None)
    op.scope.record(Advised(heard=heard, unavailable=unavailable))
    if len(heard) < _count_required(advisors):
        reasons = format_failures(part.failure for part in unavailable if part.failure is not None)
        raise op.make_error(
            "advice",
            f"{len(heard)} of {len(parts)} advisors answered; {_count_required(advisors)} required ({reasons})",
        )
    return structs.replace(request, text=format_advised_request(request.text, parts), origin=request.original)


async def run_advisors(op: Operation, names: Sequence[str], request: Request, *, timeout: float) -> list[Part]:
    """Run all advisors and return their outcomes in the listed order. Cancelling `op` cancels every advisor."""
    children = [op.child(name, "advice") for name in names]
    parts: dict[int, Part] = {}

    async def run_advisor(place: int, child: Operation) -> None:
        parts[place] = await child.run_as_part(request, timeout=timeout)

    async with create_task_group() as group:
        for place, child in enumerate(children):
            group.start_soon(run_advisor, place, child)
    return [parts[place] for place in range(len(children))]


def _count_required(advisors: Advisors) -> int:
    """Return how many advisors must answer."""
    match advisors.require:
        case "all":
            return len(advisors.agents)
        case "any":
            return min(1, len(advisors.agents))
        case "none":
            return 0
        case number:
            return min(number, len(advisors.agents))


def format_advised_request(request: str, parts: Sequence[Part]) -> str:
    """Format the request and the analyses under headings. Escape lines in either that look like a heading."""
    sections = "".join(
        f"\n\n### From {part.agent}\n\n"
        + (escape_headings(part.text, _HEADING) if part.failure is None else describe_unavailable(part))
        for part in parts
    )
    return f"## ORIGINAL USER REQUEST\n\n{escape_headings(request, _HEADING)}\n\n## ANALYSIS GATHERED{sections}"


def describe_unavailable(part: Part) -> str:
    """Return the text that replaces a missing analysis."""
    failure = part.failure
    assert failure is not None
    return escape_headings(f"unavailable: {failure.describe_to(part.agent)}", _HEADING)


_HEADING = r"#{2,3}\s+(?:ORIGINAL USER REQUEST|ANALYSIS GATHERED|From\b)"
