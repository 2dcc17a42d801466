"""Where a run stands: its phase and the activity of its agents, each derived in one place."""

from __future__ import annotations

from typing import get_args

import pytest

from podium.runs.queries.cost_overview import ACTIVITIES, OTHER, TimeSplit
from podium.values.action import Action
from podium.values.event import (
    Entry,
    Event,
    Noticed,
    OperationEnded,
    PermissionAnswered,
    PermissionAsked,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WorkerReturned,
    WorkerSent,
)
from podium.values.phase import FINAL_PHASES, IDLE_PHASES, Activity, Lease, Phase
from podium.values.request import Request
from podium.views.run_phase import OngoingWork, derive_phase, is_startable
from podium.views.worker_state import ACTIVITY_STATUSES, PHASE_STATUSES, WorkerStatus

LEASES: tuple[Lease, ...] = get_args(Lease)
STARTED = RunStarted(agent="a", request=Request(text="go"))
RESUMED = RunResumed(host="here", pid=1)
ACTION = Action(run="r", agent="a", tool="bash", arguments={})
TURN, CALL = "a/turn#1", "a/turn#1/call#1/tool#1"


@pytest.mark.parametrize("outcome", sorted(FINAL_PHASES))
def test_the_phase_of_a_run_that_has_ended_is_its_outcome_whoever_holds_it(outcome: Phase) -> None:
    ended = RunEnded(outcome=outcome)  # type: ignore[arg-type] # every final phase is an outcome

    assert {derive_phase(ended, lease, is_worker=True) for lease in LEASES} == {outcome}


def test_a_run_that_did_not_end_as_it_should_has_failed() -> None:
    assert derive_phase(RunEnded(outcome="interrupted"), "none") == "failed"


@pytest.mark.parametrize("lease", LEASES)
def test_a_pause_holds_whoever_holds_the_run(lease: Lease) -> None:
    assert derive_phase(RunPaused(), lease) == "paused"
    assert derive_phase(RunPaused(until=9e9), lease) == derive_phase(RunPaused(until=1.0), lease) == "waiting"


@pytest.mark.parametrize("last", [STARTED, Noticed(text="…"), RESUMED, QuestionAsked(id="q", text="?")])
def test_a_run_that_a_process_holds_is_running_and_one_that_it_lost_can_be_resumed(last: Event) -> None:
    assert derive_phase(last, "held", is_worker=True) == "running"
    assert derive_phase(last, "lost", is_worker=True) == "resumable"


@pytest.mark.parametrize(
    ("last", "phase"), [(STARTED, "queued"), (Noticed(text="…"), "queued"), (RESUMED, "resumable")]
)
def test_only_a_worker_that_has_not_started_is_queued(last: Event, phase: Phase) -> None:
    assert derive_phase(last, "none", is_worker=True) == phase
    assert derive_phase(last, "none") == "resumable"


@pytest.mark.parametrize(
    ("last", "startable"),
    [
        (STARTED, True),
        (RESUMED, True),
        (RunPaused(), False),
        (RunPaused(until=101.0), False),
        (RunPaused(until=100.0), True),
        (RunEnded(outcome="succeeded"), False),
    ],
)
def test_a_run_may_start_unless_it_has_ended_is_paused_or_waits_for_a_later_time(last: Event, startable: bool) -> None:
    assert is_startable(last, now=100.0) is startable


def test_every_phase_and_activity_has_its_place_in_each_table() -> None:
    assert FINAL_PHASES | IDLE_PHASES | {"running"} == set(get_args(Phase))
    assert PHASE_STATUSES.keys() | {"running"} == set(get_args(Phase))
    assert ACTIVITY_STATUSES.keys() == set(get_args(Activity)) == set(ACTIVITIES)
    assert {*PHASE_STATUSES.values(), *ACTIVITY_STATUSES.values()} == set(get_args(WorkerStatus))
    assert set(ACTIVITIES) - set(OTHER) | {"other"} == set(TimeSplit.__struct_fields__)


IN_TURN: tuple[tuple[str, Event], ...] = ((TURN, TurnStarted(agent="a", engine="x", prompt="go")),)
CALLING = (*IN_TURN, (CALL, ToolCalled(id="c", action=ACTION)))
ASKING = (*CALLING, (CALL, PermissionAsked(id="p", action=ACTION, reason="no rule")))
SENDING = (*IN_TURN, ("a", WorkerSent(run="w")), (TURN, TurnEnded(outcome="succeeded")))
TIMELINES: list[tuple[Activity, tuple[tuple[str, Event], ...]]] = [
    ("starting", ()),
    ("thinking", IN_TURN),
    ("thinking", ((TURN, TurnResumed()),)),
    ("tool", CALLING),
    ("thinking", (*CALLING, (CALL, ToolAnswered(id="c", text="ok")))),
    ("tool", (*CALLING, ("a/turn#1/call#1/tool#2", ToolAnswered(id="c", text="another agent's")))),
    ("waiting", ASKING),
    ("waiting", (("a", QuestionAsked(id="q", text="?")),)),
    ("tool", (*ASKING, ("", PermissionAnswered(id="p", decision="once")))),
    ("idle", (*ASKING, (TURN, TurnEnded(outcome="failed")))),
    ("idle", (*ASKING, ("a", OperationEnded(outcome="cancelled")))),
    ("waiting", (*ASKING, ("b", OperationEnded(outcome="cancelled")))),
    ("workers", SENDING),
    ("idle", (*SENDING, ("a", WorkerReturned(run="w", outcome="succeeded")))),
]


@pytest.mark.parametrize(("activity", "entries"), TIMELINES)
def test_the_activity_follows_from_what_has_begun_and_not_ended(
    activity: Activity, entries: tuple[tuple[str, Event], ...]
) -> None:
    assert apply_all(*entries).derive_activity() == activity


def test_a_request_that_counts_as_answered_is_not_waited_for() -> None:
    assert apply_all(*ASKING).derive_activity(asked=()) == "tool"


def test_after_an_interruption_only_requests_and_workers_are_open() -> None:
    for entries, activity in ((ASKING, "waiting"), (CALLING, "starting"), (SENDING, "workers")):
        work = apply_all(*entries)
        work.interrupt()

        assert work.derive_activity() == activity


def apply_all(*entries: tuple[str, Event]) -> OngoingWork:
    work = OngoingWork()
    for seq, (scope, event) in enumerate(entries, 1):
        work.apply(Entry(run="r", seq=seq, at=float(seq), scope=scope, operation="a", event=event))
    return work
