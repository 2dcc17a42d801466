"""The ways of an agent, chosen by what its file says: the one table of patterns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..core.operation import Operation
from ..values.agent import Agent
from ..values.errors import Failed, Mistake
from ..values.request import Answer, Request
from . import advisors, handoff, router
from .broadcast import broadcast
from .delegation_tools import delegating
from .discuss import Discussion, discuss
from .in_worker import away, is_away
from .json_output import fitting
from .orchestrate import orchestrate
from .reflect import reflect
from .sequential import sequential
from .subagents import subagents

Way = Callable[[Operation, Request], Awaitable[Answer]]

MODES: dict[str, Way] = {
    "broadcast": broadcast,
    "sequential": sequential,
    "orchestrate": orchestrate,
    "reflect": reflect,
    "discuss": discuss,
}
"""The team modes by name; a new one is a new file and a line here."""


class Patterns:
    """The ways that a run is handed; `on_discussion` is called with each discussion as it begins."""

    def __init__(self, on_discussion: Callable[[Discussion], object] | None = None) -> None:
        self._on_discussion = on_discussion

    async def advise(self, op: Operation, request: Request) -> Request:
        try:
            return await advisors.advise(op, request)
        except Failed as error:
            raise handoff.named(op, error) from error

    async def perform(self, op: Operation, request: Request) -> Answer:
        try:
            return await self._within_its_time(op, request)
        except Failed as error:
            raise handoff.named(op, error) from error

    async def _within_its_time(self, op: Operation, request: Request) -> Answer:
        way, timeout = away if is_away(op) else self._way_of(op.agent), op.agent.timeout
        if timeout is None:
            return await way(op, request)
        with op.scope.timeline.clock.limit(op.scope.path, timeout):
            return await way(op, request)
        await op.scope.timeline.still()
        await op.call_back()
        raise op.failed("timed_out", f"timed out after {timeout:g} s")

    def _way_of(self, agent: Agent) -> Way:
        way = way_of(agent)
        return self._watched if way is discuss and self._on_discussion is not None else way

    async def _watched(self, op: Operation, request: Request) -> Answer:
        discussion = Discussion(op, request)
        assert self._on_discussion is not None
        self._on_discussion(discussion)
        return await discussion.held()

    async def hand_off(self, op: Operation, request: Request, answer: Answer) -> Answer:
        return await handoff.hand_off(op, request, answer)


PATTERNS = Patterns()


def way_of(agent: Agent) -> Way:
    """How an agent does its own part."""
    if agent.router is not None:
        return router.route
    if agent.team is None:
        return alone
    if agent.team.mode not in MODES:
        raise Mistake(
            f"{agent.name} leads a team in mode {agent.team.mode}, which this release cannot run yet; "
            f"it can run {', '.join(MODES)}"
        )
    return MODES[agent.team.mode]


async def alone(op: Operation, request: Request) -> Answer:
    """The agent answers by itself, with the help of those it may call."""
    session = op.session(*op.coordination, *subagents(op), *delegating(op), *await op.offered())
    if isinstance(op.agent.output, dict):
        return await fitting(op, session, request.prompt(), op.agent.output)
    reply = await session.ask(request.prompt())
    return Answer(text=reply.text)
