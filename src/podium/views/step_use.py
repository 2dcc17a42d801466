"""Compute how much of its budget each step of a team's plan has used, from the timeline.

Usage is counted in the same way as for the limits of a step: the tokens and the changed files of all work on the step,
and the time of its owners' turns, not including the time that they spend waiting for a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from ..values.event import (
    ActionBegan,
    CallCut,
    CallFailed,
    Entry,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    WorkerReturned,
)
from ..values.operation_path import PLAN_STEP, owns_plan_step
from ..values.usage import NO_USAGE, Usage
from .work_progress import TeamWork


class StepUse(Struct, frozen=True, kw_only=True):
    """The time and tokens that the work on a step has used so far, and the number of files that it has changed."""

    seconds: float = 0.0
    tokens: int = 0
    files: int = 0


@dataclass
class OwnerTurn:
    """An unfinished turn by a step's owner."""

    started: float
    waiting: set[str] = field(default_factory=set)
    """The ids of the requests and questions in this turn that have no answer yet."""
    waited: float = 0.0
    waiting_since: float = 0.0

    def wait_for(self, id: str, at: float) -> None:
        self.waiting_since = self.waiting_since if self.waiting else at
        self.waiting.add(id)

    def stop_waiting(self, id: str, at: float) -> None:
        if self.waiting == {id}:
            self.waited += at - self.waiting_since
        self.waiting.discard(id)

    def count_seconds(self, until: float) -> float:
        end = self.waiting_since if self.waiting else until
        return max(0.0, end - self.started - self.waited)


@dataclass
class StepUseBuilder:
    """Adds up the time, the tokens and the changed files of the work on one step."""

    usage: Usage = NO_USAGE
    seconds: float = 0.0
    files: set[str] = field(default_factory=set)
    turns: dict[str, OwnerTurn] = field(default_factory=dict)
    """The owners' turns that have not ended, keyed by operation."""

    def apply(self, entry: Entry) -> None:
        operation, at = entry.operation, entry.at
        match entry.event:
            case WorkerReturned() as returned:
                self.usage += returned.usage
                self.files |= set(returned.files)
            case ModelReplied(usage=usage) | CallFailed(usage=usage) | CallCut(usage=usage):
                self.usage += usage
            case ActionBegan(action=action):
                self.files |= set(action.outputs)
            case OperationStarted() if owns_plan_step(operation):
                self.turns.setdefault(operation, OwnerTurn(at))
            case OperationEnded() as ended if (turn := self.turns.pop(operation, None)) is not None:
                # The time is recorded only for a step with a time limit.
                self.seconds += ended.seconds or turn.count_seconds(at)
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                for path, turn in self.turns.items():
                    if f"{operation}/".startswith(f"{path}/"):
                        turn.wait_for(id, at)
            case PermissionAnswered(id=id) | QuestionAnswered(id=id):
                for turn in self.turns.values():
                    turn.stop_waiting(id, at)

    def build_use(self, until: float) -> StepUse:
        return StepUse(
            seconds=round(self.seconds + sum(turn.count_seconds(until) for turn in self.turns.values()), 3),
            tokens=self.usage.with_rehearsed().tokens,
            files=len(self.files),
        )


def read_step_use(entries: Iterable[Entry], work: TeamWork, *, until: float) -> dict[str, StepUse]:
    """Return what each step of a team's plan has used up to the time `until`, keyed by step.

    `entries` must be the whole timeline that contains the team's work.
    """
    steps = work.progress.steps
    place = f"{work.operation}/{PLAN_STEP}"
    builders: dict[str, StepUseBuilder] = {}
    for entry in entries:
        if entry.operation.startswith(place):
            name = entry.operation.removeprefix(place).partition("/")[0]
            builders.setdefault(name, StepUseBuilder()).apply(entry)
    found = {id: _find_builder(builders, id, one.state == "done", work.progress.version) for id, one in steps.items()}
    return {id: StepUse() if one is None else one.build_use(until) for id, one in found.items()}


def _find_builder(
    builders: Mapping[str, StepUseBuilder], id: str, is_done: bool, version: int
) -> StepUseBuilder | None:
    """Return the builder of a step, or None if no work on the step is recorded.

    If the step is done, the work may have been recorded under an earlier version of the plan.
    """
    for number in range(version, 0 if is_done else version - 1, -1):
        if (found := builders.get(id if number == 1 else f"{id}~{number}")) is not None:
            return found
    return None
