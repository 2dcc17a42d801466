"""Parse scripts, which define a model's replies call by call, and reply from them in this process.

A script is a list of steps. The first call in a conversation gets the first step, the second call
the second step, and so on. The position depends only on the conversation, so a script continues correctly
after a crash. In JSON, a plain string is a step that only replies with text:

    [
      "a reply",
      {"says": "a reply in three pieces", "pieces": 3, "pace": 0.05},
      {"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]},
      {"says": "said on the third attempt", "fails": {"status": 429, "retry_after": 1, "times": 2}}
    ]

An agent's prompt can also contain such a list, in a fenced block marked `script`. The same scripts
drive `podium.testing.ModelServer`, which serves the model over HTTP.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Literal

import anyio
import msgspec
from msgspec import Meta, Struct

from ..core.engine import Reasoning, Text
from ..values.errors import Mistake, OutsideFailed
from ..values.event import ToolUse
from ..values.usage import Usage
from .model.model_wire import Message, ModelCall, ReplyEnd, ReplyPart, ToolCallPart, read_left_out

CHARACTERS_PER_TOKEN = 4

Fault = Literal["fails", "silent", "half", "garbled"]
Seconds = Annotated[float, Meta(ge=0)]

_FENCE = re.compile(r"^```script[ \t]*\r?\n(.*?)^```[ \t]*\r?$", re.DOTALL | re.MULTILINE)


# The script


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A tool call from the model."""

    name: str
    arguments: dict[str, Any] = {}


class Fails(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An error response from the provider, for the first `times` attempts or for every attempt.

    `headers` is added to the headers of the response, and `error` to the fields of the error in its body.
    """

    status: Annotated[int, Meta(ge=400, le=599)] = 500
    retry_after: Seconds | None = None
    times: Annotated[int, Meta(ge=0)] | None = None
    message: str = "error simulated by the script"
    headers: dict[str, str] = {}
    error: dict[str, Any] = {}


class Move(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A step in a script: the reply to one model call.

    The model waits for `delay` seconds, streams `says` in `pieces` parts, `pace` seconds apart, and then
    makes its `calls`. A fault set to true affects every attempt; a fault set to a number affects
    that many attempts, starting with the first. `half` disconnects after half the text. `silent`
    sends nothing and waits until the call is cancelled. `garbled` corrupts the JSON of the tool arguments, or
    of the reply if it has no calls. `stop` is the stop reason; by default, it depends on whether there are calls.
    `model` is the model that the reply names; by default, it is the requested model.
    """

    says: str = ""
    pieces: Annotated[int, Meta(ge=1)] = 1
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    delay: Seconds = 0.0
    pace: Seconds = 0.0
    usage: Usage | None = None
    stop: str = ""
    model: str = ""
    fails: Fails | None = None
    silent: bool | int = False
    half: bool | int = False
    garbled: bool | int = False

    def fault_at(self, attempt: int) -> Fault | None:
        """Return the fault for this attempt, if any. Attempts are counted from 1."""
        if self.fails is not None and (self.fails.times is None or attempt <= self.fails.times):
            return "fails"
        faults: tuple[tuple[Fault, bool | int], ...] = (
            ("silent", self.silent),
            ("half", self.half),
            ("garbled", self.garbled),
        )
        return next((name for name, times in faults if times is True or attempt <= times), None)


Script = tuple[Move, ...]
Moves = str | Sequence[Move | str | Mapping[str, Any]]
Scripts = Mapping[str, Moves] | Moves


def parse_script(moves: Moves) -> Script:
    """Build a script from these steps. Raise Mistake if a step is invalid."""
    return tuple(_parse_move(item, place) for place, item in enumerate([moves] if isinstance(moves, str) else moves, 1))


def _parse_move(item: object, place: int) -> Move:
    if isinstance(item, Move):
        return item
    try:
        return Move(says=item) if isinstance(item, str) else msgspec.convert(item, Move)
    except msgspec.ValidationError as error:
        raise Mistake(f"step {place} of the script is invalid: {error}") from error


def find_script(system: str, messages: Sequence[Message]) -> Script | None:
    """Return the script in the system prompt or, failing that, in the first user message, or None if there is none.

    Raise Mistake if the script is invalid.
    """
    asked = next((message.text for message in messages if message.role == "user"), "")
    found = _FENCE.search(system) or _FENCE.search(asked)
    if found is None:
        return None
    try:
        moves = msgspec.json.decode(found[1])
    except msgspec.DecodeError as error:
        raise Mistake(f"the script in the prompt is not JSON: {error}") from error
    if not isinstance(moves, list):
        raise Mistake("the script in the prompt is not a list of steps")
    return parse_script(moves)


# Running a script


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAttempt:
    """One attempt at a step: the step, its position in the script, and the fault to simulate, if any."""

    move: Move
    place: int
    fault: Fault | None = None


def count_earlier_calls(call: ModelCall) -> int:
    """Return how many calls in the conversation came before this one, including those whose replies were left out."""
    return sum(message.role == "assistant" for message in call.messages) + read_left_out(call.key)


def echo_request(call: ModelCall) -> Move:
    """Return the step for a call without a script: an echo of the request's first line."""
    return Move(says=f"ok: {first_line(last_request(call))}")


class ScriptSet:
    """Finds the step for a call: in the agent's script, the default script or the prompt, or by calling `otherwise`."""

    def __init__(self, scripts: Scripts = (), *, otherwise: Callable[[ModelCall], Move] = echo_request) -> None:
        self._by_agent: dict[str, Script] = {}
        self._default_script: Script = ()
        if isinstance(scripts, Mapping):
            self._by_agent = {agent: parse_script(moves) for agent, moves in scripts.items()}
        else:
            self._default_script = parse_script(scripts)
        self._otherwise = otherwise
        self._attempts: Counter[tuple[str, int, str]] = Counter()

    @property
    def agent_names(self) -> list[str]:
        """The names of agents that have their own script."""
        return list(self._by_agent)

    def next_attempt(self, call: ModelCall) -> MoveAttempt:
        """Return the script step for a call, and the fault to simulate in this attempt.

        Raise OutsideFailed if the script is invalid or has no more steps.
        """
        moves = self._find_script(call)
        place = count_earlier_calls(call)
        if moves is not None and place >= len(moves):
            raise OutsideFailed(
                f"the script of {call.agent} has no more steps: it has only {len(moves)}, but this is call {place + 1}"
            )
        move = cut_to_limit(self._otherwise(call) if moves is None else moves[place], call)
        return MoveAttempt(
            move=move, place=place, fault=move.fault_at(1) and move.fault_at(self._count_attempts(call, place))
        )

    def _find_script(self, call: ModelCall) -> Script | None:
        if (moves := self._by_agent.get(call.agent)) is not None:
            return moves
        try:
            return self._default_script or find_script(call.system, call.messages)
        except Mistake as error:
            raise OutsideFailed(f"the script of {call.agent} is invalid: {error}") from error

    def _count_attempts(self, call: ModelCall, place: int) -> int:
        """Count this attempt at a call, and return its number.

        A retry has the same key as the first attempt, or that key with a suffix such as `~2`.
        """
        key, _, number = call.key.rpartition("~")
        if not number.isdecimal():
            key, number = call.key, "1"
        self._attempts[call.agent, place, key] += 1
        return max(self._attempts[call.agent, place, key], int(number))


class ScriptedWire:
    """An adapter that replies from scripts. `heard` contains all calls so far, in order."""

    def __init__(self, scripts: Scripts = (), *, otherwise: Callable[[ModelCall], Move] = echo_request) -> None:
        self.heard: list[ModelCall] = []
        self._scripts = ScriptSet(scripts, otherwise=otherwise)

    def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        self.heard.append(call)
        return stream_move(self._scripts.next_attempt, call)


async def stream_move(
    next_attempt: Callable[[ModelCall], MoveAttempt], call: ModelCall
) -> AsyncGenerator[ReplyPart, None]:
    """Yield the parts of the reply to a call. Raise OutsideFailed if the script makes this attempt fail.

    `next_attempt` returns the step for the call, and the fault to simulate.
    """
    attempt = next_attempt(call)
    move = attempt.move
    await anyio.sleep(move.delay)
    if attempt.fault == "silent":
        await anyio.sleep_forever()
    if attempt.fault == "fails" and move.fails is not None:
        raise _make_failure(move.fails)
    if attempt.fault == "garbled" and not move.calls:
        raise OutsideFailed("the script sent invalid JSON", retryable=True)
    if move.reasoning:
        yield Reasoning(move.reasoning)
    for n, piece in enumerate(split_text(attempt)):
        if n and move.pace:
            await anyio.sleep(move.pace)
        yield Text(piece)
    if attempt.fault == "half":
        raise OutsideFailed("the script disconnected in the middle of its reply", retryable=True)
    for use in make_tool_uses(attempt):
        yield ToolCallPart(use)
    yield ReplyEnd(stop=stop_reason(move), usage=compute_move_usage(move, call), model=move.model)


def _make_failure(fails: Fails) -> OutsideFailed:
    return OutsideFailed(
        f"the script returned {fails.status}: {fails.message}",
        retryable=fails.status in (408, 409, 429) or fails.status >= 500,
        retry_after=fails.retry_after,
        status=fails.status,
    )


# Building a reply


def split_text(attempt: MoveAttempt) -> list[str]:
    """Split the reply's text into the pieces to stream. With the fault `half`, use only the first half of the text."""
    text, count = attempt.move.says, attempt.move.pieces
    if attempt.fault == "half":
        text, count = text[: len(text) // 2], (count + 1) // 2
    count = min(count, len(text))
    return [text[len(text) * n // count : len(text) * (n + 1) // count] for n in range(count)]


def make_tool_uses(attempt: MoveAttempt) -> tuple[ToolUse, ...]:
    """Return the reply's tool calls. Call ids depend only on the step's position, so they are always the same."""
    return tuple(
        ToolUse(
            id=f"call-{attempt.place}-{n}", name=call.name, unreadable=msgspec.json.encode(call.arguments)[:-1].decode()
        )
        if attempt.fault == "garbled"
        else ToolUse(id=f"call-{attempt.place}-{n}", name=call.name, arguments=call.arguments)
        for n, call in enumerate(attempt.move.calls)
    )


def stop_reason(move: Move) -> str:
    """Return the stop reason of the reply."""
    return move.stop or ("tool_calls" if move.calls else "stop")


def cut_to_limit(move: Move, call: ModelCall) -> Move:
    """Return the script step as a provider would send it: text beyond the call's `max_tokens` is cut off.

    A step with calls is not cut. Nor is a step that sets its usage: it simulates a server that ignores the limit.
    """
    longest = inf if call.max_tokens is None else call.max_tokens * CHARACTERS_PER_TOKEN
    if move.calls or move.usage is not None or len(move.says) + len(move.reasoning) <= longest:
        return move
    kept = max(0, int(longest) - len(move.reasoning))
    return msgspec.structs.replace(move, says=move.says[:kept], reasoning=move.reasoning[: int(longest)], stop="length")


def compute_move_usage(move: Move, call: ModelCall) -> Usage:
    """Return the usage that the step sets, or an estimate of one token for every four characters."""
    if move.usage is not None:
        return msgspec.structs.replace(move.usage, calls=1)
    said = [move.says, move.reasoning]
    said += [text for tool_call in move.calls for text in (tool_call.name, _encode_json(tool_call.arguments))]
    sent = [call.system]
    for message in call.messages:
        sent.append(message.text)
        sent += [text for use in message.calls for text in (use.name, use.unreadable or _encode_json(use.arguments))]
    for tool in call.tools:
        sent += [tool.name, tool.description, _encode_json(tool.parameters)]
    return Usage(input_tokens=_count_tokens(sent), output_tokens=_count_tokens(said), calls=1)


def _count_tokens(texts: Sequence[str]) -> int:
    return -(-sum(map(len, texts)) // CHARACTERS_PER_TOKEN)


def _encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def last_request(call: ModelCall) -> str:
    """Return the last user message."""
    return next((message.text for message in reversed(call.messages) if message.role == "user"), "")


def first_line(text: str) -> str:
    """Return the first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
