"""The coordination tools of one agent session, for agents that do not run in Podium's own tool loop.

Many agents give up on a call that takes a long time. Before that happens, the agent gets an interim answer with an id
that lets it continue waiting.

A restarted agent makes the same calls again. Its calls are not part of a recorded reply, so they cannot be identified
by their position in one. Instead, a call is identified by its name, its arguments and the number of earlier identical
calls in the turn. If the call's answer is already on the timeline, such as a person's answer to a question, the agent
gets that answer. A resumed turn begins by repeating the calls that are on the timeline, even if the agent does not make
them again, because tools and patterns derive their state from these calls.
"""

from __future__ import annotations

import secrets
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path

from anyio import Event, Lock, create_task_group, move_on_after
from anyio.abc import TaskGroup

from ...core.engine import Tool, ToolAnswer, ToolFinished, ToolStarted
from ...core.journal_rows import compute_digest
from ...core.scope import Scope
from ...core.tool_call import run_tool_call
from ...core.tool_rate_limit import RateLimit
from ...values.action import Action
from ...values.errors import StoreFailed, find_first_error
from ...values.event import ActionRefused, ToolCalled, ToolUse
from ...values.json import Json
from ...values.tool_table import OUTSIDE_TOOLS
from . import _stdio_shim_program

SHIM = Path(_stdio_shim_program.__file__)
"""The program that the command runs. It must be readable in the agent's sandbox."""
TOKEN_VARIABLE = "PODIUM_COORDINATION_TOKEN"


POLL_SECONDS = 45.0
"""How long a call can run before the agent gets an interim answer. Many agents give up on a call after 60 s."""
CALLS_A_MINUTE = 120
"""How many of a session's calls can start per minute. Further calls wait."""
MOST_RUNNING = 64
"""How many of a turn's calls can run or wait at the same time."""
MOST_REFUSALS = 20
"""How many of a session's refused calls are recorded."""
SERVER_NAME = "podium"
"""The server's name, as agents see it. Agents add this name to the names of the server's tools."""
WAIT_TOOL = "wait_for_result"
WAIT_SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
CALL_PREFIX = "tool-"
"""The prefix of the last part of a call's path. A digest of the call's name and arguments follows, then a number."""
OnPiece = Callable[[ToolStarted | ToolFinished], Awaitable[None]]


async def _ignore_piece(piece: ToolStarted | ToolFinished) -> None:
    """Do nothing."""


def select_coordination_tools(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools that a coding agent does not already have."""
    return tuple(tool for tool in tools if tool.name not in OUTSIDE_TOOLS)


def find_calls(scope: Scope) -> list[tuple[str, ToolCalled]]:
    """Return the calls on the timeline below a scope, in order. Each is paired with the last part of its path."""
    entries = scope.timeline.find_entries_below(scope.path, ToolCalled)
    found = [(entry.scope.rpartition("/")[2], entry.event) for entry in entries]
    return [
        (segment, event)
        for segment, event in found
        if segment.startswith(CALL_PREFIX) and isinstance(event, ToolCalled)
    ]


@dataclass(slots=True)
class PendingCall:
    """A call that is running, or whose answer is waiting to be fetched."""

    id: str
    done: Event = field(default_factory=Event)
    answer: ToolAnswer | None = None


class CoordinationTurn:
    """The calls of one turn.

    `is_ended` is true if a tool ended the turn. `has_replied` is true if one of the calls served as the reply.
    """

    def __init__(
        self,
        scope: Scope,
        tools: Mapping[str, Tool],
        *,
        agent: str,
        group: TaskGroup,
        rate_limit: RateLimit,
        on_piece: OnPiece,
        on_end: Callable[[], None],
    ) -> None:
        self.scope = scope
        self.is_ended = False
        self.has_replied = False
        self._tools = tools
        self._agent = agent
        self._group = group
        self._rate_limit = rate_limit
        self._on_piece = on_piece
        self._on_end = on_end
        self._counts: Counter[str] = Counter()
        self._known: dict[str, PendingCall] = {}
        """The calls from an earlier attempt, keyed by the last part of their paths."""
        self._pending: dict[str, PendingCall] = {}
        self._by_id: dict[str, PendingCall] = {}
        self._one_at_a_time = Lock()

    async def repeat_known_calls(self, *, is_over: bool) -> None:
        """Repeat the calls that an earlier attempt at the turn made, in order.

        A call with a recorded answer is completed before the next call starts. A call without a recorded answer is
        started again, unless `is_over` is true: in that case, the attempt has ended and needs no more answers.
        """
        for segment, called in find_calls(self.scope):
            is_answered = self.scope.child(segment).has_child_outcome("tool_answered#1")
            if is_answered or not is_over:
                call = ToolUse(id=called.id, name=called.action.tool, arguments=dict(called.action.arguments))
                self._known[segment] = pending = self._start(segment, call)
                if is_answered:
                    await pending.done.wait()

    def start_call(self, name: str, arguments: dict[str, Json]) -> PendingCall | None:
        """Start a call and return it. Return None if too many calls are running.

        If the same call is still running, or was already repeated from an earlier attempt, return that call instead.
        """
        key = compute_digest(name, arguments)
        segment = f"{CALL_PREFIX}{key}#{self._counts[key]}"
        if (running := self._pending.get(segment)) is not None:
            return running
        if len(self._pending) >= MOST_RUNNING:
            return None
        self._counts[key] += 1
        segment = f"{CALL_PREFIX}{key}#{self._counts[key]}"
        if (known := self._known.get(segment)) is not None:
            return known
        return self._start(segment, ToolUse(id=f"{key}-{self._counts[key]}", name=name, arguments=arguments))

    def find_call(self, id: str) -> PendingCall | None:
        """Return the call with this id, or None."""
        return self._by_id.get(id)

    def _start(self, segment: str, call: ToolUse) -> PendingCall:
        pending = PendingCall(f"w{len(self._by_id) + 1}")
        self._pending[segment] = self._by_id[pending.id] = pending
        self._group.start_soon(self._run_call, pending, segment, call)
        return pending

    async def _run_call(self, pending: PendingCall, segment: str, call: ToolUse) -> None:
        try:
            if segment not in self._known:
                await self._rate_limit.acquire()
            await self._on_piece(ToolStarted(call))
            pending.answer = answer = await self._answer_call(call, self.scope.child(segment))
            self.has_replied |= answer.is_reply
            self.is_ended |= answer.ends_turn
            await self._on_piece(ToolFinished(call.id))
        finally:
            del self._pending[segment]
            pending.done.set()
        if answer.ends_turn:
            self._on_end()

    async def _answer_call(self, call: ToolUse, place: Scope) -> ToolAnswer:
        tool = self._tools.get(call.name)
        async with nullcontext() if tool is None or tool.is_parallel else self._one_at_a_time:
            return await run_tool_call(self._tools, call, place, agent=self._agent)


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
        self, scope: Scope, *, on_piece: OnPiece = _ignore_piece, on_end: Callable[[], None] = lambda: None
    ) -> AsyncIterator[CoordinationTurn]:
        """Answer calls during the block. Calls that are still running at its end are cancelled.

        `on_piece` is called when a call starts and when it ends, with a piece that the engine adds to its reply.
        Patterns use these pieces to find out which tools an agent called. `on_end` is called when a tool ends the turn.
        An error that ends the turn, such as an exhausted budget, cancels the block and is raised from it.
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
                    on_end=on_end,
                )
                self._last_scope = scope
                try:
                    yield self._turn
                finally:
                    self._turn = None
                    group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise find_first_error(errors) from errors

    @property
    def is_at_work(self) -> bool:
        """Whether a turn is open."""
        return self._turn is not None

    def expect_listing(self) -> None:
        """Forget earlier requests for the list of tools, because the agent starts or loads its session again."""
        self._listed = Event()

    async def wait_listed(self, seconds: float) -> bool:
        """Wait at most `seconds` for the agent to request the list of tools. Return whether it has done so."""
        with move_on_after(seconds):
            await self._listed.wait()
        return self._listed.is_set()

    def note_listed(self) -> None:
        """Note that the agent has requested the list of tools."""
        self._listed.set()

    async def call_tool(self, name: str, arguments: dict[str, Json]) -> ToolAnswer:
        """Return the answer to a call or, if that takes too long, instructions for continuing to wait."""
        turn = self._turn
        if turn is None:
            return ToolAnswer(
                text="This tool is not available now: you can use it only while you work on a request.", is_error=True
            )
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
        """Record a refused call in the current or last turn.

        Do nothing if there has been no turn yet, or if MOST_REFUSALS refusals are already recorded.
        """
        if self._last_scope is not None and self._refusals < MOST_REFUSALS:
            self._refusals += 1
            action = Action(run=self._last_scope.timeline.run, agent=self.agent, tool="coordination")
            with suppress(StoreFailed):  # the run may have ended
                self._last_scope.record_each_time(ActionRefused(action=action, reason=reason))


def build_shim_command(url: str) -> list[str]:
    """Return the command that starts the server. The session's token must be in the variable TOKEN_VARIABLE."""
    return [sys.executable, "-I", "-S", str(SHIM), url]
