"""Where a run is forked: at a snapshot, at an entry, before a decision, before a failure."""

from __future__ import annotations

import pytest

from podium.runs.fork_position import HOW_DECIDED, find_decision_change, find_fork_position, find_retry_position
from podium.values.errors import Failure, FailureKind, Mistake
from podium.values.event import (
    CallFailed,
    DecisionCommitted,
    DecisionProposed,
    ModelReplied,
    Noticed,
    OperationEnded,
    OperationStarted,
    PlanStepFailed,
    PlanStepStarted,
    RunEnded,
    SnapshotTaken,
    StopAsked,
    TurnEnded,
    VoteClosed,
)
from podium.values.request import Request

from .timelines import WrittenTimeline

HAND = "lead/member:hand#1"


@pytest.fixture
def timeline() -> WrittenTimeline:
    timeline = WrittenTimeline()
    start(timeline, "lead", "lead")
    return timeline


def start(timeline: WrittenTimeline, operation: str, agent: str) -> int:
    started = OperationStarted(agent=agent, trigger="member", request=Request(text="go"))
    return timeline.record(operation, started, operation=operation).seq


# Snapshots and entries


def test_a_snapshot_is_found_by_its_name(timeline: WrittenTimeline) -> None:
    plan = timeline.record("lead", SnapshotTaken(name="plan")).seq
    timeline.add(Noticed(text="more"))
    step = timeline.record("lead", SnapshotTaken(name="s1")).seq
    timeline.add(Noticed(text="more"))

    assert [find_fork_position(timeline.entries, at) for at in ("plan", "s1", "", "3")] == [plan, step, step, 3]


def test_without_snapshots_a_run_is_forked_at_its_last_entry(timeline: WrittenTimeline) -> None:
    timeline.add(Noticed(text="more"))

    assert find_fork_position(timeline.entries, "") == timeline.last


@pytest.mark.parametrize("at", ["0", "4", "-1", "²", "s3", "1.5"])
def test_an_unknown_position_lists_the_snapshots(timeline: WrittenTimeline, at: str) -> None:
    with pytest.raises(Mistake, match=r"; give an entry number from 1 to 2$"):
        find_fork_position(timeline.entries, at)
    timeline.record("lead", SnapshotTaken(name="plan"))

    with pytest.raises(Mistake, match=r"entry .*; give an entry number from 1 to 3 or one of the snapshots plan"):
        find_fork_position(timeline.entries, at)


# Decisions


def test_a_changed_decision_has_the_place_of_the_original_one(timeline: WrittenTimeline) -> None:
    proposed = timeline.record("lead/d1", DecisionProposed(id="d1", topic="Which?", options=("red", "blue")))
    closed = timeline.record("lead/d1", VoteClosed(decision="d1", why="decided"))
    event = DecisionCommitted(
        decision="d1",
        option="red",
        how="majority",
        by="lead",
        rationale="It is warm.",
        participants=("lead",),
        consequences="It fades.",
    )
    made = timeline.settle("lead/d1", event)

    change = find_decision_change(timeline.entries, "d1", "blue", by="ada")

    assert (change.earliest, change.latest) == (proposed.seq, made.seq - 1)
    [kept, changed] = change.entries
    assert kept == closed
    assert (changed.key, changed.scope, changed.digest) == (made.key, made.scope, made.digest)
    assert changed.event == DecisionCommitted(
        decision="d1", option="blue", how=HOW_DECIDED, by="ada", participants=("lead", "ada")
    )


def test_an_unknown_decision_or_option_lists_those_that_exist(timeline: WrittenTimeline) -> None:
    with pytest.raises(Mistake, match="has no decision 'd1'; it has no decisions"):
        find_decision_change(timeline.entries, "d1", "red", by="")
    timeline.record("lead/d1", DecisionProposed(id="d1", topic="Which?", options=("red", "blue")))
    timeline.record("lead/d1", VoteClosed(decision="d1", why="complete"))

    with pytest.raises(Mistake, match="has no decision 'd2'; available: d1"):
        find_decision_change(timeline.entries, "d2", "red", by="")
    with pytest.raises(Mistake, match="'green' is not an option for the decision 'd1'; available: red, blue"):
        find_decision_change(timeline.entries, "d1", "green", by="")
    with pytest.raises(Mistake, match="has not been made yet"):
        find_decision_change(timeline.entries, "d1", "red", by="")


# Retries


def fail(timeline: WrittenTimeline, kind: FailureKind, *operations: str) -> None:
    """End these operations, and the run, with the same failure."""
    failure = Failure(kind=kind, agent="hand", message="it broke")
    for operation in operations:
        timeline.settle(operation, OperationEnded(outcome="failed", failure=failure), operation=operation)
    timeline.add(RunEnded(outcome="failed", failure=failure))


def test_an_agent_whose_own_work_failed_starts_again(timeline: WrittenTimeline) -> None:
    before = timeline.last
    start(timeline, HAND, "hand")
    timeline.settle(f"{HAND}/turn#1/call#1", ModelReplied(model="m"), operation=HAND)
    fail(timeline, "refused", HAND, "lead")

    assert find_retry_position(timeline.entries, "") == before


def test_a_team_starts_again_with_its_first_failed_plan_step(timeline: WrittenTimeline) -> None:
    timeline.record("lead/plan_step:s1/start#1", PlanStepStarted(step="s1", owner="hand"))
    before = timeline.last
    timeline.record("lead/plan_step:s2/start#1", PlanStepStarted(step="s2", owner="hand"))
    timeline.record("lead/plan_step:s2/start#2", PlanStepStarted(step="s2", owner="hand", attempt=2))
    timeline.record("lead/plan_step:s2", PlanStepFailed(step="s2", reason="not accepted"))
    timeline.record("lead/plan_step:s2~2/start#1", PlanStepStarted(step="s2", owner="hand"))
    timeline.record("lead/plan_step:s2~2", PlanStepFailed(step="s2", reason="not accepted"))
    fail(timeline, "failed", "lead")

    assert find_retry_position(timeline.entries, "") == before


def test_a_failed_model_call_is_made_again_and_nothing_before_it(timeline: WrittenTimeline) -> None:
    start(timeline, HAND, "hand")
    timeline.settle(f"{HAND}/turn#1/call#1", CallFailed(model="m", message="busy", wait=1), operation=HAND)
    timeline.settle(f"{HAND}/turn#1/call#1~2", ModelReplied(model="m"), operation=HAND)
    before = timeline.last
    timeline.settle(f"{HAND}/turn#1/call#2", CallFailed(model="m", message="busy", wait=1), operation=HAND)
    timeline.settle(f"{HAND}/turn#1/call#2~2", CallFailed(model="m", message="busy"), operation=HAND)
    failure = Failure(kind="engine", agent="hand", message="it broke")
    timeline.settle(f"{HAND}/turn#1", TurnEnded(outcome="failed", failure=failure), operation=HAND)
    fail(timeline, "engine", HAND, "lead")

    assert find_retry_position(timeline.entries, "") == before


def test_a_model_call_without_budget_is_made_again(timeline: WrittenTimeline) -> None:
    start(timeline, HAND, "hand")
    timeline.settle(f"{HAND}/turn#1/call#1", CallFailed(model="m", message="busy", wait=1), operation=HAND)
    timeline.settle(f"{HAND}/turn#1/call#1~2", ModelReplied(model="m"), operation=HAND)
    before = timeline.last
    failure = Failure(kind="budget", agent="hand", message="it broke")
    timeline.settle(f"{HAND}/turn#1", TurnEnded(outcome="failed", failure=failure), operation=HAND)
    fail(timeline, "budget", HAND, "lead")

    assert find_retry_position(timeline.entries, "") == before


def test_an_answer_that_lacks_refused_work_is_retried_from_the_refused_call(timeline: WrittenTimeline) -> None:
    start(timeline, HAND, "hand")
    before = timeline.last
    failure = Failure(kind="budget", agent="hand", message="no room")
    timeline.settle(f"{HAND}/turn#1", TurnEnded(outcome="failed", failure=failure), operation=HAND)
    timeline.settle(HAND, OperationEnded(outcome="failed", failure=failure), operation=HAND)
    timeline.settle("lead", OperationEnded(outcome="succeeded", text="without hand"))
    lacking = Failure(
        kind="budget",
        agent="lead",
        message="no room; some work was refused for this reason, so the answer is incomplete",
    )
    timeline.add(RunEnded(outcome="failed", failure=lacking))

    assert find_retry_position(timeline.entries, "") == before


def test_an_earlier_failure_that_the_run_survived_is_not_the_one_that_is_retried(timeline: WrittenTimeline) -> None:
    start(timeline, "lead/advice:legal#1", "legal")
    gone = Failure(kind="engine", agent="legal", message="it broke")
    timeline.settle(
        "lead/advice:legal#1", OperationEnded(outcome="failed", failure=gone), operation="lead/advice:legal#1"
    )
    before = timeline.last
    start(timeline, HAND, "hand")
    fail(timeline, "failed", HAND, "lead")

    assert find_retry_position(timeline.entries, "") == before


def test_a_stage_of_a_handoff_is_found_under_its_failure(timeline: WrittenTimeline) -> None:
    before = timeline.last
    start(timeline, "lead/handoff:hand#1", "hand")
    failure = Failure(kind="failed", agent="hand", message="it broke")
    timeline.settle(
        "lead/handoff:hand#1", OperationEnded(outcome="failed", failure=failure), operation="lead/handoff:hand#1"
    )
    staged = Failure(kind="failed", agent="lead", message="hand: it broke", where="handoff stage 1 of 2 (lead)")
    timeline.settle("lead", OperationEnded(outcome="failed", failure=staged))
    timeline.add(RunEnded(outcome="failed", failure=staged))

    assert find_retry_position(timeline.entries, "") == before


def test_a_stopped_run_continues_where_it_was_stopped(timeline: WrittenTimeline) -> None:
    before = timeline.last
    timeline.add(StopAsked(by="me"))
    timeline.add(RunEnded(outcome="cancelled"))

    assert find_retry_position(timeline.entries, "") == before


def test_a_run_without_time_left_continues_at_its_last_entry(timeline: WrittenTimeline) -> None:
    before = timeline.last
    failure = Failure(kind="budget", agent="lead", message="the run's budget of 5 s is used up")
    timeline.add(RunEnded(outcome="failed", failure=failure))

    assert find_retry_position(timeline.entries, "") == before


def test_a_run_is_retried_from_a_plan_step_or_an_agent(timeline: WrittenTimeline) -> None:
    before = timeline.last
    timeline.record("lead", PlanStepStarted(step="s1", owner="hand"))
    within = timeline.last
    start(timeline, HAND, "hand")
    timeline.record("lead", PlanStepStarted(step="s1", owner="hand", attempt=2))
    timeline.add(RunEnded(outcome="succeeded"))

    assert find_retry_position(timeline.entries, "s1") == before
    assert find_retry_position(timeline.entries, "hand") == within
    with pytest.raises(Mistake, match="has not started a plan step or agent 's2'; plan steps: s1; agents: lead, hand"):
        find_retry_position(timeline.entries, "s2")


def test_a_run_that_succeeded_has_no_failure_to_retry(timeline: WrittenTimeline) -> None:
    timeline.add(RunEnded(outcome="succeeded"))

    with pytest.raises(Mistake, match="succeeded, so there is no failure to retry; give an agent or a plan step"):
        find_retry_position(timeline.entries, "")
