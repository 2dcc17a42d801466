"""Run the tool loop: call the model, run the tools that it calls, and repeat until there is an answer.

Podium has its own loop, so that it can record, pause and cancel every step. Each model call and each call to a tool
whose `is_step` is true is a step: if its outcome is on the timeline, it is not repeated. Other tools have no effects or
record their own steps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from itertools import count
from math import inf

from anyio import create_task_group

from ...core.engine import (
    EngineSession,
    EngineSessionSpec,
    Finished,
    Piece,
    Postponed,
    Reasoning,
    Superseded,
    Text,
    ToolAnswer,
    ToolFinished,
    ToolStarted,
)
from ...core.person_message import deliver_messages, find_delivered_messages
from ...core.scope import Scope
from ...core.tool_call import make_tool_called, run_tool_call
from ...values.errors import AgentFailed, Failure, find_first_error
from ...values.event import KINDS, ContextCompacted, ModelAskedAgain, ModelReplied, ToolAnswered, ToolUse
from .answer_progress import AnswerProgress, RepeatedCalls
from .conversation import CHARACTERS_A_TOKEN, Conversation
from .model_caller import ContextTooLong, ModelCaller
from .model_wire import Model
from .retry_policy import RetryPolicy

COMPACTION_THRESHOLD = 0.8
"""A conversation that fills more than this share of the context window is compacted."""

KEPT_SHARE = 0.25
"""The share of the context window that is kept verbatim when a conversation is compacted."""

FALLBACK_WINDOW = 16_000
"""The context window, in tokens, assumed for a model whose window is unknown.

A conversation of up to half this size is compacted only if the model rejects it as too long.
"""

SUMMARY_PROMPT = (
    "You summarise an agent's work for the agent itself, which will continue from your summary alone. Keep the "
    "following: what was asked, decided and found out; exact names, paths, numbers and commands; what was changed; "
    "what failed and why; and what remains to be done. Leave out everything else. Answer with the summary only."
)


_ASKED_AGAIN = f"{KINDS[ModelAskedAgain]}#1"


class ModelEngine:
    """The engine that runs the tool loop with a model, and falls back to the next model if that model fails."""

    def __init__(self, *models: Model, name: str, retry: RetryPolicy | None = None) -> None:
        self.name = name
        self.models = models
        self._retry = retry or RetryPolicy()

    @property
    def has_prices(self) -> bool:
        """Whether the models' prices are known, except those of models that only replace unknown ones."""
        return all(model.is_priced for model in self.models if not model.is_for_unknown)

    @property
    def takes_schema(self) -> bool:
        """Whether calls may enforce a JSON schema for the reply. The tool that is equivalent to it is then left out."""
        return self.models[0].abilities.json_schema is not False

    def open(self, spec: EngineSessionSpec) -> AbstractAsyncContextManager[EngineSession]:
        return nullcontext(ModelSession(self.models, spec, retry=self._retry))


class ModelSession:
    """An engine session: one conversation with a model."""

    is_restored = False

    def __init__(self, models: Sequence[Model], spec: EngineSessionSpec, *, retry: RetryPolicy) -> None:
        self._spec = spec
        self._caller = ModelCaller(models, spec, retry=retry)
        self._tools = {tool.name: tool for tool in spec.tools}
        self._conversation = Conversation(spec.history)

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        return aclosing(self._run_turn(prompt, turn))

    async def _run_turn(self, prompt: str, turn: Scope) -> AsyncGenerator[Piece]:
        self._conversation.add_user_message(prompt, turn)
        progress, repeated = AnswerProgress(self._spec), RepeatedCalls(self._tools)
        first = 1 + _count_earlier_calls(turn)
        for number in range(first, self._spec.max_turns + 1):
            place = turn.next_child("call")
            if number > first:
                await self._add_person_messages(place)
            reply: ModelReplied | None = None
            async with aclosing(self._receive_reply(place, progress)) as heard:
                async for piece in heard:
                    if isinstance(piece, ModelReplied):
                        reply = piece
                        continue
                    yield piece
                    if isinstance(piece, Superseded) and progress.so_far:
                        yield Text(progress.so_far)
            assert reply is not None, "the call ended without a reply or an error"
            self._conversation.add_reply(reply)
            if not reply.calls:
                for step in progress.judge_reply(reply, is_last=number == self._spec.max_turns):
                    if isinstance(step, ModelAskedAgain):
                        self._conversation.add_follow_up(reply, place.record(step))
                        continue
                    yield step
                    if isinstance(step, Finished):
                        return
                continue
            if progress.looping_tool:
                if number < self._spec.max_turns:
                    raise progress.make_loop_failure()
                break
            progress.require_doing(reply.calls)
            if reply.calls[0].is_from_text:
                yield Superseded()
                if reply.text:
                    yield Text(reply.text)
            progress.so_far = ""
            for call in reply.calls:
                yield ToolStarted(call)
            yield Postponed(self._sum_timeouts(reply.calls))
            answers = await self._run_tool_calls(place, reply.calls, repeated)
            for call, answer in zip(reply.calls, answers, strict=True):
                self._conversation.add_tool_answer(call, answer.text)
                yield ToolFinished(call.id)
            self._note_answers(place, reply.calls, answers, progress)
            progress.has_replied |= any(answer.is_reply for answer in answers)
            if any(answer.ends_turn for answer in answers):
                yield Finished("tool", by_tool=True)
                return
            # A run of a release that knew no cycles is resumed with the calls that it made.
            is_known = turn.has_child_outcome(f"call#{number + 1}") and not place.has_child_outcome(_ASKED_AGAIN)
            if repeated.is_looping and not is_known:
                asked = progress.ask_for_report(reply.calls[-1].name, repeated)
                self._conversation.add_follow_up(reply, place.record(asked))
        raise AgentFailed(
            Failure(
                kind="limit",
                agent=self._spec.agent.name,
                message=f"no answer after {self._spec.max_turns} model calls (maxTurns)",
            )
        )

    # Model calls

    async def _receive_reply(self, place: Scope, progress: AnswerProgress) -> AsyncGenerator[Piece | ModelReplied]:
        """Call the model; yield the pieces and finally the reply. A conversation that is too long is compacted."""
        tries = 0 if self._needs_compaction(place) else None
        with place.timeline.work.limit_waits.track_activity():
            while True:
                if tries is not None:
                    async with aclosing(self._compact_conversation(place, tries)) as signs:
                        async for sign in signs:
                            yield sign
                try:
                    async with aclosing(self._call_model(place, progress, is_compacted=tries is not None)) as heard:
                        async for piece in heard:
                            yield piece
                    return
                except ContextTooLong as error:
                    tries = error.tries

    def _call_model(
        self, place: Scope, progress: AnswerProgress, *, is_compacted: bool
    ) -> AsyncGenerator[Piece | ModelReplied]:
        compacted = place.child("compaction").find_outcome(ContextCompacted) if is_compacted else None
        tries = None if compacted is None else compacted.tries
        return self._caller.stream_reply(
            place,
            self._conversation,
            system=self._spec.system,
            tools=progress.list_offered_tools(),
            shortened_after=tries,
            so_far=progress.so_far,
        )

    async def _add_person_messages(self, place: Scope) -> None:
        """Add the user's messages since the last call; for a recorded call, only those delivered with that call."""
        said = find_delivered_messages(place)
        if not said and not place.has_outcome:
            said = await deliver_messages(place, self._spec.agent.name)
        if said:
            self._conversation.add_user_message(said, place)

    # Compaction

    def _needs_compaction(self, place: Scope) -> bool:
        """Return whether to compact the conversation before a call.

        This is necessary if the conversation is almost too long. If the timeline already contains a compaction at this
        scope, that compaction must be applied again.
        """
        return place.has_child_outcome("compaction") or (not place.has_outcome and self._is_nearly_full())

    def _is_nearly_full(self) -> bool:
        tokens = self._conversation.count_tokens(self._spec.system)
        return tokens > FALLBACK_WINDOW / 2 and tokens > (self._caller.models[0].window() or inf) * COMPACTION_THRESHOLD

    async def _compact_conversation(self, place: Scope, tries: int) -> AsyncGenerator[Piece]:
        """Have the model summarise the first part of the conversation, and replace that part with the summary.

        The pieces that are yielded contain no text; they only show that the model is working.
        """
        at = place.child("compaction")
        compacted = at.find_outcome(ContextCompacted)
        if compacted is None:
            window = min(
                self._caller.models[0].window() or FALLBACK_WINDOW, self._conversation.count_tokens(self._spec.system)
            )
            replaced = self._conversation.count_replaceable(int(window * KEPT_SHARE))
            summary_request = Conversation()
            summary_request.add_user_message(
                self._conversation.format_transcript(
                    replaced, int(window * CHARACTERS_A_TOKEN * COMPACTION_THRESHOLD / 2)
                )
            )
            summary = ""
            summary_reply = self._caller.stream_reply(
                at.child("call#1"), summary_request, system=SUMMARY_PROMPT, tools=(), shortened_after=0
            )
            async with aclosing(summary_reply) as heard:
                async for piece in heard:
                    if isinstance(piece, ModelReplied):
                        summary = piece.text
                    else:
                        yield piece if isinstance(piece, Postponed) else Reasoning("")
            compacted = at.record_outcome(ContextCompacted(summary=summary, replaced=replaced, tries=tries))
        self._conversation.compact(compacted)

    # Tool calls

    async def _run_tool_calls(
        self, place: Scope, calls: tuple[ToolUse, ...], repeated: RepeatedCalls
    ) -> list[ToolAnswer]:
        """Run the tool calls, in parallel if the tools allow it, and return the answers in the order of the calls.

        A failure that ends the turn, such as an exhausted budget, cancels the parallel calls and skips later calls.
        A call that repeats the call before it is not run, and gets the same answer.
        """
        answers: dict[int, ToolAnswer] = {}
        repeats = repeated.find_repeats(calls)

        async def run_one_call(number: int, call: ToolUse) -> None:
            if number not in repeats:
                answers[number] = await run_tool_call(
                    self._tools, call, place.child(f"tool#{number}"), agent=self._spec.agent.name
                )

        for batch in self._batch_tool_calls(calls):
            if len(batch) == 1:
                await run_one_call(*batch[0])
                continue
            try:
                async with create_task_group() as group:
                    for number, call in batch:
                        group.start_soon(run_one_call, number, call)
            except ExceptionGroup as errors:
                raise find_first_error(errors) from errors
        found = repeated.add_answers(calls, answers)
        for number in sorted(repeats):
            self._record_repeated_call(place.child(f"tool#{number}"), calls[number - 1], found[number - 1])
        return found

    def _note_answers(
        self, place: Scope, calls: Sequence[ToolUse], answers: Sequence[ToolAnswer], progress: AnswerProgress
    ) -> None:
        for number, (call, answer) in enumerate(zip(calls, answers, strict=True), 1):
            at = place.child(f"tool#{number}")
            is_begun, is_refused = (at.has_child_outcome(f"{kind}#1") for kind in ("action_began", "action_refused"))
            progress.add_call(call, answer, is_begun=is_begun, is_refused=is_refused)

    def _record_repeated_call(self, place: Scope, call: ToolUse, answer: ToolAnswer) -> None:
        place.record(make_tool_called(call, place, agent=self._spec.agent.name))
        place.record(ToolAnswered(id=call.id, text=answer.text, is_error=answer.is_error))

    def _batch_tool_calls(self, calls: tuple[ToolUse, ...]) -> list[list[tuple[int, ToolUse]]]:
        """Split the calls into batches that run one after the other. A batch contains one call or parallel calls."""
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

    def _sum_timeouts(self, calls: tuple[ToolUse, ...]) -> float:
        """Return how many seconds the calls can take, given their tools' timeouts."""
        return sum(
            max(tool.timeout if (tool := self._tools.get(call.name)) else 0.0 for _, call in batch)
            for batch in self._batch_tool_calls(calls)
        )


def _count_earlier_calls(turn: Scope) -> int:
    """Return how many model calls the first attempt at this turn made, or 0 if this is the first attempt."""
    path, _, attempt = turn.path.rpartition("~")
    if not attempt.isdecimal():
        return 0
    return next(number for number in count() if not turn.timeline.has_outcome(f"{path}/call#{number + 1}"))
