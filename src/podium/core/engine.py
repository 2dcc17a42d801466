"""The engine interface: an engine opens engine sessions, and an engine session streams its reply as pieces.

Each engine produces replies in its own way: with a model over HTTP, another vendor's agent in a
process, or a script. Anything that must not happen twice is recorded under the turn's scope.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from ..values.agent import Agent
from ..values.event import ToolUse
from ..values.json import JsonObject, JsonSchema
from .budget import Allowance
from .scope import Scope

CUT_OFF_MARK = "\n\n[This answer was cut off at the token limit.]"
"""The note that is appended to an answer that the model did not complete because it reached its token limit."""

# Pieces of a reply, in the order in which they arrive. Thousands are created per second, and creating
# a Struct is five times as fast as creating a frozen dataclass.


class Text(Struct, frozen=True, gc=False):
    """The next piece of the reply's text."""

    text: str


class Reasoning(Struct, frozen=True, gc=False):
    """The next piece of the model's reasoning; never part of the answer."""

    text: str


class ToolStarted(Struct, frozen=True):
    """A tool call has started."""

    call: ToolUse


class ToolFinished(Struct, frozen=True, gc=False):
    """The tool call with this id has finished."""

    id: str


class Superseded(Struct, frozen=True, gc=False):
    """The text since the last tool call, or since the start, must be discarded: the engine sends it again."""


class Finished(Struct, frozen=True, gc=False):
    """The engine finished its reply; `stop` is the provider's stop reason.

    If `by_tool` is true, a tool call ended the turn or served as the reply, so the text may be empty.
    """

    stop: str = ""
    by_tool: bool = False


class Postponed(Struct, frozen=True, gc=False):
    """The engine will send nothing for this many seconds, for example while it waits to retry.

    Until the next `Postponed`, the engine may also pause for up to `pause` seconds between pieces of its reply.
    """

    seconds: float
    pause: float = 0.0


Piece = Text | Reasoning | ToolStarted | ToolFinished | Superseded | Postponed | Finished


# Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """A tool's result for the model; if `ends_turn` is true, the model is not called again in this turn.

    If `is_reply` is true, the call itself is the agent's reply, so the turn can end without text. If the call was not
    permitted, `refusal` is the reason to show to the user. `log` is the whole output of a command, if it is worth
    keeping; the model does not get it.
    """

    text: str
    is_error: bool = False
    ends_turn: bool = False
    is_reply: bool = False
    refusal: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that an engine session can call during a turn.

    A resumed turn calls `answer` again for calls that were already answered. So `answer` either has no
    effects or records them as steps of the scope it is given. If `is_step` is true, the call itself is the
    step: if its answer is on the timeline, that answer is returned. If `is_parallel` is true, the calls in one reply
    run concurrently; otherwise they run in order. A call that is identical to the previous call is executed again only
    if `is_polling` is true, which is for tools whose answers can change even if the agent does nothing. `after_answer`
    is called when the answer is on the timeline, and again in a resumed turn.
    """

    name: str
    description: str
    parameters: JsonSchema
    answer: Callable[[ToolUse, Scope], Awaitable[ToolAnswer]]
    timeout: float = 600.0
    is_step: bool = False
    is_parallel: bool = True
    is_polling: bool = False
    after_answer: Callable[[ToolUse, Scope, ToolAnswer], Awaitable[None]] | None = None


# Actions that an engine takes itself


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAction:
    """An action that an engine takes itself if it is permitted, such as a tool call by another vendor's agent.

    `tool` and `arguments` use Podium's own names where there is an equivalent, because rules are matched against
    them. `outputs` maps each file that the action changes to a hash of its new content, or to an empty string if that
    is not known. `shown` is additional text for the person who is asked, such as a diff. `agent_reason` is what the
    agent said before the action. `directory` is the checkout that paths are relative to, if it is not the agent's own.
    """

    tool: str
    arguments: JsonObject
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    shown: str = ""
    changed_lines: int = 0
    sandbox: str = ""
    agent_reason: str = ""
    directory: str = ""
    impossible: str = ""
    """Why the action cannot work whatever a person answers, and what works instead. Empty if it can work."""


class EngineGate(Protocol):
    """Permits or refuses actions that an engine takes itself.

    As with tool calls, the permission rules decide, or a person is asked if the rules say so.
    """

    @property
    def checkouts(self) -> tuple[str, ...]:
        """The checkouts that the agent works in, the primary one first."""
        ...

    async def permit(self, place: Scope, wanted: EngineAction) -> str:
        """Return why an action is refused, or an empty string if it is permitted.

        The decision is recorded at `place` before this method returns. If the action is permitted, the engine must
        take exactly this action, and then record that it has ended.
        """
        ...

    def record_unrequested(self, place: Scope, action: EngineAction) -> None:
        """Record that an engine has started an action without requesting permission."""
        ...


# Engine sessions


class PastTurn(Struct, frozen=True, kw_only=True):
    """A finished turn: its prompt, its reply, and the scope where its steps are recorded.

    If `is_refused` is true, the reply could not be used. An engine leaves it out of the conversation, so that the
    model neither sees nor repeats it; the prompt and the earlier steps of the turn stay.
    """

    prompt: str
    reply: str
    scope: Scope
    is_refused: bool = False


class ReplyFormat(Struct, frozen=True, kw_only=True):
    """The JSON schema of one turn's reply. `tool` names the tool whose call is equivalent to such a reply, if any.

    The format is a preference: an engine that cannot constrain replies to a schema offers the tool or accepts free
    text, and the caller parses every reply in the same way.
    """

    schema: JsonSchema
    tool: str = ""


def no_reply_format() -> ReplyFormat | None:
    """Return None: every reply of the session is free text."""
    return None


class EngineSessionSpec(Struct, frozen=True, kw_only=True):
    """Everything an engine needs to open an engine session. A reopened session gets the same spec, with its history.

    `schema` is the JSON schema of the answer, if there is one; `allowance` is the budget for the session's model calls.
    `reply_format` returns the format of the current turn's reply. An engine that performs actions itself, instead of
    calling `tools`, performs only actions that `gate` permits. Without a gate, it performs none. `run` is the run's id.
    """

    agent: Agent
    system: str
    tools: tuple[Tool, ...] = ()
    history: tuple[PastTurn, ...] = ()
    max_turns: int = 50
    schema: JsonSchema | None = None
    allowance: Allowance | None = None
    reply_format: Callable[[], ReplyFormat | None] = no_reply_format
    gate: EngineGate | None = None
    run: str = ""


class EngineSession(Protocol):
    """One conversation with an engine."""

    @property
    def is_restored(self) -> bool:
        """Whether the engine restored this session from its own storage. A restored session might not respond."""
        ...

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        """Send a prompt and stream the reply. Leaving the block early cancels the reply."""
        ...


class Engine(Protocol):
    """Opens engine sessions."""

    @property
    def name(self) -> str:
        """The name of the engine and its model for display: `openai:gpt-5-mini`, `rehearsal`."""
        ...

    def open(self, spec: EngineSessionSpec) -> AbstractAsyncContextManager[EngineSession]:
        """Open an engine session; it is closed when the block ends."""
        ...
