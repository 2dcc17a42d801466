"""The run report: a fold over the timeline that lists all results of a run so far."""

from __future__ import annotations

from typing import Any

import msgspec

from podium.values.action import Action
from podium.values.agent import Agent, Budget, Member, Team
from podium.values.errors import Failure
from podium.values.event import (
    ActionBegan,
    AdjustmentProposed,
    Broadcast,
    BudgetChanged,
    DiscussionEnded,
    Entry,
    Evaluated,
    Event,
    MemberChanged,
    MessageReceived,
    MessagesDelivered,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    PlannedAssignment,
    QuestionAsked,
    ReflectEnded,
    RoundEnded,
    RunEnded,
    RunPaused,
    RunStarted,
    StopAsked,
    TeamPlanned,
    Trigger,
    TurnEnded,
    Voted,
)
from podium.values.request import Request
from podium.values.team_modes import Mode
from podium.values.usage import Usage
from podium.views.run_report import OpenPoint, Report, build_report
from podium.views.run_state.results import RunResults

REQUEST = Request(text="Ship it.")


class TimelineBuilder:
    """Builds a timeline by hand, with one second between entries."""

    def __init__(self, mode: Mode | None = None, *members: str, **keys: Any) -> None:
        team = None if mode is None else Team(mode=mode, members=tuple(Member(agent=name) for name in members), **keys)
        agents = (Agent(name="lead", team=team), *(Agent(name=name) for name in members))
        settings: dict[str, Any] = {"budget": {"tokens": 1000}}
        self.entries: list[Entry] = []
        self.add(RunStarted(agent="lead", request=REQUEST, agents=agents, settings=settings))
        self.begin("lead", trigger="request")

    def add(self, event: Event, operation: str = "") -> None:
        seq = len(self.entries) + 1
        self.entries.append(
            Entry(run="3f2a", seq=seq, at=float(seq), scope=operation, operation=operation, event=event)
        )

    def begin(self, operation: str, *, trigger: Trigger = "member") -> None:
        agent = operation.rpartition(":")[2].partition("#")[0]
        self.add(OperationStarted(agent=agent, trigger=trigger, request=REQUEST), operation)

    def end(self, operation: str, text: str) -> None:
        self.add(OperationEnded(outcome="succeeded", text=text), operation)

    def report(self) -> Report:
        """Return the report, which is the same if the state is stored after every entry."""
        stored = RunResults()
        for entry in self.entries:
            stored.apply(entry)
            stored = msgspec.json.decode(msgspec.json.encode(stored), type=RunResults)
        report = Report.from_entries(self.entries)
        assert build_report(stored) == report
        return report


def test_a_run_that_succeeded_has_its_answer() -> None:
    run = TimelineBuilder()
    run.end("lead", "Shipped.")
    run.add(RunEnded(outcome="succeeded"))

    report = run.report()

    assert (report.state, report.answer, report.why, report.draft) == ("succeeded", "Shipped.", "", "")
    assert (report.run, report.agent, report.request, report.seconds) == ("3f2a", "lead", "Ship it.", 3.0)


def test_without_an_answer_there_is_the_reason() -> None:
    running, paused, stopped, failed = TimelineBuilder(), TimelineBuilder(), TimelineBuilder(), TimelineBuilder()
    paused.add(RunPaused())
    stopped.add(StopAsked(by="ann"))
    stopped.add(RunEnded(outcome="cancelled"))
    failed.add(RunEnded(outcome="failed", failure=Failure(kind="engine", agent="lead", message="no")))

    reasons = [(one.report().state, one.report().why) for one in (running, paused, stopped, failed)]

    assert reasons == [
        ("unfinished", "it has not ended"),
        ("paused", "it is paused"),
        ("cancelled", "it was stopped by ann"),
        ("failed", "lead: no"),
    ]


def test_parts_are_in_member_order_with_what_each_used_and_took() -> None:
    run = TimelineBuilder("orchestrate", "ann", "bob", "cem")
    run.begin("lead/member:cem#1")
    run.begin("lead/member:ann#1")
    run.add(ModelReplied(model="m", usage=Usage(input_tokens=7, calls=1)), "lead/member:ann#1")
    run.end("lead/member:ann#1", "from ann")

    report = run.report()

    assert [(part.agent, part.state, part.text) for part in report.parts] == [
        ("ann", "succeeded", "from ann"),
        ("cem", "unfinished", ""),
        ("bob", "not_begun", ""),
    ]
    assert [(part.seconds, part.usage.tokens) for part in report.parts] == [(2.0, 7), (3.0, 0), (0.0, 0)]


def test_parts_below_parts_follow_them() -> None:
    run = TimelineBuilder("broadcast", "ann", "bob")
    run.begin("lead/member:ann#1")
    run.begin("lead/member:bob#1")
    run.begin("lead/member:ann#1/turn#1/tool:x#1", trigger="tool")

    assert [(part.agent, part.depth) for part in run.report().parts] == [("ann", 0), ("x", 1), ("bob", 0)]


def test_a_loop_reports_how_it_ended_and_every_verdict() -> None:
    run = TimelineBuilder("reflect", "ann", "bob", evaluator="judge", options={"max_iterations": 4})
    for iteration in (1, 2):
        run.add(TeamPlanned(assignments=(), iteration=iteration), "lead")
        run.begin(f"lead/member:bob#{iteration}")
        run.begin(f"lead/member:ann#{iteration}")
        run.begin(f"lead/member:judge#{iteration}")
        run.add(Evaluated(iteration=iteration, score=0.3, by="judge", held_back="bob is missing"), "lead")
    run.add(AdjustmentProposed(iteration=2, text="ann may do better", member="ann", model="big"), "lead")
    run.add(AdjustmentProposed(iteration=2, text="bob is brief"), "lead")
    run.add(AdjustmentProposed(iteration=2, text="done already", is_applied=True), "lead")
    run.add(MemberChanged(member="ann", model="big"))
    run.add(ReflectEnded(end="stalled", iterations=2, score=0.3), "lead")

    report = run.report()
    [loop] = report.reflections

    assert (loop.lead, loop.goal, loop.end, loop.iterations, loop.most) == ("lead", "Ship it.", "stalled", 2, 4)
    assert [(one.iteration, one.score) for one in loop.evaluations] == [(1, 0.3), (2, 0.3)]
    assert [one.text for one in loop.proposals] == ["bob is brief"]
    assert report.open_points == (OpenPoint(kind="claim", agent="judge", text="bob is missing"),)
    assert [(part.agent, part.number) for part in report.parts] == [("ann", 1), ("bob", 1), ("ann", 2), ("bob", 2)]


def test_a_loop_that_was_cut_short_differs_from_one_that_goes_on() -> None:
    ends = []
    out_of_budget = RunEnded(outcome="failed", failure=Failure(kind="budget", agent="lead", message="used up"))
    for last in (None, RunPaused(), RunEnded(outcome="cancelled"), out_of_budget):
        run = TimelineBuilder("reflect", "ann")
        if last is not None:
            run.add(last)
        [loop] = run.report().reflections
        ends.append(loop.end)

    assert ends == [None, "paused", "cancelled", "budget_exhausted"]


def test_the_last_work_that_was_judged_is_the_draft_of_a_loop_without_an_answer() -> None:
    run = TimelineBuilder("reflect", "ann")
    run.add(TeamPlanned(assignments=(PlannedAssignment(worker="ann", task="look"),), iteration=1), "lead")
    run.add(TurnEnded(outcome="succeeded", text="half of it"), "lead")
    run.add(Evaluated(iteration=1, score=0.4), "lead")
    run.add(TurnEnded(outcome="succeeded", text="nothing is missing"), "lead")
    run.add(TeamPlanned(assignments=(), iteration=2), "lead")
    run.add(Evaluated(iteration=2, score=0.3), "lead")
    run.add(RunEnded(outcome="cancelled"))

    assert run.report().draft == "half of it"


def test_a_discussion_reports_its_rounds_votes_and_end() -> None:
    run = TimelineBuilder("discuss", "ann", "bob")
    run.begin("lead/member:ann#1")
    run.add(Voted(author="ann", round=1, ready=False), "lead/member:ann#1")
    run.add(Broadcast(author="ann", round=1, text="hello"), "lead/member:ann#1")
    run.end("lead/member:ann#1", "hello")
    run.add(RoundEnded(round=1), "lead")
    run.add(Broadcast(author="lead", round=1, text="go on"), "lead")
    run.begin("lead/member:ann#2")
    run.add(Voted(author="ann", round=2, ready=True, reason="all said"), "lead/member:ann#2")
    run.add(RoundEnded(round=2), "lead")
    run.add(DiscussionEnded(by="consensus", rounds=2), "lead")

    report = run.report()
    [talk] = report.discussions

    assert (talk.lead, talk.operation, talk.end, talk.rounds) == ("lead", "lead", "consensus", 2)
    assert talk.votes == (Voted(author="ann", round=2, ready=True, reason="all said"),)
    assert [one.text for one in talk.said] == ["hello", "go on"]
    assert [(part.agent, part.number) for part in report.parts] == [("ann", 1), ("ann", 2), ("bob", 0)]


def test_open_points_are_unanswered_requests_and_undelivered_messages() -> None:
    run = TimelineBuilder()
    action = Action(run="3f2a", agent="lead", tool="bash", arguments={"command": "make"})
    run.add(PermissionAsked(id="p1", action=action, reason="no rule allows it"), "lead")
    run.add(PermissionAsked(id="p2", action=action, reason="no rule allows it"), "lead")
    run.add(PermissionAnswered(id="p2", decision="once"))
    run.add(QuestionAsked(id="q1", text="Which one?"), "lead")
    run.add(MessageReceived(id="m1", to="lead", text="heard"))
    run.add(MessagesDelivered(ids=("m1",)), "lead")
    run.add(MessageReceived(id="m2", to="lead", text="too late"))
    run.add(RunEnded(outcome="cancelled"))

    assert run.report().open_points == (
        OpenPoint(kind="request", id="p1", agent="lead", text='bash {"command":"make"}: no rule allows it'),
        OpenPoint(kind="question", id="q1", agent="lead", text="Which one?"),
        OpenPoint(kind="message", id="m2", agent="lead", text="too late"),
    )


def test_changed_files_are_listed_with_the_agents_that_changed_them() -> None:
    run = TimelineBuilder("broadcast", "ann", "bob")
    for agent in ("bob", "ann", "bob"):
        action = Action(run="3f2a", agent=agent, tool="write_file", outputs={"src/x.py": "hash"})
        run.add(ActionBegan(action=action, allowed_by="you"), f"lead/member:{agent}#1")

    [file] = run.report().changed_files

    assert (file.path, file.agents) == ("src/x.py", ("bob", "ann"))


def test_the_budget_is_the_one_that_holds_now() -> None:
    run = TimelineBuilder()
    run.add(BudgetChanged(budget=Budget(usd=5.0)))
    run.add(BudgetChanged(budget=Budget(tokens=9)))

    assert run.report().budget == Budget(usd=5.0, tokens=9)


def test_a_report_can_be_made_after_any_entry() -> None:
    run = TimelineBuilder("reflect", "ann")
    run.add(TeamPlanned(assignments=(), iteration=1), "lead")
    run.begin("lead/member:ann#1")
    run.end("lead/member:ann#1", "done")
    run.add(Evaluated(iteration=1, score=1.0, is_complete=True), "lead")
    run.end("lead", "Shipped.")
    run.add(RunEnded(outcome="succeeded"))

    reports = [Report.from_entries(run.entries[:last]) for last in range(1, len(run.entries) + 1)]

    assert [report.answer for report in reports] == [*[None] * 6, "Shipped.", "Shipped."]
