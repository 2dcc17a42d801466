"""The parts of a run's report: the results of its operations, loops and discussions, and its open points."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..values.event import AdjustmentProposed, Broadcast, Checked, Evaluated, ReflectEnd, Trigger, Voted
from ..values.request import Outcome
from ..values.usage import NO_USAGE, Usage

State = Outcome | Literal["unfinished", "not_begun"]


class ReportPart(Struct, frozen=True, kw_only=True):
    """The result of one operation.

    `number` is the iteration of a loop or the round of a discussion, otherwise 0. `depth` is the number
    of reported operations above this one. `usage` includes the operations below it.
    """

    agent: str
    state: State
    operation: str = ""
    trigger: Trigger = "member"
    number: int = 0
    depth: int = 0
    seconds: float = 0.0
    usage: Usage = NO_USAGE
    text: str = ""
    why: str = ""
    """Why the part failed, if it did."""


class ReflectionReport(Struct, frozen=True, kw_only=True):
    """The results of a loop of planning, work and evaluation. `end` is None while the loop may continue."""

    lead: str
    operation: str
    goal: str
    end: ReflectEnd | None
    iterations: int
    most: int
    seconds: float
    score: float
    evaluations: tuple[Evaluated, ...]
    checks: tuple[Checked, ...]
    proposals: tuple[AdjustmentProposed, ...]
    """The proposed changes that were not applied."""


class DiscussionReport(Struct, frozen=True, kw_only=True):
    """The messages and votes of a discussion. `end` is None while the discussion may continue."""

    lead: str
    operation: str
    end: str | None
    rounds: int
    said: tuple[Broadcast, ...]
    votes: tuple[Voted, ...]
    """The last vote of each member."""


class OpenPoint(Struct, frozen=True, kw_only=True):
    """An unanswered request or question, an undelivered message, or a rejected claim of completion."""

    kind: Literal["request", "question", "message", "claim"]
    agent: str
    text: str
    id: str = ""


class ChangedFile(Struct, frozen=True, kw_only=True):
    """A file that agents changed with file tools. Changes made by commands are not tracked."""

    path: str
    agents: tuple[str, ...]
