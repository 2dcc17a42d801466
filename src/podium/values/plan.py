"""Define plans for a piece of work: steps with owners, acceptance criteria, dependencies and limits."""

from typing import Literal

from msgspec import Struct

StepState = Literal["planned", "ready", "running", "review", "done", "blocked", "failed", "reopened"]
WorkState = Literal[
    "initialized", "team_formed", "planning", "executing", "reviewing", "completed", "cancelled", "error"
]


class Criterion(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that must be true for a step to be done. If it has a command, the command must pass."""

    text: str
    command: str = ""


class StepPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The tools and limits of one step. None means that the step adds no limit.

    A policy restricts what the owner of the step can do. The exception is `allow`: its rules permit more, but they
    apply only if a person approved the plan that contains them.
    """

    tools: tuple[str, ...] | None = None
    approval: Literal["auto", "ask"] = "auto"
    allow: tuple[str, ...] = ()
    seconds: float | None = None
    tokens: int | None = None
    files: int | None = None


UNLIMITED = StepPolicy()


class PlanStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a plan, and the member that owns it."""

    id: str
    owner: str
    description: str
    acceptance: tuple[Criterion, ...]
    depends_on: tuple[str, ...] = ()
    policy: StepPolicy = UNLIMITED


class WorkPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The steps towards a goal, in order."""

    goal: str
    steps: tuple[PlanStep, ...]


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of checking one criterion, either by a reviewer or by running the criterion's command."""

    criterion: str
    is_met: bool
    reason: str = ""
    by: str = ""


class UndoneStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a plan that was not done, and why."""

    step: str
    reason: str
