"""Run sessions. A session is one agent's conversation with one engine.

A session processes prompts one at a time, in order of arrival, and returns a reply or a failure for each.
It deals with prompts, tools and replies, not with patterns. The reply of a finished turn is
recorded on the timeline. If a resumed run sends the same prompt again, the session returns the recorded reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from time import monotonic

from anyio import get_cancelled_exc_class
from msgspec import structs

from ..values.errors import AgentFailed, Failure, FailureKind, JournalMismatch, OutsideFailed, StoreFailed
from ..values.event import (
    MessagesDelivered,
    ModelReplied,
    ReasoningStreamed,
    SessionRevived,
    TextStreamed,
    TextSuperseded,
    ToolUse,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from ..values.json import Json
from ..values.request import replace_surrogates
from ..values.usage import TurnLimits
from .clock import PausableTimeout
from .engine import (
    Engine,
    EngineSessionSpec,
    Finished,
    PastTurn,
    Piece,
    Postponed,
    Reasoning,
    ReplyFormat,
    Superseded,
    Text,
    Tool,
    ToolFinished,
    ToolStarted,
)
from .engine_sessions import EngineSessionTasks, OpenEngineSession
from .person_message import deliver_messages, find_delivered_messages
from .scope import Scope

MAX_QUEUED_PROMPTS = 64
STREAM_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A session's reply, and the tool calls made before it."""

    text: str
    calls: tuple[ToolUse, ...] = ()


class Session:
    """One agent's conversation."""

    def __init__(
        self,
        engine: Engine,
        spec: EngineSessionSpec,
        scope: Scope,
        *,
        session_tasks: EngineSessionTasks,
        turn_limits: TurnLimits,
        past_turns: Sequence[PastTurn] = (),
    ) -> None:
        self._engine = engine
        self._session_tasks = session_tasks
        self._spec = structs.replace(spec, reply_format=lambda: self._reply_format)
        self._scope = scope
        self._turn_limits = turn_limits
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._past_turns = list(past_turns)
        self._reply_format: ReplyFormat | None = None
        """The format of the current turn's reply."""
        self._open_session: OpenEngineSession | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running."""
        return self._lock.locked()

    async def ask(self, prompt: str, *about: Json, reply_format: ReplyFormat | None = None) -> Reply:
        """Send a prompt to the agent and return its reply; while the session is busy, wait in the queue.

        Raise AgentFailed if the agent gives no valid reply, or if too many prompts are waiting. `about` contains the
        inputs that the turn's digest covers. The prompt's text is not one of them, so that a newer release can reword
        it. `reply_format` is ignored if the agent has tools other than the format's own, because a model that is
        constrained to a schema cannot call them.
        """
        if self._waiting > MAX_QUEUED_PROMPTS:
            raise AgentFailed(self._make_failure("limit", f"it already has {MAX_QUEUED_PROMPTS} prompts waiting"))
        turn = self._scope.next_child("turn", *about)
        self._waiting += 1
        try:
            async with self._lock:
                self._reply_format = reply_format if self._can_keep_format(reply_format) else None
                place, prompt = turn, turn.timeline.redaction.redact_text(await self._with_messages(turn, prompt))
                ended = place.find_outcome(TurnEnded) or await self._attempt_turn(place, prompt)
                if ended.failure is not None and ended.failure.kind == "empty_reply":
                    place, prompt = self._revive(turn, prompt, ended.failure.message)
                    ended = place.find_outcome(TurnEnded) or await self._attempt_turn(place, prompt)
                if ended.failure is not None:
                    raise AgentFailed(ended.failure)
                self._past_turns.append(PastTurn(prompt=prompt, reply=ended.text, scope=place))
                return Reply(text=ended.text, calls=ended.calls)
        finally:
            self._waiting -= 1

    async def reopen(self, tools: tuple[Tool, ...]) -> Session:
        """Close this session, and return a new session that continues the conversation with other tools."""
        await self.aclose()
        return Session(
            self._engine,
            structs.replace(self._spec, tools=tools),
            self._scope,
            session_tasks=self._session_tasks,
            turn_limits=self._turn_limits,
            past_turns=self._past_turns,
        )

    async def refuse_reply(self) -> None:
        """Leave the last reply out of the conversation, because it cannot be used, and close the engine session."""
        if self._past_turns:
            self._past_turns[-1] = structs.replace(self._past_turns[-1], is_refused=True)
            await self.aclose()

    async def aclose(self) -> None:
        """Close the engine session; the next turn opens a new one with the whole history."""
        opened, self._open_session = self._open_session, None
        if opened is not None:
            await opened.aclose()

    def enforces_format(self, wanted: ReplyFormat) -> bool:
        """Return whether replies are constrained to this format, so that the model is not offered the format's tool."""
        # An engine that cannot constrain replies need not have the property.
        return self._can_keep_format(wanted) and bool(getattr(self._engine, "takes_schema", False))

    def _can_keep_format(self, wanted: ReplyFormat | None) -> bool:
        return wanted is not None and all(tool.name == wanted.tool for tool in self._spec.tools)

    async def _with_messages(self, turn: Scope, prompt: str) -> str:
        """Return the prompt with the user's messages to this agent since its last turn."""
        agent, timeline = self._spec.agent.name, turn.timeline
        said = find_delivered_messages(turn)
        # Once the model has replied, the turn's prompt must not change: new messages wait for the next turn.
        if (
            not said
            and timeline.index.messages.list_undelivered(agent)
            and not turn.has_outcome
            and not timeline.find_events_below(turn.path, ModelReplied)
        ):
            said = await deliver_messages(turn, agent)
        return f"{prompt}\n\n{said}" if said else prompt

    def _revive(self, turn: Scope, prompt: str, why: str) -> tuple[Scope, str]:
        """Record that the turn is attempted again after an empty reply. Return the second attempt's scope and prompt.

        The second attempt opens a new engine session.
        """
        turn.record(SessionRevived(agent=self._spec.agent.name, reason=why))
        # Messages that the user sent during the first attempt are also added to the second attempt.
        told = [message.text for message in turn.timeline.find_events_below(turn.path, MessagesDelivered)]
        return turn.for_attempt(2), "\n\n".join([prompt, *(text for text in told if text not in prompt)])

    async def _attempt_turn(self, place: Scope, prompt: str) -> TurnEnded:
        """Make one attempt at a turn, and record how it ended."""
        timeline, listener = place.timeline, self._start_turn(place, prompt)
        try:
            with timeline.work.timeouts.track_timeout(listener.timeout, place.path), listener.timeout.scope as limit:
                opened = self._open_session or await self._open_engine_session(listener)
                async with opened.engine_session.ask(prompt, place) as pieces:
                    async for piece in pieces:
                        listener.receive_piece(piece)
                failure = listener.check_reply(self._make_failure)
            if limit.cancelled_caught:
                await timeline.work.wait_while_paused()
                failure = listener.make_timeout_failure(self._make_failure)
        except (StoreFailed, JournalMismatch):
            raise
        except Exception as error:
            failure = self._explain_error(error)
        except get_cancelled_exc_class():
            with suppress(StoreFailed):
                listener.flush()
            raise
        finally:
            listener.stop_streaming()
        if failure is not None:
            await self.aclose()
        return self._record_turn_end(place, listener, failure)

    def _start_turn(self, place: Scope, prompt: str) -> TurnListener:
        """Record the start of an attempt at a turn, and return its listener."""
        is_correction = bool(self._past_turns) and self._past_turns[-1].is_refused
        started = TurnStarted(
            agent=self._spec.agent.name, engine=self._engine.name, prompt=prompt, is_correction=is_correction
        )
        is_resumed = place.has_child_outcome("turn_started#1")
        place.record(started)
        if is_resumed:
            place.record_each_time(TurnResumed())
        return TurnListener(place, self._turn_limits)

    def _explain_error(self, error: Exception) -> Failure:
        """Return the failure of a turn that ended with an error."""
        match error:
            case AgentFailed():
                return error.failure
            case OutsideFailed():
                failed = self._make_failure("engine", str(error))
                return structs.replace(failed, is_unknown_model=error.is_unknown_model)
        # Engines may be third-party code: an exception in an engine fails this turn, not the run.
        return self._make_failure("engine", f"its engine failed: {type(error).__name__}: {error}")

    def _record_turn_end(self, place: Scope, listener: TurnListener, failure: Failure | None) -> TurnEnded:
        """Record the end of a turn, with its text and tool calls."""
        text, calls = place.timeline.redaction.redact_text(listener.text), tuple(listener.calls)
        if failure is None:
            return place.record_outcome(TurnEnded(outcome="succeeded", text=text, calls=calls))
        listener.flush()
        return place.record_outcome(TurnEnded(outcome=failure.outcome, text=text, calls=calls, failure=failure))

    async def _open_engine_session(self, listener: TurnListener) -> OpenEngineSession:
        spec = structs.replace(self._spec, history=tuple(self._past_turns)) if self._past_turns else self._spec
        self._open_session = opened = await self._session_tasks.open(self._engine.open(spec))
        if opened.engine_session.is_restored:
            listener.limit_first_wait()
        return opened

    def _make_failure(self, kind: FailureKind, message: str) -> Failure:
        return Failure(kind=kind, agent=self._spec.agent.name, message=message)


def read_past_turns(scope: Scope) -> Iterator[PastTurn]:
    """Yield the turns at this scope that ended with a reply, read from the timeline."""
    last: PastTurn | None = None
    for number in count(1):
        turn = scope.child(f"turn#{number}")
        if turn.find_outcome(TurnEnded) is None:
            break
        for place in (turn, turn.for_attempt(2)):
            started, ended = place.child("turn_started#1").find_outcome(TurnStarted), place.find_outcome(TurnEnded)
            if started is not None and ended is not None and ended.failure is None:
                if last is not None:
                    yield structs.replace(last, is_refused=started.is_correction)
                last = PastTurn(prompt=started.prompt, reply=ended.text, scope=place)
    if last is not None:
        yield last


MakeFailure = Callable[[FailureKind, str], Failure]


class TurnListener:
    """Receives the pieces of a turn. Tracks its text, the running tools, and the deadline for the next piece.

    It uses the system's monotonic clock, as the event loop does.
    """

    def __init__(self, place: Scope, turn_limits: TurnLimits) -> None:
        self.calls: list[ToolUse] = []
        self._place = place
        self._turn_limits = turn_limits
        self._is_unconfirmed = False
        self._allowed_pause = 0.0
        self._segments: list[list[str]] = [[]]
        self._open_tools: dict[str, str] = {}
        self._is_finished = False
        self._owes_text = True
        self._unstreamed: list[str] = []
        self._unstreamed_reasoning: list[str] = []
        self._streaming: asyncio.TimerHandle | None = None
        now = monotonic()
        self._end = now + turn_limits.turn
        self.timeout = PausableTimeout(min(now + turn_limits.thinking, self._end))
        """The timeout of the turn. It expires if the engine is silent for too long or the turn takes too long."""

    @property
    def text(self) -> str:
        """The last part of the reply's text that is not blank. Tool calls divide the text into parts."""
        for segment in reversed(self._segments):
            if (said := "".join(segment)).strip():
                return said
        return ""

    @property
    def _turn_deadline(self) -> float:
        return self._end + self.timeout.paused_seconds

    def limit_first_wait(self) -> None:
        """Shorten the timeout for the first piece of the reply, because a restored engine session may not respond."""
        self._is_unconfirmed = True
        self.timeout.move_deadline(min(monotonic() + self._silence_limit, self._turn_deadline))

    def receive_piece(self, piece: Piece) -> None:
        """Process one piece of the reply."""
        match piece:
            case Text():
                text = replace_surrogates(piece.text)
                self._segments[-1].append(text)
                self._unstreamed.append(text)
            case Reasoning():
                self._unstreamed_reasoning.append(replace_surrogates(piece.text))
            case ToolStarted():
                self.calls.append(piece.call)
                self._open_tools[piece.call.id] = piece.call.name
            case ToolFinished():
                self._open_tools.pop(piece.id, None)
                self._segments.append([])
            case Superseded():
                self._supersede_text()
            case Postponed():
                self._allowed_pause = piece.pause
                self.timeout.move_deadline(min(monotonic() + piece.seconds + self._silence_limit, self._turn_deadline))
                return
            case Finished():
                self._is_finished = True
                self._owes_text = not piece.by_tool
                return
        self._is_unconfirmed = False
        now = monotonic()
        if self._streaming is None and (self._unstreamed or self._unstreamed_reasoning):
            self._streaming = asyncio.get_running_loop().call_later(STREAM_SECONDS, self._flush_streamed)
        # Moving the deadline costs as much as processing a piece, so it may lag by a sixteenth of the limit.
        allowed = self._silence_limit
        if now + allowed - self.timeout.scope.deadline > allowed / 16 or not isinstance(piece, Text):
            self.timeout.move_deadline(min(now + allowed, self._turn_deadline))

    def _supersede_text(self) -> None:
        if self._segments[-1]:
            self.flush()
            self._segments[-1].clear()
            self._place.record_each_time(TextSuperseded())

    @property
    def _silence_limit(self) -> float:
        limits = self._turn_limits
        if self._open_tools:
            return limits.running_tool
        if self.calls:
            return max(limits.used_tools, self._allowed_pause)
        return limits.resumed if self._is_unconfirmed else max(limits.thinking, self._allowed_pause)

    def _flush_streamed(self) -> None:
        with suppress(StoreFailed):  # the next wait for the store raises this error
            self.flush()

    def stop_streaming(self) -> None:
        """Cancel the pending flush of streamed text."""
        if self._streaming is not None:
            self._streaming.cancel()

    def flush(self) -> None:
        """Record the received text and reasoning that are not on the timeline yet."""
        self.stop_streaming()
        self._streaming = None
        if thought := self._take_text(self._unstreamed_reasoning):
            self._place.record_each_time(ReasoningStreamed(text=thought))
        if said := self._take_text(self._unstreamed):
            self._place.record_each_time(TextStreamed(text=said))

    def _take_text(self, pieces: list[str]) -> str:
        """Remove and return the text of the pieces, except for a tail that may be the start of a secret."""
        text = "".join(pieces)
        pieces.clear()
        redaction = self._place.timeline.redaction
        if not text or self._is_finished or not (open := redaction.partial_secret_length(text)):
            return text
        pieces.append(text[-open:])
        return text[:-open]

    def check_reply(self, failure: MakeFailure) -> Failure | None:
        """Return the failure if the engine ended with an incomplete or empty reply, or None if the reply is valid."""
        if self._open_tools:
            names = ", ".join(self._open_tools.values())
            return failure("engine", f"its engine ended the turn before these tools finished: {names}")
        if not self._is_finished:
            return failure("engine", "its engine stopped in the middle of the turn")
        if not self.text and self._owes_text:
            return failure("empty_reply", "its reply was empty")
        return None

    def make_timeout_failure(self, failure: MakeFailure) -> Failure:
        """Return the failure for a turn that timed out."""
        if monotonic() >= self._turn_deadline:
            return failure("timed_out", f"timed out after {self._turn_limits.turn:g} s")
        if self._open_tools:
            names = ", ".join(self._open_tools.values())
            return failure("timed_out", f"timed out: {names} ran for over {self._silence_limit:g} s")
        if self._is_unconfirmed:
            return failure("empty_reply", f"it was silent for {self._silence_limit:g} s after being resumed")
        return failure("timed_out", f"timed out after {self._silence_limit:g} s without output")
