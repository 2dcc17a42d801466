"""Which requests are waiting for a person, and when an answer comes too late."""

from __future__ import annotations

import re
from itertools import count
from math import inf
from pathlib import Path

import pytest

import podium
from podium.core.open_requests import (
    Answered,
    RunRequests,
    compute_expiry,
    compute_seconds_left,
    describe_closing,
    is_expired,
    must_ask_again,
)
from podium.values.action import Action
from podium.values.event import (
    Decision,
    Entry,
    Event,
    OperationEnded,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
)

NOW = 1000.0
_numbers = count(1)


def ask(id: str, expires_at: float = 0.0) -> PermissionAsked:
    return PermissionAsked(id=id, action=Action(run="r", agent="a", tool="bash", expires_at=expires_at), reason="")


def decide(id: str, decision: Decision = "once", at: float = NOW) -> PermissionAnswered:
    return PermissionAnswered(id=id, decision=decision, by="me", at=at)


def fold_entries(*events: tuple[str, Event]) -> RunRequests:
    requests = RunRequests()
    for operation, event in events:
        requests.apply(Entry(run="r", seq=next(_numbers), at=NOW, scope=operation, operation=operation, event=event))
    return requests


def list_ids(requests: RunRequests, posted: tuple[str, ...] = ()) -> list[str]:
    return list(requests.list_open(now=NOW, posted=posted))


@pytest.mark.parametrize(
    ("answered", "how"),
    [
        (PermissionAnswered(id="p", decision="once", by="ada", channel="chat"), "was answered by ada (chat)"),
        (QuestionAnswered(id="p", text="x", by="ada", channel="command"), "was answered by ada (command)"),
        (PermissionAnswered(id="p", decision="deny", channel="api"), "was answered by api"),
        (PermissionAnswered(id="p", decision="deny", by="commander", channel="timeout"), "timed out"),
        (None, "timed out"),
        # Early releases recorded no channel.
        (PermissionAnswered(id="p", decision="once", by="terminal"), "was answered by terminal"),
        (PermissionAnswered(id="p", decision="deny", by="podium"), "timed out"),
        (PermissionAnswered(id="p", decision="deny"), "was answered by somebody"),
    ],
)
def test_a_closed_request_says_who_answered_it_and_how(answered: Answered | None, how: str) -> None:
    assert describe_closing(answered) == how


def test_a_request_or_question_is_open_until_it_is_answered() -> None:
    asked: list[tuple[str, Event]] = [("lead", ask("p")), ("lead", QuestionAsked(id="q", text="Which?"))]

    assert list_ids(fold_entries(*asked)) == ["p", "q"]
    assert list_ids(fold_entries(*asked, ("", decide("p")))) == ["q"]
    assert list_ids(fold_entries(*asked, ("", QuestionAnswered(id="q", text="this", by="me")))) == ["p"]


def test_a_request_whose_answer_is_in_the_mailbox_is_not_open() -> None:
    assert list_ids(fold_entries(("lead", ask("p")), ("lead", ask("q"))), posted=("p",)) == ["q"]


def test_a_request_of_an_operation_that_has_ended_is_not_open_but_stays_unanswered() -> None:
    requests = fold_entries(
        ("lead", ask("lead")),
        ("lead/member:a#1", ask("member")),
        ("lead/member:a#1/advice:b#1", ask("below")),
        ("lead/member:a#10", ask("other")),
        ("lead/member:a#1", OperationEnded(outcome="timed_out", text="")),
    )

    assert list_ids(requests) == ["lead", "other"]
    assert list(requests.unanswered) == ["lead", "member", "below", "other"]


def test_nothing_is_open_in_a_run_that_has_ended() -> None:
    assert list_ids(fold_entries(("lead", ask("p")), ("", RunEnded(outcome="cancelled")))) == []


def test_a_request_is_open_until_it_expires() -> None:
    asked = [("lead", ask("past", NOW - 1)), ("lead", ask("now", NOW)), ("lead", ask("later", NOW + 1))]

    assert list_ids(fold_entries(*asked, ("lead", ask("never")))) == ["now", "later", "never"]


def test_the_first_answer_is_the_one_that_counts() -> None:
    requests = fold_entries(("lead", ask("p")), ("", decide("p", "deny")), ("", decide("p", "once")))

    assert requests.answers == {"p": decide("p", "deny")}


def test_a_question_never_expires() -> None:
    assert not is_expired(QuestionAsked(id="q", text="Which?"), at=inf)


def test_a_request_without_a_time_limit_has_no_expiry() -> None:
    assert compute_expiry(NOW, inf) == 0.0
    assert compute_expiry(NOW, 30) == NOW + 30


@pytest.mark.parametrize(
    ("decision", "seconds_late", "again"),
    [("once", -1, False), ("once", 1, True), ("always", 1, True), ("deny", 1, False), ("abort", 1, False)],
)
def test_a_late_approval_does_not_count_and_a_late_denial_does(
    decision: Decision, seconds_late: float, again: bool
) -> None:
    answered = decide("p", decision, at=NOW + seconds_late)

    assert must_ask_again(ask("p", NOW), answered, now=0.0) is again


def test_an_unanswered_request_is_made_again_once_it_has_expired() -> None:
    assert not must_ask_again(ask("p", NOW), None, now=NOW)
    assert must_ask_again(ask("p", NOW), None, now=NOW + 1)
    assert not must_ask_again(ask("p"), None, now=inf)


def test_the_time_for_an_answer_runs_only_while_somebody_could_give_it() -> None:
    assert compute_seconds_left(100, 30, watched_since=50, now=110) == 20
    assert compute_seconds_left(100, 30, watched_since=200, now=210) == 20
    assert compute_seconds_left(100, 30, watched_since=inf, now=210) == inf


def test_no_other_module_compares_the_expiry_of_a_request() -> None:
    source = Path(podium.__file__).parent
    comparing = re.compile(r"expires_at\s*[<>]|[<>]=?\s*\S*expires_at")

    found = [str(path.relative_to(source)) for path in source.rglob("*.py") if comparing.search(path.read_text())]

    assert found == ["core/open_requests.py"]
