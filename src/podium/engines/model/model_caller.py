"""Model calls that come to something: tried again, with another model where one gives up, within a budget.

Every try is a step: one whose outcome is on the timeline is not made again, so that a crash
between two tries forgets neither. Which model a try is made with follows from those before it.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count

from anyio import get_cancelled_exc_class, sleep
from msgspec import structs

from ...core.engine import Piece, Postponed, Reasoning, Spec, Superseded, Text, Tool
from ...core.scope import Scope
from ...values.errors import Failed, Failure, OutsideFailed, StoreFailed
from ...values.event import CallCut, CallFailed, ModelReplied, ToolUse
from ...values.request import readable
from ...values.usage import Usage
from .conversation import CHARACTERS_A_TOKEN, Conversation
from .model_wire import IMAGE_CHARACTERS, Call, Called, Ended, Heard, Message, Wire
from .provider_traffic import Traffic


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


def free(usage: Usage) -> Usage:
    """The usage of a model that costs nothing."""
    return usage


def unpriced(usage: Usage) -> Usage:
    """The usage of a model whose price nobody knows."""
    return structs.replace(usage, unpriced=usage.calls) if usage.calls else usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model that can be called: the wire to it, its name there, and what is known about it.

    `window` is how many tokens it can read; None where nobody knows. It is asked for only when a
    conversation grows, since looking it up takes a while the first time.
    """

    wire: Wire
    name: str = ""
    priced: Callable[[Usage], Usage] = unpriced
    traffic: Traffic = field(default_factory=Traffic)
    window: Callable[[], int | None] = lambda: None

    @property
    def is_priced(self) -> bool:
        """Whether it is known what a call costs."""
        return self.priced(Usage(calls=1, input_tokens=1)).unpriced == 0


class TooLong(Exception):
    """The conversation is longer than the model can read, as it said at the last of so many tries."""

    def __init__(self, tries: int) -> None:
        super().__init__(tries)
        self.tries = tries


class Caller:
    """The calls of one mind."""

    def __init__(self, models: Sequence[Model], spec: Spec, *, retry: Retry) -> None:
        self.models = models
        self._spec = spec
        self._retry = retry
        self._typical = 0
        """The tokens of its last reply, which the next one is expected to have."""

    async def reply(
        self, place: Scope, talk: Conversation, *, system: str, tools: tuple[Tool, ...], shortened_after: int | None
    ) -> AsyncGenerator[Piece | ModelReplied]:
        """One call to the end, however many tries it takes; its reply comes last.

        Raises OutsideFailed when all models gave up, and TooLong when the conversation is more than the
        model can read: then it may be asked again, with one that was shortened after so many tries.
        """
        candidate = tries = 0
        for attempt in count(1):
            at = place.again(attempt)
            model = self.models[candidate]
            outcome = known = _outcome_at(at)
            tries += 1
            if known is None:
                async with aclosing(self._tried(at, model, tries, talk, system, tools)) as heard:
                    async for piece in heard:
                        if isinstance(piece, ModelReplied | CallFailed):
                            outcome = piece
                        else:
                            yield piece
            elif isinstance(known, ModelReplied) and known.text:
                yield Text(known.text)
            if isinstance(outcome, ModelReplied):
                self._typical = outcome.usage.output_tokens
                yield outcome
                return
            assert outcome is not None, "a try ends with its outcome"
            if outcome.is_too_long and shortened_after is None:
                raise TooLong(attempt)
            if outcome.is_too_long and attempt <= (shortened_after or 0):
                continue  # it was said of the conversation before it was shortened
            if outcome.wait is None:
                candidate, tries = candidate + 1, 0
                if candidate == len(self.models):
                    raise OutsideFailed(outcome.message)
            if known is None:
                yield Superseded()
                if outcome.wait:
                    yield Postponed(outcome.wait)
                    await self._retry.sleep(outcome.wait)

    async def _tried(
        self, at: Scope, model: Model, tries: int, talk: Conversation, system: str, tools: tuple[Tool, ...]
    ) -> AsyncGenerator[Piece | ModelReplied | CallFailed]:
        """One try: the pieces as they come, then the outcome as it was recorded."""
        call = Call(
            agent=self._spec.agent.name,
            model=model.name,
            system=system,
            messages=talk.for_model(model.name),
            tools=tools,
            key=f"{at.timeline.run}/{at.path}",
            schema=self._spec.schema,
        )
        reply = _Reply(model, call)
        traffic, estimate = model.traffic, self._estimate(model, reply)
        await at.timeline.still()  # a budget that is changed during a pause counts
        with self._room(estimate):
            delay = traffic.delay(estimate.tokens)
            if delay:
                yield Postponed(delay)
            async with traffic.call(estimate.tokens) as turn, at.timeline.effect:
                if delay:
                    yield Postponed(0.0)
                try:
                    async with aclosing(model.wire.stream(call)) as heard:
                        async for piece in heard:
                            if reply.is_silent:
                                traffic.fine()
                            reply.hear(piece)
                            if isinstance(piece, Text | Reasoning):
                                yield piece
                except OutsideFailed as error:
                    traffic.trouble(error)
                    failed = reply.failed(error, self._retry.wait(tries, error))
                    turn.settle(failed.usage.tokens)
                    yield at.settle(failed)
                    return
                except (get_cancelled_exc_class(), GeneratorExit):
                    cut = reply.cut()
                    turn.settle(cut.usage.tokens)
                    with suppress(StoreFailed):
                        at.note(cut)
                    raise
                turn.settle(reply.ended.usage.tokens)
                yield at.settle(reply.replied())

    def _estimate(self, model: Model, reply: _Reply) -> Usage:
        """About what the call will use, with its money where that is limited."""
        allowance = self._spec.allowance
        estimate = reply.estimate(self._typical)
        return model.priced(estimate) if allowance is not None and allowance.limits_money else estimate

    def _room(self, estimate: Usage) -> AbstractContextManager[None]:
        """Room for the call in the budgets that hold for this agent."""
        allowance = self._spec.allowance
        return nullcontext() if allowance is None else allowance.reserved(estimate, agent=self._spec.agent.name)


class _Reply:
    """A reply as it comes in, and what is recorded of it."""

    def __init__(self, model: Model, call: Call) -> None:
        self._model = model
        self._call = call
        self._said: list[str] = []
        self._thought: list[str] = []
        self._calls: list[ToolUse] = []
        self.is_silent = True
        self.ended = Ended(stop="")

    def hear(self, piece: Heard) -> None:
        """Take in a piece."""
        self.is_silent = False
        match piece:
            case Text():
                self._said.append(piece.text)
            case Reasoning():
                self._thought.append(piece.text)
            case Called():
                self._calls.append(piece.call)
            case Ended():
                self.ended = piece

    def replied(self) -> ModelReplied:
        usage = self._model.priced(self.ended.usage)
        return ModelReplied(
            model=self._model.name,
            text=readable("".join(self._said)),
            reasoning=readable("".join(self._thought)),
            calls=tuple(self._calls),
            stop=self.ended.stop,
            sealed=self.ended.sealed,
            usage=structs.replace(usage, tool_calls=len(self._calls)) if self._calls else usage,
        )

    def failed(self, error: OutsideFailed, wait: float | None) -> CallFailed:
        usage = self._spent() if self._said else Usage()
        message = readable(str(error))
        return CallFailed(
            model=self._model.name, message=message, wait=wait, is_too_long=error.is_too_long, usage=usage
        )

    def cut(self) -> CallCut:
        return CallCut(model=self._model.name, text=readable("".join(self._said)), usage=self._spent())

    def estimate(self, output_tokens: int) -> Usage:
        """About what the call will use."""
        sent = len(self._call.system) + sum(map(_size, self._call.messages))
        tokens = -(-sent // CHARACTERS_A_TOKEN)
        return Usage(calls=1, input_tokens=tokens, output_tokens=output_tokens, estimated=1)

    def _spent(self) -> Usage:
        """What a call that did not come to its end will have cost."""
        said = sum(map(len, self._said))
        return self._model.priced(self.estimate(-(-said // CHARACTERS_A_TOKEN)))


def _size(message: Message) -> int:
    return len(message.text) + IMAGE_CHARACTERS * len(message.images)


def refused(agent: str) -> Failed:
    """The failure of a model that would not answer."""
    return Failed(Failure(kind="refused", agent=agent, message="its model refused to answer"))


def _outcome_at(place: Scope) -> ModelReplied | CallFailed | None:
    outcome = place.recall(ModelReplied, CallFailed)
    assert outcome is None or isinstance(outcome, ModelReplied | CallFailed)
    return outcome
