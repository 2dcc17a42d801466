"""List the team modes, and choose the pattern that runs an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..core.operation import Operation
from ..values.agent import Agent
from ..values.errors import AgentFailed, Mistake
from ..values.event import DecisionProposed
from ..values.request import Answer, Request
from . import advisors, handoff, router
from .broadcast import run_broadcast
from .collaborate import run_collaborate
from .decision import run_decision_request
from .decision_tools import make_decision_tools
from .delegation_tools import make_delegation_tools
from .discuss import Discussion, run_discuss
from .in_worker import run_in_worker, runs_in_worker
from .json_output import ask_with_schema
from .orchestrate import run_orchestrate
from .reflect import run_reflect
from .sequential import run_sequential
from .step_tools import make_step_tools
from .subagents import make_subagent_tools

Pattern = Callable[[Operation, Request], Awaitable[Answer]]

MODES: dict[str, Pattern] = {
    "broadcast": run_broadcast,
    "sequential": run_sequential,
    "orchestrate": run_orchestrate,
    "reflect": run_reflect,
    "discuss": run_discuss,
    "collaborate": run_collaborate,
}
"""The team modes by name. To add a mode, add a module and a line here."""


class Patterns:
    """The patterns that a run uses. `on_discussion` is called with each discussion when it starts.

    If `decision` is set, the root operation makes this decision instead of answering a request.
    """

    def __init__(
        self,
        on_discussion: Callable[[Discussion], object] | None = None,
        *,
        decision: DecisionProposed | None = None,
    ) -> None:
        self._on_discussion = on_discussion
        self._decision = decision

    async def advise(self, op: Operation, request: Request) -> Request:
        if self._decision is not None and op.parent is None:
            return request
        try:
            return await advisors.gather_advice(op, request)
        except AgentFailed as error:
            raise handoff.add_stage_to_failure(op, error) from error

    async def perform(self, op: Operation, request: Request) -> Answer:
        try:
            return await self._run_with_timeout(op, request)
        except AgentFailed as error:
            raise handoff.add_stage_to_failure(op, error) from error

    async def _run_with_timeout(self, op: Operation, request: Request) -> Answer:
        if self._decision is not None and op.parent is None:
            return await run_decision_request(op, self._decision)
        pattern, timeout = run_in_worker if runs_in_worker(op) else self._find_pattern(op.agent), op.agent.timeout
        if timeout is None:
            return await pattern(op, request)
        with op.scope.timeline.timeouts.apply_timeout(op.scope.path, timeout):
            return await pattern(op, request)
        await op.scope.timeline.wait_while_paused()
        await op.stop_workers()
        raise op.make_error("timed_out", f"timed out after {timeout:g} s")

    def _find_pattern(self, agent: Agent) -> Pattern:
        pattern = find_pattern(agent)
        return self._run_watched_discussion if pattern is run_discuss and self._on_discussion is not None else pattern

    async def _run_watched_discussion(self, op: Operation, request: Request) -> Answer:
        discussion = Discussion(op, request)
        assert self._on_discussion is not None
        self._on_discussion(discussion)
        return await discussion.run()

    async def hand_off(self, op: Operation, request: Request, answer: Answer) -> Answer:
        if self._decision is not None and op.parent is None:
            return answer
        return await handoff.hand_off(op, request, answer)


PATTERNS = Patterns()


def find_pattern(agent: Agent) -> Pattern:
    """Return the pattern for an agent's own work. Raise Mistake if its team mode does not exist."""
    if agent.router is not None:
        return router.route_request
    if agent.team is None:
        return run_alone
    if agent.team.mode not in MODES:
        raise Mistake(
            f"{agent.name} leads a team in the unknown mode {agent.team.mode!r}; available: {', '.join(MODES)}"
        )
    return MODES[agent.team.mode]


async def run_alone(op: Operation, request: Request) -> Answer:
    """Run the agent itself, with its tools and the agents that it can call."""
    session = op.session(
        *op.coordination_tools,
        *make_step_tools(op),
        *make_subagent_tools(op),
        *make_delegation_tools(op),
        *make_decision_tools(op),
        *await op.offer_tools(),
    )
    if isinstance(op.agent.output, dict):
        return await ask_with_schema(op, session, request.prompt(), op.agent.output)
    reply = await session.ask(request.prompt())
    return Answer(text=reply.text)
