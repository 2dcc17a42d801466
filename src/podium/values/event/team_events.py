"""Events of team modes: plans, evaluations, iterations, and the messages and votes in a discussion."""

from typing import Literal

from msgspec import Struct, structs

from ..actor import Channel
from .base_event import ActorEvent, EventBase


class PlannedAssignment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task that a lead assigned to one worker."""

    worker: str
    task: str


class TeamPlanned(EventBase, frozen=True, kw_only=True, tag="team_planned"):
    """A lead assigned the work; `skipped` lists the invalid assignments, and why they are invalid."""

    assignments: tuple[PlannedAssignment, ...]
    skipped: tuple[str, ...] = ()
    iteration: int = 1
    flagged: tuple[str, ...] = ()
    """Problems with the plan, such as the same task assigned to two workers."""


class Evaluated(EventBase, frozen=True, kw_only=True, tag="evaluated"):
    """An evaluator scored the work of an iteration."""

    iteration: int
    score: float
    rationale: str = ""
    by: str = ""
    trend: Literal["improving", "stable", "degrading"] = "stable"
    is_complete: bool = False
    held_back: str = ""
    """Why the evaluator's claim that the work is complete was rejected."""
    model: str = ""
    """The evaluator's model."""
    pauses: int = 0
    """How many times the run had been paused when this iteration was evaluated.

    Only iterations since the last pause are checked for repetition.
    """


class Checked(EventBase, frozen=True, kw_only=True, tag="checked"):
    """A team's check commands were run on a clean checkout of its work.

    If they were not permitted, `refusal` is the reason.
    """

    commands: tuple[str, ...]
    passed: bool
    output: str = ""
    refusal: str = ""


class AdjustmentProposed(EventBase, frozen=True, kw_only=True, tag="adjustment_proposed"):
    """A change to a team was proposed for its next iteration.

    If the proposal is to change a member's model, `member` and `model` are set.
    """

    iteration: int
    text: str
    member: str = ""
    model: str = ""
    is_applied: bool = False


class MemberChanged(ActorEvent, frozen=True, kw_only=True, tag="member_changed"):
    """The model or prompt of an agent was changed for all later operations; empty fields change nothing."""

    member: str
    model: str = ""
    prompt: str = ""
    by: str = ""
    channel: Channel = ""

    def with_earlier(self, before: "MemberChanged | None") -> "MemberChanged":
        """Return this change merged with an earlier change to the same agent."""
        if before is None:
            return self
        return structs.replace(self, model=self.model or before.model, prompt=self.prompt or before.prompt)


class IterationFailed(EventBase, frozen=True, kw_only=True, tag="iteration_failed"):
    """An iteration failed; it may be retried."""

    iteration: int
    message: str


ReflectEnd = Literal["goal_met", "max_iterations", "stalled", "error_budget", "budget_exhausted", "cancelled", "paused"]


class ReflectEnded(EventBase, frozen=True, kw_only=True, tag="reflect_ended"):
    """A loop of planning, work and evaluation ended."""

    end: ReflectEnd
    iterations: int
    score: float = 0.0
    most: int = 0
    """The maximum number of iterations."""
    best: int = 0
    """The iteration whose work is delivered, if it is not the last."""

    @property
    def is_success(self) -> bool:
        """Whether the loop met its goal."""
        return self.end == "goal_met"

    @property
    def is_goal_met(self) -> bool:
        return self.is_success

    @property
    def is_stalled(self) -> bool:
        """Whether the loop ended because it made no progress: its work repeated itself, or its iterations failed."""
        return self.end in ("stalled", "error_budget")

    @property
    def is_cancelled(self) -> bool:
        """Whether the loop ended for any reason other than meeting its goal. A paused loop has not ended."""
        return self.end not in ("goal_met", "paused")


class Broadcast(EventBase, frozen=True, kw_only=True, tag="broadcast"):
    """A member of a discussion sent a message to all members."""

    author: str
    round: int
    text: str


class Voted(EventBase, frozen=True, kw_only=True, tag="voted"):
    """A member of a discussion voted on whether to conclude it."""

    author: str
    round: int
    ready: bool
    reason: str = ""


class RoundEnded(EventBase, frozen=True, kw_only=True, tag="round_ended"):
    """A round of a discussion ended: every member replied or ran out of time."""

    round: int
    missing: tuple[str, ...] = ()


class DiscussionEnded(EventBase, frozen=True, kw_only=True, tag="discussion_ended"):
    """A discussion ended; `by` says why, such as consensus or the maximum number of rounds."""

    by: Literal["consensus", "max_rounds", "coordinator", "stalled", "nobody_left", "budget", "stopped"]
    rounds: int
    broadcasts: int = 0
    injected_tokens: int = 0
    """The approximate number of tokens that other members' messages added to prompts."""


class CandidateResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one of several members that did the same task: whether it passed the checks, and its score.

    `passed` is None if nothing was checked. A member that changed no files fails if another member changed files.
    """

    name: str
    branch: str = ""
    commit: str = ""
    passed: bool | None = None
    score: float | None = None


class CandidateChosen(EventBase, frozen=True, kw_only=True, tag="candidate_chosen"):
    """Several members did the same task, and the checks, a judge or a person chose the result of `winner`."""

    winner: str
    by: str
    reason: str = ""
    candidates: tuple[CandidateResult, ...] = ()


class WorkRestored(EventBase, frozen=True, kw_only=True, tag="work_restored"):
    """The chosen work was delivered: its files were written to the run's checkout, or it was merged into a new branch.

    In a loop, `iteration` is the iteration whose files were restored.
    """

    commit: str
    branch: str = ""
    iteration: int = 0


TeamEvent = (
    TeamPlanned
    | Evaluated
    | Checked
    | AdjustmentProposed
    | MemberChanged
    | IterationFailed
    | ReflectEnded
    | Broadcast
    | Voted
    | RoundEnded
    | DiscussionEnded
    | CandidateChosen
    | WorkRestored
)
