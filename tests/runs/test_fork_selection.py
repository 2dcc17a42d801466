"""What a fork shares with its run: finished steps, and neither approvals nor work that was in progress."""

from __future__ import annotations

import pytest

from podium.runs.fork_position import PLAN_NOT_APPROVED, ForkedEntries, select_entries
from podium.values.action import Action
from podium.values.agent import Budget
from podium.values.event import (
    ActionBegan,
    ActionRefused,
    BudgetChanged,
    Decision,
    MemberChanged,
    MessageReceived,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    PlanCommitted,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    RunEnded,
    RunPaused,
    RunResumed,
    StatusReported,
    StopAsked,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    WorkerReturned,
    WorkerSent,
    event_kind,
)
from podium.values.plan import WorkPlan
from podium.values.request import Request

from .timelines import SOURCE, WrittenTimeline

FORK = "forkedabcdef"
CALL = "lead/turn#1/call#1/tool#1"
ACTION = Action(run=SOURCE, agent="lead", tool="bash")


@pytest.fixture
def timeline() -> WrittenTimeline:
    timeline = WrittenTimeline()
    timeline.record("lead", OperationStarted(agent="lead", trigger="request", request=Request(text="go")))
    timeline.settle("lead/turn#1/call#1", ModelReplied(model="m"))
    timeline.record(CALL, ToolCalled(id="t", action=ACTION))
    return timeline


def select(timeline: WrittenTimeline, at: int | None = None) -> ForkedEntries:
    return select_entries(timeline.entries, timeline.last if at is None else at, run=FORK)


def kinds(forked: ForkedEntries) -> list[str]:
    return [event_kind(entry.event) for entry in forked.kept][3:]


def ask(timeline: WrittenTimeline, decision: Decision | None, *, id: str = "p", rule: str = "") -> None:
    timeline.record(CALL, PermissionAsked(id=id, action=ACTION, reason="asks", always="Bash(make *)"))
    if decision is not None:
        timeline.add(PermissionAnswered(id=id, decision=decision, by="me", rule=rule))


def test_entries_up_to_the_position_are_shared_as_they_are(timeline: WrittenTimeline) -> None:
    timeline.record(CALL, ToolAnswered(id="t", text="done"))
    at = timeline.last
    timeline.settle("lead/turn#1/call#2", ModelReplied(model="m"))

    forked = select(timeline, at)

    assert list(forked.kept) == timeline.entries[1:at]
    assert forked.notices == ()


def test_the_end_of_the_run_its_pauses_and_its_stops_are_not_shared(timeline: WrittenTimeline) -> None:
    for event in (RunResumed(host="h", pid=1), PauseAsked(), RunPaused(), RunResumed(host="h", pid=2), StopAsked()):
        timeline.add(event)
    timeline.add(RunEnded(outcome="cancelled"))

    assert kinds(select(timeline)) == []


def test_messages_and_changes_of_the_budget_and_of_members_are_shared(timeline: WrittenTimeline) -> None:
    timeline.add(MessageReceived(id="m", to="lead", text="hurry"))
    timeline.add(BudgetChanged(budget=Budget(usd=1)), key="/budget_changed#1")
    timeline.add(MemberChanged(member="lead", model="m2"))

    assert kinds(select(timeline)) == ["message_received", "budget_changed", "member_changed"]


# Approvals


@pytest.mark.parametrize("decision", ["once", "run", "always"])
def test_an_approval_counts_only_for_the_action_that_was_executed(
    timeline: WrittenTimeline, decision: Decision
) -> None:
    ask(timeline, decision, rule="Bash(make *)" if decision == "always" else "")
    timeline.record(CALL, ActionBegan(action=ACTION, allowed_by="me"))
    timeline.record(CALL, ToolAnswered(id="t", text="done"))

    forked = select(timeline)

    assert kinds(forked) == ["permission_asked", "permission_answered", "action_began", "tool_answered"]
    [answered] = [entry.event for entry in forked.kept if isinstance(entry.event, PermissionAnswered)]
    assert (answered.decision, answered.rule, answered.by) == ("once", "", "me")


@pytest.mark.parametrize("decision", [None, "once", "run", "always", "deny"])
def test_a_request_whose_action_has_not_started_is_made_again(
    timeline: WrittenTimeline, decision: Decision | None
) -> None:
    ask(timeline, decision)

    assert kinds(select(timeline)) == []


def test_an_action_that_has_not_ended_is_called_again_with_a_new_request(timeline: WrittenTimeline) -> None:
    ask(timeline, "once")
    timeline.record(CALL, ActionBegan(action=ACTION, allowed_by="me"))

    forked = select(timeline)

    assert kinds(forked) == []
    assert forked.notices == ("lead: bash had not finished at the fork point, so the fork calls it again",)


def test_a_denial_that_the_agent_was_told_is_shared(timeline: WrittenTimeline) -> None:
    ask(timeline, "deny")
    timeline.record(CALL, ActionRefused(action=ACTION, reason="me refused it"))
    unanswered = select(timeline)
    timeline.record(CALL, ToolAnswered(id="t", text="Not done", is_error=True))

    assert kinds(unanswered) == []
    assert kinds(select(timeline)) == ["permission_asked", "permission_answered", "action_refused", "tool_answered"]


def test_an_open_request_of_a_turn_that_has_ended_is_left_alone(timeline: WrittenTimeline) -> None:
    timeline.record(CALL, ActionBegan(action=ACTION, allowed_by="a rule"))
    timeline.settle("lead/turn#1", TurnEnded(outcome="timed_out"))

    forked = select(timeline)

    assert kinds(forked) == ["action_began", "turn_ended"]
    assert forked.notices == ()


def test_the_approval_of_a_plan_is_not_shared(timeline: WrittenTimeline) -> None:
    plan = WorkPlan(goal="g", steps=())
    timeline.settle("lead/plan", PlanCommitted(version=1, plan=plan, by="lead", is_approved_by_person=True))

    forked = select(timeline)

    committed = forked.kept[-1].event
    assert isinstance(committed, PlanCommitted)
    assert not committed.is_approved_by_person
    assert forked.notices == (PLAN_NOT_APPROVED,)


# Questions


def test_a_question_is_shared_once_its_agent_has_the_answer(timeline: WrittenTimeline) -> None:
    timeline.record(CALL, QuestionAsked(id="q", text="Which?"))
    timeline.add(QuestionAnswered(id="q", text="red"))
    unread = select(timeline)
    timeline.record(CALL, ToolAnswered(id="t", text="red"))

    assert kinds(unread) == []
    assert kinds(select(timeline)) == ["question_asked", "question_answered", "tool_answered"]


@pytest.mark.parametrize("kind", ["plan", "decision", "review"])
def test_a_question_of_a_team_is_shared_once_its_answer_was_used(timeline: WrittenTimeline, kind: QuestionKind) -> None:
    timeline.record("lead/plan/approval#1", QuestionAsked(id="q", text="Approve?", kind=kind))
    unanswered = select(timeline)
    timeline.add(QuestionAnswered(id="q", text="yes"))
    timeline.record("lead/elsewhere", StatusReported(text="another step goes on"))
    unused = select(timeline)
    timeline.record("lead/plan", PlanCommitted(version=1, plan=WorkPlan(goal="g", steps=()), by="lead"))

    assert (kinds(unanswered), kinds(unused)) == ([], ["status_reported"])
    assert kinds(select(timeline)) == ["question_asked", "question_answered", "status_reported", "plan_committed"]


# Workers


def send(timeline: WrittenTimeline, scope: str, branch: str, run: str = "w1") -> None:
    timeline.settle(f"{scope}/worker", WorkerSent(run=run, branch=branch, task="build", budget=Budget(usd=1)))


def test_a_worker_that_has_returned_is_shared(timeline: WrittenTimeline) -> None:
    send(timeline, "lead", "podium/source/lead-w1")
    timeline.settle("lead/worker:w1", WorkerReturned(run="w1", outcome="succeeded"))

    forked = select(timeline)

    assert list(forked.kept) == timeline.entries[1:]
    assert forked.notices == ()


def test_a_worker_that_has_not_returned_is_started_again_on_its_own_branch(timeline: WrittenTimeline) -> None:
    send(timeline, "lead", "podium/source/lead-w1")

    forked = select(timeline)

    [sent] = [entry for entry in forked.kept if isinstance(entry.event, WorkerSent)]
    assert isinstance(sent.event, WorkerSent)
    assert (sent.key, sent.event.branch, sent.event.task) == ("lead/worker", f"podium/{FORK}/lead-w1", "build")
    assert (sent.event.asked, len(sent.event.run)) == ("", 12)
    assert forked.notices == (
        "the worker on podium/source/lead-w1 (run w1) had not reported a result by the fork point, "
        f"so the fork starts it again on podium/{FORK}/lead-w1 (run {sent.event.run})",
    )


def test_the_tool_that_started_an_unreturned_worker_is_called_again(timeline: WrittenTimeline) -> None:
    send(timeline, CALL, "feat/csv")
    timeline.record(CALL, ToolAnswered(id="t", text="Started a worker"))
    timeline.settle("lead/turn#1/call#2", ModelReplied(model="m"))

    forked = select(timeline)

    assert kinds(forked) == ["worker_sent", "model_replied"]
    sent = forked.kept[3].event
    assert isinstance(sent, WorkerSent)
    assert (sent.branch, sent.asked) == ("feat/csv-fork", "feat/csv")


def test_a_fork_of_a_fork_names_the_branch_after_the_one_that_was_asked_for(timeline: WrittenTimeline) -> None:
    timeline.settle(f"{CALL}/worker", WorkerSent(run="w1", branch="feat/csv-0f0f", asked="feat/csv"))

    sent = select(timeline).kept[-1].event

    assert isinstance(sent, WorkerSent)
    assert (sent.branch, sent.asked) == ("feat/csv-fork", "feat/csv")


def test_a_worker_that_nobody_waits_for_is_not_started_again(timeline: WrittenTimeline) -> None:
    member = "lead/member:hand#1"
    timeline.settle(f"{member}/worker", WorkerSent(run="w1", branch="b"), operation=member)
    timeline.settle(member, OperationEnded(outcome="timed_out"), operation=member)

    forked = select(timeline)

    assert kinds(forked) == ["operation_ended"]
    assert forked.notices == (
        "the worker on b (run w1) had not reported a result by the fork point, but the fork does not start it again, "
        "because hand had already ended without it",
    )
