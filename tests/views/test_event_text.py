"""Every kind of event has a sentence, and it contains what matters about the event."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from msgspec import structs

from podium.values.action import Action, RiskFact
from podium.values.agent import Budget
from podium.values.errors import Failure
from podium.values.event import (
    ActionBegan,
    ActionRefused,
    AdjustmentProposed,
    Advised,
    AgentSessionOpened,
    AlsoCommitted,
    AlsoPlaced,
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
    ToolUse,
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
    decode_entry,
)
from podium.values.plan import Criterion, Finding, PlanStep, UndoneStep, WorkPlan
from podium.values.request import Attachment, Part, Request
from podium.views.event_text import STREAMED, describe_entry, is_detail, name_subject

WHY = Failure(kind="timed_out", agent="law", message="timed out")

PLAN = WorkPlan(
    goal="g", steps=(PlanStep(id="s1", owner="a", description="do it", acceptance=(Criterion(text="ok"),)),)
)
FINDINGS = (Finding(criterion="x", is_met=True), Finding(criterion="y", is_met=False))

SENTENCES: list[tuple[Event, str]] = [
    (RunStarted(agent="lead", request=Request(text="do\nit")), 'started; request to lead: "do it"'),
    (
        RunStarted(agent="lead", request=Request(text="do it"), by="ada", channel="command"),
        'started by ada (command); request to lead: "do it"',
    ),
    (
        RunStarted(agent="lead", request=Request(text="do it"), forked_from="3f@2", by="ada", channel="page"),
        'forked from run 3f@2 by ada (page); request to lead: "do it"',
    ),
    (RunResumed(host="vm", pid=7), "resumed by process 7 on vm"),
    (
        RunResumed(host="vm", pid=7, by="ada", channel="api"),
        "resumed by process 7 on vm; requested by ada (api)",
    ),
    (RunPaused(), "paused"),
    (RunPaused(until=7_801.0), "waiting for a limit until 1970-01-01 02:10 UTC"),
    (RunEnded(outcome="succeeded"), "succeeded"),
    (RunEnded(outcome="timed_out", failure=WHY), "timed_out: law: timed out"),
    (StopAsked(by="me"), "stop requested by me"),
    (StopAsked(by="ada", channel="page"), "stop requested by ada (page)"),
    (PauseAsked(by="ada", channel="api"), "pause requested by ada (api); current steps finish first"),
    (PauseAsked(), "pause requested; current steps finish first"),
    (
        BudgetChanged(budget=Budget(usd=5.0, tokens=300_000), by="me"),
        "budget changed by me to usd=5,tokens=300000",
    ),
    (MessageReceived(id="1", to="law", text="hi"), 'message for law: "hi"'),
    (
        MessageReceived(id="1", to="law", text="hi", by="tax", channel="agent"),
        'message for law by tax (agent): "hi"',
    ),
    (
        MessageReceived(
            id="1", to="law", text="hi", attachments=(Attachment(name="a.png", media="image/png", digest="0", size=9),)
        ),
        'message for law: "hi", with a.png',
    ),
    (MessagesDelivered(ids=("1",)), "received 1 message"),
    (OperationStarted(agent="law", trigger="advice", request=Request(text="x")), "started (advice for lead)"),
    (OperationStarted(agent="law", trigger="request", request=Request(text="x")), "started"),
    (OperationEnded(outcome="succeeded", text="x"), "succeeded"),
    (OperationEnded(outcome="succeeded", unproved="its check failed"), "succeeded, unproved: its check failed"),
    (OperationEnded(outcome="timed_out", failure=WHY), "timed_out: timed out"),
    (TurnStarted(agent="law", engine="rehearsal", prompt="x"), "calling rehearsal"),
    (TurnResumed(), "resuming its turn, which the previous process did not finish"),
    (TurnEnded(outcome="succeeded", text="\x1b[31myes"), 'says "\x1b[31myes"'),
    (TurnEnded(outcome="succeeded"), "turn ended without text"),
    (TurnEnded(outcome="timed_out", failure=WHY), "turn failed: timed out"),
    (
        AgentSessionOpened(agent="lead", engine="goose", session="s1", version="1.52.0"),
        "opened a session with goose 1.52.0",
    ),
    (
        SessionRevived(agent="law", reason="it replied with nothing"),
        "asked again in a new engine session: it replied with nothing",
    ),
    (TextSuperseded(), "discards its text; the model is called again"),
    (ModelReplied(model="m"), "model call completed"),
    (ModelReplied(model="m", text="a\nb"), 'model call completed: "a b"'),
    (ModelReplied(model="m", calls=(ToolUse(id="1", name="read"),)), "model call completed with 1 tool call"),
    (ModelReplied(model="m", text="and", stop="length"), "reply cut off at the token limit"),
    (ModelReplied(model="m", stop="endless"), "reply stopped, because it did not end"),
    (ModelReplied(model="m", stop="repetition"), "reply stopped, because it repeated itself"),
    (ModelAskedAgain(reason="it was cut off", prompt="Go on."), "asked again: it was cut off"),
    (CallFailed(model="m", message="429", wait=1.5), "model call failed: 429; retrying in 1.5 s"),
    (CallFailed(model="m", message="400"), "model call failed: 400"),
    (CallCut(model="m"), "model call cancelled"),
    (
        ToolCalled(id="1", action=Action(run="r", agent="law", tool="read", arguments={"a": 1})),
        'uses read {"a": 1}',
    ),
    (ToolAnswered(id="1", text="no\nfile", is_error=True), "tool error: no file"),
    (ToolAnswered(id="1", text="fine"), "tool answered: fine"),
    (
        PermissionAsked(
            id="5f0c", action=Action(run="r", agent="law", tool="bash", arguments={"command": "ls"}), reason="no rule"
        ),
        'asks for permission (5f0c): bash {"command": "ls"}; no rule',
    ),
    (
        PermissionAsked(
            id="5f0c",
            action=Action(run="r", agent="law", tool="bash", arguments={"command": "rm a"}),
            reason="no rule",
            risks=(RiskFact(kind="deletes", examples=("a",)), RiskFact(kind="network", examples=("b",))),
            agent_reason='It is "old"',
        ),
        'asks for permission (5f0c): bash {"command": "rm a"}; no rule; '
        'risk: deletes or discards: a; uses the network: b; agent\'s words: "It is \\"old\\""',
    ),
    (PermissionAnswered(id="5f0c", decision="once", by="me"), "request 5f0c: allowed (once) by me"),
    (
        PermissionAnswered(id="5f0c", decision="run", by="ada", channel="terminal"),
        "request 5f0c: allowed (run) by ada (terminal)",
    ),
    (PermissionAnswered(id="5f0c", decision="deny", channel="api"), "request 5f0c: denied by api"),
    (PermissionAnswered(id="5f0c", decision="once", comment="fine"), "request 5f0c: allowed (once): fine"),
    (
        QuestionAnswered(id="6a", text="this", by="ada", channel="command"),
        'question 6a: answered by ada (command): "this"',
    ),
    (PermissionAnswered(id="5f0c", decision="deny", comment="no\nway"), "request 5f0c: denied: no way"),
    (QuestionAsked(id="6a", text="Which?"), 'asks you (6a): "Which?"'),
    (QuestionAnswered(id="6a", text="this", by="me"), 'question 6a: answered by me: "this"'),
    (ActionBegan(action=Action(run="r", agent="law", tool="bash"), allowed_by="me"), "bash starts; allowed by me"),
    (ActionRefused(action=Action(run="r", agent="law", tool="bash"), reason="no"), "bash refused: no"),
    (StatusReported(text="half way"), "reports: half way"),
    (MessageSent(id="m1", to="tax", text="hi", run="r2"), 'sends to tax: "hi"'),
    (MessageAcknowledged(id="m1", to="tax"), "message m1 was delivered to tax"),
    (MessageAcknowledged(id="m1", to="tax", is_delivered=False), "message m1 was not delivered to tax"),
    (CheckoutSaved(commit="0123", moment="before"), "files saved before the first change"),
    (CheckoutSaved(commit="0123", moment="after"), "files saved at the end"),
    (MemoryChanged(agent="law", path="m.md", diff="-a\n+b"), "changed its memory m.md: -a +b"),
    (ContextCompacted(summary="s", replaced=2), "summarised the first 2 messages of its conversation"),
    (Advised(heard=("a",), unavailable=(Part(agent="b", outcome="failed"),)), "advised by a; unavailable: b"),
    (Advised(), "advised by nobody"),
    (ChangesExpected(commit="0123"), "must change files"),
    (RouteRefused(chosen="x", destinations=("a", "b")), "chose x; the valid destinations are a, b"),
    (Routed(agent="a", reason="it fits"), 'chooses a: "it fits"'),
    (Routed(agent="a", is_fallback=True), "falls back to a"),
    (HandedOff(sender="law", receiver="a"), "hands off to a"),
    (StepEnded(name="fetch", result=[1]), "step fetch done"),
    (
        HookRan(event="before_tool", hook="guard.sh", outcome="denied", reason="no"),
        "hook before_tool denied: no (guard.sh)",
    ),
    (
        HookRan(event="before_tool", hook="guard.sh", outcome="passed", context="take care"),
        'hook before_tool passed; it adds "take care" (guard.sh)',
    ),
    (
        TeamPlanned(assignments=(PlannedAssignment(worker="a", task="t"),), skipped=("b: unknown",)),
        "plans iteration 1 for a; skipped: b: unknown",
    ),
    (
        Evaluated(iteration=2, score=0.5, by="judge", held_back="no contribution yet from a"),
        "iteration 2 scored 0.5 by judge (stable): no contribution yet from a",
    ),
    (Checked(commands=("make test",), passed=False), 'checks failed: "make test"'),
    (AdjustmentProposed(iteration=1, text="another model"), "proposes: another model"),
    (
        AdjustmentProposed(iteration=1, text="a failed", member="a", model="m", is_applied=True),
        "applies: a failed (a: m)",
    ),
    (
        MemberChanged(member="a", model="m", by="x", channel="page"),
        "changed by x (page): a uses model m starting with its next operation",
    ),
    (IterationFailed(iteration=1, message="no"), "iteration 1 failed: no"),
    (ReflectEnded(end="goal_met", iterations=1), "ends after 1 iteration: goal met"),
    (
        ReflectEnded(end="stalled", iterations=2, best=1),
        "ends after 2 iterations: stalled; iteration 1 was the best and is the result",
    ),
    (CandidateChosen(winner="a", by="judge", reason="tidy"), 'a was chosen by judge: "tidy"'),
    (
        WorkRestored(commit="0123456789abcdef", iteration=2),
        "the checkout now contains the files of iteration 2 from commit 0123456789ab",
    ),
    (WorkRestored(commit="0123456789abcdef", branch="b"), "the chosen work was merged into b at 0123456789ab"),
    (Broadcast(author="a", round=1, text="hi"), 'a says in round 1: "hi"'),
    (Voted(author="a", round=1, ready=True, reason="all said"), 'a is ready to conclude: "all said"'),
    (RoundEnded(round=1, missing=("b",)), "round 1 ended; missing: b"),
    (DiscussionEnded(by="consensus", rounds=1), "the discussion ended after 1 round: consensus"),
    (DiscussionEnded(by="max_rounds", rounds=3), "the discussion ended after 3 rounds: max rounds"),
    (
        WorkerPlaced(path="../shop-worker-x", branch="x", base="0123456789abcdef"),
        "works on x in ../shop-worker-x, from 0123456789ab",
    ),
    (WorkCommitted(branch="x", commit="0123456789abcdef"), "nothing changed on x"),
    (
        WorkPushed(commit="0123456789abcdef", head="f", ref="refs/podium/runs/r/2", through=4),
        "pushed 0123456789ab to refs/podium/runs/r/2",
    ),
    (PushFailed(reason="no route"), "not pushed: no route; the next step will try again"),
    (
        WorkMoved(host="server", path="/w", commit="0123456789abcdef"),
        "continues on server in /w, with the files from 0123456789ab",
    ),
    (
        WorkMoved(host="server", path="/w", unpushed=("bash make",)),
        "continues on server in /w, from the start, because nothing was pushed; not pushed: bash make",
    ),
    (
        WorkerPlaced(
            path="/w", branch="x", base="0123", also=(AlsoPlaced(root="/r", path="/v", base="0123456789abcdef"),)
        ),
        "works on x in /w, from 0123; also in /v, from 0123456789ab",
    ),
    (
        WorkCommitted(
            branch="x", commit="0123", files=("a",), added=1, also=(AlsoCommitted(root="/r", commit="45", removed=3),)
        ),
        "1 file changed on x at 0123 (+1 -0); 0 files in /r at 45 (+0 -3)",
    ),
    (
        WorkCommitted(branch="x", commit="0123456789abcdef", files=("a.py",), added=2, removed=1),
        "1 file changed on x at 0123456789ab (+2 -1)",
    ),
    (WorkerSent(run="r2", branch="x"), "starts a worker (run r2) on x"),
    (WorkerReturned(run="r2", outcome="failed", error="no"), "worker run r2 failed: no"),
    (
        DecisionProposed(id="d1", topic="Which drink?", options=("tea", "coffee")),
        'proposes a decision (d1): "Which drink?" tea | coffee',
    ),
    (BallotCast(decision="d1", voter="a", option="tea", reason="cheap"), 'a votes for tea: "cheap"'),
    (BallotCast(decision="d1", voter="a"), "a abstains"),
    (Voted(author="a", round=1, ready=False), "a is not ready to conclude"),
    (
        BallotRefused(decision="d1", voter="z", option="tea", reason="the vote is closed"),
        "the ballot from z was refused: the vote is closed",
    ),
    (VoteClosed(decision="d1", why="complete"), "the vote on d1 is closed: complete"),
    (
        DecisionCommitted(decision="d1", option="tea", how="decided by lead (tie)", by="lead"),
        "decided (d1): tea; decided by lead (tie)",
    ),
    (Noticed(text="be careful"), "notice: be careful"),
    (
        TeamFormed(goal="g", members=(FormedMember(name="a", role="coder"), FormedMember(name="b")), missing=("c",)),
        "team formed: a (coder), b; no member for: c",
    ),
    (WorkStateChanged(state="team_formed"), "work: team formed"),
    (PlanDrafted(version=2, plan=PLAN, by="pia"), "plan 2 drafted by pia: 1 step"),
    (PlanRefused(by="pia", problems=("no steps", "no owner")), "plan by pia refused: no steps; no owner"),
    (PlanReviewed(version=1, reviewer="a", verdict="accept"), "a accepts the plan"),
    (
        PlanReviewed(version=1, reviewer="a", verdict="change", reason="too big"),
        'a asks for changes to the plan: "too big"',
    ),
    (
        PlanCommitted(version=1, plan=PLAN, by="lead", objections=("a: too big",)),
        "plan 1 committed by lead: s1 (a); objections: a: too big",
    ),
    (PlanStepStarted(step="s1", owner="a", attempt=2), "step s1 started by a, attempt 2"),
    (HandoverAsked(to="b", reason="tired"), 'wants to hand the step over to b: "tired"'),
    (
        PlanStepHandedOver(step="s1", sender="a", receiver="b", reason="tired"),
        'step s1 handed over from a to b: "tired"',
    ),
    (
        PlanStepHandedOver(step="s1", sender="a", receiver="z", reason="tired", refused="z is not a member"),
        "handover of step s1 to z refused: z is not a member",
    ),
    (BlockerRaised(topic="which one?", options=("x", "y")), 'needs a decision: "which one?"'),
    (PlanStepBlocked(step="s1", reason="which one?", decision="d1"), 'step s1 blocked: "which one?"'),
    (PlanStepUnblocked(step="s1", decision="d1"), "step s1 continues"),
    (PlanStepSubmitted(step="s1", author="a", branch="x"), "step s1 submitted by a on x"),
    (
        PlanStepReviewed(step="s1", reviewer="b", attempt=1, passed=False, findings=FINDINGS),
        "step s1 not accepted by b: 1 of 2 criteria met",
    ),
    (
        PlanStepReopened(step="s1", attempt=1, reason="no tests", locked_out="a"),
        'step s1 reopened: "no tests"; a is locked out',
    ),
    (PlanStepCompleted(step="s1", owner="a"), "step s1 done"),
    (
        LimitReached(agent="law", model="m", provider="openai", until=7_801.0),
        "waiting for the limit of openai:m until 1970-01-01 02:10 UTC (2 h 10 min)",
    ),
    (
        RunPaused(until=7_801.0, reason="the limit of openai:m"),
        "waiting for the limit of openai:m until 1970-01-01 02:10 UTC",
    ),
    (PlanStepFailed(step="s1", reason="too hard"), 'step s1 failed: "too hard"'),
    (
        ArtifactStored(kind="diff", name="s1.diff", digest="ab", size=1234),
        "diff stored: s1.diff (1,234 bytes)",
    ),
    (SnapshotTaken(name="plan"), "snapshot plan taken"),
    (
        WorkEnded(done=("s1",), undone=(UndoneStep(step="s2", reason="r"),), branch="x"),
        "work ended: 1 step done; not done: s2; result on x",
    ),
]

STREAMED_PIECES: list[Event] = [TextStreamed(text="x"), ReasoningStreamed(text="x")]

SAMPLES = Path(__file__).parents[1] / "samples"


def make_entry(event: Event, operation: str = "lead/advice:law#1") -> Entry:
    return Entry(run="3f2a", seq=4, at=1.0, scope=operation, operation=operation, event=event)


@pytest.mark.parametrize(("event", "sentence"), SENTENCES)
def test_an_event_is_told_in_one_sentence(event: Event, sentence: str) -> None:
    assert describe_entry(make_entry(event)) == sentence


def test_every_kind_of_event_has_a_sentence_or_is_a_piece_of_streamed_text() -> None:
    told, pieces = {type(event) for event, _ in SENTENCES}, set(map(type, STREAMED_PIECES))

    assert told | pieces == set(get_args(Event))
    assert pieces == set(STREAMED)
    assert [describe_entry(make_entry(event)) for event in STREAMED_PIECES] == [None, None]


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("timeline-*.jsonl")), ids=lambda path: path.stem)
def test_every_entry_of_the_earlier_versions_has_a_sentence(sample: Path) -> None:
    entries = [decode_entry(line) for line in sample.read_bytes().splitlines()]

    sentences = [describe_entry(entry) for entry in entries if not isinstance(entry.event, STREAMED)]

    assert entries
    assert all(sentence and sentence == " ".join(sentence.split()) for sentence in sentences)


@pytest.mark.parametrize(
    "event",
    [
        RunStarted(agent="lead", request=Request(text="do it"), by="ada", channel="command"),
        RunResumed(host="vm", pid=7, by="ada", channel="api"),
    ],
)
def test_the_user_who_started_a_run_is_not_named_to_themselves(event: Event) -> None:
    assert "ada" not in (describe_entry(make_entry(event), user="ada") or "")
    assert "ada" in (describe_entry(make_entry(event), user="eve") or "")


@pytest.mark.parametrize(
    ("event", "operation", "subject"),
    [
        (RunPaused(), "", "run 3f2a"),
        (StopAsked(), "lead", "run 3f2a"),
        (TurnResumed(), "lead/advice:law#1", "law"),
        (CheckoutSaved(commit="0123", moment="before"), "", "run 3f2a"),
        (Noticed(text="be careful"), "", ""),
        (PermissionAnswered(id="5f0c", decision="once"), "", ""),
    ],
)
def test_the_subject_of_a_sentence_is_an_agent_or_the_run(event: Event, operation: str, subject: str) -> None:
    assert name_subject(make_entry(event, operation)) == subject


def test_what_another_entry_tells_and_what_is_routine_is_a_detail() -> None:
    details = {type(event) for event in (*(event for event, _ in SENTENCES), *STREAMED_PIECES) if is_detail(event)}
    notable = {type(event) for event, _ in SENTENCES if not is_detail(event)}

    assert details - notable == {
        *STREAMED,
        *(ActionBegan, CallCut, ChangesExpected, CheckoutSaved, StepEnded, TextSuperseded),
    }
    assert details & notable == {ModelReplied, ToolAnswered, TurnEnded}


def test_a_text_is_quoted_only_with_its_start() -> None:
    said = describe_entry(make_entry(TurnEnded(outcome="succeeded", text="word " * 100_000)))
    long = Action(run="r", agent="law", tool="write", arguments={"text": "x" * 1_000_000})
    called = describe_entry(make_entry(ToolCalled(id="1", action=long)))

    assert said == f'says "{("word " * 15)[:71].rstrip()}…"'
    assert called == f'uses write {{"text": "{"x" * 61}…'


def test_what_many_spaces_move_out_of_sight_is_marked_as_left_out() -> None:
    hidden = Action(run="r", agent="law", tool="bash", arguments={"command": " " * 5_000 + "rm -rf ~"})

    assert describe_entry(make_entry(ToolCalled(id="1", action=hidden))) == 'uses bash {"command": "…'
    assert describe_entry(make_entry(QuestionAsked(id="6a", text=" " * 5_000 + "Do it?"))) == 'asks you (6a): "…"'


def test_a_time_that_no_calendar_has_does_not_break_a_sentence() -> None:
    waiting = RunPaused(until=1e300, reason="the limit of m")
    limited = make_entry(LimitReached(agent="law", provider="p", model="m", until=1e308))
    end = "until 9999-12-31 23:59 UTC"

    assert describe_entry(make_entry(waiting)) == f"waiting for the limit of m {end}"
    assert describe_entry(structs.replace(limited, at=-1e308)) == f"waiting for the limit of p:m {end} (9999 d 0 h)"
