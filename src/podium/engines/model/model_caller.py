"""Call models, with retries, fallback models and a budget.

Every attempt is a step: after a crash, an attempt whose outcome is on the timeline is not repeated.
The earlier attempts determine which model is called next.

The recorded reply contains the tool calls that were parsed from its text, so that a resumed run does not parse it again
and behaves the same.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from functools import partial
from itertools import count

from anyio import get_cancelled_exc_class
from msgspec import structs

from ...core.budget import CallEstimate
from ...core.clock import LimitWait
from ...core.engine import EngineSessionSpec, Piece, Postponed, Reasoning, ReplyFormat, Superseded, Text, Tool
from ...core.scope import Scope
from ...values.errors import AgentFailed, Failure, OutsideFailed, StoreFailed
from ...values.event import CallFailed, LimitReached, ModelReplied, Noticed, ToolUse
from ...values.plain_text import format_count, format_utc_time
from ...values.usage import NO_CALL_LIMITS, CallLimits, Usage
from .conversation import Conversation
from .model_wire import Model, ModelCall, make_call_key
from .not_done_tool import NOT_DONE
from .provider_throttle import LONGEST_LIMIT, ModelLimit
from .reply_recorder import ReplyRecorder
from .retry_policy import ModelCandidates, RetryPolicy
from .tool_emulation import AnswerStream, decode_answer, decode_not_done, emulate_tools, refuses_tools
from .written_call import WrittenReply, read_written_reply, was_shown

BUDGET_WAIT_SECONDS = 10.0
"""How many seconds a call without enough budget waits before it checks again, unless another call ends first."""
GRACE = 1.25
"""The ratio of the turn's silence timeout to the call's. It is greater than 1 so that the call times out first."""


class ContextTooLong(Exception):
    """The provider reported, on attempt number `tries`, that the conversation exceeds the model's context window."""

    def __init__(self, tries: int) -> None:
        super().__init__(tries)
        self.tries = tries


class ModelCaller:
    """Makes the model calls of one engine session."""

    def __init__(self, models: Sequence[Model], spec: EngineSessionSpec, *, retry: RetryPolicy) -> None:
        self.models = models
        self._spec = spec
        self._retry = retry
        self._expected_output_tokens = 0
        """The number of tokens in the last reply, used as the estimate for the next one."""
        self._input_scale = 1.0
        """The number of tokens in the last prompt as counted by the provider, divided by the estimate; at least 1."""
        self._toolless_models: set[int] = set()
        """The indices of models whose servers refused tools. Their tools are described in the prompt instead."""
        self._candidates = ModelCandidates(models)
        self._unknown_message = ""
        """Why the first unknown model was refused."""
        self._notices: set[str] = set()
        """The notices about fallbacks and about replies from other models that this session has recorded."""

    async def stream_reply(
        self,
        place: Scope,
        conversation: Conversation,
        *,
        system: str,
        tools: tuple[Tool, ...],
        shortened_after: int | None,
        so_far: str = "",
    ) -> AsyncGenerator[Piece | ModelReplied]:
        """Make one call, with as many attempts as needed; yield the pieces, then the reply.

        Raise OutsideFailed if all models failed, and ContextTooLong if the conversation exceeds the
        context window. The caller can then shorten the conversation and call again, with the number of
        attempts already made as `shortened_after`. `so_far` is the text of the replies that this one continues.
        """
        candidate, tries, limited = self._candidates.find_first(), 0, dict[int, float]()
        for attempt in count(1):
            at = place.for_attempt(attempt)
            outcome = known = _recall_outcome(at)
            if isinstance(known, CallFailed):
                candidate = self._candidates.find_recorded(known, candidate)
            model = self.models[candidate]
            tries += 1
            if known is None:
                call = self._make_call(at, model, conversation, system=system, tools=tools)
                is_emulated = model.emulates_tools or candidate in self._toolless_models
                async with aclosing(self._try_call(at, model, tries, call, so_far, is_emulated)) as heard:
                    async for piece in heard:
                        if isinstance(piece, ModelReplied | CallFailed):
                            outcome = piece
                        else:
                            yield piece
            elif isinstance(known, ModelReplied) and known.text:
                yield Text(known.text)
            if isinstance(outcome, ModelReplied):
                self._expected_output_tokens = outcome.usage.with_rehearsed().output_tokens
                self._report_other_model(place, outcome)
                yield outcome
                return
            assert outcome is not None, "the attempt ended without an outcome"
            if outcome.is_too_long and shortened_after is None:
                raise ContextTooLong(attempt)
            if outcome.is_too_long and attempt <= (shortened_after or 0):
                continue  # this attempt was made before the conversation was shortened
            if outcome.wait is None:
                if not self._check_refused_tools(place, candidate, outcome):
                    candidate = self._fall_back(place, candidate, outcome, limited)
                tries = 0
            if candidate in limited:
                if known is None:
                    await self._wait_for_reset(at, candidate, limited[candidate])
                limited.clear()
            if known is None:
                yield Superseded()
                if outcome.wait:
                    yield Postponed(outcome.wait)
                    await self._retry.sleep(outcome.wait)

    def _fall_back(self, place: Scope, failed: int, outcome: CallFailed, limited: dict[int, float]) -> int:
        """Return the index of the model to try next. Raise OutsideFailed if no model is left.

        `failed` is the index of the model whose call failed with `outcome`. Models at their limits are added to
        `limited`. If the index of such a model is returned, the caller waits for its limit to reset.
        """
        if outcome.until:
            limited[failed] = outcome.until
        if outcome.is_unknown_model:
            self._candidates.mark_unknown(failed)
            self._unknown_message = self._unknown_message or outcome.message
        candidate = self._candidates.find_next(failed, limited)
        if candidate is not None and self._is_unaffordable(self.models[candidate]):
            self._candidates.mark_unknown(candidate)
            candidate = self._candidates.find_next(failed, limited)
        if self.models[failed].is_for_unknown:
            used = self.models[failed].name
            message = f"{self._unknown_message}; the default model {used} cannot be used either: {outcome.message}"
        else:
            message = outcome.message
        if candidate is None:
            raise OutsideFailed(message, is_unknown_model=bool(self._unknown_message))
        if outcome.is_unknown_model:
            used = self.models[candidate].name
            place.record(Noticed(text=f"{self._spec.agent.name} uses {used} instead: {outcome.message}."))
        elif outcome.until and candidate not in limited:
            used, until = self.models[candidate].label, format_utc_time(outcome.until)
            self._record_once(place, f"{self._spec.agent.name} uses {used} until {until}: {outcome.message}")
        return candidate

    def _is_unaffordable(self, model: Model) -> bool:
        """Return whether a model that replaces an unknown one must not be called, because its price is not known."""
        allowance = self._spec.allowance
        return model.is_for_unknown and allowance is not None and allowance.limits_money and not model.is_priced

    def _check_refused_tools(self, place: Scope, failed: int, outcome: CallFailed) -> bool:
        """Return whether a call failed only because the model does not support tool calls.

        If so, remember it, so that the tools are described in the prompt of the next attempt.
        """
        model = self.models[failed]
        if model.tool_calls != "auto" or failed in self._toolless_models or not refuses_tools(outcome.message):
            return False
        self._toolless_models.add(failed)
        name = self._spec.agent.name
        text = f"{model.name} does not support tool calls; the tools of {name} are described in its prompt instead."
        place.record(Noticed(text=text))
        return True

    async def _wait_for_reset(self, at: Scope, candidate: int, until: float) -> None:
        """Wait until a model's limit resets. This time does not count towards the agent's timeouts."""
        model, agent = self.models[candidate], self._spec.agent.name
        message = model.throttle.find_limit(model.name).message
        at.record_each_time(
            LimitReached(agent=agent, model=model.name, provider=model.provider, until=until, message=message)
        )
        await at.timeline.wait_written()
        wait = LimitWait(until=until, reason=f"the limit of {model.label}")
        with at.timeline.work.timeouts.pause_timeouts(at.path):
            await at.timeline.work.limit_waits.wait(at.path, wait, sleep=self._retry.sleep)
        model.throttle.clear_limit(model.name)

    def _report_other_model(self, place: Scope, reply: ModelReplied) -> None:
        """Record a notice, once for each model, that a reply names a model other than the requested one."""
        if reply.replied_model:
            asked = f"{self._spec.agent.name} asked for {reply.model}"
            self._record_once(place, f"{asked}, but the reply names the model {reply.replied_model}.")

    def _record_once(self, place: Scope, text: str) -> None:
        """Record a notice, unless this session has already recorded it."""
        if text not in self._notices:
            self._notices.add(text)
            place.record(Noticed(text=text))

    def _make_call(
        self, at: Scope, model: Model, conversation: Conversation, *, system: str, tools: tuple[Tool, ...]
    ) -> ModelCall:
        most = [limit for limit in (self._spec.agent.max_tokens, model.max_tokens) if limit is not None]
        wanted = self._find_format(model, system)
        return ModelCall(
            agent=self._spec.agent.name,
            model=model.name,
            system=system,
            messages=conversation.messages_for_model(model.name),
            tools=tools,
            key=make_call_key(f"{at.timeline.run}/{at.path}", left_out=conversation.left_out),
            schema=wanted.schema if wanted is not None else None,
            schema_tool=wanted.tool if wanted is not None else "",
            limits=model.limits,
            max_tokens=min(most, default=None),
        )

    async def _try_call(
        self, at: Scope, model: Model, tries: int, call: ModelCall, so_far: str, emulates_tools: bool
    ) -> AsyncGenerator[Piece | ModelReplied | CallFailed]:
        """Make one attempt: yield the pieces as they arrive, then the recorded outcome."""
        reply = ReplyRecorder(call, model.add_cost)
        throttle, expected = model.throttle, reply.estimate_usage(self._expected_output_tokens)
        estimate = self._estimate_call(model, expected)
        # If the reply's schema is equivalent to the only tool, that tool need not be emulated.
        is_emulated = emulates_tools and not call.schema_tool
        # The text of an emulated call is JSON; only the answer in it is shown.
        answer = AnswerStream() if is_emulated and call.tools else None
        while not await self._has_room(at, estimate):
            yield Postponed(BUDGET_WAIT_SECONDS)
            await self._wait_for_release()
        with self._reserve_budget(estimate) as longest:
            sent = emulate_tools(call, takes_schema=model.abilities.json_schema is not False) if is_emulated else call
            if longest is not None:
                sent = structs.replace(sent, max_tokens=min(longest, call.max_tokens or longest))
            delay = throttle.estimate_delay(expected.tokens)
            if delay:
                yield Postponed(delay)
            slot = throttle.reserve_slot(expected.tokens, partial(self._report_queue, at, model))
            async with slot, at.timeline.work.effect:
                if delay or model.limits != NO_CALL_LIMITS:
                    yield _allow_silence(model.limits)
                try:
                    _require_no_limit(model)
                    async with aclosing(model.wire.stream(sent)) as heard:
                        async for piece in heard:
                            if reply.is_silent:
                                throttle.record_success()
                            for shown in reply.add_part(piece):
                                if answer is not None and isinstance(shown, Text):
                                    yield Text(part) if (part := answer.add_text(shown.text)) else Reasoning("")
                                else:
                                    yield shown
                            if reply.is_stopped:
                                break
                except OutsideFailed as error:
                    failed = self._build_failure(model, reply, error, tries)
                    slot.record_tokens(failed.usage.tokens)
                    yield at.record_outcome(failed)
                    return
                except (get_cancelled_exc_class(), GeneratorExit):
                    cut = reply.as_call_cut()
                    slot.record_tokens(cut.usage.tokens)
                    with suppress(StoreFailed):
                        at.record_each_time(cut)
                    raise
                slot.record_tokens(reply.end.usage.tokens)
                self._input_scale = max(1.0, reply.end.usage.input_tokens / max(expected.input_tokens, 1))
                whole = reply.as_model_replied()
                replied = read_reply(whole, call, so_far=so_far, is_emulated=is_emulated)
                shown_text = reply.shown if answer is None else answer.decoded
                # The tool loop replaces a text that contained calls.
                wanted_text = whole.text if answer is None and replied.calls else replied.text
                if reply.is_stopped or shown_text != wanted_text:
                    yield Superseded()
                    yield Text(replied.text)
                yield at.record_outcome(replied)

    def _build_failure(self, model: Model, reply: ReplyRecorder, error: OutsideFailed, tries: int) -> CallFailed:
        """Return the outcome of a failed call, and record the failure in the throttle.

        If the provider requires a wait of more than `max_wait` seconds, the call is not retried. Instead, the throttle
        records that the model has reached a limit, and the outcome contains the time when the limit resets.
        """
        seconds, now = error.retry_after or 0.0, time.time()
        limit = model.throttle.find_limit(model.name)
        if limit.until > now:
            return reply.as_call_failed(error, None, provider=model.provider, until=limit.until)
        if not error.retryable or not model.max_wait < seconds <= LONGEST_LIMIT:
            model.throttle.record_failure(error)
            wait = self._retry.next_delay(tries, error) if seconds <= LONGEST_LIMIT else None
            return reply.as_call_failed(error, wait, provider=model.provider)
        model.throttle.record_limit(model.name, ModelLimit(now + seconds, str(error)))
        return reply.as_call_failed(error, None, provider=model.provider, until=now + seconds)

    def _report_queue(self, at: Scope, model: Model, ahead: int) -> None:
        """Record a notice that a call is waiting because the provider is busy with other calls."""
        waiting = f"{self._spec.agent.name} is waiting for {model.provider or model.name}"
        text = f"{waiting} ({format_count(ahead, 'call')} ahead)."
        with suppress(StoreFailed):  # the next wait for the store raises this error
            at.record_each_time(Noticed(text=text))

    def _find_format(self, model: Model, system: str) -> ReplyFormat | None:
        """Return the format of the reply, or None for free text. A summary is free text with its own system prompt."""
        if system != self._spec.system:
            return None
        wanted = None if model.abilities.json_schema is False else self._spec.reply_format()
        if wanted is None and self._spec.schema is not None:
            wanted = ReplyFormat(schema=self._spec.schema)
        return wanted

    def _estimate_call(self, model: Model, expected: Usage) -> CallEstimate:
        """Estimate the usage of the call, with its cost if there is a cost limit."""
        tokens = int(expected.input_tokens * self._input_scale)
        # Assume that nothing is cached yet: a prompt that is written to the cache costs the most.
        prompt = structs.replace(expected, input_tokens=tokens, written_tokens=tokens, output_tokens=0)
        price = 0.0
        if self._spec.allowance is not None and self._spec.allowance.limits_money:
            with_reply = model.add_cost(structs.replace(prompt, output_tokens=1_000)).usd
            prompt = structs.replace(prompt, usd=model.add_cost(prompt).usd)
            price = (with_reply - prompt.usd) / 1_000
        return CallEstimate(prompt=prompt, output_tokens=expected.output_tokens, usd_per_token=price)

    async def _has_room(self, at: Scope, estimate: CallEstimate) -> bool:
        """Return whether the budget has room for the call now. Raise AgentFailed if it never will."""
        allowance = self._spec.allowance
        await at.timeline.work.wait_while_paused()  # a budget that is changed during a pause applies to this call
        if allowance is None:
            return True
        await allowance.require_day_budget(self._spec.agent.name)
        return allowance.has_room(estimate, agent=self._spec.agent.name)

    async def _wait_for_release(self) -> None:
        """Wait until there may be room in the budget again."""
        if self._spec.allowance is not None:
            await self._spec.allowance.wait_for_release(BUDGET_WAIT_SECONDS)

    def _reserve_budget(self, estimate: CallEstimate) -> AbstractContextManager[int | None]:
        """Return a context manager that reserves budget for the call, if a budget applies to this agent."""
        allowance = self._spec.allowance
        return nullcontext() if allowance is None else allowance.reserve_call(estimate)


def _require_no_limit(model: Model) -> None:
    """Raise OutsideFailed if another call has found that the model is at its limit, so this call would fail too."""
    limit = model.throttle.find_limit(model.name)
    if limit.until > time.time():
        raise OutsideFailed(limit.message)


def _allow_silence(limits: CallLimits) -> Postponed:
    """Return a `Postponed` piece, which makes the turn's silence timeout longer than the call's.

    The call then times out before the turn does.
    """
    return Postponed((limits.first_token or 0.0) * GRACE, pause=(limits.silence or 0.0) * GRACE)


def make_refusal_failure(agent: str) -> AgentFailed:
    """Build the failure for a model that refused to answer."""
    return AgentFailed(Failure(kind="refused", agent=agent, message="its model refused to answer"))


def _recall_outcome(place: Scope) -> ModelReplied | CallFailed | None:
    outcome = place.find_outcome(ModelReplied, CallFailed)
    assert outcome is None or isinstance(outcome, ModelReplied | CallFailed)
    return outcome


def read_reply(replied: ModelReplied, call: ModelCall, *, so_far: str, is_emulated: bool) -> ModelReplied:
    """Return the reply with the calls that its text contains. If there are none, return it unchanged.

    `so_far` is the text of the replies that this one continues. If `is_emulated`, the reply should be a JSON object:
    if it contains an answer, the answer becomes the text.
    """
    if replied.calls:
        return replied
    if any(tool.name == NOT_DONE for tool in call.tools) and (why := decode_not_done(replied.text)) is not None:
        use = ToolUse(id=f"call-{len(call.messages)}-1", name=NOT_DONE, arguments={"why": why}, is_from_text=True)
        return structs.replace(replied, text="", calls=(use,))
    is_own_form = is_emulated and (call.tools or call.schema is None)
    if is_own_form and (answer := decode_answer(replied.text)) is not None:
        return structs.replace(replied, text=answer)
    if not call.tools:
        return replied
    # With an output schema, JSON in the text is the answer and not a call, unless tools are emulated. A model may still
    # write a call to the tool that the schema replaces.
    if call.schema is not None and not is_emulated and not call.schema_tool:
        return replied
    written = _find_unshown_calls(so_far + replied.text, call)
    if written is None:
        return replied
    uses = tuple(
        ToolUse(
            id=f"call-{len(call.messages)}-{number}",
            name=one.name,
            arguments=one.arguments,
            unreadable=one.unreadable,
            is_from_text=True,
            is_emulated=is_emulated,
        )
        for number, one in enumerate(written.calls)
    )
    usage = structs.replace(replied.usage, tool_calls=len(uses))
    return structs.replace(replied, text=written.prose, calls=uses, usage=usage)


def _find_unshown_calls(text: str, call: ModelCall) -> WrittenReply | None:
    """Return the tool calls that a model wrote as text, or None if there are none.

    Also return None if one of the calls appears in the prompt, because quoted calls are never run.
    """
    written = read_written_reply(text, {tool.name: tool.parameters for tool in call.tools})
    if written is None:
        return None
    shown = [message.text for message in call.messages if message.role != "assistant"]
    return None if any(was_shown(one, shown) for one in written.calls) else written
