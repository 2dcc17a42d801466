"""Traces of commands, with a collector that works, fails, is slow or is not there, and without the package."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from podium.testing import calls

from ..trace_collector import run_collector
from .conftest import Desk

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TIMEOUT = "OTEL_EXPORTER_OTLP_TIMEOUT"


@pytest.fixture
def team(desk: Desk) -> Desk:
    """A lead that asks a clerk, and both answer."""
    desk.write_agent("lead", calls("clerk", request="count"), "there are 7", agents=["clerk"])
    desk.write_agent("clerk", "7")
    return desk


def require_answer(done: subprocess.CompletedProcess[str]) -> None:
    """Check that the run succeeded, and that the command printed nothing about its traces."""
    assert (done.returncode, done.stdout.strip()) == (0, "there are 7"), done.stderr
    assert "opentelemetry" not in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_the_spans_of_a_team_form_a_tree_and_have_its_run(team: Desk) -> None:
    with run_collector() as collector:
        done = team.run_podium("run", "lead", "How many?", "--quiet", **{ENDPOINT: collector.url})

    require_answer(done)
    spans = collector.named_spans
    names = {span.span_id: span.name for span in collector.spans}
    parents = {span.name: names.get(span.parent_span_id, "") for span in collector.spans if span.name != "chat"}
    assert parents == {
        "run lead": "",
        "invoke_agent lead": "run lead",
        "execute_tool clerk": "invoke_agent lead",
        "invoke_agent clerk": "execute_tool clerk",
    }
    assert len({span.trace_id for span in collector.spans}) == 1
    attributes = {one.key: one.value.string_value for one in spans["run lead"].attributes}
    assert attributes["podium.run.id"] == team.run_id()
    assert {"gen_ai.client.token.usage", "podium.run.duration"} <= collector.metrics


def test_a_collector_that_refuses_everything_does_not_disturb_a_run(team: Desk) -> None:
    with run_collector(*[400] * 10) as collector:
        done = team.run_podium("run", "lead", "How many?", "--quiet", **{ENDPOINT: collector.url})

    require_answer(done)
    assert collector.answered == [400] * 2
    assert team.kinds(team.run_id())[-1] == "run_ended"


def test_a_collector_that_is_not_there_does_not_disturb_a_run(team: Desk) -> None:
    done = team.run_podium("run", "lead", "How many?", "--quiet", **{ENDPOINT: "http://127.0.0.1:9", TIMEOUT: "0.1"})

    require_answer(done)


def test_a_collector_that_is_overloaded_for_a_moment_gets_every_span_once(team: Desk) -> None:
    with run_collector(503) as collector:
        done = team.run_podium("run", "lead", "How many?", "--quiet", **{ENDPOINT: collector.url, TIMEOUT: "20"})

    require_answer(done)
    assert collector.answered == [503, 200, 200]
    assert len(collector.spans) == len({span.span_id for span in collector.spans}) == 7


def test_a_collector_that_does_not_answer_delays_only_the_exit_and_not_for_long(team: Desk) -> None:
    with run_collector(is_open=False) as collector:
        began = time.time()
        done = team.run_podium("run", "lead", "How many?", "--quiet", **{ENDPOINT: collector.url, TIMEOUT: "0.2"})
        took = time.time() - began

        require_answer(done)
        assert collector.asked.is_set()
        assert collector.answered == []
    assert took < 20, "without its own limit, a client waits for as long as the collector does"


def test_a_run_that_fails_is_traced_as_failed(desk: Desk) -> None:
    desk.write_agent("lead", {"fails": {"status": 400}})
    with run_collector() as collector:
        done = desk.run_podium("run", "lead", "go", **{ENDPOINT: collector.url})

    assert done.returncode != 0
    run = collector.named_spans["run lead"]
    assert run.status.code == run.status.STATUS_CODE_ERROR
    assert {one.key: one.value.string_value for one in run.attributes}["podium.outcome"] == "failed"


@pytest.fixture
def without_package(tmp_path: Path) -> dict[str, str]:
    """Variables with which Python finds no OpenTelemetry."""
    (tmp_path / "opentelemetry.py").write_text("raise ModuleNotFoundError('hidden', name='opentelemetry')\n")
    return {"PYTHONPATH": str(tmp_path)}


def test_without_the_package_a_command_with_a_collector_names_the_extra_and_starts_no_run(
    team: Desk, without_package: dict[str, str]
) -> None:
    done = team.run_podium("run", "lead", "How many?", **{ENDPOINT: "http://127.0.0.1:9"}, **without_package)

    assert (done.returncode, done.stdout) == (7, "")
    assert "podium[otel]" in done.stderr
    assert "Traceback" not in done.stderr
    assert team.runs() == []


def test_without_the_package_runs_without_traces_and_other_commands_work(
    team: Desk, without_package: dict[str, str]
) -> None:
    disabled = team.run_podium(
        *("run", "lead", "How many?", "--quiet"),
        **{ENDPOINT: "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        **without_package,
    )
    listed = team.run_podium("ps", "--json", **{ENDPOINT: "http://127.0.0.1:9"}, **without_package)

    require_answer(disabled)
    assert len(json.loads(listed.stdout)["runs"]) == 1
