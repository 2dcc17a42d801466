"""The state of a team's work and of its plan steps: every transition that is possible, and no other."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from podium.core.plan_state import (
    STEP_TRANSITIONS,
    WORK_TRANSITIONS,
    InvalidTransition,
    WorkProgress,
    change_step_state,
    change_work_state,
    list_dependants,
)
from podium.values.event import (
    Event,
    PlanCommitted,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepHandedOver,
    PlanStepReopened,
    PlanStepReviewed,
    PlanStepStarted,
    PlanStepSubmitted,
    PlanStepUnblocked,
    TeamFormed,
    WorkStateChanged,
)
from podium.values.plan import Criterion, PlanStep, StepState, WorkPlan, WorkState

WORK_STATES: tuple[WorkState, ...] = get_args(WorkState)
STEP_STATES: tuple[StepState, ...] = get_args(StepState)
ENDS = ("completed", "cancelled", "error")


@pytest.mark.parametrize("before", WORK_STATES)
@pytest.mark.parametrize("after", WORK_STATES)
def test_the_work_changes_only_along_its_transitions(before: WorkState, after: WorkState) -> None:
    is_possible = after in WORK_TRANSITIONS[before] or (before not in ENDS and after in ("cancelled", "error"))

    if is_possible:
        assert change_work_state(before, after) == after
    else:
        with pytest.raises(InvalidTransition, match=f"cannot change from {before} to {after}"):
            change_work_state(before, after)


@pytest.mark.parametrize("before", STEP_STATES)
@pytest.mark.parametrize("after", STEP_STATES)
def test_a_step_changes_only_along_its_transitions(before: StepState, after: StepState) -> None:
    if after in STEP_TRANSITIONS[before]:
        assert change_step_state("s1", before, after) == after
    else:
        with pytest.raises(InvalidTransition, match=f"the state of step s1 cannot change from {before} to {after}"):
            change_step_state("s1", before, after)


def make_step(id: str, *depends_on: str) -> PlanStep:
    return PlanStep(id=id, owner="ada", description=id, acceptance=(Criterion(text="ok"),), depends_on=depends_on)


def commit_plan(*steps: PlanStep, version: int = 1) -> PlanCommitted:
    return PlanCommitted(version=version, plan=WorkPlan(goal="g", steps=steps), by="lead")


START: list[Event] = [TeamFormed(goal="g", members=()), WorkStateChanged(state="planning")]
TWO_STEPS: list[Event] = [*START, commit_plan(make_step("a"), make_step("b", "a")), WorkStateChanged(state="executing")]
A_IS_SUBMITTED: list[Event] = [PlanStepStarted(step="a", owner="ada"), PlanStepSubmitted(step="a", author="ada")]
PASSED = PlanStepReviewed(step="a", reviewer="rex", attempt=1, passed=True)
A_IS_DONE: list[Event] = [*A_IS_SUBMITTED, PASSED, PlanStepCompleted(step="a", owner="ada")]


def read_states(*events: Event) -> dict[str, StepState]:
    return {id: one.state for id, one in WorkProgress.from_events(events).steps.items()}


def test_a_step_is_ready_once_the_steps_that_it_depends_on_are_done() -> None:
    assert read_states(*TWO_STEPS) == {"a": "ready", "b": "planned"}
    assert read_states(*TWO_STEPS, *A_IS_DONE) == {"a": "done", "b": "ready"}


def test_a_reopened_step_is_ready_again_and_keeps_its_authors() -> None:
    events = [*A_IS_SUBMITTED, PlanStepReopened(step="a", attempt=1, reason="no tests")]

    progress = WorkProgress.from_events([*TWO_STEPS, *events, PlanStepStarted(step="a", owner="bob", attempt=2)])

    assert progress.steps["a"].authors == ("ada", "bob")
    assert progress.steps["a"].attempt == 2


HANDED_OVER: list[Event] = [
    PlanStepStarted(step="a", owner="ada"),
    PlanStepHandedOver(step="a", sender="ada", receiver="bob", reason="r"),
    PlanStepSubmitted(step="a", author="bob"),
]
REOPENED: list[Event] = [
    *A_IS_SUBMITTED,
    structs.replace(PASSED, passed=False),
    PlanStepReopened(step="a", attempt=1, reason="no tests"),
    PlanStepStarted(step="a", owner="bob", attempt=2),
    PlanStepSubmitted(step="a", author="bob", attempt=2),
]


@pytest.mark.parametrize(
    ("events", "attempt", "author"),
    [(A_IS_SUBMITTED, 1, "ada"), (HANDED_OVER, 1, "ada"), (HANDED_OVER, 1, "bob"), (REOPENED, 2, "ada")],
)
def test_nobody_who_has_worked_on_a_step_can_review_it(events: list[Event], attempt: int, author: str) -> None:
    progress = WorkProgress.from_events([*TWO_STEPS, *events])
    review = PlanStepReviewed(step="a", reviewer=author, attempt=attempt, passed=True)

    with pytest.raises(InvalidTransition, match=f"step a cannot be reviewed by {author}, who has worked on it"):
        progress.apply(review)

    assert progress.apply(structs.replace(review, reviewer="rex")).steps["a"].is_accepted
    assert progress.apply(structs.replace(review, is_person=True)).steps["a"].is_accepted


@pytest.mark.parametrize(
    "review",
    [(), (structs.replace(PASSED, passed=False),), (PASSED, structs.replace(PASSED, reviewer="zoe", passed=False))],
)
def test_a_step_is_not_completed_without_a_passed_review(review: tuple[Event, ...]) -> None:
    progress = WorkProgress.from_events([*TWO_STEPS, *A_IS_SUBMITTED, *review])

    with pytest.raises(InvalidTransition, match="step a cannot be completed, because no review has accepted it"):
        progress.apply(PlanStepCompleted(step="a", owner="ada"))


def test_a_review_of_an_earlier_attempt_does_not_count() -> None:
    progress = WorkProgress.from_events([*TWO_STEPS, *REOPENED])

    with pytest.raises(InvalidTransition, match="the review is for attempt 1 at step a, but the step is at attempt 2"):
        progress.apply(PASSED)

    with pytest.raises(InvalidTransition, match="no review has accepted it"):
        progress.apply(PlanStepCompleted(step="a", owner="bob", attempt=2))


STATES_OF_A: dict[StepState, list[Event]] = {
    "ready": [],
    "running": A_IS_SUBMITTED[:1],
    "blocked": [A_IS_SUBMITTED[0], PlanStepBlocked(step="a", reason="q", decision="d")],
    "review": A_IS_SUBMITTED,
    "done": A_IS_DONE,
    "failed": [A_IS_SUBMITTED[0], PlanStepFailed(step="a", reason="r")],
}
"""Events that lead to each state in which step a can be; it depends on nothing, so it is never planned or reopened."""


@pytest.mark.parametrize("state", STATES_OF_A)
def test_a_step_is_reviewed_only_after_it_was_submitted(state: StepState) -> None:
    progress = WorkProgress.from_events([*TWO_STEPS, *STATES_OF_A[state]])
    assert progress.steps["a"].state == state

    if state == "review":
        assert progress.apply(PASSED).steps["a"].is_accepted
    else:
        with pytest.raises(InvalidTransition, match=f"step a cannot be reviewed: it is {state}, not in review"):
            progress.apply(PASSED)


def test_a_handover_changes_the_owner_and_a_refused_one_changes_nothing() -> None:
    started = [*TWO_STEPS, PlanStepStarted(step="a", owner="ada")]
    over = PlanStepHandedOver(step="a", sender="ada", receiver="bob", reason="r")
    refused = PlanStepHandedOver(step="a", sender="ada", receiver="zoe", reason="r", refused="zoe is not a member")

    assert WorkProgress.from_events([*started, over]).steps["a"].owner == "bob"
    assert WorkProgress.from_events([*started, refused]).steps["a"].owner == "ada"


def test_a_blocked_step_goes_on_when_its_decision_is_made() -> None:
    blocked = [*TWO_STEPS, PlanStepStarted(step="a", owner="ada"), PlanStepBlocked(step="a", reason="q", decision="d")]

    assert read_states(*blocked)["a"] == "blocked"
    assert read_states(*blocked, PlanStepUnblocked(step="a", decision="d"))["a"] == "running"


def test_a_second_plan_keeps_what_is_done_and_drops_the_rest() -> None:
    failed = [*A_IS_DONE, PlanStepStarted(step="b", owner="ada"), PlanStepFailed(step="b", reason="too hard")]

    states = read_states(*TWO_STEPS, *failed, commit_plan(make_step("c", "a"), version=2))

    assert states == {"a": "done", "c": "ready"}


def test_what_is_not_done_is_listed_with_the_reason() -> None:
    failed: list[Event] = [PlanStepStarted(step="a", owner="ada"), PlanStepFailed(step="a", reason="too hard")]
    blocked = PlanStepBlocked(step="b", reason="a, which it depends on, failed")

    undone = WorkProgress.from_events([*TWO_STEPS, *failed, blocked]).list_undone()

    assert [(one.step, one.reason) for one in undone] == [
        ("a", "too hard"),
        ("b", "a, which it depends on, failed"),
    ]


def test_an_event_about_an_unknown_step_names_the_steps_of_the_plan() -> None:
    with pytest.raises(InvalidTransition, match="the plan has no step z; its steps: a, b"):
        WorkProgress.from_events([*TWO_STEPS, PlanStepStarted(step="z", owner="ada")])


def test_dependants_are_found_through_other_steps() -> None:
    steps = [make_step("a"), make_step("b", "a"), make_step("c"), make_step("d", "b", "c")]

    assert list_dependants(steps, "a") == ["b", "d"]


STEP_EVENTS = st.sampled_from(("a", "b")).flatmap(
    lambda step: st.sampled_from(
        (
            PlanStepStarted(step=step, owner="ada"),
            PlanStepHandedOver(step=step, sender="ada", receiver="bob", reason="r"),
            PlanStepBlocked(step=step, reason="r"),
            PlanStepUnblocked(step=step, decision="d"),
            PlanStepSubmitted(step=step, author="ada"),
            PlanStepReviewed(step=step, reviewer="ada", attempt=1, passed=True),
            PlanStepReviewed(step=step, reviewer="bob", attempt=1, passed=True),
            PlanStepReviewed(step=step, reviewer="rex", attempt=1, passed=True),
            PlanStepReviewed(step=step, reviewer="rex", attempt=1, passed=False),
            PlanStepReopened(step=step, attempt=1, reason="r"),
            PlanStepCompleted(step=step, owner="ada"),
            PlanStepFailed(step=step, reason="r"),
        )
    )
)


@given(st.lists(STEP_EVENTS, max_size=30))
def test_whatever_happens_no_step_starts_before_the_steps_that_it_depends_on_are_done(events: list[Event]) -> None:
    progress = WorkProgress.from_events(TWO_STEPS)
    for event in events:
        before = progress
        try:
            progress = progress.apply(event)
        except InvalidTransition:
            assert progress is before
        if progress.steps["a"].state != "done":
            assert progress.steps["b"].state in ("planned", "blocked", "failed")
        for id, one in progress.steps.items():
            if one.state == "done" and before.steps[id].state != "done":
                assert before.steps[id].is_accepted
            if isinstance(event, PlanStepReviewed) and event.step == id and progress is not before:
                assert event.reviewer not in one.authors
        assert progress.steps["a"].state != "reopened"  # nothing keeps it from being ready
