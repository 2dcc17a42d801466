"""Describe events: the sentence that the terminal, the page and the API show for an entry of a run's timeline.

A sentence is one line of plain text. What an agent or a program wrote stays as it is: each surface escapes it.
"""

from __future__ import annotations

import json

from ..core.open_requests import describe_answerer
from ..values.action import Action
from ..values.actor import Channel, format_actor
from ..values.agent import format_limits
from ..values.event import (
    KINDS,
    ActionBegan,
    ActionRefused,
    Advised,
    AgentSessionOpened,
    BudgetChanged,
    CallCut,
    CallFailed,
    ChangesExpected,
    CheckoutSaved,
    ContextCompacted,
    Entry,
    Event,
    HandedOff,
    HookRan,
    LimitReached,
    MemoryChanged,
    MessageAcknowledged,
    MessageReceived,
    MessagesDelivered,
    MessageSent,
    ModelAskedAgain,
    ModelReplied,
    Noticed,
    OperationEnded,
    OperationStarted,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    ReasoningStreamed,
    Routed,
    RouteRefused,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionRevived,
    StatusReported,
    StepEnded,
    StopAsked,
    TextStreamed,
    TextSuperseded,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from ..values.operation_path import parse_agent_name, parse_plan_step, parse_team_operation
from ..values.plain_text import format_count, format_countdown, format_utc_time, truncate_text
from .request_text import format_risk
from .run_state.tree import describe_limit
from .team_event_text import READ_CHARACTERS, describe_team_event, quote, shorten

STREAMED = (TextStreamed, ReasoningStreamed)
"""Events that have no sentence: they are pieces of a text, and their own text says all."""
STREAMED_KINDS = frozenset(KINDS[event] for event in STREAMED)

CUT_REPLIES = {
    "length": "reply cut off at the token limit",
    "repetition": "reply stopped, because it repeated itself",
    "endless": "reply stopped, because it did not end",
}
"""The sentences about replies that did not end by themselves, by the reason."""


def describe_entry(entry: Entry, *, user: str = "") -> str | None:
    """Return an entry as a sentence on one line, or None for a piece of streamed text.

    The person who starts or resumes a run is named only if it is not `user`.
    """
    event = entry.event
    if isinstance(event, STREAMED):
        return None
    text = (
        _describe_turn_event(entry)
        or _describe_operation_event(entry)
        or _describe_request(event)
        or _describe_message(event)
        or _describe_run_event(event, user)
        or describe_team_event(event, parse_agent_name(entry.operation))
    )
    assert text is not None, f"no sentence for {type(event).__name__}"
    return " ".join(text.split())


def name_subject(entry: Entry) -> str:
    """Return who or what an entry's sentence is about: an agent or the run. It is empty if the sentence says it."""
    match entry.event:
        case RunStarted() | RunResumed() | RunPaused() | RunEnded() | StopAsked() | PauseAsked() | BudgetChanged():
            return f"run {entry.run}"
        case PermissionAnswered() | QuestionAnswered() | MessageReceived() | MessageAcknowledged() | Noticed():
            return ""
    return parse_agent_name(entry.operation) or f"run {entry.run}"


def is_detail(event: Event) -> bool:
    """Return whether an event is of interest only to somebody who looks for it: it is routine, or another tells it."""
    match event:
        case ActionBegan() | StepEnded() | CheckoutSaved() | ChangesExpected() | CallCut() | TextSuperseded():
            return True
        case TurnEnded(failure=failure):
            return failure is not None
        case ModelReplied(stop=stop):
            return stop not in CUT_REPLIES
        case ToolAnswered(is_error=is_error):
            return not is_error
    return isinstance(event, STREAMED)


def _describe_turn_event(entry: Entry) -> str | None:
    match entry.event:
        case TurnStarted() as event:
            return f"calling {event.engine}"
        case TurnResumed():
            return "resuming its turn, which the previous process did not finish"
        case TurnEnded(failure=None) as event:
            return f"says {quote(event.text)}" if event.text.strip() else "turn ended without text"
        case TurnEnded(failure=failure):
            assert failure is not None
            return f"turn failed: {failure.describe_to(parse_agent_name(entry.operation))}"
        case ToolCalled() as event:
            origin = " (the model wrote this call as text)" if event.is_from_text and not event.is_emulated else ""
            return f"uses {_describe_call(event.action)}{origin}"
        case ToolAnswered() as event:
            return f"{'tool error' if event.is_error else 'tool answered'}: {shorten(event.text)}"
        case ModelReplied() as event:
            return CUT_REPLIES.get(event.stop) or _describe_reply(event)
        case ModelAskedAgain() as event:
            return f"asked again: {event.reason}"
        case CallFailed() as event:
            retry = "" if event.wait is None else f"; retrying in {event.wait:.3g} s"
            return f"model call failed: {event.message}{retry}"
        case CallCut():
            return "model call cancelled"
        case TextSuperseded():
            return "discards its text; the model is called again"
        case LimitReached() as event:
            left = format_countdown(event.until - entry.at)
            return f"waiting for {describe_limit(event)} until {format_utc_time(event.until)} ({left})"
        case ContextCompacted() as event:
            return f"summarised the first {format_count(event.replaced, 'message')} of its conversation"
        case SessionRevived() as event:
            return f"asked again in a new engine session: {event.reason}"
        case AgentSessionOpened() as event:
            return f"opened a session with {event.engine}{f' {event.version}' if event.version else ''}"
    return None


def _describe_reply(event: ModelReplied) -> str:
    if event.text.strip():
        return f"model call completed: {quote(event.text)}"
    calls = f" with {format_count(len(event.calls), 'tool call')}" if event.calls else ""
    return f"model call completed{calls}"


def _describe_operation_event(entry: Entry) -> str | None:
    match entry.event:
        case OperationStarted(trigger="request"):
            return "started"
        case OperationStarted() as event:
            step = parse_plan_step(entry.operation)
            where = f" in step {step}" if step else ""
            return f"started ({event.trigger}{where} for {parse_agent_name(parse_team_operation(entry.operation))})"
        case OperationEnded(failure=None) as event:
            return f"{event.outcome}, unproved: {event.unproved}" if event.unproved else event.outcome
        case OperationEnded(failure=failure) as event:
            assert failure is not None
            return f"{event.outcome}: {failure.describe_to(parse_agent_name(entry.operation))}"
        case StatusReported() as event:
            return f"reports: {event.text}"
        case MemoryChanged() as event:
            return f"changed its memory {event.path}: {event.diff}"
        case ChangesExpected():
            return "must change files"
        case StepEnded() as event:
            return f"step {event.name} done"
        case HookRan() as event:
            return _describe_hook_call(event)
        case Advised() as event:
            names = ", ".join(part.agent for part in event.unavailable)
            return f"advised by {', '.join(event.heard) or 'nobody'}{f'; unavailable: {names}' if names else ''}"
        case RouteRefused() as event:
            valid = ", ".join(event.destinations) or "none"
            return f"chose {event.chosen or 'no agent'}; the valid destinations are {valid}"
        case Routed() as event:
            why = f": {quote(event.reason)}" if event.reason else ""
            return f"{'falls back to' if event.is_fallback else 'chooses'} {event.agent}{why}"
        case HandedOff() as event:
            return f"hands off to {event.receiver}"
    return None


def _describe_hook_call(event: HookRan) -> str:
    """Describe the outcome of a hook, with its reason and the start of the context that it added."""
    reason = f": {event.reason}" if event.reason else ""
    context = f"; it adds {quote(event.context)}" if event.context else ""
    return f"hook {event.event} {event.outcome}{reason}{context} ({shorten(event.hook)})"


def _describe_request(event: Event) -> str | None:
    """Describe an event about a request for permission or a question, or about the action that follows."""
    match event:
        case PermissionAsked():
            risks = f"; risk: {'; '.join(map(format_risk, event.risks))}" if event.risks else ""
            said = shorten(event.agent_reason)
            words = f"; agent's words: {json.dumps(said, ensure_ascii=False)}" if said else ""
            return f"asks for permission ({event.id}): {_describe_call(event.action)}; {event.reason}{risks}{words}"
        case PermissionAnswered():
            verdict = f"allowed ({event.decision})" if event.is_allowed else "denied"
            who = describe_answerer(event)
            why = f": {event.comment}" if event.comment else ""
            return f"request {event.id}: {verdict}{f' by {who}' if who else ''}{why}"
        case QuestionAsked():
            return f"asks you ({event.id}): {quote(event.text)}"
        case QuestionAnswered():
            who = describe_answerer(event)
            return f"question {event.id}: answered{f' by {who}' if who else ''}: {quote(event.text)}"
        case ActionBegan():
            return f"{event.action.tool} starts; allowed by {event.allowed_by}"
        case ActionRefused():
            return f"{event.action.tool} refused: {event.reason}"
    return None


def _describe_message(event: Event) -> str | None:
    match event:
        case MessageReceived():
            files = "".join(f", with {one.name}" for one in event.attachments)
            return f"message for {event.to}{_name_actor(event.by, event.channel)}: {quote(event.text)}{files}"
        case MessagesDelivered():
            return f"received {format_count(len(event.ids), 'message')}"
        case MessageSent():
            return f"sends to {event.to}: {quote(event.text)}"
        case MessageAcknowledged():
            return f"message {event.id} was {'' if event.is_delivered else 'not '}delivered to {event.to}"
        case Noticed():
            return f"notice: {event.text}"
    return None


def _describe_run_event(event: Event, user: str) -> str | None:
    match event:
        case RunStarted():
            what = f"forked from run {event.forked_from}" if event.forked_from else "started"
            who = _name_other(event, user)
            return f"{what}{f' by {who}' if who else ''}; request to {event.agent}: {quote(event.request.text)}"
        case RunResumed():
            who = _name_other(event, user)
            return f"resumed by process {event.pid} on {event.host}{f'; requested by {who}' if who else ''}"
        case RunPaused(until=until) if until:
            return f"waiting for {event.reason or 'a limit'} until {format_utc_time(until)}"
        case RunPaused():
            return "paused"
        case RunEnded():
            return event.outcome if event.failure is None else f"{event.outcome}: {event.failure}"
        case StopAsked():
            return f"stop requested{_name_actor(event.by, event.channel)}"
        case PauseAsked():
            return f"pause requested{_name_actor(event.by, event.channel)}; current steps finish first"
        case BudgetChanged():
            return f"budget changed{_name_actor(event.by, event.channel)} to {format_limits(event.budget)}"
        case CheckoutSaved():
            return f"files saved {'before the first change' if event.moment == 'before' else 'at the end'}"
    return None


def _name_actor(name: str, channel: Channel) -> str:
    who = format_actor(name, channel)
    return f" by {who}" if who else ""


def _name_other(event: RunStarted | RunResumed, user: str) -> str:
    return format_actor(event.by, event.channel) if event.by and event.by != user else ""


def _describe_call(action: Action) -> str:
    """Return a tool and its arguments as JSON, in which no argument can be mistaken for the text around it."""
    starts = {
        name: truncate_text(value, READ_CHARACTERS) if isinstance(value, str) else value
        for name, value in action.arguments.items()
    }
    return f"{action.tool} {shorten(json.dumps(starts))}"
