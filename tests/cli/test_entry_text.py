from __future__ import annotations

import json
from typing import get_args

import pytest

from podium.cli.terminal.entry_text import format_entry, format_entry_json
from podium.values.action import Action
from podium.values.agent import Budget
from podium.values.attachment import Attachment
from podium.values.errors import Failure
from podium.values.event import (
    ActionBegan,
    ActionRefused,
    AdjustmentProposed,
    Advised,
    AgentSessionOpened,
    ArtifactStored,
    BallotCast,
    BallotRefused,
    BlockerRaised,
    Broadcast,
    BudgetChanged,
    CallCut,
    CallFailed,
    CandidateChosen,
    ChangesExpected,
    Checked,
    CheckoutSaved,
    ContextCompacted,
    DecisionCommitted,
    DecisionProposed,
    DiscussionEnded,
    Entry,
    Evaluated,
    Event,
    FormedMember,
    HandedOff,
    HandoverAsked,
    HookRan,
    IterationFailed,
    LimitReached,
    MemberChanged,
    MemoryChanged,
    MessageAcknowledged,
    MessageReceived,
    MessagesDelivered,
    MessageSent,
    ModelAskedAgain,
    ModelReplied,
    Noticed,
    OperationEnded,
    OperationStarted,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    PlanCommitted,
    PlanDrafted,
    PlannedAssignment,
    PlanRefused,
    PlanReviewed,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepHandedOver,
    PlanStepReopened,
    PlanStepReviewed,
    PlanStepStarted,
    PlanStepSubmitted,
    PlanStepUnblocked,
    PushFailed,
    QuestionAnswered,
    QuestionAsked,
    ReasoningStreamed,
    ReflectEnded,
    RoundEnded,
    Routed,
    RouteRefused,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionRevived,
    SnapshotTaken,
    StatusReported,
    StepEnded,
    StopAsked,
    TeamFormed,
    TeamPlanned,
    TextStreamed,
    TextSuperseded,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    VoteClosed,
    Voted,
    WorkCommitted,
    WorkEnded,
    WorkerPlaced,
    WorkerReturned,
    WorkerSent,
    WorkMoved,
    WorkPushed,
    WorkRestored,
    WorkStateChanged,
    event_kind,
)
from podium.values.operation_path import parse_agent_name
from podium.values.plan import Criterion, Finding, PlanStep, UndoneStep, WorkPlan
from podium.values.request import Part, Request
from podium.values.risk_fact import RiskFact

WHY = Failure(kind="timed_out", agent="law", message="timed out")

PLAN = WorkPlan(
    goal="g", steps=(PlanStep(id="s1", owner="a", description="do it", acceptance=(Criterion(text="ok"),)),)
)
FINDINGS = (Finding(criterion="x", is_met=True), Finding(criterion="y", is_met=False))

LINES: list[tuple[Event, str | None]] = [
    (RunStarted(agent="lead", request=Request(text="do\nit")), 'run 3f2a: started; request to lead: "do it"'),
    (RunResumed(host="vm", pid=7), "run 3f2a: resumed by process 7 on vm"),
    (RunPaused(), "run 3f2a: paused"),
    (RunEnded(outcome="succeeded"), "run 3f2a: succeeded"),
    (RunEnded(outcome="timed_out", failure=WHY), "run 3f2a: timed_out: law: timed out"),
    (StopAsked(by="me"), "run 3f2a: stop requested by me"),
    (PauseAsked(), "run 3f2a: pause requested; current steps finish first"),
    (
        BudgetChanged(budget=Budget(usd=5.0, tokens=300_000), by="me"),
        "run 3f2a: budget changed by me to usd=5,tokens=300000",
    ),
    (MessageReceived(id="1", to="law", text="hi"), 'message for law: "hi"'),
    (
        MessageReceived(
            id="1", to="law", text="hi", attachments=(Attachment(name="a.png", media="image/png", digest="0", size=9),)
        ),
        'message for law: "hi", with a.png',
    ),
    (MessagesDelivered(ids=("1",)), "law: received 1 message"),
    (OperationStarted(agent="law", trigger="advice", request=Request(text="x")), "law: started (advice for lead)"),
    (OperationStarted(agent="law", trigger="request", request=Request(text="x")), "law: started"),
    (OperationEnded(outcome="succeeded", text="x"), "law: succeeded"),
    (OperationEnded(outcome="timed_out", failure=WHY), "law: timed_out: timed out"),
    (TurnStarted(agent="law", engine="rehearsal", prompt="x"), "law: calling rehearsal"),
    (TurnResumed(), "law: resuming its turn, which the previous process did not finish"),
    (TurnEnded(outcome="succeeded", text="\x1b[31myes"), 'law: says "\\x1b[31myes"'),
    (TurnEnded(outcome="succeeded"), "law: turn ended without text"),
    (TurnEnded(outcome="failed", failure=WHY), None),
    (
        AgentSessionOpened(agent="lead", engine="goose", session="s1", version="1.52.0"),
        "law: opened a session with goose 1.52.0",
    ),
    (
        SessionRevived(agent="law", reason="it replied with nothing"),
        "law: asked again in a new engine session: it replied with nothing",
    ),
    (TextStreamed(text="x"), None),
    (ReasoningStreamed(text="x"), None),
    (TextSuperseded(), None),
    (ModelReplied(model="m"), None),
    (ModelReplied(model="m", stop="repetition"), "law: reply stopped, because it repeated itself"),
    (ModelAskedAgain(reason="it was cut off", prompt="Go on."), "law: asked again: it was cut off"),
    (CallFailed(model="m", message="429", wait=1.5), "law: model call failed: 429; retrying in 1.5 s"),
    (CallFailed(model="m", message="400"), "law: model call failed: 400"),
    (CallCut(model="m"), None),
    (
        ToolCalled(id="1", action=Action(run="r", agent="law", tool="read", arguments={"a": 1})),
        'law: uses read {"a": 1}',
    ),
    (ToolAnswered(id="1", text="no\nfile", is_error=True), "law: tool error: no file"),
    (ToolAnswered(id="1", text="fine"), None),
    (
        PermissionAsked(
            id="5f0c", action=Action(run="r", agent="law", tool="bash", arguments={"command": "ls"}), reason="no rule"
        ),
        'law: asks for permission (5f0c): bash {"command": "ls"}; no rule',
    ),
    (
        PermissionAsked(
            id="5f0c",
            action=Action(run="r", agent="law", tool="bash", arguments={"command": "rm a"}),
            reason="no rule",
            risks=(RiskFact(kind="deletes", examples=("a",)), RiskFact(kind="network", examples=("b",))),
            agent_reason='It is "old"',
        ),
        'law: asks for permission (5f0c): bash {"command": "rm a"}; no rule; '
        'risk: deletes or discards: a; uses the network: b; agent\'s words: "It is \\"old\\""',
    ),
    (PermissionAnswered(id="5f0c", decision="once", by="me"), "request 5f0c: allowed (once) by me"),
    (
        PermissionAnswered(id="5f0c", decision="run", by="ada", channel="terminal"),
        "request 5f0c: allowed (run) by ada (terminal)",
    ),
    (PermissionAnswered(id="5f0c", decision="deny", channel="api"), "request 5f0c: denied by api"),
    (
        QuestionAnswered(id="6a", text="this", by="ada", channel="command"),
        'question 6a: answered by ada (command): "this"',
    ),
    (PermissionAnswered(id="5f0c", decision="deny", comment="no\nway"), "request 5f0c: denied: no way"),
    (QuestionAsked(id="6a", text="Which?"), 'law: asks you (6a): "Which?"'),
    (QuestionAnswered(id="6a", text="this", by="me"), 'question 6a: answered by me: "this"'),
    (ActionBegan(action=Action(run="r", agent="law", tool="bash"), allowed_by="me"), None),
    (ActionRefused(action=Action(run="r", agent="law", tool="bash"), reason="no"), None),
    (StatusReported(text="half way"), "law: reports: half way"),
    (MessageSent(id="m1", to="tax", text="hi", run="r2"), 'law: sends to tax: "hi"'),
    (MessageAcknowledged(id="m1", to="tax"), "message m1 was delivered to tax"),
    (MessageAcknowledged(id="m1", to="tax", is_delivered=False), "message m1 was not delivered to tax"),
    (CheckoutSaved(commit="0123", moment="before"), None),
    (MemoryChanged(agent="law", path="m.md", diff="-a\n+b"), "law: changed its memory m.md: -a +b"),
    (ContextCompacted(summary="s", replaced=2), "law: summarised the first 2 messages of its conversation"),
    (Advised(heard=("a",), unavailable=(Part(agent="b", outcome="failed"),)), "law: advised by a; unavailable: b"),
    (Advised(), "law: advised by nobody"),
    (ChangesExpected(commit="0123"), None),
    (RouteRefused(chosen="x", destinations=("a", "b")), "law: chose x; the valid destinations are a, b"),
    (Routed(agent="a", reason="it fits"), 'law: chooses a: "it fits"'),
    (Routed(agent="a", is_fallback=True), 'law: falls back to a: ""'),
    (HandedOff(sender="law", receiver="a"), "law: hands off to a"),
    (StepEnded(name="fetch", result=[1]), None),
    (
        HookRan(event="before_tool", hook="guard.sh", outcome="denied", reason="no"),
        "law: hook before_tool denied: no (guard.sh)",
    ),
    (
        TeamPlanned(assignments=(PlannedAssignment(worker="a", task="t"),), skipped=("b: unknown",)),
        "law: plans iteration 1 for a; skipped: b: unknown",
    ),
    (
        Evaluated(iteration=2, score=0.5, by="judge", held_back="no contribution yet from a"),
        "law: iteration 2 scored 0.5 by judge (stable): no contribution yet from a",
    ),
    (Checked(commands=("make test",), passed=False), 'law: checks failed: "make test"'),
    (AdjustmentProposed(iteration=1, text="another model"), "law: proposes: another model"),
    (
        AdjustmentProposed(iteration=1, text="a failed", member="a", model="m", is_applied=True),
        "law: applies: a failed (a: m)",
    ),
    (
        MemberChanged(member="a", model="m", by="x"),
        "law: changed by x: a uses model m starting with its next operation",
    ),
    (IterationFailed(iteration=1, message="no"), "law: iteration 1 failed: no"),
    (ReflectEnded(end="stalled", iterations=2), "law: ends after 2 iterations: stalled"),
    (
        ReflectEnded(end="stalled", iterations=2, best=1),
        "law: ends after 2 iterations: stalled; iteration 1 was the best and is the result",
    ),
    (CandidateChosen(winner="a", by="judge", reason="tidy"), 'law: a was chosen by judge: "tidy"'),
    (
        WorkRestored(commit="0123456789abcdef", iteration=2),
        "law: the checkout now contains the files of iteration 2 from commit 0123456789ab",
    ),
    (WorkRestored(commit="0123456789abcdef", branch="b"), "law: the chosen work was merged into b at 0123456789ab"),
    (Broadcast(author="a", round=1, text="hi"), 'law: a says in round 1: "hi"'),
    (Voted(author="a", round=1, ready=True, reason="all said"), 'law: a is ready to conclude: "all said"'),
    (RoundEnded(round=1, missing=("b",)), "law: round 1 ended; missing: b"),
    (DiscussionEnded(by="consensus", rounds=1), "law: the discussion ended after 1 round: consensus"),
    (
        WorkerPlaced(path="../shop-worker-x", branch="x", base="0123456789abcdef"),
        "law: works on x in ../shop-worker-x, from 0123456789ab",
    ),
    (WorkCommitted(branch="x", commit="0123456789abcdef"), "law: nothing changed on x"),
    (
        WorkPushed(commit="0123456789abcdef", head="f", ref="refs/podium/runs/r/2", through=4),
        "law: pushed 0123456789ab to refs/podium/runs/r/2",
    ),
    (PushFailed(reason="no route"), "law: not pushed: no route; the next step will try again"),
    (
        WorkMoved(host="server", path="/w", commit="0123456789abcdef"),
        "law: continues on server in /w, with the files from 0123456789ab",
    ),
    (
        WorkMoved(host="server", path="/w", unpushed=("bash make",)),
        "law: continues on server in /w, from the start, because nothing was pushed; not pushed: bash make",
    ),
    (
        WorkCommitted(branch="x", commit="0123456789abcdef", files=("a.py",), added=2, removed=1),
        "law: 1 file changed on x at 0123456789ab (+2 -1)",
    ),
    (WorkerSent(run="r2", branch="x"), "law: starts a worker (run r2) on x"),
    (WorkerReturned(run="r2", outcome="failed", error="law: no"), "law: worker run r2 failed: no"),
    (
        DecisionProposed(id="d1", topic="Which drink?", options=("tea", "coffee")),
        'law: proposes a decision (d1): "Which drink?" tea | coffee',
    ),
    (BallotCast(decision="d1", voter="a", option="tea", reason="cheap"), 'law: a votes for tea: "cheap"'),
    (BallotCast(decision="d1", voter="a"), "law: a abstains"),
    (
        BallotRefused(decision="d1", voter="z", option="tea", reason="the vote is closed"),
        "law: the ballot from z was refused: the vote is closed",
    ),
    (VoteClosed(decision="d1", why="complete"), "law: the vote on d1 is closed: complete"),
    (
        DecisionCommitted(decision="d1", option="tea", how="decided by lead (tie)", by="lead"),
        "law: decided (d1): tea; decided by lead (tie)",
    ),
    (Noticed(text="be careful"), "notice: be careful"),
    (
        TeamFormed(goal="g", members=(FormedMember(name="a", role="coder"), FormedMember(name="b")), missing=("c",)),
        "law: team formed: a (coder), b; no member for: c",
    ),
    (WorkStateChanged(state="team_formed"), "law: work: team formed"),
    (PlanDrafted(version=2, plan=PLAN, by="pia"), "law: plan 2 drafted by pia: 1 step"),
    (PlanRefused(by="pia", problems=("no steps", "no owner")), "law: plan by pia refused: no steps; no owner"),
    (PlanReviewed(version=1, reviewer="a", verdict="accept"), "law: a accepts the plan"),
    (
        PlanReviewed(version=1, reviewer="a", verdict="change", reason="too big"),
        'law: a asks for changes to the plan: "too big"',
    ),
    (
        PlanCommitted(version=1, plan=PLAN, by="lead", objections=("a: too big",)),
        "law: plan 1 committed by lead: s1 (a); objections: a: too big",
    ),
    (PlanStepStarted(step="s1", owner="a", attempt=2), "law: step s1 started by a, attempt 2"),
    (HandoverAsked(to="b", reason="tired"), 'law: wants to hand the step over to b: "tired"'),
    (
        PlanStepHandedOver(step="s1", sender="a", receiver="b", reason="tired"),
        'law: step s1 handed over from a to b: "tired"',
    ),
    (
        PlanStepHandedOver(step="s1", sender="a", receiver="z", reason="tired", refused="z is not a member"),
        "law: handover of step s1 to z refused: z is not a member",
    ),
    (BlockerRaised(topic="which one?", options=("x", "y")), 'law: needs a decision: "which one?"'),
    (PlanStepBlocked(step="s1", reason="which one?", decision="d1"), 'law: step s1 blocked: "which one?"'),
    (PlanStepUnblocked(step="s1", decision="d1"), "law: step s1 continues"),
    (PlanStepSubmitted(step="s1", author="a", branch="x"), "law: step s1 submitted by a on x"),
    (
        PlanStepReviewed(step="s1", reviewer="b", attempt=1, passed=False, findings=FINDINGS),
        "law: step s1 not accepted by b: 1 of 2 criteria met",
    ),
    (
        PlanStepReopened(step="s1", attempt=1, reason="no tests", locked_out="a"),
        'law: step s1 reopened: "no tests"; a is locked out',
    ),
    (PlanStepCompleted(step="s1", owner="a"), "law: step s1 done"),
    (
        LimitReached(agent="law", model="m", provider="openai", until=7_801.0),
        "law: waiting for the limit of openai:m until 1970-01-01 02:10 UTC (2 h 10 min)",
    ),
    (
        RunPaused(until=7_801.0, reason="the limit of openai:m"),
        "run 3f2a: waiting for the limit of openai:m until 1970-01-01 02:10 UTC",
    ),
    (PlanStepFailed(step="s1", reason="too hard"), 'law: step s1 failed: "too hard"'),
    (
        ArtifactStored(kind="diff", name="s1.diff", digest="ab", size=1234),
        "law: diff stored: s1.diff (1,234 bytes)",
    ),
    (SnapshotTaken(name="plan"), "law: snapshot plan taken"),
    (
        WorkEnded(done=("s1",), undone=(UndoneStep(step="s2", reason="r"),), branch="x"),
        "law: work ended: 1 step done; not done: s2; result on x",
    ),
]


def make_entry(event: Event) -> Entry:
    return Entry(run="3f2a", seq=4, at=1.0, scope="lead/advice:law#1", operation="lead/advice:law#1", event=event)


@pytest.mark.parametrize(("event", "said"), LINES)
def test_an_event_is_formatted_as_one_line(event: Event, said: str | None) -> None:
    assert format_entry(make_entry(event)) == said


def test_every_kind_of_event_was_thought_of() -> None:
    assert {type(event) for event, _ in LINES} == set(get_args(Event))


@pytest.mark.parametrize("event", [event for event, _ in LINES])
def test_every_entry_is_one_object_with_its_kind_on_top(event: Event) -> None:
    fields = json.loads(format_entry_json(make_entry(event)))

    assert (fields["type"], fields["seq"], fields["schema"]) == (event_kind(event), 4, 1)
    assert fields["operation"] == "lead/advice:law#1"


def test_an_operation_is_named_for_its_agent() -> None:
    assert [
        parse_agent_name("lead"),
        parse_agent_name("lead/advice:law#1"),
        parse_agent_name("a/route:builtin:b#12"),
    ] == [*("lead", "law", "builtin:b")]
