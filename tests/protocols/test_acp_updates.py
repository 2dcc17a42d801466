"""What an editor shows of a run: the plan of a team and how far its steps are, and the kinds of tool calls."""

from __future__ import annotations

from typing import Any

import pytest

from podium.protocols.acp_updates import SessionUpdates
from podium.values.action import Action
from podium.values.event import (
    Entry,
    Event,
    OperationEnded,
    PlanCommitted,
    PlannedAssignment,
    PlanStepCompleted,
    PlanStepStarted,
    TeamPlanned,
    ToolCalled,
)
from podium.values.plan import PlanStep, WorkPlan


def read_plans(*events: tuple[str, Event]) -> list[dict[str, str]]:
    """Return the state of each plan step after each update of the plan."""
    updates = SessionUpdates()
    entries = [
        Entry(run="r", seq=seq, at=float(seq), scope=operation, operation=operation, event=event)
        for seq, (operation, event) in enumerate(events, 1)
    ]
    found: list[Any] = [
        update for entry in entries for update in updates.apply(entry) if update["sessionUpdate"] == "plan"
    ]
    return [{step["content"]: step["status"] for step in update["entries"]} for update in found]


def test_the_steps_of_a_committed_plan_are_shown_as_they_start_and_end() -> None:
    steps = tuple(PlanStep(id=f"s{n}", owner="ada", description=f"part {n}", acceptance=()) for n in (1, 2))
    plan = WorkPlan(goal="all", steps=steps)

    seen = read_plans(
        ("lead", PlanCommitted(version=1, plan=plan, by="lead")),
        ("lead", PlanStepStarted(step="s1", owner="ada")),
        ("lead", PlanStepCompleted(step="s1", owner="ada")),
    )

    assert seen == [
        {"ada: part 1": "pending", "ada: part 2": "pending"},
        {"ada: part 1": "in_progress", "ada: part 2": "pending"},
        {"ada: part 1": "completed", "ada: part 2": "pending"},
    ]


def test_an_assignment_is_done_when_its_member_has_ended() -> None:
    tasks = (PlannedAssignment(worker="ada", task="count"), PlannedAssignment(worker="bob", task="sort"))

    seen = read_plans(
        ("lead", TeamPlanned(assignments=tasks)), ("lead/member:bob#1", OperationEnded(outcome="succeeded", text="ok"))
    )

    assert seen[-1] == {"ada: count": "pending", "bob: sort": "completed"}


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        ("read_file", "read"),
        ("git_diff", "read"),
        ("glob", "search"),
        ("grep", "search"),
        ("edit_file", "edit"),
        ("run_checks", "execute"),
        ("web_fetch", "fetch"),
        ("mcp__notes__add", "other"),
    ],
)
def test_an_editor_gets_the_kind_of_each_tool_call(tool: str, kind: str) -> None:
    called = ToolCalled(id="1", action=Action(run="r", agent="ada", tool=tool, arguments={}))

    (update,) = SessionUpdates().apply(Entry(run="r", seq=1, at=1.0, scope="ada", operation="ada", event=called))

    assert (update["sessionUpdate"], update["kind"]) == ("tool_call", kind)
