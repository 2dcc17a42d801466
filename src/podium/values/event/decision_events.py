"""Events of a decision: the proposal, the ballots and the choice of an option."""

from typing import ClassVar, Literal

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
