"""An API as a scripted model speaks it, and how a move becomes an answer in any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...core.engine import Tool, ToolAnswer
from ...core.scope import Scope
from ...engines.model.model_wire import Call
from ...engines.script import Cue, pieces
from ...values.event import ToolUse
from .http_connection import STREAM_END, STREAM_HEAD, Answer, encode, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was understood. `is_counted` when the caller wants to know the usage."""

    call: Call
    is_streaming: bool
    is_counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is to be said to whom; `number` tells replies apart."""

    cue: Cue
    asked: Asked
    number: int


class Rendering(Protocol):
    """A reply as one API puts it: as a document, or as events before, for and after the pieces of its text."""

    def document(self) -> dict[str, Any]: ...

    def opening(self) -> bytes: ...

    def piece(self, text: str) -> bytes: ...

    def ending(self) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One API: where it is spoken, where the key stands, what a request asks, and how errors and replies look."""

    path: str
    key: Callable[[Mapping[str, str]], str]
    asked: Callable[[bytes, str], Asked]
    error: Callable[[int, str], object]
    rendering: Callable[[Reply], Rendering]

    def refused(self, status: int, message: str, *, retry_after: float | None = None) -> Answer:
        """An error as an answer."""
        return whole(status, self.error(status, message), retry_after=retry_after)

    def answer(self, reply: Reply) -> Answer:
        """The reply as it is sent, with whatever goes wrong this time."""
        move, fault = reply.cue.move, reply.cue.fault
        if fault == "silent":
            return Answer(parts=())
        if fault == "fails" and move.fails is not None:
            refused = self.refused(move.fails.status, move.fails.message, retry_after=move.fails.retry_after)
            return Answer(parts=refused.parts, delay=move.delay)
        rendering = self.rendering(reply)
        return _streamed(rendering, reply.cue) if reply.asked.is_streaming else _whole(rendering, reply.cue)


def _whole(rendering: Rendering, cue: Cue) -> Answer:
    document = encode(rendering.document())
    if cue.fault == "garbled" and not cue.move.calls:
        document = document[: len(document) // 2]
    sent = whole(200, document).parts[0]
    breaks = cue.fault == "half"
    return Answer(parts=[sent[: -(len(document) // 2)] if breaks else sent], delay=cue.move.delay, breaks=breaks)


def _streamed(rendering: Rendering, cue: Cue) -> Answer:
    """One part for each piece of the text; all in one where nothing passes between them."""
    move = cue.move
    parts = [rendering.piece(text) for text in pieces(cue)] or [b""]
    parts[0] = STREAM_HEAD + rendering.opening() + parts[0]
    breaks = cue.fault == "half"
    if not breaks:
        parts[-1] += rendering.ending() + STREAM_END
    return Answer(parts=parts if move.pace else [b"".join(parts)], delay=move.delay, pace=move.pace, breaks=breaks)


def tool(name: str, description: str, parameters: dict[str, Any]) -> Tool:
    """A tool of the caller's, who alone can run it."""
    return Tool(name=name, description=description, parameters=parameters, answer=_belongs_to_the_caller)


async def _belongs_to_the_caller(use: ToolUse, scope: Scope) -> ToolAnswer:
    return ToolAnswer(text=f"{use.name} runs where the model is called from.", is_error=True)
