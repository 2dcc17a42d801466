"""Events of a collaborating team: formation, plan, work on each step, artifacts, snapshots and decisions."""

from typing import ClassVar, Literal

from msgspec import Struct

from ..plan import Finding, UndoneStep, WorkPlan, WorkState
from .base_event import EventBase


class DecisionProposed(EventBase, frozen=True, kw_only=True, tag="decision_proposed"):
    """Somebody proposed a decision between options.

    `eligible` lists the members that can vote, and `weights` contains the weights other than 1. `rule` is `majority`,
    `unanimous`, `weighted` or `quorum:N`. If the vote is inconclusive, `decide_by` decides. `window` is how many
    seconds the vote stays open. `supersedes` is the id of an earlier decision that this one replaces. `repo` is the
    repository that the decision applies to.
    """

    survives_power_loss: ClassVar[bool] = True

    id: str
    topic: str
    options: tuple[str, ...]
    evidence: str = ""
    eligible: tuple[str, ...] = ()
    weights: dict[str, float] = {}  # noqa: RUF012 - msgspec copies it for each event
    rule: str = "majority"
    decide_by: Literal["lead", "person"] = "lead"
    window: float = 120.0
    by: str = ""
    step: str = ""
    supersedes: str = ""
    repo: str = ""


class BallotCast(EventBase, frozen=True, kw_only=True, tag="ballot_cast"):
    """A member voted for an option, or abstained (`option` is empty).

    If a member votes more than once, the last ballot before the vote closes counts.
    """

    survives_power_loss: ClassVar[bool] = True

    decision: str
    voter: str
    option: str = ""
    reason: str = ""


class BallotRefused(EventBase, frozen=True, kw_only=True, tag="ballot_refused"):
    """A ballot was refused because it was late, from somebody who cannot vote, or for an unknown option."""

    decision: str
    voter: str
    option: str
    reason: str


class VoteClosed(EventBase, frozen=True, kw_only=True, tag="vote_closed"):
    """The vote on a decision ended; later ballots are refused."""

    survives_power_loss: ClassVar[bool] = True

    decision: str
    why: Literal["decided", "complete", "timeout"]


class DecisionCommitted(EventBase, frozen=True, kw_only=True, tag="decision_committed"):
    """A decision was made. `how` says which rule or member decided, such as `majority` or `decided by lead (tie)`.

    `rationale` says why this option was chosen, and `consequences` says what follows from it.
    """

    survives_power_loss: ClassVar[bool] = True

    decision: str
    option: str
    how: str
    by: str = ""
    rationale: str = ""
    participants: tuple[str, ...] = ()
    consequences: str = ""


DecisionEvent = DecisionProposed | BallotCast | BallotRefused | VoteClosed | DecisionCommitted


ArtifactKind = Literal["diff", "document", "log", "test-result"]


class FormedMember(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member of a team, as recorded when the team was formed."""

    name: str
    role: str = ""
    capabilities: tuple[str, ...] = ()


class TeamFormed(EventBase, frozen=True, kw_only=True, tag="team_formed"):
    """A team was formed for a goal. `missing` lists the roles and capabilities that nobody has."""

    goal: str
    members: tuple[FormedMember, ...]
    constraints: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class WorkStateChanged(EventBase, frozen=True, kw_only=True, tag="work_state_changed"):
    """A team's work entered another state."""

    state: WorkState


class PlanDrafted(EventBase, frozen=True, kw_only=True, tag="plan_drafted"):
    """A planner drafted or revised a plan."""

    version: int
    plan: WorkPlan
    by: str


class PlanRefused(EventBase, frozen=True, kw_only=True, tag="plan_refused"):
    """A drafted plan was refused because it is invalid."""

    by: str
    problems: tuple[str, ...]


class PlanReviewed(EventBase, frozen=True, kw_only=True, tag="plan_reviewed"):
    """A member reviewed a draft, and accepted it or asked for a change."""

    version: int
    reviewer: str
    verdict: Literal["accept", "change"]
    reason: str = ""


class PlanCommitted(EventBase, frozen=True, kw_only=True, tag="plan_committed"):
    """A plan was committed, and its steps can start.

    `objections` lists requests for changes that the plan does not satisfy. If `is_approved_by_person` is true, a
    person approved exactly this plan, so the allow rules of its steps apply.
    """

    survives_power_loss: ClassVar[bool] = True

    version: int
    plan: WorkPlan
    by: str
    is_approved_by_person: bool = False
    objections: tuple[str, ...] = ()


class PlanStepStarted(EventBase, frozen=True, kw_only=True, tag="plan_step_started"):
    """The owner of a step started to work on it.

    `base` is a commit with the state of the run's checkout at that time.
    """

    step: str
    owner: str
    attempt: int = 1
    base: str = ""


class HandoverAsked(EventBase, frozen=True, kw_only=True, tag="handover_asked"):
    """The owner of a step asked another member to take it over."""

    to: str
    reason: str
    context: str = ""


class BlockerRaised(EventBase, frozen=True, kw_only=True, tag="blocker_raised"):
    """The owner of a step cannot continue until somebody decides between options."""

    topic: str
    options: tuple[str, ...]
    evidence: str = ""


class PlanStepHandedOver(EventBase, frozen=True, kw_only=True, tag="plan_step_handed_over"):
    """The handover of a step was accepted or refused.

    If it was accepted, the receiver is the new owner and continues the work. If it was refused, `refused` says why.
    """

    step: str
    sender: str
    receiver: str
    reason: str
    refused: str = ""


class PlanStepBlocked(EventBase, frozen=True, kw_only=True, tag="plan_step_blocked"):
    """A step cannot continue: it is waiting for a decision, or a step that it depends on failed."""

    step: str
    reason: str
    decision: str = ""


class PlanStepUnblocked(EventBase, frozen=True, kw_only=True, tag="plan_step_unblocked"):
    """A step is no longer blocked: the decision that it needed was made, and the step's owner continues."""

    step: str
    decision: str


class PlanStepSubmitted(EventBase, frozen=True, kw_only=True, tag="plan_step_submitted"):
    """The owner of a step finished its work and submitted it for review.

    The work is the difference between the commits `base` and `commit`. If the owner worked in its own checkout, the
    work is on `branch`.
    """

    step: str
    author: str
    attempt: int = 1
    branch: str = ""
    base: str = ""
    commit: str = ""


class PlanStepReviewed(EventBase, frozen=True, kw_only=True, tag="plan_step_reviewed"):
    """A step was reviewed against its acceptance criteria. A command's result overrides the reviewer's opinion.

    If `is_person` is true, the reviewer is a person, who may have the same name as a member.
    """

    step: str
    reviewer: str
    attempt: int
    passed: bool
    findings: tuple[Finding, ...] = ()
    is_person: bool = False


class PlanStepReopened(EventBase, frozen=True, kw_only=True, tag="plan_step_reopened"):
    """A step did not pass its review and must be revised. `locked_out` is an author that cannot revise it."""

    step: str
    attempt: int
    reason: str
    locked_out: str = ""


class PlanStepCompleted(EventBase, frozen=True, kw_only=True, tag="plan_step_completed"):
    """A step passed its review."""

    step: str
    owner: str
    attempt: int = 1


class PlanStepFailed(EventBase, frozen=True, kw_only=True, tag="plan_step_failed"):
    """A step failed and is not retried."""

    step: str
    reason: str


class ArtifactStored(EventBase, frozen=True, kw_only=True, tag="artifact_stored"):
    """A result of the work was stored. `digest` is the SHA-256 of its content. Equal content is stored only once."""

    kind: ArtifactKind
    name: str
    digest: str
    size: int
    author: str = ""
    step: str = ""


class SnapshotTaken(EventBase, frozen=True, kw_only=True, tag="snapshot_taken"):
    """A snapshot of the work was taken: the position of this event on the timeline, and a commit for each checkout.

    `commits` maps the branch of each checkout to a commit with the checkout's state. The key for the run's own checkout
    is an empty string.
    """

    name: str
    commits: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it for each event
    step: str = ""


class WorkEnded(EventBase, frozen=True, kw_only=True, tag="work_ended"):
    """A team's work ended. `branch` and `commit` are the merged result, if owners had their own checkouts."""

    done: tuple[str, ...]
    undone: tuple[UndoneStep, ...] = ()
    replaced: tuple[UndoneStep, ...] = ()
    """The steps of an earlier plan that were not done and are not part of the later plan."""
    decisions: tuple[str, ...] = ()
    branch: str = ""
    commit: str = ""


PlanEvent = (
    TeamFormed
    | WorkStateChanged
    | PlanDrafted
    | PlanRefused
    | PlanReviewed
    | PlanCommitted
    | PlanStepStarted
    | HandoverAsked
    | BlockerRaised
    | PlanStepHandedOver
    | PlanStepBlocked
    | PlanStepUnblocked
    | PlanStepSubmitted
    | PlanStepReviewed
    | PlanStepReopened
    | PlanStepCompleted
    | PlanStepFailed
    | ArtifactStored
    | SnapshotTaken
    | WorkEnded
)
