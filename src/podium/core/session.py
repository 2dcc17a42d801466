"""A session: one agent's conversation on one engine.

A session takes prompts one at a time, in the order in which they came, and gives a reply or a
failure for each. It knows prompts, tools and replies, and nothing of patterns. A turn that is
over is on the timeline with its reply; asking again finds it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

from anyio import get_cancelled_exc_class
from msgspec import structs

from ..values.errors import Failed, Failure, FailureKind, Inconsistent, OutsideFailed, StoreFailed
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
from ..values.limits import Patience
from ..values.request import readable
from .clock import Limit
from .engine import (
    Engine,
    Finished,
    Mind,
    Past,
    Piece,
    Postponed,
    Reasoning,
    Spec,
    Superseded,
    Text,
    ToolFinished,
    ToolStarted,
)
from .engine_sessions import Keeper, Kept
from .person_message import delivered, recalled
from .scope import Scope

QUEUE = 64
STREAM_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a session answered, and the tools it called on the way."""

    text: str
    calls: tuple[ToolUse, ...] = ()


class Session:
    """One agent's conversation."""

    def __init__(
        self,
        engine: Engine,
        spec: Spec,
        scope: Scope,
        *,
        keeper: Keeper,
        patience: Patience,
        past: Sequence[Past] = (),
    ) -> None:
        self._engine = engine
        self._keeper = keeper
        self._spec = spec
        self._scope = scope
        self._patience = patience
        self._line = asyncio.Lock()
        self._waiting = 0
        self._past = list(past)
        self._kept: Kept | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a turn is under way."""
        return self._line.locked()

    async def ask(self, prompt: str, *about: Any) -> Reply:
        """Put a prompt to the agent; on a busy session it waits its turn.

        `about` are the inputs that set this turn apart from one at the same place with other
        inputs; the words of the prompt are not, so that a newer release may word it better.
        """
        if self._waiting > QUEUE:
            raise Failed(self._failure("limit", f"{QUEUE} prompts are waiting for it already"))
        turn = self._scope.next("turn", *about)
        self._waiting += 1
        try:
            async with self._line:
                return await self._reply(turn, self._with_messages(turn, prompt))
        finally:
            self._waiting -= 1

    async def aclose(self) -> None:
        """Put the mind away; the next turn would open another, with all that was said."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.aclose()

    def _with_messages(self, turn: Scope, prompt: str) -> str:
        """The prompt with what the person has said to this agent since its last turn."""
        agent, timeline = self._spec.agent.name, turn.timeline
        said = recalled(turn)
        # What was asked before this process is not asked again: words that came since wait for the next turn.
        if (
            not said
            and timeline.undelivered(agent)
            and not turn.is_settled
            and not timeline.below(turn.path, ModelReplied)
        ):
            said = delivered(turn, agent)
        return f"{prompt}\n\n{said}" if said else prompt

    async def _reply(self, turn: Scope, prompt: str) -> Reply:
        """The reply of a turn; one that comes to nothing gets a fresh mind and the whole prompt, once."""
        place = turn
        ended = place.recall(TurnEnded) or await self._attempt(place, prompt)
        if ended.failure is not None and ended.failure.kind == "empty_reply":
            place.record(SessionRevived(agent=self._spec.agent.name, reason=ended.failure.message))
            # What the person said in the middle of the first attempt is said again.
            told = [message.text for message in turn.timeline.below(turn.path, MessagesDelivered)]
            prompt = "\n\n".join([prompt, *(text for text in told if text not in prompt)])
            place = turn.again(2)
            ended = place.recall(TurnEnded) or await self._attempt(place, prompt)
        if ended.failure is not None:
            raise Failed(ended.failure)
        self._past.append(Past(prompt=prompt, reply=ended.text, scope=place))
        return Reply(text=ended.text, calls=ended.calls)

    async def _attempt(self, place: Scope, prompt: str) -> TurnEnded:
        """One attempt at a turn, from its start to the one place where every turn ends."""
        started = TurnStarted(agent=self._spec.agent.name, engine=self._engine.name, prompt=prompt)
        is_resumed = place.at("turn_started#1").is_settled
        place.record(started)
        if is_resumed:
            place.note(TurnResumed())
        hearing = Hearing(place, self._patience)
        try:
            failure = await self._listen(place, prompt, hearing)
        except get_cancelled_exc_class():
            with suppress(StoreFailed):
                hearing.flush()
            raise
        finally:
            hearing.close()
        if failure is not None:
            await self.aclose()
        return self._end(place, hearing, failure)

    async def _listen(self, place: Scope, prompt: str, hearing: Hearing) -> Failure | None:
        try:
            with place.timeline.clock.watching(hearing.limit, place.path), hearing.limit.scope:
                mind = self._kept.mind if self._kept is not None else await self._opened(hearing)
                async with mind.ask(prompt, place) as pieces:
                    async for piece in pieces:
                        hearing.hear(piece)
                return hearing.shortcoming(self._failure)
        except Failed as error:
            return error.failure
        except OutsideFailed as error:
            return self._failure("engine", str(error))
        except (StoreFailed, Inconsistent):
            raise
        except Exception as error:
            # An engine is another's code: what it trips over is this turn's failure, not the run's end.
            return self._failure("engine", f"its engine broke: {type(error).__name__}: {error}")
        await place.timeline.still()
        return hearing.silence(self._failure)

    def _end(self, place: Scope, hearing: Hearing, failure: Failure | None) -> TurnEnded:
        """The end of every turn: nothing that was said is lost, and the outcome is recorded once."""
        text, calls = place.timeline.redaction.text(hearing.text), tuple(hearing.calls)
        if failure is None:
            return place.settle(TurnEnded(outcome="succeeded", text=text, calls=calls))
        hearing.flush()
        return place.settle(TurnEnded(outcome=failure.outcome, text=text, calls=calls, failure=failure))

    async def _opened(self, hearing: Hearing) -> Mind:
        spec = structs.replace(self._spec, history=tuple(self._past)) if self._past else self._spec
        self._kept = await self._keeper.open(self._engine.open(spec))
        if self._kept.mind.is_restored:
            hearing.distrust()
        return self._kept.mind

    def _failure(self, kind: FailureKind, message: str) -> Failure:
        return Failure(kind=kind, agent=self._spec.agent.name, message=message)


def turns_at(scope: Scope) -> Iterator[Past]:
    """The turns of a session at this place that came to a reply, from the timeline."""
    for number in count(1):
        turn = scope.at(f"turn#{number}")
        if (ended := turn.recall(TurnEnded)) is None:
            return
        for place in (turn, turn.again(2)):
            started, ended = place.at("turn_started#1").recall(TurnStarted), place.recall(TurnEnded)
            if started is not None and ended is not None and ended.failure is None:
                yield Past(prompt=started.prompt, reply=ended.text, scope=place)


Fail = Callable[[FailureKind, str], Failure]


class Hearing:
    """A turn as it is heard: its text so far, its open tools, and how much longer it may be silent.

    Time is the system's monotonic clock, which is also the event loop's.
    """

    def __init__(self, place: Scope, patience: Patience) -> None:
        self.calls: list[ToolUse] = []
        self._place = place
        self._patience = patience
        self._is_distrusted = False
        self._segments: list[list[str]] = [[]]
        self._open_tools: dict[str, str] = {}
        self._is_finished = False
        self._owes_text = True
        self._unstreamed: list[str] = []
        self._unstreamed_thoughts: list[str] = []
        self._streaming: asyncio.TimerHandle | None = None
        now = monotonic()
        self._end = now + patience.turn
        self.limit = Limit(min(now + patience.thinking, self._end))
        """The block in which the turn is heard; it is left when there was too much silence."""

    @property
    def text(self) -> str:
        """What was said since the last tool; where that is nothing, what was said before."""
        return next((said for said in map("".join, reversed(self._segments)) if said.strip()), "")

    @property
    def _latest_end(self) -> float:
        return self._end + self.limit.waited

    def distrust(self) -> None:
        """Wait only briefly for the first sign of life: the mind was restored and may be dead."""
        self._is_distrusted = True
        self.limit.until(min(monotonic() + self._allowed, self._latest_end))

    def hear(self, piece: Piece) -> None:
        """Take in one piece."""
        match piece:
            case Text():
                text = readable(piece.text)
                self._segments[-1].append(text)
                self._unstreamed.append(text)
            case Reasoning():
                self._unstreamed_thoughts.append(readable(piece.text))
            case ToolStarted():
                self.calls.append(piece.call)
                self._open_tools[piece.call.id] = piece.call.name
            case ToolFinished():
                self._open_tools.pop(piece.id, None)
                self._segments.append([])
            case Superseded():
                self._supersede()
            case Postponed():
                self.limit.until(min(monotonic() + piece.seconds + self._allowed, self._latest_end))
                return
            case Finished():
                self._is_finished = True
                self._owes_text = not piece.by_tool
                return
        self._is_distrusted = False
        now = monotonic()
        if self._streaming is None and (self._unstreamed or self._unstreamed_thoughts):
            self._streaming = asyncio.get_running_loop().call_later(STREAM_SECONDS, self._stream)
        # Moving a deadline costs as much as a piece; it may lag by a sixteenth of what is allowed.
        allowed = self._allowed
        if now + allowed - self.limit.scope.deadline > allowed / 16 or not isinstance(piece, Text):
            self.limit.until(min(now + allowed, self._latest_end))

    def _supersede(self) -> None:
        if self._segments[-1]:
            self.flush()
            self._segments[-1].clear()
            self._place.note(TextSuperseded())

    @property
    def _allowed(self) -> float:
        if self._open_tools:
            return self._patience.running_tool
        if self.calls:
            return self._patience.used_tools
        return self._patience.resumed if self._is_distrusted else self._patience.thinking

    def _stream(self) -> None:
        with suppress(StoreFailed):  # whoever waits for the store next is told
            self.flush()

    def close(self) -> None:
        """Stream nothing more."""
        if self._streaming is not None:
            self._streaming.cancel()

    def flush(self) -> None:
        """Put on the timeline what was said and is not there yet."""
        self.close()
        self._streaming = None
        if thought := self._taken(self._unstreamed_thoughts):
            self._place.note(ReasoningStreamed(text=thought))
        if said := self._taken(self._unstreamed):
            self._place.note(TextStreamed(text=said))

    def _taken(self, pieces: list[str]) -> str:
        """What the pieces say together, but for an end with which a secret may begin: that stays for the next time."""
        text = "".join(pieces)
        pieces.clear()
        redaction = self._place.timeline.redaction
        if not text or self._is_finished or not (open := redaction.open(text)):
            return text
        pieces.append(text[-open:])
        return text[:-open]

    def shortcoming(self, failure: Fail) -> Failure | None:
        """Why a reply that came to its end is none; None for a good one."""
        if self._open_tools:
            names = ", ".join(self._open_tools.values())
            return failure("engine", f"its engine ended the turn while {names} was still running")
        if not self._is_finished:
            return failure("engine", "its engine broke off in the middle of the turn")
        if not self.text and self._owes_text:
            return failure("empty_reply", "it replied with nothing")
        return None

    def silence(self, failure: Fail) -> Failure:
        """What to say of a turn that was cut off."""
        if monotonic() >= self._latest_end:
            return failure("timed_out", f"timed out after {self._patience.turn:g} s")
        if self._open_tools:
            names = ", ".join(self._open_tools.values())
            return failure("timed_out", f"timed out: {names} ran for over {self._allowed:g} s")
        if self._is_distrusted:
            return failure("empty_reply", f"it was silent for {self._allowed:g} s after being resumed")
        return failure("timed_out", f"timed out after {self._allowed:g} s of silence")
