"""The coordination tools of one agent session, for agents that do not run in Podium's own tool loop.

A call that takes long is answered before the agent gives up on it, with an id to continue waiting. An agent that was
restarted makes the same calls again, and calls have no position in a recorded reply, so a call is identified by its
name, its arguments and how often the turn has made it before. A call that already has an answer on the timeline, such
as a question to a person, is not repeated.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any

from anyio import Event, Lock, create_task_group, move_on_after
from anyio.abc import TaskGroup

from ...core.engine import Tool, ToolAnswer, ToolFinished, ToolStarted
from ...core.journal_rows import compute_digest
from ...core.scope import Scope
from ...core.tool_call import run_tool_call
from ...core.tool_rate_limit import RateLimit
from ...values.action import Action
from ...values.errors import find_first_error
from ...values.event import ActionRefused, ToolUse

POLL_SECONDS = 45.0
"""A call is answered after this time at the latest. Many agents give up on a call after 60 s."""
CALLS_A_MINUTE = 120
"""How many calls of a session can start per minute. Further calls wait."""
MOST_RUNNING = 64
"""How many calls of a turn can run or wait at the same time."""
MOST_REFUSALS = 20
"""How many refused calls of a session are recorded."""
WAIT_TOOL = "wait_for_result"
WAIT_SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
OWN_TOOLS_OF_AGENTS = frozenset(
    ("read_file", "glob", "grep", "git_diff", "write_file", "edit_file", "bash", "run_checks", "web_fetch")
)
"""Podium's tools for files, commands and web pages. Coding agents have their own."""

OnPiece = Callable[[ToolStarted | ToolFinished], None]


def select_coordination_tools(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools that a coding agent does not already have."""
    return tuple(tool for tool in tools if tool.name not in OWN_TOOLS_OF_AGENTS)


@dataclass(slots=True)
class PendingCall:
    """A call that is running, or whose answer waits to be fetched."""

    id: str
    done: Event = field(default_factory=Event)
    answer: ToolAnswer | None = None


class CoordinationTurn:
    """The calls of one turn. `is_ended` is true if a tool ended the turn, `has_replied` if a call was the reply."""

    def __init__(
        self,
        scope: Scope,
        tools: Mapping[str, Tool],
        *,
        agent: str,
        group: TaskGroup,
        rate_limit: RateLimit,
        on_piece: OnPiece,
    ) -> None:
        self.scope = scope
        self.is_ended = False
        self.has_replied = False
        self._tools = tools
        self._agent = agent
        self._group = group
        self._rate_limit = rate_limit
        self._on_piece = on_piece
        self._counts: Counter[str] = Counter()
        self._pending: dict[str, PendingCall] = {}
        self._by_id: dict[str, PendingCall] = {}
        self._one_at_a_time = Lock()

    def start_call(self, name: str, arguments: dict[str, Any]) -> PendingCall | None:
        """Start a call and return it, or the same call if it is still running. Return None if too many are running."""
        key = compute_digest(name, arguments)
        if (running := self._pending.get(key)) is not None:
            return running
        if len(self._pending) >= MOST_RUNNING:
            return None
        self._counts[key] += 1
        pending = PendingCall(f"w{len(self._by_id) + 1}")
        self._pending[key] = self._by_id[pending.id] = pending
        place = self.scope.child(f"tool-{key}#{self._counts[key]}")
        call = ToolUse(id=f"{key}-{self._counts[key]}", name=name, arguments=arguments)
        self._group.start_soon(self._run_call, pending, key, call, place)
        return pending

    def find_call(self, id: str) -> PendingCall | None:
        """Return the call with this id, or None."""
        return self._by_id.get(id)

    async def _run_call(self, pending: PendingCall, key: str, call: ToolUse, place: Scope) -> None:
        await self._rate_limit.acquire()
        self._on_piece(ToolStarted(call))
        tool = self._tools.get(call.name)
        if tool is None or tool.is_parallel:
            answer = await run_tool_call(self._tools, call, place, agent=self._agent)
        else:
            async with self._one_at_a_time:
                answer = await run_tool_call(self._tools, call, place, agent=self._agent)
        self.is_ended |= answer.ends_turn
        self.has_replied |= answer.is_reply
        pending.answer = answer
        del self._pending[key]
        self._on_piece(ToolFinished(call.id))
        pending.done.set()


class CoordinationSession:
    """The tools of one agent session, and the token that its agent must send with every call."""

    def __init__(self, tools: Sequence[Tool], *, agent: str, poll_seconds: float = POLL_SECONDS) -> None:
        self.agent = agent
        self.tools = tuple(tools)
        self.token = secrets.token_urlsafe(32)
        self._by_name = {tool.name: tool for tool in tools}
        self._poll_seconds = poll_seconds
        self._turn: CoordinationTurn | None = None
        self._last_scope: Scope | None = None
        self._refusals = 0
        self._rate_limit = RateLimit(CALLS_A_MINUTE)
        self._listed = Event()

    def has_token(self, token: str) -> bool:
        """Return whether this is the session's token."""
        return compare_digest(self.token.encode(), token.encode(errors="replace"))

    @asynccontextmanager
    async def open_turn(
        self, scope: Scope, *, on_piece: OnPiece = lambda piece: None
    ) -> AsyncIterator[CoordinationTurn]:
        """Answer calls during the block. Calls that are still running at its end are cancelled.

        `on_piece` is called when a call starts and when it ends, with the piece that the engine adds to its reply:
        patterns read from the reply which tools an agent called. An error that ends the turn, such as an exhausted
        budget, cancels the block and is raised from it.
        """
        try:
            async with create_task_group() as group:
                self._turn = CoordinationTurn(
                    scope,
                    self._by_name,
                    agent=self.agent,
                    group=group,
                    rate_limit=self._rate_limit,
                    on_piece=on_piece,
                )
                self._last_scope = scope
                try:
                    yield self._turn
                finally:
                    self._turn = None
                    group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise find_first_error(errors) from errors

    async def wait_listed(self, seconds: float) -> bool:
        """Wait until the agent has asked for the list of tools, up to some seconds. Return whether it has."""
        with move_on_after(seconds):
            await self._listed.wait()
        return self._listed.is_set()

    def note_listed(self) -> None:
        """Note that the agent has asked for the list of tools."""
        self._listed.set()

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolAnswer:
        """Return the answer to a call or, if it takes long, how to continue waiting for it."""
        turn = self._turn
        if turn is None:
            return ToolAnswer(text="Not now: you can use this tool only while you work on a request.", is_error=True)
        if name == WAIT_TOOL:
            pending = turn.find_call(str(arguments.get("id", "")))
            problem = "There is no call with this id; call the tool itself again."
        else:
            pending = turn.start_call(name, arguments)
            problem = f"{MOST_RUNNING} of your calls are still running; wait for them first."
        if pending is None:
            return ToolAnswer(text=problem, is_error=True)
        with move_on_after(self._poll_seconds):
            await pending.done.wait()
        if pending.answer is None:
            return ToolAnswer(
                text=f'Not finished yet. Call {WAIT_TOOL} with {{"id": "{pending.id}"}} to continue waiting.'
            )
        return pending.answer

    def record_refusal(self, reason: str) -> None:
        """Record a refused call in the current or last turn. Ignore it before the first turn or after MOST_REFUSALS."""
        if self._last_scope is not None and self._refusals < MOST_REFUSALS:
            self._refusals += 1
            action = Action(run=self._last_scope.timeline.run, agent=self.agent, tool="coordination")
            self._last_scope.record_each_time(ActionRefused(action=action, reason=reason))
