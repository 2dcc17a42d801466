"""Format timeline entries, each as one line of text or of JSON."""

from __future__ import annotations

import json
from typing import Any, get_args

from msgspec import to_builtins

from ...core.open_requests import describe_answerer
from ...values.action import Action
from ...values.event import (
    AdjustmentProposed,
    Advised,
    AgentSessionOpened,
    Broadcast,
    BudgetChanged,
    CallFailed,
    CandidateChosen,
    Checked,
    ContextCompacted,
    DiscussionEnded,
    Entry,
    Evaluated,
    HandedOff,
    HookRan,
    IterationFailed,
    LimitReached,
    MemberChanged,
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
    PushFailed,
    QuestionAnswered,
    QuestionAsked,
    ReflectEnded,
    RoundEnded,
    Routed,
    RouteRefused,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionRevived,
    StatusReported,
    StopAsked,
    TeamPlanned,
    ToolAnswered,
    ToolCalled,
    Trigger,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    Voted,
    WorkCommitted,
    WorkerPlaced,
    WorkerReturned,
    WorkerSent,
    WorkMoved,
    WorkPushed,
    WorkRestored,
)
from ...values.operation_path import parse_agent_name, parse_plan_step
from ...values.plain_text import format_count, format_countdown, format_utc_time
from ...views.request_text import format_risk
from ...views.run_view import describe_limit
from .budget_text import format_limits
from .text import escape_for_terminal, truncate_line
from .work_event_text import format_work_event

LONGEST_QUOTE = 72


def format_entry(entry: Entry) -> str | None:
    """Describe an entry in one line. Return None for entries that are not worth a line, such as streamed text."""
    text = _format_run_event(entry)
    if text is None and (text := _format_operation_event(entry)) is not None:
        text = f"{parse_agent_name(entry.operation) or f'run {entry.run}'}: {text}"
    return None if text is None else escape_for_terminal(" ".join(text.split()))


def format_entry_json(entry: Entry) -> str:
    """Return an entry as one line of ASCII JSON, which cannot contain terminal control characters."""
    fields: dict[str, Any] = to_builtins(entry)
    event = fields.pop("event")
    top = {"type": event.pop("type"), "seq": entry.seq, "schema": entry.schema}
    return json.dumps({**top, **fields, "event": event}, separators=(",", ":"))


def _format_run_event(entry: Entry) -> str | None:
    match entry.event:
        case RunStarted() as event:
            what = f"forked from run {event.forked_from}" if event.forked_from else "started"
            return f"run {entry.run}: {what}; request to {event.agent}: {_quote_text(event.request.text)}"
        case RunResumed() as event:
            return f"run {entry.run}: resumed by process {event.pid} on {event.host}"
        case RunPaused(until=until) as event if until:
            return f"run {entry.run}: waiting for {event.reason} until {format_utc_time(until)}"
        case RunPaused():
            return f"run {entry.run}: paused"
        case RunEnded(failure=None) as event:
            return f"run {entry.run}: {event.outcome}"
        case RunEnded() as event:
            return f"run {entry.run}: {event.outcome}: {event.failure}"
        case StopAsked() as event:
            return f"run {entry.run}: stop requested{_format_author(event.by)}"
        case PauseAsked() as event:
            return f"run {entry.run}: pause requested{_format_author(event.by)}; current steps finish first"
        case BudgetChanged() as event:
            return f"run {entry.run}: budget changed{_format_author(event.by)} to {format_limits(event.budget)}"
        case MessageReceived() as event:
            files = "".join(f", with {one.name}" for one in event.attachments)
            return f"message for {event.to}{_format_author(event.by)}: {_quote_text(event.text)}{files}"
        case MessageAcknowledged() as event:
            return f"message {event.id} was {'' if event.is_delivered else 'not '}delivered to {event.to}"
        case PermissionAnswered(is_allowed=True) as event:
            return f"request {event.id}: allowed ({event.decision}){_format_author(describe_answerer(event))}"
        case PermissionAnswered() as event:
            why = f": {event.comment}" if event.comment else ""
            return f"request {event.id}: denied{_format_author(describe_answerer(event))}{why}"
        case QuestionAnswered() as event:
            return f"question {event.id}: answered{_format_author(describe_answerer(event))}: {_quote_text(event.text)}"
        case Noticed() as event:
            return f"notice: {event.text}"
    return None


def _format_operation_event(entry: Entry) -> str | None:
    match entry.event:
        case OperationStarted(trigger="request"):
            return "started"
        case OperationStarted() as event:
            step = parse_plan_step(entry.operation)
            where = f" in step {step}" if step else ""
            return f"started ({event.trigger}{where} for {parse_agent_name(_find_parent_path(entry.operation))})"
        case OperationEnded(failure=None) as event:
            return f"{event.outcome}, unproved: {event.unproved}" if event.unproved else event.outcome
        case OperationEnded() as event:
            assert event.failure is not None
            return f"{event.outcome}: {event.failure.describe_to(parse_agent_name(entry.operation))}"
        case TurnStarted() as event:
            return f"calling {event.engine}"
        case TurnResumed():
            return "resuming its turn, which the previous process did not finish"
        case TurnEnded(failure=None) as event:
            return f"says {_quote_text(event.text)}" if event.text.strip() else "turn ended without text"
        case SessionRevived() as event:
            return f"asked again in a new engine session: {event.reason}"
        case AgentSessionOpened() as event:
            return f"opened a session with {event.engine}{f' {event.version}' if event.version else ''}"
        case MessagesDelivered() as event:
            return f"received {format_count(len(event.ids), 'message')}"
        case LimitReached() as event:
            left = format_countdown(event.until - entry.at)
            return f"waiting for {describe_limit(event)} until {format_utc_time(event.until)} ({left})"
        case CallFailed(wait=None) as event:
            return f"model call failed: {event.message}"
        case CallFailed() as event:
            return f"model call failed: {event.message}; retrying in {event.wait:.3g} s"
        case ModelReplied(stop="length"):
            return "reply cut off at the token limit"
        case ModelReplied(stop="repetition"):
            return "reply stopped, because it repeated itself"
        case ModelReplied(stop="endless"):
            return "reply stopped, because it did not end"
        case ModelAskedAgain() as event:
            return f"asked again: {event.reason}"
        case ToolCalled() as event:
            origin = " (the model wrote this call as text)" if event.is_from_text and not event.is_emulated else ""
            return f"uses {event.action.tool} {_format_arguments(event.action)}{origin}"
        case ToolAnswered(is_error=True) as event:
            return f"tool error: {truncate_line(event.text, LONGEST_QUOTE)}"
        case PermissionAsked() as event:
            return _format_permission_request(event)
        case QuestionAsked() as event:
            return f"asks you ({event.id}): {_quote_text(event.text)}"
        case StatusReported() as event:
            return f"reports: {event.text}"
        case MessageSent() as event:
            return f"sends to {event.to}: {_quote_text(event.text)}"
        case MemoryChanged() as event:
            return f"changed its memory {event.path}: {event.diff}"
        case ContextCompacted() as event:
            return f"summarised the first {format_count(event.replaced, 'message')} of its conversation"
    return _format_pattern_event(entry)


def _format_pattern_event(entry: Entry) -> str | None:
    match entry.event:
        case Advised() as event:
            missing = (
                f"; unavailable: {', '.join(part.agent for part in event.unavailable)}" if event.unavailable else ""
            )
            return f"advised by {', '.join(event.heard) or 'nobody'}{missing}"
        case RouteRefused() as event:
            return f"chose {event.chosen or 'no agent'}; the valid destinations are {', '.join(event.destinations)}"
        case Routed() as event:
            return f"{'falls back to' if event.is_fallback else 'chooses'} {event.agent}: {_quote_text(event.reason)}"
        case HandedOff() as event:
            return f"hands off to {event.receiver}"
        case HookRan() as event:
            return format_hook_call(event)
    return _format_team_event(entry)


def _format_team_event(entry: Entry) -> str | None:
    match entry.event:
        case TeamPlanned() as event:
            names = ", ".join(dict.fromkeys(one.worker for one in event.assignments)) or "no workers"
            rest = f"; skipped: {'; '.join(event.skipped)}" if event.skipped else ""
            return f"plans iteration {event.iteration} for {names}{rest}"
        case Evaluated() as event:
            verdict = "complete" if event.is_complete else event.held_back or "not complete"
            return f"iteration {event.iteration} scored {event.score:.2g} by {event.by} ({event.trend}): {verdict}"
        case Checked() as event:
            return f"checks {'passed' if event.passed else 'failed'}: {_quote_text(', '.join(event.commands))}"
        case AdjustmentProposed() as event:
            return f"{'applies' if event.is_applied else 'proposes'}: {event.text}" + (
                f" ({event.member}: {event.model})" if event.model else ""
            )
        case MemberChanged() as event:
            what = [f"model {event.model}"] * bool(event.model) + ["a new prompt"] * bool(event.prompt)
            return (
                f"changed{_format_author(event.by)}: {event.member} uses {' and '.join(what)} "
                "starting with its next operation"
            )
        case IterationFailed() as event:
            return f"iteration {event.iteration} failed: {event.message}"
        case ReflectEnded() as event:
            best = f"; iteration {event.best} was the best and is the result" if event.best else ""
            return f"ends after {format_count(event.iterations, 'iteration')}: {event.end}{best}"
        case CandidateChosen() as event:
            why = f": {_quote_text(event.reason)}" if event.reason else ""
            return f"{event.winner} was chosen by {event.by}{why}"
        case WorkRestored(branch="") as event:
            which = f" of iteration {event.iteration}" if event.iteration else ""
            return f"the checkout now contains the files{which} from commit {event.commit[:12]}"
        case WorkRestored() as event:
            return f"the chosen work was merged into {event.branch} at {event.commit[:12]}"
        case Broadcast() as event:
            return f"{event.author} says in round {event.round}: {_quote_text(event.text)}"
        case Voted() as event:
            return (
                f"{event.author} is {'ready' if event.ready else 'not ready'} to conclude: {_quote_text(event.reason)}"
            )
        case RoundEnded() as event:
            return f"round {event.round} ended" + (f"; missing: {', '.join(event.missing)}" if event.missing else "")
        case DiscussionEnded() as event:
            return f"the discussion ended after {format_count(event.rounds, 'round')}: {event.by}"
    return _format_worker_event(entry)


def _format_worker_event(entry: Entry) -> str | None:
    match entry.event:
        case WorkerPlaced() as event:
            also = "".join(f"; also in {one.path}, from {one.base[:12]}" for one in event.also)
            return f"works on {event.branch} in {event.path}, from {event.base[:12]}{also}"
        case WorkCommitted(files=(), also=()) as event:
            return f"nothing changed on {event.branch}"
        case WorkCommitted() as event:
            files = format_count(len(event.files), "file")
            text = f"{files} changed on {event.branch} at {event.commit[:12]} (+{event.added} -{event.removed})"
            for one in event.also:
                changed = f"{format_count(len(one.files), 'file')} in {one.root} at {one.commit[:12]}"
                text += f"; {changed} (+{one.added} -{one.removed})"
            return text
        case WorkPushed() as event:
            return f"pushed {event.commit[:12]} to {event.ref}"
        case PushFailed() as event:
            return f"not pushed: {event.reason}; the next step will try again"
        case WorkMoved() as event:
            commit = event.commit[:12]
            start = f"with the files from {commit}" if commit else "from the start, because nothing was pushed"
            lost = f"; not pushed: {', '.join(event.unpushed)}" if event.unpushed else ""
            return f"continues on {event.host} in {event.path}, {start}{lost}"
        case WorkerSent() as event:
            return f"starts a worker (run {event.run})" + (f" on {event.branch}" if event.branch else "")
        case WorkerReturned() as event:
            error = event.error.removeprefix(f"{parse_agent_name(entry.operation)}: ")
            return f"worker run {event.run} {event.outcome}" + (f": {error}" if error else "")
    return format_work_event(entry.event)


def _find_parent_path(operation: str) -> str:
    """Return the path of the operation that started this one. Scopes between them, such as turns, are skipped."""
    parent = operation.rpartition("/")[0]
    while parent.partition("/")[1] and parent.rpartition("/")[2].partition(":")[0] not in _TRIGGERS:
        parent = parent.rpartition("/")[0]
    return parent


_TRIGGERS = frozenset(get_args(Trigger))


def _format_arguments(action: Action) -> str:
    return truncate_line(json.dumps(action.arguments), LONGEST_QUOTE)


def _format_permission_request(event: PermissionAsked) -> str:
    risks = f"; risk: {'; '.join(map(format_risk, event.risks))}" if event.risks else ""
    said = truncate_line(event.agent_reason, LONGEST_QUOTE)
    words = f"; agent's words: {json.dumps(said, ensure_ascii=False)}" if said else ""
    what = f"{event.action.tool} {_format_arguments(event.action)}"
    return f"asks for permission ({event.id}): {what}; {event.reason}{risks}{words}"


def format_hook_call(event: HookRan) -> str:
    """Describe the outcome of a hook, with its reason and the start of the context that it added."""
    reason = f": {event.reason}" if event.reason else ""
    context = f"; it adds {_quote_text(event.context)}" if event.context else ""
    return f"hook {event.event} {event.outcome}{reason}{context} ({truncate_line(event.hook, LONGEST_QUOTE)})"


def _quote_text(text: str) -> str:
    return f'"{truncate_line(text, LONGEST_QUOTE)}"'


def _format_author(whom: str) -> str:
    return f" by {whom}" if whom else ""
