"""Notifications: what the entries of runs mean for a person who is not watching them."""

from __future__ import annotations

import pytest

from podium.values.action import Action
from podium.values.event import (
    Entry,
    Event,
    Noticed,
    OperationEnded,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
)
from podium.values.request import Outcome
from podium.views.notification import Notification, NotificationBuilder

NOW = 5.0


def make_entry(event: Event, run: str = "r1", operation: str = "lead") -> Entry:
    return Entry(run=run, seq=1, at=NOW, scope=operation, operation=operation, event=event)


def make_request(id: str, *, tool: str = "bash", expires_at: float = 0.0) -> PermissionAsked:
    action = Action(run="r1", agent="lead", tool=tool, arguments={}, expires_at=expires_at)
    return PermissionAsked(id=id, action=action, reason="no rule")


def test_each_request_is_a_notification_with_the_number_of_those_that_wait() -> None:
    builder = NotificationBuilder()

    first = builder.apply(make_entry(make_request("p1")))
    second = builder.apply(make_entry(QuestionAsked(id="q1", text="Which one?")))
    other = builder.apply(make_entry(make_request("p2"), run="r2"))

    assert first == Notification(event="needs-input", run="r1", at=NOW, waiting=1, request="p1")
    assert second == Notification(event="needs-input", run="r1", at=NOW, waiting=2, request="q1")
    assert other == Notification(event="needs-input", run="r2", at=NOW, waiting=1, request="p2")
    assert builder.count_waiting(now=NOW) == 3
    assert first is not None
    assert second is not None
    assert first.text == "run r1 needs you: 1 request is waiting"
    assert second.text == "run r1 needs you: 2 requests are waiting"


def test_a_request_counts_until_it_is_answered_expires_or_its_operation_ends() -> None:
    builder = NotificationBuilder()
    for number in range(4):
        builder.apply(make_entry(make_request(f"p{number}", expires_at=NOW + 1 if number == 0 else 0.0)))
    builder.apply(make_entry(QuestionAsked(id="q1", text="Which one?"), operation="lead/member:a#1"))

    counts = [builder.count_waiting(now=NOW), builder.count_waiting(now=NOW + 2)]
    for event in (
        PermissionAnswered(id="p1", decision="once", at=NOW),
        OperationEnded(outcome="failed"),
        QuestionAnswered(id="q1", text="this one"),
    ):
        assert builder.apply(make_entry(event, operation="lead/member:a#1")) is None
        counts.append(builder.count_waiting(now=NOW + 2))
    builder.withdraw_request("p2")

    assert counts == [5, 4, 3, 2, 2]
    assert builder.count_waiting(now=NOW + 2) == 1


@pytest.mark.parametrize(
    ("outcome", "told"),
    [("succeeded", "run r1 finished"), ("failed", "run r1 failed"), ("timed_out", "run r1 failed")],
)
def test_the_end_of_a_run_is_a_notification(outcome: Outcome, told: str) -> None:
    builder = NotificationBuilder()
    builder.apply(make_entry(make_request("p1")))

    notification = builder.apply(make_entry(RunEnded(outcome=outcome)))

    assert notification is not None
    assert (notification.text, notification.outcome) == (told, outcome)
    assert builder.count_waiting(now=NOW) == 0


def test_a_run_that_somebody_stopped_or_paused_and_ordinary_work_are_no_news() -> None:
    builder = NotificationBuilder()

    assert builder.apply(make_entry(Noticed(text="news"))) is None
    assert builder.apply(make_entry(RunPaused())) is None
    assert builder.apply(make_entry(RunEnded(outcome="cancelled"))) is None


def test_a_notification_has_no_text_of_an_agent_or_a_tool() -> None:
    builder = NotificationBuilder()

    notification = builder.apply(make_entry(make_request("p1", tool="evil\x1b]0;x\x07"), operation="evil\x1b"))

    assert notification is not None
    assert "evil" not in f"{notification} {notification.text}"
