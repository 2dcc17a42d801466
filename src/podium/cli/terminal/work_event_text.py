"""Format events from collaborating teams and from decisions, each as one line of text."""

from __future__ import annotations

from ...values.event import (
    ArtifactStored,
    BallotCast,
    BallotRefused,
    BlockerRaised,
    DecisionCommitted,
    DecisionProposed,
    Event,
    HandoverAsked,
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
    SnapshotTaken,
    TeamFormed,
    VoteClosed,
    WorkEnded,
    WorkStateChanged,
)
from ...values.plain_text import format_count
from .text import truncate_line

LONGEST_QUOTE = 72


def format_work_event(event: Event) -> str | None:
    """Describe an event from a team's work or from a decision in one line. Return None for other events."""
    return _format_plan_event(event) or _format_step_event(event) or _format_decision_event(event)


def _format_plan_event(event: Event) -> str | None:
    match event:
        case TeamFormed():
            names = ", ".join(f"{one.name} ({one.role})" if one.role else one.name for one in event.members)
            missing = f"; no member for: {', '.join(event.missing)}" if event.missing else ""
            return f"team formed: {names}{missing}"
        case WorkStateChanged():
            return f"work: {event.state.replace('_', ' ')}"
        case PlanDrafted():
            return f"plan {event.version} drafted by {event.by}: {format_count(len(event.plan.steps), 'step')}"
        case PlanRefused():
            return f"plan by {event.by} refused: {'; '.join(event.problems)}"
        case PlanReviewed():
            why = f": {_quote(event.reason)}" if event.reason else ""
            return f"{event.reviewer} {'accepts' if event.verdict == 'accept' else 'asks for changes to'} the plan{why}"
        case PlanCommitted():
            wanted = f"; objections: {'; '.join(event.objections)}" if event.objections else ""
            steps = ", ".join(f"{step.id} ({step.owner})" for step in event.plan.steps)
            return f"plan {event.version} committed by {event.by}: {steps}{wanted}"
        case ArtifactStored():
            return f"{event.kind} stored: {event.name} ({event.size:,} bytes)"
        case SnapshotTaken():
            return f"snapshot {event.name} taken"
        case WorkEnded():
            undone = f"; not done: {', '.join(one.step for one in event.undone)}" if event.undone else ""
            branch = f"; result on {event.branch}" if event.branch else ""
            return f"work ended: {format_count(len(event.done), 'step')} done{undone}{branch}"
    return None


def _format_step_event(event: Event) -> str | None:
    match event:
        case PlanStepStarted():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return f"step {event.step} started by {event.owner}{again}"
        case HandoverAsked():
            return f"wants to hand the step over to {event.to}: {_quote(event.reason)}"
        case BlockerRaised():
            return f"needs a decision: {_quote(event.topic)}"
        case PlanStepHandedOver(refused=""):
            return f"step {event.step} handed over from {event.sender} to {event.receiver}: {_quote(event.reason)}"
        case PlanStepHandedOver():
            return f"handover of step {event.step} to {event.receiver} refused: {event.refused}"
        case PlanStepBlocked():
            return f"step {event.step} blocked: {_quote(event.reason)}"
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
            return f"step {event.step} reopened: {_quote(event.reason)}{locked}"
        case PlanStepCompleted():
            return f"step {event.step} done"
        case PlanStepFailed():
            return f"step {event.step} failed: {_quote(event.reason)}"
    return None


def _format_decision_event(event: Event) -> str | None:
    match event:
        case DecisionProposed():
            return f"proposes a decision ({event.id}): {_quote(event.topic)} {' | '.join(event.options)}"
        case BallotCast():
            voted = f"votes for {event.option}" if event.option else "abstains"
            return f"{event.voter} {voted}" + (f": {_quote(event.reason)}" if event.reason else "")
        case BallotRefused():
            return f"the ballot from {event.voter} was refused: {event.reason}"
        case VoteClosed():
            return f"the vote on {event.decision} is closed: {event.why}"
        case DecisionCommitted():
            return f"decided ({event.decision}): {event.option}; {event.how}"
    return None


def _quote(text: str) -> str:
    return f'"{truncate_line(text, LONGEST_QUOTE)}"'
