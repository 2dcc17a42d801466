"""What thinks, as the core sees it: an engine opens minds, a mind is asked and answers in pieces.

How an engine thinks is its own affair: a model over HTTP, another vendor's agent in a process, a
script. What it says becomes pieces, and what must not happen twice goes through the turn's scope.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from ..values.agent import Agent
from ..values.event import ToolUse
from .budget import Allowance
from .scope import Scope

# Pieces of a reply, in the order in which they happen. They are made by the thousand each second,
# and a Struct is made five times as fast as a frozen dataclass.


class Text(Struct, frozen=True, gc=False):
    """More of the reply."""

    text: str


class Reasoning(Struct, frozen=True, gc=False):
    """More of the thinking before the reply; never part of the answer."""

    text: str


class ToolStarted(Struct, frozen=True):
    """A tool runs from here on."""

    call: ToolUse


class ToolFinished(Struct, frozen=True, gc=False):
    """The tool with this call's id is done."""

    id: str


class Superseded(Struct, frozen=True, gc=False):
    """The text since the last tool, or since the start, is void: it is being said again."""


class Finished(Struct, frozen=True, gc=False):
    """The mind has said what it had to say. `stop` is its own word for why.

    With `by_tool` a tool had the last word, and no text is owed.
    """

    stop: str = ""
    by_tool: bool = False


class Postponed(Struct, frozen=True, gc=False):
    """Nothing will be said for this many seconds, and nobody should wonder."""

    seconds: float


Piece = Text | Reasoning | ToolStarted | ToolFinished | Superseded | Postponed | Finished


# Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """What a tool says to the model; with `ends_turn` the model is not asked again.

    `refusal` is why nothing was done, for people, where that was not allowed.
    """

    text: str
    is_error: bool = False
    ends_turn: bool = False
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something a mind may call while it thinks.

    A resumed turn calls `answer` again for calls that were already answered. So it is either
    free of effects, or has them as steps of the scope it is given. With `is_step` the call is the
    step: an answer that is on the timeline is taken from there. Calls of one reply run side by side
    where the tool `is_parallel`, and otherwise in their order.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    answer: Callable[[ToolUse, Scope], Awaitable[ToolAnswer]]
    timeout: float = 600.0
    is_step: bool = False
    is_parallel: bool = True


# Minds


class PastTurn(Struct, frozen=True, kw_only=True):
    """A turn that is over: its prompt, its reply, and where its steps are recorded."""

    prompt: str
    reply: str
    scope: Scope


class EngineSessionSpec(Struct, frozen=True, kw_only=True):
    """Everything a mind is made of. A revived session gets the same spec, with its history.

    `schema` is the JSON schema of its answer, where it has one; `allowance` what it may use.
    """

    agent: Agent
    system: str
    tools: tuple[Tool, ...] = ()
    history: tuple[PastTurn, ...] = ()
    max_turns: int = 50
    schema: dict[str, Any] | None = None
    allowance: Allowance | None = None


class EngineSession(Protocol):
    """One conversation."""

    @property
    def is_restored(self) -> bool:
        """Whether its engine brought it back from a memory of its own, and it may turn out to be dead."""
        ...

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        """Put a prompt to it. Leaving the block early cancels the reply."""
        ...


class Engine(Protocol):
    """Where minds come from."""

    @property
    def name(self) -> str:
        """The engine and what it thinks with, as people see it: `openai:gpt-5-mini`, `rehearsal`."""
        ...

    def open(self, spec: EngineSessionSpec) -> AbstractAsyncContextManager[EngineSession]:
        """A mind for one session, put away when the block ends."""
        ...
