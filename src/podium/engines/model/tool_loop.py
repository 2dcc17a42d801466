"""The loop: prompt, model, tool calls, model again, until there is an answer.

It is ours because journal, pause and cancellation live in it. Every model call and every tool
call is a step: one whose outcome is on the timeline is not made again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from math import inf

from anyio import create_task_group

from ...core.engine import (
    Finished,
    Mind,
    Piece,
    Postponed,
    Reasoning,
    Spec,
    Tool,
    ToolAnswer,
    ToolFinished,
    ToolStarted,
)
from ...core.person_message import delivered, recalled
from ...core.scope import Scope
from ...values.action import Action
from ...values.errors import Failed, Failure, PodiumError, first_error
from ...values.event import ContextCompacted, ModelReplied, ToolAnswered, ToolCalled, ToolUse
from ...values.request import readable
from .conversation import CHARACTERS_A_TOKEN, Conversation
from .model_caller import Caller, Model, Retry, TooLong, refused

FULL = 0.8
"""The share of a model's window from which on a conversation is shortened."""

KEPT = 0.25
"""The share of the window that stays as it is when a conversation is shortened."""

SMALL_WINDOW = 16_000
"""What is assumed of a model that said it was given too much and of which nobody knows how much it can read."""

SUMMING_UP = (
    "You sum up the work of an agent for the agent itself, which will go on from your summary alone. Keep what was "
    "asked, decided and found out, exact names, paths, numbers and commands, what was changed, what failed and why, "
    "and what remains to be done. Leave out everything else. Answer with the summary only."
)


class ModelEngine:
    """Minds that are a loop over a model, or over the next one where it gives up."""

    def __init__(self, *models: Model, name: str, retry: Retry | None = None) -> None:
        self.name = name
        self.models = models
        self._retry = retry or Retry()

    def open(self, spec: Spec) -> AbstractAsyncContextManager[Mind]:
        return nullcontext(Loop(self.models, spec, retry=self._retry))


class Loop:
    """One conversation with a model."""

    is_restored = False

    def __init__(self, models: Sequence[Model], spec: Spec, *, retry: Retry) -> None:
        self._spec = spec
        self._caller = Caller(models, spec, retry=retry)
        self._tools = {tool.name: tool for tool in spec.tools}
        self._talk = Conversation(spec.history)

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        return aclosing(self._pieces(prompt, turn))

    async def _pieces(self, prompt: str, turn: Scope) -> AsyncGenerator[Piece]:
        self._talk.ask(prompt, turn)
        for number in range(1, self._spec.max_turns + 1):
            place = turn.next("call")
            if number > 1:
                self._hear_meanwhile(place)
            tries = 0 if self._must_be_shortened(place) else None
            reply: ModelReplied | None = None
            while reply is None:
                if tries is not None:
                    async with aclosing(self._compacted(place, tries)) as signs:
                        async for sign in signs:
                            yield sign
                try:
                    async with aclosing(self._called(place)) as heard:
                        async for piece in heard:
                            if isinstance(piece, ModelReplied):
                                reply = piece
                            else:
                                yield piece
                except TooLong as error:
                    tries = error.tries
            self._talk.reply(reply)
            if not reply.calls:
                if reply.stop == "content_filter" and not reply.text.strip():
                    raise refused(self._spec.agent.name)
                yield Finished(reply.stop)
                return
            for call in reply.calls:
                yield ToolStarted(call)
            yield Postponed(self._longest(reply.calls))
            answers = await self._answers(place, reply.calls)
            for call, answer in zip(reply.calls, answers, strict=True):
                self._talk.answer(call, answer.text)
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

    def _called(self, place: Scope) -> AsyncGenerator[Piece | ModelReplied]:
        compacted = place.at("compaction").recall(ContextCompacted)
        tries = None if compacted is None else compacted.tries
        return self._caller.reply(
            place, self._talk, system=self._spec.system, tools=self._spec.tools, shortened_after=tries
        )

    def _hear_meanwhile(self, place: Scope) -> None:
        """Take in what the person said since the last call; nothing new where this call was made before."""
        said = recalled(place) if place.is_settled else delivered(place, self._spec.agent.name)
        if said:
            self._talk.ask(said, place)

    # A conversation that grows too long

    def _must_be_shortened(self, place: Scope) -> bool:
        """Whether the model could soon no longer read the conversation, or it was shortened here before."""
        return place.at("compaction").is_settled or (not place.is_settled and self._is_full())

    def _is_full(self) -> bool:
        tokens = self._talk.tokens(self._spec.system)
        return tokens > SMALL_WINDOW / 2 and tokens > (self._caller.models[0].window() or inf) * FULL

    async def _compacted(self, place: Scope, tries: int) -> AsyncGenerator[Piece]:
        """Let the model sum up the first part of the conversation, and go on with that; signs of life meanwhile."""
        at = place.at("compaction")
        compacted = at.recall(ContextCompacted)
        if compacted is None:
            window = min(self._caller.models[0].window() or SMALL_WINDOW, self._talk.tokens(self._spec.system))
            replaced = self._talk.replaceable(int(window * KEPT))
            asked = Conversation()
            asked.ask(self._talk.transcript(replaced, int(window * CHARACTERS_A_TOKEN * FULL / 2)))
            summary = ""
            summing_up = self._caller.reply(at.at("call#1"), asked, system=SUMMING_UP, tools=(), shortened_after=0)
            async with aclosing(summing_up) as heard:
                async for piece in heard:
                    if isinstance(piece, ModelReplied):
                        summary = piece.text
                    else:
                        yield piece if isinstance(piece, Postponed) else Reasoning("")
            compacted = at.settle(ContextCompacted(summary=summary, replaced=replaced, tries=tries))
        self._talk.compact(compacted)

    # Tool calls

    async def _answers(self, place: Scope, calls: tuple[ToolUse, ...]) -> list[ToolAnswer]:
        """What the tools say, in the order of the calls; side by side where the tools allow it.

        A failure that ends the turn, such as an exhausted budget, ends the calls beside it and those after it.
        """
        answers: dict[int, ToolAnswer] = {}

        async def one(number: int, call: ToolUse) -> None:
            answers[number] = await self._answer(place.at(f"tool#{number}"), call)

        for batch in self._batches(calls):
            if len(batch) == 1:
                await one(*batch[0])
                continue
            try:
                async with create_task_group() as group:
                    for number, call in batch:
                        group.start_soon(one, number, call)
            except ExceptionGroup as errors:
                raise first_error(errors) from errors
        return [answers[number] for number in sorted(answers)]

    def _batches(self, calls: tuple[ToolUse, ...]) -> list[list[tuple[int, ToolUse]]]:
        """The calls in batches, one after the other: a call whose tool wants to be alone is a batch of its own."""
        batches: list[list[tuple[int, ToolUse]]] = []
        is_open = False
        for number, call in enumerate(calls, 1):
            tool = self._tools.get(call.name)
            is_parallel = tool is None or tool.is_parallel
            if is_open and is_parallel:
                batches[-1].append((number, call))
            else:
                batches.append([(number, call)])
            is_open = is_parallel
        return batches

    def _longest(self, calls: tuple[ToolUse, ...]) -> float:
        """How long the calls may take by their own limits."""
        return sum(
            max(tool.timeout if (tool := self._tools.get(call.name)) else 0.0 for _, call in batch)
            for batch in self._batches(calls)
        )

    async def _answer(self, place: Scope, call: ToolUse) -> ToolAnswer:
        tool = self._tools.get(call.name)
        action = Action(run=place.timeline.run, agent=self._spec.agent.name, tool=call.name, arguments=call.arguments)
        place.record(ToolCalled(id=call.id, action=action))
        known = place.at("tool_answered#1").recall(ToolAnswered)
        if known is not None and (tool is None or tool.is_step or known.is_timed_out):
            return ToolAnswer(text=known.text, is_error=known.is_error)
        answer, is_timed_out = await self._asked(tool, call, place) if tool else (self._no_tool(call), False)
        answer = replace(answer, text=readable(place.timeline.redaction.text(answer.text)))
        place.record(ToolAnswered(id=call.id, text=answer.text, is_error=answer.is_error, is_timed_out=is_timed_out))
        return answer

    async def _asked(self, tool: Tool, call: ToolUse, place: Scope) -> tuple[ToolAnswer, bool]:
        if call.unreadable:
            return ToolAnswer(text=f"The arguments of {tool.name} are not a JSON object.", is_error=True), False
        try:
            with place.timeline.clock.limit(place.path, tool.timeout):
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
