"""Compute the state of a team's work, and of each step of its plan, from events.

Teams and the views of their timelines use the same rules: `WorkProgress.apply` returns the progress after an
event, or raises InvalidTransition if the event is not possible in the current state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..values.event import (
    ArtifactKind,
    ArtifactStored,
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
    WorkEnded,
    WorkStateChanged,
)
from ..values.plan import Finding, PlanStep, StepState, UndoneStep, WorkPlan, WorkState
from .scope import Scope

WORK_TRANSITIONS: Mapping[WorkState, tuple[WorkState, ...]] = {
    "initialized": ("team_formed",),
    "team_formed": ("planning",),
    "planning": ("executing",),
    "executing": ("reviewing", "planning", "completed"),
    "reviewing": ("executing", "planning", "completed"),
    "completed": (),
    "cancelled": (),
    "error": (),
}
"""The states that can follow each state of the work. `cancelled` and `error` can also follow any unfinished state."""
STEP_TRANSITIONS: Mapping[StepState, tuple[StepState, ...]] = {
    "planned": ("ready", "blocked"),
    "ready": ("running", "blocked"),
    "running": ("running", "review", "blocked", "failed"),
    "blocked": ("running", "failed"),
    "review": ("done", "reopened", "failed"),
    "reopened": ("ready",),
    "done": (),
    "failed": (),
}
"""The states that can follow each state of a step. A running step that is handed over stays in `running`."""


class InvalidTransition(Exception):
    """An event that is not possible in the current state; the message says why."""


def change_work_state(before: WorkState, after: WorkState) -> WorkState:
    """Return `after`. Raise InvalidTransition if the state of the work cannot change from `before` to `after`."""
    can_abort = before not in ("completed", "cancelled", "error")
    if after in WORK_TRANSITIONS[before] or (can_abort and after in ("cancelled", "error")):
        return after
    raise InvalidTransition(f"the state of the work cannot change from {before} to {after}")


def change_step_state(step: str, before: StepState, after: StepState) -> StepState:
    """Return `after`. Raise InvalidTransition if the state of a step cannot change from `before` to `after`."""
    if after in STEP_TRANSITIONS[before]:
        return after
    raise InvalidTransition(f"the state of step {step} cannot change from {before} to {after}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """The progress of one step of the plan."""

    step: PlanStep
    state: StepState = "planned"
    owner: str = ""
    attempt: int = 0
    reason: str = ""
    """Why the step is blocked, was reopened, or failed."""
    findings: tuple[Finding, ...] = ()
    """The findings of the step's last review."""
    is_accepted: bool = False
    """Whether the last review accepted the step. A new submission resets this to False."""
    authors: tuple[str, ...] = ()
    """The members that have worked on the step, in the order in which they started."""
    decision: str = ""
    """The decision that a blocked step is waiting for."""
    branch: str = ""
    commit: str = ""

    def change(self, state: StepState, **changes: object) -> StepProgress:
        """Return the progress after a state change. Raise InvalidTransition if the step cannot enter that state."""
        after = change_step_state(self.step.id, self.state, state)
        return replace(self, state=after, **changes)  # type: ignore[arg-type]  # the fields are checked by the caller

    def apply_review(self, review: PlanStepReviewed) -> StepProgress:
        """Return the progress after a review.

        Raise InvalidTransition if the step is not waiting for this review, or if the reviewer has worked on the step.
        """
        id = self.step.id
        if self.state != "review":
            raise InvalidTransition(f"step {id} cannot be reviewed: it is {self.state}, not in review")
        if review.attempt != self.attempt:
            raise InvalidTransition(
                f"the review is for attempt {review.attempt} at step {id}, but the step is at attempt {self.attempt}"
            )
        # A person can have the same name as a member.
        if review.reviewer in self.authors and not review.is_person:
            raise InvalidTransition(f"step {id} cannot be reviewed by {review.reviewer}, who has worked on it")
        return replace(self, findings=review.findings, is_accepted=review.passed)

    def complete(self) -> StepProgress:
        """Return the progress of the finished step. Raise InvalidTransition if its last review did not accept it."""
        done = self.change("done")
        if not self.is_accepted:
            raise InvalidTransition(f"step {self.step.id} cannot be completed, because no review has accepted it")
        return done


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkProgress:
    """The progress of a team's work: its state, the current plan, and the progress of each step."""

    state: WorkState = "initialized"
    formed: TeamFormed | None = None
    plan: WorkPlan | None = None
    version: int = 0
    steps: Mapping[str, StepProgress] = field(default_factory=dict)
    ended: WorkEnded | None = None

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> WorkProgress:
        """Return the progress after these events. Raise InvalidTransition if one of them is not possible."""
        progress = cls()
        for event in events:
            progress = progress.apply(event)
        return progress

    def apply(self, event: Event) -> WorkProgress:
        """Return the progress after `event`; ignore unrelated events. Raise InvalidTransition for impossible events."""
        match event:
            case TeamFormed():
                return replace(self, formed=event, state=change_work_state(self.state, "team_formed"))
            case WorkStateChanged():
                return replace(self, state=change_work_state(self.state, event.state))
            case PlanCommitted():
                return self._commit_plan(event)
            case WorkEnded():
                return replace(self, ended=event)
        changed = self._change_step(event)
        if changed is None:
            return self
        return replace(self, steps=dict(_mark_ready({**self.steps, changed.step.id: changed})))

    def _commit_plan(self, event: PlanCommitted) -> WorkProgress:
        """Replace the plan. Steps that are done stay done; all other steps of the earlier plan are dropped."""
        done = {id: one for id, one in self.steps.items() if one.state == "done"}
        new = {step.id: StepProgress(step=step, owner=step.owner) for step in event.plan.steps if step.id not in done}
        steps = dict(_mark_ready(done | new))
        return replace(self, plan=event.plan, version=event.version, steps=steps)

    def _change_step(self, event: Event) -> StepProgress | None:
        """Return the new progress of the step that an event is about, or None if the event is not about a step."""
        match event:
            case PlanStepStarted():
                step = self._find_step(event.step)
                if step.state != "ready":
                    raise InvalidTransition(f"step {event.step} cannot start: it is {step.state}, not ready")
                authors = tuple(dict.fromkeys((*step.authors, event.owner)))
                return step.change("running", owner=event.owner, attempt=event.attempt, authors=authors, reason="")
            case PlanStepHandedOver(refused=""):
                step = self._find_step(event.step)
                if step.state != "running":
                    raise InvalidTransition(f"step {event.step} cannot be handed over: it is {step.state}, not running")
                authors = tuple(dict.fromkeys((*step.authors, event.receiver)))
                return step.change("running", owner=event.receiver, authors=authors)
            case PlanStepBlocked():
                return self._find_step(event.step).change("blocked", reason=event.reason, decision=event.decision)
            case PlanStepUnblocked():
                step = self._find_step(event.step)
                if not event.decision or event.decision != step.decision:
                    raise InvalidTransition(f"step {event.step} is not waiting for the decision {event.decision}")
                return step.change("running", reason="", decision="")
            case PlanStepSubmitted():
                there = {"branch": event.branch, "commit": event.commit}
                return self._find_step(event.step).change("review", **there, is_accepted=False)
            case PlanStepReviewed():
                return self._find_step(event.step).apply_review(event)
            case PlanStepReopened():
                return self._find_step(event.step).change("reopened", reason=event.reason)
            case PlanStepCompleted():
                return self._find_step(event.step).complete()
            case PlanStepFailed():
                return self._find_step(event.step).change("failed", reason=event.reason)
        return None

    def _find_step(self, id: str) -> StepProgress:
        if id not in self.steps:
            raise InvalidTransition(f"the plan has no step {id}; its steps: {', '.join(self.steps) or 'none'}")
        return self.steps[id]

    def list_undone(self) -> tuple[UndoneStep, ...]:
        """Return the steps that are not done, each with the reason."""
        return tuple(
            UndoneStep(step=id, reason=one.reason or f"it is {one.state}")
            for id, one in self.steps.items()
            if one.state != "done"
        )


def _mark_ready(steps: Mapping[str, StepProgress]) -> Iterator[tuple[str, StepProgress]]:
    """Yield the steps; planned and reopened steps become ready if all steps that they depend on are done."""
    done = {id for id, one in steps.items() if one.state == "done"}
    for id, one in steps.items():
        is_ready = one.state in ("planned", "reopened") and done.issuperset(one.step.depends_on)
        yield id, one.change("ready") if is_ready else one


def list_dependants(plan: Iterable[PlanStep], failed: str) -> list[str]:
    """Return the ids of the steps that depend on the step `failed`, even indirectly, in plan order."""
    steps = list(plan)
    found = {failed}
    for _ in steps:
        found |= {step.id for step in steps if not found.isdisjoint(step.depends_on)}
    return [step.id for step in steps if step.id in found and step.id != failed]


def store_artifact(place: Scope, kind: ArtifactKind, name: str, text: str, *, author: str = "", step: str = "") -> None:
    """Store text as an artifact and record it, unless it is blank or already recorded."""
    own = place.child(f"artifact:{name}")
    if not text.strip() or own.has_outcome:
        return
    data = place.timeline.redaction.redact_text(text).encode(errors="replace")
    digest = hashlib.sha256(data).hexdigest()
    place.timeline.links.store_artifact(digest, data)
    own.record_outcome(ArtifactStored(kind=kind, name=name, digest=digest, size=len(data), author=author, step=step))
