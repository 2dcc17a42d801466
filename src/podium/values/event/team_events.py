"""Events of team modes: plans, evaluations, iterations, and what is said and voted in a discussion."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, structs

from .base_event import EventBase


class PlannedAssignment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of the work for one worker."""

    worker: str
    task: str


class TeamPlanned(EventBase, frozen=True, kw_only=True, tag="team_planned"):
    """A lead shared out the work; `skipped` says which assignments were none, and why."""

    assignments: tuple[PlannedAssignment, ...]
    skipped: tuple[str, ...] = ()
    iteration: int = 1
    flagged: tuple[str, ...] = ()
    """What is odd about it, such as the same task for two workers."""


class Evaluated(EventBase, frozen=True, kw_only=True, tag="evaluated"):
    """A judge said how good the work of an iteration is."""

    iteration: int
    score: float
    rationale: str = ""
    by: str = ""
    trend: Literal["improving", "stable", "degrading"] = "stable"
    is_complete: bool = False
    held_back: str = ""
    """Why a claim to be complete does not hold."""
    model: str = ""
    """What the judge thinks with."""
    pauses: int = 0
    """How often the run had been paused by then: repetition is looked for since the last time."""


class Checked(EventBase, frozen=True, kw_only=True, tag="checked"):
    """The commands that a team is measured by were run on a clean checkout of its work."""

    commands: tuple[str, ...]
    passed: bool
    output: str = ""


class AdjustmentProposed(EventBase, frozen=True, kw_only=True, tag="adjustment_proposed"):
    """Something about a team that might be changed before its next iteration.

    Where it is about what a member thinks with, `member` and `model` say what to change.
    """

    iteration: int
    text: str
    member: str = ""
    model: str = ""
    is_applied: bool = False


class MemberChanged(EventBase, frozen=True, kw_only=True, tag="member_changed"):
    """An agent of a run gets another model or prompt from its next part on; what is empty stays."""

    member: str
    model: str = ""
    prompt: str = ""
    by: str = ""

    def with_earlier(self, before: MemberChanged | None) -> MemberChanged:
        """This change on top of an earlier one of the same agent."""
        if before is None:
            return self
        return structs.replace(self, model=self.model or before.model, prompt=self.prompt or before.prompt)


class IterationFailed(EventBase, frozen=True, kw_only=True, tag="iteration_failed"):
    """An iteration came to nothing, and is tried again or not."""

    iteration: int
    message: str


ReflectEnd = Literal["goal_met", "max_iterations", "stalled", "error_budget", "budget_exhausted", "cancelled", "paused"]


class ReflectEnded(EventBase, frozen=True, kw_only=True, tag="reflect_ended"):
    """A loop of plan, work and evaluation is over."""

    end: ReflectEnd
    iterations: int
    score: float = 0.0
    most: int = 0
    """How many iterations it might have had."""

    @property
    def is_success(self) -> bool:
        """Whether the loop came to what was wanted; no other end is a success."""
        return self.end == "goal_met"

    @property
    def is_goal_met(self) -> bool:
        return self.is_success

    @property
    def is_stalled(self) -> bool:
        return self.end == "stalled"

    @property
    def is_cancelled(self) -> bool:
        """Whether it ended without success; one that is paused has not ended."""
        return self.end not in ("goal_met", "paused")


class Broadcast(EventBase, frozen=True, kw_only=True, tag="broadcast"):
    """A member of a discussion said something to all of them."""

    author: str
    round: int
    text: str


class Voted(EventBase, frozen=True, kw_only=True, tag="voted"):
    """A member of a discussion said whether it is ready to conclude."""

    author: str
    round: int
    ready: bool
    reason: str = ""


class RoundEnded(EventBase, frozen=True, kw_only=True, tag="round_ended"):
    """Every member of a discussion had its say, or its time was over."""

    round: int
    missing: tuple[str, ...] = ()


class DiscussionEnded(EventBase, frozen=True, kw_only=True, tag="discussion_ended"):
    """A discussion is over: by consensus, after so many rounds, or because the coordinator said so."""

    by: Literal["consensus", "max_rounds", "coordinator", "stalled", "nobody_left", "budget", "stopped"]
    rounds: int
    broadcasts: int = 0
    injected_tokens: int = 0
    """How much of what others said went into prompts, about."""
