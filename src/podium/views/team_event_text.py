"""Describe the events of teams, plans, decisions and workers. views/event_text.py describes all others."""

from __future__ import annotations

from ..values.actor import format_actor
from ..values.event import (
    AdjustmentProposed,
    ArtifactStored,
    BallotCast,
    BallotRefused,
    BlockerRaised,
    Broadcast,
    CandidateChosen,
    Checked,
    DecisionCommitted,
    DecisionProposed,
    DiscussionEnded,
    Evaluated,
    Event,
    HandoverAsked,
    IterationFailed,
    MemberChanged,
    PlanCommitted,
    PlanDrafted,
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
    ReflectEnded,
    RoundEnded,
    SnapshotTaken,
    TeamFormed,
    TeamPlanned,
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
)
from ..values.plain_text import format_count, truncate_line

LONGEST_QUOTE = 72
"""The most columns of a text that is quoted in a sentence."""
READ_CHARACTERS = 3 * LONGEST_QUOTE
"""The most characters of a text that are read for a quote, because a text can have megabytes."""


def describe_team_event(event: Event, agent: str) -> str | None:
    """Describe an event of a team, a plan, a decision or a worker of `agent`. Return None for other events."""
    return (
        _describe_iteration(event)
        or _describe_discussion(event)
        or _describe_worker(event, agent)
        or _describe_plan(event)
        or _describe_plan_step(event)
        or _describe_decision(event)
    )


def quote(text: str) -> str:
    """Return the start of a text in quotation marks."""
    return f'"{shorten(text)}"'


def shorten(text: str) -> str:
    """Return the start of a text on one line, with an ellipsis if it is cut."""
    start = truncate_line(text[:READ_CHARACTERS], LONGEST_QUOTE)
    return start if len(text) <= READ_CHARACTERS or start.endswith("…") else f"{start}…"


def _give_reason(reason: str) -> str:
    return f": {quote(reason)}" if reason else ""


def _describe_iteration(event: Event) -> str | None:
    match event:
        case TeamPlanned():
            names = ", ".join(dict.fromkeys(one.worker for one in event.assignments)) or "no workers"
            rest = f"; skipped: {'; '.join(event.skipped)}" if event.skipped else ""
            return f"plans iteration {event.iteration} for {names}{rest}"
        case Evaluated():
            by = f" by {event.by}" if event.by else ""
            verdict = "complete" if event.is_complete else event.held_back or "not complete"
            return f"iteration {event.iteration} scored {event.score:.2g}{by} ({event.trend}): {verdict}"
        case Checked():
            return f"checks {'passed' if event.passed else 'failed'}: {quote(', '.join(event.commands))}"
        case AdjustmentProposed():
            model = f" ({event.member}: {event.model})" if event.model else ""
            return f"{'applies' if event.is_applied else 'proposes'}: {event.text}{model}"
        case MemberChanged():
            what = [f"model {event.model}"] * bool(event.model) + ["a new prompt"] * bool(event.prompt)
            who = format_actor(event.by, event.channel)
            return (
                f"changed{f' by {who}' if who else ''}: {event.member} uses {' and '.join(what)} "
                "starting with its next operation"
            )
        case IterationFailed():
            return f"iteration {event.iteration} failed: {event.message}"
        case ReflectEnded():
            best = f"; iteration {event.best} was the best and is the result" if event.best else ""
            return f"ends after {format_count(event.iterations, 'iteration')}: {event.end.replace('_', ' ')}{best}"
        case CandidateChosen():
            return f"{event.winner} was chosen by {event.by}{_give_reason(event.reason)}"
        case WorkRestored(branch=""):
            which = f" of iteration {event.iteration}" if event.iteration else ""
            return f"the checkout now contains the files{which} from commit {event.commit[:12]}"
        case WorkRestored():
            return f"the chosen work was merged into {event.branch} at {event.commit[:12]}"
    return None


def _describe_discussion(event: Event) -> str | None:
    match event:
        case Broadcast():
            return f"{event.author} says in round {event.round}: {quote(event.text)}"
        case Voted():
            return (
                f"{event.author} is {'ready' if event.ready else 'not ready'} to conclude{_give_reason(event.reason)}"
            )
        case RoundEnded():
            missing = f"; missing: {', '.join(event.missing)}" if event.missing else ""
            return f"round {event.round} ended{missing}"
        case DiscussionEnded():
            why = event.by.replace("_", " ")
            return f"the discussion ended after {format_count(event.rounds, 'round')}: {why}"
    return None


def _describe_worker(event: Event, agent: str) -> str | None:
    match event:
        case WorkerPlaced():
            also = "".join(f"; also in {one.path}, from {one.base[:12]}" for one in event.also)
            return f"works on {event.branch} in {event.path}, from {event.base[:12]}{also}"
        case WorkCommitted(files=(), also=()):
            return f"nothing changed on {event.branch}"
        case WorkCommitted():
            files = format_count(len(event.files), "file")
            text = f"{files} changed on {event.branch} at {event.commit[:12]} (+{event.added} -{event.removed})"
            for one in event.also:
                changed = f"{format_count(len(one.files), 'file')} in {one.root} at {one.commit[:12]}"
                text += f"; {changed} (+{one.added} -{one.removed})"
            return text
        case WorkPushed():
            return f"pushed {event.commit[:12]} to {event.ref}"
        case PushFailed():
            return f"not pushed: {event.reason}; the next step will try again"
        case WorkMoved():
            commit = event.commit[:12]
            start = f"with the files from {commit}" if commit else "from the start, because nothing was pushed"
            lost = f"; not pushed: {', '.join(event.unpushed)}" if event.unpushed else ""
            return f"continues on {event.host} in {event.path}, {start}{lost}"
        case WorkerSent():
            return f"starts a worker (run {event.run})" + (f" on {event.branch}" if event.branch else "")
        case WorkerReturned():
            error = event.error.removeprefix(f"{agent}: ")
            return f"worker run {event.run} {event.outcome}" + (f": {error}" if error else "")
    return None


def _describe_plan(event: Event) -> str | None:
    match event:
        case TeamFormed():
            names = ", ".join(f"{one.name} ({one.role})" if one.role else one.name for one in event.members)
            missing = f"; no member for: {', '.join(event.missing)}" if event.missing else ""
            return f"team formed: {names or 'nobody'}{missing}"
        case WorkStateChanged():
            return f"work: {event.state.replace('_', ' ')}"
        case PlanDrafted():
            return f"plan {event.version} drafted by {event.by}: {format_count(len(event.plan.steps), 'step')}"
        case PlanRefused():
            return f"plan by {event.by} refused: {'; '.join(event.problems)}"
        case PlanReviewed():
            verdict = "accepts" if event.verdict == "accept" else "asks for changes to"
            return f"{event.reviewer} {verdict} the plan{_give_reason(event.reason)}"
        case PlanCommitted():
            by = f" by {event.by}" if event.by else ""
            wanted = f"; objections: {'; '.join(event.objections)}" if event.objections else ""
            steps = ", ".join(f"{step.id} ({step.owner})" for step in event.plan.steps) or "no steps"
            return f"plan {event.version} committed{by}: {steps}{wanted}"
        case ArtifactStored():
            return f"{event.kind} stored: {event.name} ({event.size:,} bytes)"
        case SnapshotTaken():
            return f"snapshot {event.name} taken"
        case WorkEnded():
            undone = f"; not done: {', '.join(one.step for one in event.undone)}" if event.undone else ""
            branch = f"; result on {event.branch}" if event.branch else ""
            return f"work ended: {format_count(len(event.done), 'step')} done{undone}{branch}"
    return None


def _describe_plan_step(event: Event) -> str | None:
    match event:
        case PlanStepStarted():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return f"step {event.step} started by {event.owner}{again}"
        case HandoverAsked():
            return f"wants to hand the step over to {event.to}: {quote(event.reason)}"
        case BlockerRaised():
            return f"needs a decision: {quote(event.topic)}"
        case PlanStepHandedOver(refused=""):
            return f"step {event.step} handed over from {event.sender} to {event.receiver}: {quote(event.reason)}"
        case PlanStepHandedOver():
            return f"handover of step {event.step} to {event.receiver} refused: {event.refused}"
        case PlanStepBlocked():
            return f"step {event.step} blocked: {quote(event.reason)}"
        case PlanStepUnblocked():
            return f"step {event.step} continues"
        case PlanStepSubmitted():
            where = f" on {event.branch}" if event.branch else ""
            return f"step {event.step} submitted by {event.author}{where}"
        case PlanStepReviewed():
            met = sum(one.is_met for one in event.findings)
            verdict = "accepted" if event.passed else "not accepted"
            return f"step {event.step} {verdict} by {event.reviewer}: {met} of {len(event.findings)} criteria met"
        case PlanStepReopened():
            locked = f"; {event.locked_out} is locked out" if event.locked_out else ""
            return f"step {event.step} reopened: {quote(event.reason)}{locked}"
        case PlanStepCompleted():
            return f"step {event.step} done"
        case PlanStepFailed():
            return f"step {event.step} failed: {quote(event.reason)}"
    return None


def _describe_decision(event: Event) -> str | None:
    match event:
        case DecisionProposed():
            return f"proposes a decision ({event.id}): {quote(event.topic)} {' | '.join(event.options)}"
        case BallotCast():
            voted = f"votes for {event.option}" if event.option else "abstains"
            return f"{event.voter} {voted}{_give_reason(event.reason)}"
        case BallotRefused():
            return f"the ballot from {event.voter} was refused: {event.reason}"
        case VoteClosed():
            return f"the vote on {event.decision} is closed: {event.why}"
        case DecisionCommitted():
            return f"decided ({event.decision}): {event.option}; {event.how}"
    return None
