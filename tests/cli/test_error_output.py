"""An error is printed once, where it is most useful, however many operations it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from podium.cli.output.entry_lines import EntryLines
from podium.testing import fails
from podium.testing.served_model import serve_model
from podium.values.errors import Failure
from podium.values.event import CallFailed, Entry, Event, OperationEnded, TextStreamed, ToolAnswered, WorkerReturned

from .conftest import Desk
from .test_chat import send_line, start_chat
from .test_terminal import Terminal

ERROR = "openai returned 401 for the key in OPENAI_API_KEY: error simulated by the script"


@pytest.fixture
def refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Make a desk where the provider refuses the calls of the agents `solo`, `second` and `third`."""
    for name in ("solo", "second", "third"):
        desk.write_agent(name, engine="model", model="openai:refused")
    with serve_model() as model:
        model.says(fails(401), model="refused")
        for name, value in model.environment().items():
            monkeypatch.setenv(name, value)
            desk.environment[name] = value
        yield desk


def test_the_error_of_a_refused_call_is_the_last_line(refused: Desk) -> None:
    said = refused.invoke("run", "solo", "do it")
    quiet = refused.invoke("run", "solo", "do it", "--quiet")

    assert (said.exit_code, quiet.exit_code) == (1, 1)
    assert said.stderr.splitlines()[-1] == quiet.stderr.rstrip("\n") == f"podium: solo: {ERROR}"
    assert said.stderr.count(ERROR) == 1
    assert "solo: failed\n" in said.stderr


def test_the_error_of_a_stage_is_told_where_it_ended(refused: Desk) -> None:
    refused.write_agent("chief", "a draft", handoff="second")

    said = refused.invoke("run", "chief", "do it")
    quiet = refused.invoke("run", "chief", "do it", "--quiet")

    assert f"second: failed: handoff stage 2 of 2 (second): {ERROR}\nchief: failed\n" in said.stderr
    assert said.stderr.count(ERROR) == 1
    assert said.stderr.splitlines()[-1] == "podium: handoff stage 2 of 2 (second) failed"
    assert quiet.stderr == f"podium: handoff stage 2 of 2 (second): {ERROR}\n"


def test_an_error_that_members_share_is_told_once(refused: Desk) -> None:
    refused.write_agent("crew", "unused", team={"mode": "broadcast", "members": ["second", "third"]})

    said = refused.invoke("run", "crew", "do it")
    quiet = refused.invoke("run", "crew", "do it", "--quiet")
    shown = refused.invoke("show", refused.run_id())
    report = refused.invoke("results", refused.run_id())

    first, other = ("second", "third") if f"second: failed: {ERROR}\n" in said.stderr else ("third", "second")
    assert f"{first}: failed: {ERROR}\n" in said.stderr
    assert f"{other}: failed (same error as {first})\ncrew: failed\n" in said.stderr
    assert said.stderr.count(ERROR) == 1
    assert said.stderr.splitlines()[-1] == "podium: crew: no member of its team succeeded: second, third"
    assert quiet.stderr == f"podium: crew: no member of its team succeeded: second, third: {ERROR}\n"
    assert shown.stdout.count(ERROR) == 1
    assert f"error: crew: no member of its team succeeded: second, third: {ERROR}" in shown.stdout
    assert report.stdout.count(ERROR) == 1


def test_an_error_of_an_advisor_stays_in_view_when_the_run_succeeds(refused: Desk) -> None:
    refused.write_agent("boss", "the answer", advisors=["second"])

    said = refused.invoke("run", "boss", "do it")
    shown = refused.invoke("show", refused.run_id())
    report = refused.invoke("results", refused.run_id())

    assert said.exit_code == 0
    assert [text.count(ERROR) for text in (said.stderr, shown.stdout, report.stdout)] == [1, 1, 1]


@pytest.mark.parametrize("columns", [80, 140])
def test_an_error_is_on_the_screen_once(refused: Desk, columns: int) -> None:
    refused.write_agent("crew", "unused", team={"mode": "broadcast", "members": ["second", "third"]})

    terminal = Terminal(refused, "run", "crew", "do it", columns=columns)

    assert terminal.wait_exit() == 1
    screen = "".join(terminal.lines).replace(" ", "")
    assert screen.count(ERROR.replace(" ", "")) == 1
    assert any(
        line.startswith("podium: crew: no member of its team succeeded: second, third") for line in terminal.lines
    )


def test_an_error_is_told_once_in_a_chat(refused: Desk) -> None:
    terminal = start_chat(refused, "solo")

    send_line(terminal, "hello")
    terminal.wait_for("0 model calls")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert [line for line in terminal.lines if "openai returned 401" in line] == [f"podium: solo: {ERROR}"[:80]]


def make_entry(operation: str, event: Event, seq: int = 1) -> Entry:
    return Entry(run="r", seq=seq, at=0.0, scope=operation, operation=operation, event=event)


def test_a_call_that_is_tried_again_has_its_reason_once() -> None:
    lines = EntryLines()
    failure = Failure(kind="engine", agent="law", message="it answered 500")

    said = [
        line
        for wait in (1.0, 2.0, None)
        for line in lines.add_entry(make_entry("law", CallFailed(model="m", message="it answered 500", wait=wait)))
    ]
    said += lines.add_entry(make_entry("law", OperationEnded(outcome="failed", failure=failure)))

    assert said == [
        "law: model call failed: it answered 500; retrying in 1 s",
        "law: model call failed; retrying in 2 s",
        "law: failed",
    ]
    assert lines.shorten_error(str(failure)) == "law: it answered 500"


def test_the_reason_for_a_fallback_model_is_told() -> None:
    lines = EntryLines()

    held = lines.add_entry(make_entry("law", CallFailed(model="m", message="it answered 401")))
    said = lines.add_entry(make_entry("law", TextStreamed(text="well")))

    assert (held, said) == ([], ["law: model call failed: it answered 401"])


def test_a_failed_call_is_told_when_the_process_is_interrupted_right_after_it() -> None:
    lines = EntryLines()

    lines.add_entry(make_entry("law", CallFailed(model="m", message="it answered 401")))

    assert lines.take_held_lines() == ["law: model call failed: it answered 401"]
    assert lines.take_held_lines() == []


def test_the_error_of_a_worker_is_told_when_it_returns() -> None:
    lines = EntryLines()
    failure = Failure(kind="failed", agent="away", message="it answered 401")
    path = "law/member:away#1"

    returned = lines.add_entry(
        make_entry(path, WorkerReturned(run="r2", outcome="failed", error="away: it answered 401"))
    )
    ended = lines.add_entry(make_entry(path, OperationEnded(outcome="failed", failure=failure)))

    assert (returned, ended) == (["away: worker run r2 failed: it answered 401"], ["away: failed"])
    assert lines.shorten_error("law: no member of its team succeeded: away: it answered 401") == (
        "law: no member of its team succeeded: away"
    )


def test_a_later_call_of_an_agent_says_that_it_failed_with_the_same_error() -> None:
    lines = EntryLines()
    ended = OperationEnded(outcome="failed", failure=Failure(kind="failed", agent="away", message="it answered 401"))

    first = lines.add_entry(make_entry("law/member:away#10", ended))
    other = lines.add_entry(make_entry("law/member:away#1", ended))

    assert (first, other) == (["away: failed: it answered 401"], ["away: failed (same error as away)"])


def test_words_of_a_message_are_not_removed_from_other_sentences() -> None:
    lines = EntryLines()
    failure = Failure(kind="failed", agent="away", message="no")

    lines.add_entry(make_entry("law/member:away#1", OperationEnded(outcome="failed", failure=failure)))

    assert lines.shorten_error("law: no member of its team succeeded: away: no") == (
        "law: no member of its team succeeded: away"
    )


def test_the_failure_of_an_agent_that_was_used_as_a_tool_is_told_once() -> None:
    lines = EntryLines()
    failure = Failure(kind="engine", agent="ops", message="it answered 401")

    child = lines.add_entry(make_entry("law/tool:ops#1", OperationEnded(outcome="failed", failure=failure)))
    answer = lines.add_entry(make_entry("law", ToolAnswered(id="1", text="ops: it answered 401", is_error=True)))

    assert (child, answer) == (["ops: failed: it answered 401"], ["law: tool error: ops"])
