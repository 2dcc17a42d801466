"""Record a run as OpenTelemetry spans and metrics, named according to the conventions for generative AI.

The entries of the timeline determine the spans: one for the run, and one for each operation, model call, tool call and
wait for a person. Prompts, answers and arguments are not recorded; the timeline has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .. import __version__
from ..system.trace_parent import trace_parent
from ..values.action import Action
from ..values.event import (
    ActionBegan,
    CallCut,
    CallFailed,
    Entry,
    Event,
    ModelReplied,
    Noticed,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    ToolAnswered,
    ToolCalled,
)
from ..values.usage import Usage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

# The constants of the conventions are in a private module of the SDK.
OPERATION_NAME = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOKEN_TYPE = "gen_ai.token.type"
ERROR_TYPE = "error.type"
RUN_ID = "podium.run.id"
OUTCOME = "podium.outcome"
OPERATION_PATH = "podium.operation"
REQUEST_ID = "podium.request.id"
DECISION = "podium.permission.decision"


class RunMeters:
    """The instruments that all runs of a process share."""

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, description: str) -> Histogram:
            return meter.create_histogram(name, unit="s", description=description)

        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage", unit="{token}", description="Tokens used by a model call"
        )
        self.call_seconds = seconds("gen_ai.client.operation.duration", "Duration of a model call")
        self.run_seconds = seconds("podium.run.duration", "Duration of a run")
        self.wait_seconds = seconds("podium.person.wait", "How long an agent waited for a person")


class RunTraces:
    """The traces of the runs that a process works on. `parent` is the TRACEPARENT of the process."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider, *, parent: str = "") -> None:
        self._tracer = tracers.get_tracer("podium", __version__)
        self._meters = RunMeters(meters.get_meter("podium", __version__))
        self._parent = parent
        self._open: list[RunTrace] = []

    def trace_run(self, first: Entry) -> Callable[[Entry], None]:
        """Return a function that traces a run. Call it with each entry after `first`, the run's first entry.

        The trace starts with the first call, except for notices, so a process that only creates a run for a worker
        records nothing.
        """
        trace: RunTrace | None = None

        def apply(entry: Entry) -> None:
            nonlocal trace
            if trace is None and isinstance(entry.event, Noticed):
                return
            if trace is None:
                trace = self._open_trace(first)
            trace.apply(entry)

        return apply

    def _open_trace(self, first: Entry) -> RunTrace:
        task = first.started.errand
        trace = RunTrace(self._tracer, self._meters, first, parent=self._parent if task is None else task.trace_parent)
        self._open = [*(one for one in self._open if not one.is_over), trace]
        return trace

    def close(self) -> None:
        """End the spans of runs that have not ended."""
        for trace in self._open:
            trace.close(time.time())


class RunTrace:
    """The spans of one run in this process. `parent` is the TRACEPARENT of the run's parent span."""

    def __init__(self, tracer: Tracer, meters: RunMeters, first: Entry, *, parent: str) -> None:
        self._tracer = tracer
        self._meters = meters
        self._spans: dict[str, Span] = {}
        """The spans that have not ended, keyed by operation, call or request. The run's own span has an empty key."""
        self._began: dict[str, float] = {}
        self._calls: dict[bytes, str] = {}
        """The span keys of tool calls, keyed by operation and action."""
        self._open_calls: dict[str, str] = {}
        """The span keys of tool calls without an answer, keyed by scope, in which the called agents' operations are."""
        self._last: dict[str, float] = {}
        """The time of each operation's last entry, used as the start of a model call whose duration is not recorded."""
        started = first.started
        self._run_agent = started.agent
        attributes = {RUN_ID: first.run, CONVERSATION_ID: started.after or first.run, AGENT_NAME: started.agent}
        self._start("", f"run {started.agent}", first.at, attributes, context=_read_parent(parent))

    @property
    def is_over(self) -> bool:
        """Whether all spans have ended."""
        return not self._spans

    def apply(self, entry: Entry) -> None:
        """Start and end spans for the next entry. Set the TRACEPARENT for programs that the current task starts."""
        event = entry.event
        if self.is_over:
            return
        self._apply_work(entry, event)
        self._apply_wait(entry, event)
        self._last[entry.operation] = entry.at

    def close(self, at: float) -> None:
        """End all spans, because this process no longer works on the run."""
        for key in reversed(list(self._spans)):
            self._end(key, at, {OUTCOME: "interrupted"})

    def _apply_work(self, entry: Entry, event: Event) -> None:
        path = entry.operation
        match event:
            case OperationStarted(agent=agent):
                attributes = {OPERATION_NAME: "invoke_agent", AGENT_NAME: agent, OPERATION_PATH: path}
                span = self._start(path, f"invoke_agent {agent}", entry.at, attributes)
                trace_parent.set(_format_parent(span))
            case OperationEnded(outcome=outcome):
                self._end(path, entry.at, {OUTCOME: outcome}, error=outcome not in ("succeeded", "cancelled"))
            case ModelReplied(model=model, usage=usage, stop=stop):
                self._record_call(entry, model, usage, {FINISH_REASONS: [stop]} if stop else {})
            case CallFailed(model=model, usage=usage) | CallCut(model=model, usage=usage):
                self._record_call(entry, model, usage, {}, error=type(event).__name__)
            case ToolCalled(id=id, action=action):
                attributes = {OPERATION_NAME: "execute_tool", TOOL_NAME: action.tool, TOOL_CALL_ID: id}
                self._start(_tool_key(path, id), f"execute_tool {action.tool}", entry.at, attributes)
                self._calls[_action_key(path, action)] = self._open_calls[entry.scope] = _tool_key(path, id)
            case ActionBegan(action=action):
                trace_parent.set(_format_parent(self._find_call_span(path, action)))
            case ToolAnswered(id=id, is_error=is_error):
                self._end(_tool_key(path, id), entry.at, {}, error=is_error)
                self._open_calls.pop(entry.scope, None)
            case RunEnded(outcome=outcome):
                self._end_run(entry.at, outcome)
            case RunPaused():
                self._end_run(entry.at, "paused")

    def _apply_wait(self, entry: Entry, event: Event) -> None:
        match event:
            case PermissionAsked(id=id, action=action):
                attributes = {REQUEST_ID: id, TOOL_NAME: action.tool}
                parent = self._find_call_span(entry.operation, action)
                self._start(id, f"wait_for_permission {action.tool}", entry.at, attributes, parent=parent)
            case QuestionAsked(id=id, kind=kind):
                self._start(id, f"wait_for_answer {kind}", entry.at, {REQUEST_ID: id}, parent=self._find_span(entry))
            case PermissionAnswered(id=id, decision=decision) if id in self._spans:
                self._meters.wait_seconds.record(entry.at - self._began[id], {DECISION: decision})
                self._end(id, entry.at, {DECISION: decision})
            case QuestionAnswered(id=id) if id in self._spans:
                self._meters.wait_seconds.record(entry.at - self._began[id])
                self._end(id, entry.at, {})

    def _record_call(self, entry: Entry, model: str, usage: Usage, more: Mapping[str, Any], *, error: str = "") -> None:
        """Record a model call that has just ended."""
        provider, _, name = model.rpartition(":")
        shared = {OPERATION_NAME: "chat", PROVIDER_NAME: provider or name, REQUEST_MODEL: name}
        began = entry.at - usage.seconds if usage.seconds else self._last.get(entry.operation, entry.at)
        tokens = usage.with_rehearsed()
        counts = {INPUT_TOKENS: tokens.input_tokens, OUTPUT_TOKENS: tokens.output_tokens}
        key = f"call {entry.seq}"
        failed = {ERROR_TYPE: error} if error else {}
        attributes = {**shared, **counts, **more, **failed}
        self._start(key, f"chat {name}".strip(), began, attributes, parent=self._find_span(entry), is_call=True)
        self._end(key, entry.at, {}, error=bool(error))
        self._meters.call_seconds.record(entry.at - began, shared | failed)
        for kind, count in (("input", tokens.input_tokens), ("output", tokens.output_tokens)):
            if count:
                self._meters.tokens.record(count, {**shared, TOKEN_TYPE: kind})

    def _start(
        self,
        key: str,
        name: str,
        at: float,
        attributes: Mapping[str, Any],
        *,
        parent: Span | None = None,
        context: Context | None = None,
        is_call: bool = False,
    ) -> Span:
        from opentelemetry.trace import SpanKind, set_span_in_context  # imported here for start-up time

        if context is None:
            context = set_span_in_context(parent or self._find_enclosing_span(key))
        kind = SpanKind.CLIENT if is_call else SpanKind.INTERNAL
        span = self._tracer.start_span(name, context, kind, attributes, start_time=_to_nanoseconds(at))
        self._spans[key], self._began[key] = span, at
        return span

    def _end(self, key: str, at: float, attributes: Mapping[str, Any], *, error: bool = False) -> None:
        from opentelemetry.trace import StatusCode  # imported here for start-up time

        span = self._spans.pop(key, None)
        if span is None:
            return
        span.set_attributes(dict(attributes))
        if error:
            span.set_status(StatusCode.ERROR)
        span.end(_to_nanoseconds(at))

    def _end_run(self, at: float, outcome: str) -> None:
        if "" not in self._spans:
            return
        self._meters.run_seconds.record(at - self._began[""], {AGENT_NAME: self._run_agent, OUTCOME: outcome})
        for key in reversed(list(self._spans)):
            self._end(key, at, {OUTCOME: outcome}, error=not key and outcome in ("failed", "timed_out"))

    def _find_enclosing_span(self, path: str) -> Span:
        """Return the span of the tool call or operation that a path is in, or else the run's span."""
        while path:
            path = path.rpartition("/")[0]
            if (span := self._spans.get(self._open_calls.get(path, path))) is not None:
                return span
        return self._spans[""]

    def _find_span(self, entry: Entry) -> Span:
        return self._spans.get(entry.operation) or self._spans[""]

    def _find_call_span(self, path: str, action: Action) -> Span:
        """Return the span of the tool call that an action belongs to, or else its operation's span."""
        key = self._calls.get(_action_key(path, action), path)
        return self._spans.get(key) or self._spans.get(path) or self._spans[""]


def _tool_key(path: str, id: str) -> str:
    return f"{path}/tool {id}"


def _action_key(path: str, action: Action) -> bytes:
    return msgspec.json.encode((path, action.tool, action.arguments), order="sorted")


def _to_nanoseconds(at: float) -> int:
    """Return a time in nanoseconds, the unit of spans."""
    return int(at * 1_000_000_000)


def _format_parent(span: Span) -> str:
    """Return the TRACEPARENT value that identifies a span as the parent of other programs' spans."""
    where = span.get_span_context()
    return f"00-{where.trace_id:032x}-{where.span_id:016x}-{int(where.trace_flags):02x}"


def _read_parent(value: str) -> Context:
    """Return the trace context from a TRACEPARENT value, or the context of a new trace if the value is invalid."""
    from opentelemetry.context import Context  # imported here for start-up time
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": value}, Context())
