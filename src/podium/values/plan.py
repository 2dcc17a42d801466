"""Define plans for a piece of work: steps with owners, acceptance criteria, dependencies and limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


def find_cycle(dependencies: Mapping[str, Collection[str]]) -> list[str]:
    """Return a cycle in which each item depends on the next, or an empty list if there is none.

    The first item is repeated at the end. Dependencies on items that are not in the mapping are ignored.
    """
    waiting = dict(dependencies)
    while ready := [item for item, before in waiting.items() if waiting.keys().isdisjoint(before)]:
        for item in ready:
            del waiting[item]
    if not waiting:
        return []
    way = [next(iter(waiting))]
    while (following := next(one for one in waiting[way[-1]] if one in waiting)) not in way:
        way.append(following)
    return [*way[way.index(following) :], following]
