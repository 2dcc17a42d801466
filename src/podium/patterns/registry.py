"""List the team modes, and choose the pattern that runs an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from ..core.engine import Tool
from ..core.operation import Operation
from ..values.agent import Agent
from ..values.errors import AgentFailed
from ..values.event import DecisionProposed
from ..values.request import Answer, Request
from ..values.team_modes import MODES
from ..values.tool_table import SEND_MESSAGE
from . import advisors, handoff, router
from .answer_check import require_answer
from .delegation_tools import make_delegation_tools
from .json_output import ask_with_schema
from .member_tasks import make_subagent_tools
from .step_changes import must_have_changed, record_start
from .step_tools import make_step_tools
from .worker_run import run_in_worker, runs_in_worker

if TYPE_CHECKING:
    from .discuss import Discussion

Pattern = Callable[[Operation, Request], Awaitable[Answer]]
OwnPatterns = Mapping[str, Pattern]
"""Patterns that a program passes to a run, keyed by name."""
NO_PATTERNS: OwnPatterns = {}
OnDiscussion = Callable[["Discussion"], object]


class Patterns:
    """The patterns that a run uses. `on_discussion` is called with each discussion when it starts.

    If `decision` is set, the root operation makes this decision instead of answering a request. `own` contains the
    patterns that the program passed to the run.
    """

    def __init__(
        self,
        on_discussion: OnDiscussion | None = None,
        *,
        decision: DecisionProposed | None = None,
        own: OwnPatterns = NO_PATTERNS,
    ) -> None:
        self._on_discussion = on_discussion
        self._decision = decision
        self._own = own

    async def advise(self, op: Operation, request: Request) -> Request:
        if self._must_decide(op):
            return request
        try:
            return await advisors.gather_advice(op, request)
        except AgentFailed as error:
            raise handoff.add_stage_to_failure(op, error) from error

    async def perform(self, op: Operation, request: Request) -> Answer:
        # An agent that can only read, such as a copy of a member that reviews, cannot change anything.
        expects_changes = op.agent.expects_changes and op.mode != "plan"
        work, limit = op.scope.timeline.work, None if self._must_decide(op) else op.agent.timeout
        try:
            if expects_changes:
                await record_start(op)
            pattern = self._choose_pattern(op)
            with nullcontext() if limit is None else work.timeouts.apply_timeout(op.scope.path, limit) as timeout:
                answer = await pattern(op, request)
            if timeout is not None and timeout.scope.cancelled_caught:
                await work.wait_while_paused()
                await op.stop_workers()
                raise op.make_error("timed_out", f"timed out after {limit:g} s")
            if expects_changes:
                await must_have_changed(op, answer)
            return answer
        except AgentFailed as error:
            raise handoff.add_stage_to_failure(op, error) from error

    def _choose_pattern(self, op: Operation) -> Pattern:
        if self._must_decide(op):
            return self._make_decision
        if runs_in_worker(op):
            return run_in_worker
        pattern = find_pattern(op.agent, self._own)
        is_watched = self._on_discussion is not None and pattern is _load_mode("discuss")
        return self._run_watched_discussion if is_watched else pattern

    def _must_decide(self, op: Operation) -> bool:
        """Return whether this operation makes the decision that the run was started for."""
        return self._decision is not None and op.parent is None

    async def _make_decision(self, op: Operation, _: Request) -> Answer:
        from .decisions.decision import (
            run_decision_request,  # imported here to keep start-up fast: few runs make decisions
        )

        assert self._decision is not None
        return await run_decision_request(op, self._decision)

    async def _run_watched_discussion(self, op: Operation, request: Request) -> Answer:
        from .discuss import Discussion  # imported here to keep start-up fast: most runs have no team

        discussion = Discussion(op, request)
        assert self._on_discussion is not None
        self._on_discussion(discussion)
        return await discussion.run()

    async def hand_off(self, op: Operation, request: Request, answer: Answer) -> Answer:
        if self._must_decide(op):
            return answer
        return await handoff.hand_off(op, request, answer)


PATTERNS = Patterns()


def find_pattern(agent: Agent, own: OwnPatterns = NO_PATTERNS) -> Pattern:
    """Return the pattern for an agent's own work. Raise Mistake if its pattern or team mode does not exist."""
    if agent.pattern or (agent.team is not None and agent.team.mode not in MODES):
        from .own_pattern import find_own_pattern  # imported here to keep start-up fast: few agents name a pattern

        return find_own_pattern(agent, own)
    if agent.router is not None:
        return router.route_request
    if agent.team is None:
        return run_alone
    return _load_mode(agent.team.mode)


@cache
def _load_mode(mode: str) -> Pattern:
    """Return the pattern of a team mode. Its module is imported on first use, because most runs have no team."""
    pattern: Pattern = getattr(import_module(f".{mode}", __package__), f"run_{mode}")
    return pattern


async def run_alone(op: Operation, request: Request) -> Answer:
    """Run the agent itself, with its tools and the agents that it can call."""
    session = op.session(
        *op.coordination_tools,
        *make_step_tools(op),
        *make_subagent_tools(op),
        *make_delegation_tools(op),
        *_make_message_tools(op),
        *_make_decision_tools(op),
        *await op.offer_tools(),
    )
    if isinstance(op.agent.output, dict):
        return await ask_with_schema(op, session, request.prompt(), op.agent.output)
    prompt = request.prompt()
    reply = await session.ask(prompt, reply_format=op.reply_format)
    if op.reply_format is None:
        reply = await require_answer(op, session, prompt, reply, may_reply_by_tool=bool(op.coordination_tools))
    return Answer(text=reply.text)


def _make_message_tools(op: Operation) -> tuple[Tool, ...]:
    if SEND_MESSAGE not in (op.agent.tools or ()):
        return ()
    from .delegation_tools import make_message_tools  # imported here to keep start-up fast: few agents send messages

    return make_message_tools(op)


def _make_decision_tools(op: Operation) -> tuple[Tool, ...]:
    if op.agent.tools is None and not op.decisions.in_force:
        return ()
    from .decisions.decision_tools import (
        make_decision_tools,  # imported here to keep start-up fast: few runs make decisions
    )

    return make_decision_tools(op)
