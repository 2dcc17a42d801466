"""Traces and metrics of runs, read back from the SDK's in-memory exporters and from a collector over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from podium.runs.assembly.telemetry import is_telemetry_on, open_telemetry
from podium.runs.run_trace import RunTraces
from podium.system.trace_parent import trace_parent
from podium.testing import calls
from podium.values.action import Action
from podium.values.errors import DependencyMissing
from podium.values.event import (
    Entry,
    Event,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    RunEnded,
    RunStarted,
    ToolAnswered,
    ToolCalled,
)
from podium.values.request import Request
from podium.values.worker_task import WorkerTask

from ..studio import Studio
from ..trace_collector import run_collector

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _keep_trace_parent() -> Iterator[None]:
    """Let no trace of these tests reach the programs that other tests start."""
    yield
    trace_parent.set("")


class Recording:
    """The spans and metrics of some entries."""

    def __init__(self, entries: Sequence[Entry], *, parent: str = "") -> None:
        exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(exporter))
        traces = RunTraces(tracers, MeterProvider([reader], shutdown_on_exit=False), parent=parent)
        apply = traces.trace_run(entries[0])
        for entry in entries[1:]:
            apply(entry)
        traces.close()
        self.spans = {span.name: span for span in exporter.get_finished_spans()}
        data = reader.get_metrics_data()
        scopes = [scope for one in data.resource_metrics for scope in one.scope_metrics] if data else []
        self.metrics: dict[str, list[Any]] = {
            metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics
        }

    def parent_of(self, name: str) -> str:
        parent = self.spans[name].parent
        assert parent is not None
        return next(span.name for span in self.spans.values() if span.context.span_id == parent.span_id)

    def read(self, name: str) -> dict[str, Any]:
        return dict(self.spans[name].attributes or {})


async def test_a_run_has_spans_for_its_agents_model_calls_and_tools(studio: Studio) -> None:
    def depth(harbour: str) -> str:
        return "nine metres"

    studio.agent("lead", says=[calls("depth", harbour="Cuxhaven"), "deep"], tools=["depth"])
    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "How deep?", tools=[depth])

    seen = Recording(studio.entries(result), parent=PARENT)

    assert set(seen.spans) == {"run lead", "invoke_agent lead", "chat", "execute_tool depth"}
    assert seen.parent_of("invoke_agent lead") == "run lead"
    assert seen.parent_of("chat") == seen.parent_of("execute_tool depth") == "invoke_agent lead"
    assert {f"{span.context.trace_id:032x}" for span in seen.spans.values()} == {PARENT.split("-")[1]}
    assert seen.read("run lead")["podium.outcome"] == "succeeded"
    assert seen.read("invoke_agent lead")["gen_ai.operation.name"] == "invoke_agent"
    assert seen.read("execute_tool depth")["gen_ai.tool.name"] == "depth"
    assert seen.read("chat")["gen_ai.usage.input_tokens"] > 0
    assert {point.attributes["gen_ai.token.type"] for point in seen.metrics["gen_ai.client.token.usage"]} == {
        "input",
        "output",
    }
    assert seen.metrics["gen_ai.client.operation.duration"][0].count == 2
    assert seen.metrics["podium.run.duration"][0].attributes["podium.outcome"] == "succeeded"


async def test_an_agent_that_another_agent_calls_has_its_span_below_the_call(studio: Studio) -> None:
    studio.agent("lead", says=[calls("clerk", request="count"), "7"], agents=["clerk"])
    studio.agent("clerk", says=["7"], handoff="checker")
    studio.agent("checker", says=["7"])

    seen = Recording(studio.entries(await studio.run("lead", "How many?")))

    assert seen.parent_of("invoke_agent clerk") == "execute_tool clerk"
    assert seen.parent_of("invoke_agent checker") == "invoke_agent clerk"


async def test_a_failure_marks_its_spans_and_an_interrupted_run_ends_them(studio: Studio) -> None:
    studio.agent("lead", says=[{"fails": {"status": 400}}])
    entries = studio.entries(await studio.run("lead", "go"))

    failed, interrupted = Recording(entries), Recording(entries[:3])

    assert not failed.spans["run lead"].status.is_ok
    assert not failed.spans["invoke_agent lead"].status.is_ok
    assert interrupted.read("run lead")["podium.outcome"] == "interrupted"


def test_a_wait_for_permission_is_a_span_below_its_tool() -> None:
    action = Action(run="r", agent="lead", tool="bash", arguments={"command": "make"})
    events: list[Event] = [
        RunStarted(agent="lead", request=Request(text="go")),
        OperationStarted(agent="lead", trigger="request", request=Request(text="go")),
        ToolCalled(id="c1", action=action),
        PermissionAsked(id="q1", action=action, reason="a rule"),
        PermissionAnswered(id="q1", decision="once", by="ada"),
        ToolAnswered(id="c1", text="ok"),
    ]
    entries = [
        Entry(run="r", seq=seq, at=100.0 + seq, scope="lead", operation="lead" if seq > 1 else "", event=event)
        for seq, event in enumerate(events, 1)
    ]

    seen = Recording(entries)

    assert seen.parent_of("wait_for_permission bash") == "execute_tool bash"
    assert seen.read("wait_for_permission bash")["podium.permission.decision"] == "once"
    [wait] = seen.metrics["podium.person.wait"]
    assert wait.sum == pytest.approx(1.0)


def test_a_worker_continues_the_trace_of_the_run_that_started_it() -> None:
    task = WorkerTask(root="/r", path="/r", trace_parent=PARENT)
    events: list[Event] = [
        RunStarted(agent="w", request=Request(text="go"), errand=task),
        RunEnded(outcome="succeeded"),
    ]
    entries = [Entry(run="r", seq=seq, at=float(seq), scope="", event=event) for seq, event in enumerate(events, 1)]

    seen = Recording(entries, parent="00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-01")

    parent = seen.spans["run w"].parent
    assert parent is not None
    assert f"{parent.trace_id:032x}-{parent.span_id:016x}" == PARENT[3:52]
    assert Recording(entries[:1]).spans == {}


def test_a_collector_without_the_extra_is_refused_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    with pytest.raises(DependencyMissing, match=r"install podium\[otel\]"), open_telemetry({}):
        pass


def test_only_the_address_of_a_collector_turns_traces_on() -> None:
    address = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}

    assert is_telemetry_on(address)
    assert not is_telemetry_on({})
    assert not is_telemetry_on({"TRACEPARENT": PARENT})
    assert not is_telemetry_on({**address, "OTEL_SDK_DISABLED": "true"})


def test_a_collector_receives_the_trace_of_a_command_that_its_programs_continue(tmp_path: Path) -> None:
    script = '[{"calls": [{"name": "bash", "arguments": {"command": "echo parent=$TRACEPARENT"}}]}, "done"]'
    folder = tmp_path / ".podium" / "agents"
    folder.mkdir(parents=True)
    (folder / "lead.md").write_text(f"---\nengine: scripted\ntools: [bash]\n---\n```script\n{script}\n```\n")
    with run_collector() as collector:
        environment = {**os.environ, "PODIUM_HOME": str(tmp_path / "home"), "TRACEPARENT": PARENT}
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
        done = subprocess.run(
            [sys.executable, "-m", "podium", "run", "lead", "go", "--jsonl", "--permissions", "bypass"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr

    named = collector.named_spans
    assert {"run lead", "invoke_agent lead", "execute_tool bash"} <= set(named)
    assert named["run lead"].parent_span_id.hex() == PARENT.split("-")[2]
    trace, tool = PARENT.split("-")[1], named["execute_tool bash"].span_id.hex()
    assert f"parent=00-{trace}-{tool}-" in done.stdout
    assert collector.metrics
