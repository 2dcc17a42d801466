"""The loop: prompt, model, tool calls, model again, until there is an answer.

It is ours because journal, pause and cancellation live in it. Every model call is a step: one
whose outcome is on the timeline is not made again. A call that fails for a passing reason is
tried again as a step of its own, so that a crash between two tries forgets neither.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass
from itertools import count

from anyio import create_task_group, get_cancelled_exc_class, move_on_after, sleep
from msgspec import structs

from ...action import Action
from ...errors import Failed, Failure, OutsideFailed, PodiumError, StoreFailed
from ...event import CallCut, CallFailed, ModelReplied, ToolAnswered, ToolCalled, ToolUse
from ...journal import Scope
from ...mind import (
    Finished,
    Mind,
    Past,
    Piece,
    Postponed,
    Reasoning,
    Spec,
    Superseded,
    Text,
    Tool,
    ToolAnswer,
    ToolFinished,
    ToolStarted,
)
from ...request import readable
from ...usage import Usage
from .wire import Call, Called, Ended, Message, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a call is tried again after a passing failure, and how long to wait before."""

    most: int = 5
    first: float = 1.0
    longest: float = 30.0
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = sleep

    def wait(self, attempt: int, error: OutsideFailed) -> float | None:
        """Seconds before the next try; None when there is none. What the provider asks for is honoured."""
        if not error.retryable or attempt > self.most:
            return None
        if error.retry_after is not None:
            return error.retry_after
        return min(self.first * 2.0 ** (attempt - 1), self.longest) * (0.5 + self.jitter() / 2)


class ModelEngine:
    """Minds that are a loop over one model."""

    def __init__(self, wire: Wire, *, name: str, model: str = "", retry: Retry | None = None) -> None:
        self.name = name
        self._wire = wire
        self._model = model
        self._retry = retry or Retry()

    def open(self, spec: Spec) -> AbstractAsyncContextManager[Mind]:
        return nullcontext(Loop(self._wire, spec, model=self._model, retry=self._retry))


class Loop:
    """One conversation with a model."""

    is_restored = False

    def __init__(self, wire: Wire, spec: Spec, *, model: str, retry: Retry) -> None:
        self._wire = wire
        self._spec = spec
        self._model = model
        self._retry = retry
        self._tools = {tool.name: tool for tool in spec.tools}
        self._messages = [message for past in spec.history for message in _recalled(past)]

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        return aclosing(self._pieces(prompt, turn))

    async def _pieces(self, prompt: str, turn: Scope) -> AsyncGenerator[Piece]:
        self._messages.append(Message(role="user", text=prompt))
        for _ in range(self._spec.max_turns):
            place = turn.next("call")
            reply = ModelReplied(model=self._model)
            async with aclosing(self._called(place)) as heard:
                async for piece in heard:
                    if isinstance(piece, ModelReplied):
                        reply = piece
                    else:
                        yield piece
            self._messages.append(_said(reply))
            if not reply.calls:
                yield Finished(reply.stop)
                return
            for call in reply.calls:
                yield ToolStarted(call)
            answers = await self._answers(place, reply.calls)
            for call, answer in zip(reply.calls, answers, strict=True):
                self._messages.append(Message(role="tool", text=answer.text, answers=call.id))
                yield ToolFinished(call.id)
            if any(answer.ends_turn for answer in answers):
                yield Finished("tool", by_tool=True)
                return
        raise Failed(
            Failure(
                kind="limit",
                agent=self._spec.agent.name,
                message=f"it had no answer after {self._spec.max_turns} model calls (maxTurns)",
            )
        )

    # Model calls

    async def _called(self, place: Scope) -> AsyncGenerator[Piece | ModelReplied]:
        """One call to the end, however many tries it takes; its reply comes last."""
        for attempt in count(1):
            at = place.again(attempt)
            outcome = known = _outcome_at(at)
            if known is None:
                async with aclosing(self._tried(at, attempt)) as heard:
                    async for piece in heard:
                        if isinstance(piece, ModelReplied | CallFailed):
                            outcome = piece
                        else:
                            yield piece
            elif isinstance(known, ModelReplied) and known.text:
                yield Text(known.text)
            if isinstance(outcome, ModelReplied):
                yield outcome
                return
            assert outcome is not None, "a try ends with its outcome"
            if outcome.wait is None:
                raise OutsideFailed(outcome.message)
            if known is None:
                yield Superseded()
                yield Postponed(outcome.wait)
                await self._retry.sleep(outcome.wait)

    async def _tried(self, at: Scope, attempt: int) -> AsyncGenerator[Piece | ModelReplied | CallFailed]:
        """One try: the pieces as they come, then the outcome as it was recorded."""
        call = Call(
            agent=self._spec.agent.name,
            model=self._model,
            system=self._spec.system,
            messages=tuple(self._messages),
            tools=self._spec.tools,
            key=f"{at.timeline.run}/{at.path}",
        )
        said: list[str] = []
        thought: list[str] = []
        calls: list[ToolUse] = []
        ended = Ended(stop="")
        async with at.timeline.effect:
            try:
                async with aclosing(self._wire.stream(call)) as heard:
                    async for piece in heard:
                        match piece:
                            case Text():
                                said.append(piece.text)
                                yield piece
                            case Reasoning():
                                thought.append(piece.text)
                                yield piece
                            case Called():
                                calls.append(piece.call)
                            case Ended():
                                ended = piece
            except OutsideFailed as error:
                wait = self._retry.wait(attempt, error)
                usage = _estimate(call, "".join(said)) if said else Usage()
                yield at.settle(CallFailed(model=self._model, message=readable(str(error)), wait=wait, usage=usage))
                return
            except (get_cancelled_exc_class(), GeneratorExit):
                text = readable("".join(said))
                with suppress(StoreFailed):
                    at.note(CallCut(model=self._model, text=text, usage=_estimate(call, text)))
                raise
            yield at.settle(
                ModelReplied(
                    model=self._model,
                    text=readable("".join(said)),
                    reasoning=readable("".join(thought)),
                    calls=tuple(calls),
                    stop=ended.stop,
                    sealed=ended.sealed,
                    usage=structs.replace(ended.usage, tool_calls=len(calls)) if calls else ended.usage,
                )
            )

    # Tool calls

    async def _answers(self, place: Scope, calls: tuple[ToolUse, ...]) -> list[ToolAnswer]:
        """What the tools say, in the order of the calls; they run side by side."""
        answers: dict[int, ToolAnswer | PodiumError] = {}

        async def one(number: int, call: ToolUse) -> None:
            try:
                answers[number] = await self._answer(place.at(f"tool#{number}"), call)
            except PodiumError as error:
                answers[number] = error

        if len(calls) == 1:
            await one(1, calls[0])
        else:
            async with create_task_group() as group:
                for number, call in enumerate(calls, 1):
                    group.start_soon(one, number, call)
        for answer in answers.values():
            if isinstance(answer, PodiumError):
                raise answer
        return [answer for _, answer in sorted(answers.items()) if isinstance(answer, ToolAnswer)]

    async def _answer(self, place: Scope, call: ToolUse) -> ToolAnswer:
        action = Action(run=place.timeline.run, agent=self._spec.agent.name, tool=call.name, arguments=call.arguments)
        place.record(ToolCalled(id=call.id, action=action))
        known = place.at("tool_answered#1").recall(ToolAnswered)
        if known is not None and known.is_timed_out:
            return ToolAnswer(text=known.text, is_error=True)
        tool = self._tools.get(call.name)
        answer, is_timed_out = await self._asked(tool, call, place) if tool else (self._no_tool(call), False)
        place.record(ToolAnswered(id=call.id, text=answer.text, is_error=answer.is_error, is_timed_out=is_timed_out))
        return answer

    async def _asked(self, tool: Tool, call: ToolUse, place: Scope) -> tuple[ToolAnswer, bool]:
        if call.unreadable:
            return ToolAnswer(text=f"The arguments of {tool.name} are not a JSON object.", is_error=True), False
        try:
            with move_on_after(tool.timeout):
                return await tool.answer(call, place), False
        except PodiumError:
            raise
        except Exception as error:
            # A tool may be anybody's code: what it trips over is its answer.
            return ToolAnswer(text=f"{tool.name} broke: {type(error).__name__}: {error}", is_error=True), False
        return ToolAnswer(text=f"{tool.name} was stopped after {tool.timeout:g} s.", is_error=True), True

    def _no_tool(self, call: ToolUse) -> ToolAnswer:
        known = ", ".join(self._tools) or "none"
        return ToolAnswer(text=f"There is no tool {call.name!r}; the tools are: {known}.", is_error=True)


def _recalled(past: Past) -> list[Message]:
    """A turn that is over as the messages it was, read from the steps it left on the timeline."""
    messages = [Message(role="user", text=past.prompt)]
    number = 1
    while (reply := _reply_at(past.scope.at(f"call#{number}"))) is not None:
        messages.append(_said(reply))
        for position, call in enumerate(reply.calls, 1):
            answered = past.scope.at(f"call#{number}").at(f"tool#{position}").at("tool_answered#1").recall(ToolAnswered)
            messages.append(Message(role="tool", text=answered.text if answered else "", answers=call.id))
        number += 1
    if len(messages) == 1:
        messages.append(Message(role="assistant", text=past.reply))
    return messages


def _said(reply: ModelReplied) -> Message:
    return Message(role="assistant", text=reply.text, calls=reply.calls, sealed=reply.sealed)


def _reply_at(place: Scope) -> ModelReplied | None:
    for attempt in count(1):
        outcome = _outcome_at(place.again(attempt))
        if not isinstance(outcome, CallFailed):
            return outcome
    return None


def _outcome_at(place: Scope) -> ModelReplied | CallFailed | None:
    outcome = place.recall(ModelReplied, CallFailed)
    assert outcome is None or isinstance(outcome, ModelReplied | CallFailed)
    return outcome


def _estimate(call: Call, said: str) -> Usage:
    """What a call that was cut off will have cost: about four characters a token."""
    sent = len(call.system) + sum(len(message.text) for message in call.messages)
    return Usage(calls=1, input_tokens=-(-sent // 4), output_tokens=-(-len(said) // 4), estimated=1, unpriced=1)
