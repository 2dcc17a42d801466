"""Follow the plans of a run's collaborating teams: the progress of each step, and how much of its budget it has used.

Usage is counted in the same way as for the limits of a step: the tokens and the changed files of all work on the step,
and the time of its owners' turns, not including the time that they spend waiting for a person.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from msgspec import Struct, field

from ...core.edits import EDITS, Edits
from ...core.plan_state import InvalidTransition, WorkProgress
from ...values.event import (
    KINDS,
    ActionBegan,
    ArtifactStored,
    CallCut,
    CallFailed,
    Entry,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    PlanCommitted,
    PlanDrafted,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepHandedOver,
    PlanStepReopened,
    PlanStepReviewed,
    PlanStepStarted,
    PlanStepSubmitted,
    PlanStepUnblocked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    SnapshotTaken,
    TeamFormed,
    WorkEnded,
    WorkerReturned,
    WorkStateChanged,
)
from ...values.operation_path import PLAN_STEP, owns_plan_step
from ...values.usage import NO_USAGE, Usage
from . import RunState

_USED = frozenset(
    {
        *(WorkerReturned, ModelReplied, CallFailed, CallCut, ActionBegan, OperationStarted, OperationEnded),
        *(PermissionAsked, QuestionAsked, PermissionAnswered, QuestionAnswered),
    }
)
_PROGRESS = frozenset(
    {
        *(TeamFormed, PlanDrafted, PlanCommitted, WorkStateChanged, WorkEnded, SnapshotTaken),
        *(PlanStepStarted, PlanStepHandedOver, PlanStepBlocked, PlanStepUnblocked, PlanStepSubmitted),
        *(PlanStepReviewed, PlanStepReopened, PlanStepCompleted, PlanStepFailed),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamWork:
    """The work of one team. `draft` is the last draft of its plan, which may not be committed yet."""

    operation: str
    progress: WorkProgress
    draft: PlanDrafted | None = None
    snapshots: tuple[tuple[int, SnapshotTaken], ...] = ()
    """The snapshots with their positions on the timeline."""


class StepUse(Struct, frozen=True, kw_only=True):
    """The time and tokens that the work on a step has used so far, and the number of files that it has changed."""

    seconds: float = 0.0
    tokens: int = 0
    files: int = 0


class OwnerTurn(Struct):
    """An unfinished turn by a step's owner."""

    started: float
    waiting: list[str] = []
    """The ids of the requests and questions in this turn that have no answer yet."""
    waited: float = 0.0
    waiting_since: float = 0.0

    def wait_for(self, id: str, at: float) -> None:
        if id not in self.waiting:
            self.waiting_since = self.waiting_since if self.waiting else at
            self.waiting.append(id)

    def stop_waiting(self, id: str, at: float) -> None:
        if id in self.waiting:
            self.waiting.remove(id)
            self.waited += 0.0 if self.waiting else at - self.waiting_since

    def count_seconds(self, until: float) -> float:
        end = self.waiting_since if self.waiting else until
        return max(0.0, end - self.started - self.waited)


class StepRecord(Struct):
    """The time, the tokens and the changed files of the work on one step under one version of the plan."""

    usage: Usage = NO_USAGE
    seconds: float = 0.0
    files: dict[str, None] = {}
    turns: dict[str, OwnerTurn] = {}
    """The owners' turns that have not ended, keyed by operation."""

    def apply(self, entry: Entry) -> None:
        operation, at = entry.operation, entry.at
        match entry.event:
            case WorkerReturned() as returned:
                self.usage += returned.usage
                self.files |= dict.fromkeys(returned.files)
            case ModelReplied(usage=usage) | CallFailed(usage=usage) | CallCut(usage=usage):
                self.usage += usage
            case ActionBegan(action=action):
                self.files |= dict.fromkeys(action.outputs)
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


class RunPlans(RunState):
    """The plans of a run's collaborating teams, built by applying the entries of its timeline in order."""

    PLACE = ("plans",)
    KINDS = tuple(sorted(KINDS[event] for event in (*_PROGRESS, *_USED, ArtifactStored, RunEnded)))

    teams: dict[str, TeamWork] = field(default_factory=dict)
    """The work of each team, keyed by operation, in the order in which the teams were formed."""
    steps: dict[str, StepRecord] = field(default_factory=dict)
    """The work on each step, keyed by the path of the step."""
    artifacts: list[ArtifactStored] = field(default_factory=list)

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        event = entry.event
        if type(event) in _USED:
            for path in _iter_step_paths(entry.operation):
                work = self.steps.setdefault(path, StepRecord())
                work.apply(entry)
                edits.put(self, "steps", path, work)
        elif isinstance(event, ArtifactStored):
            edits.add(self, "artifacts", event)
        elif isinstance(event, RunEnded) and event.outcome == "cancelled":
            for operation, team in self.teams.items():
                edits.put(self, "teams", operation, _cancel(team))
        elif type(event) in _PROGRESS:
            known = self.teams.get(entry.operation)
            if known is None and isinstance(event, TeamFormed):
                known = TeamWork(operation=entry.operation, progress=WorkProgress())
            if known is not None:
                edits.put(self, "teams", entry.operation, _apply(known, entry))

    def measure_steps(self, team: TeamWork, *, until: float) -> dict[str, StepUse]:
        """Return what each step of a team's plan has used up to the time `until`, keyed by step."""
        version = team.progress.version
        found = {
            id: self._find_step(f"{team.operation}/{PLAN_STEP}{id}", version, is_done=step.state == "done")
            for id, step in team.progress.steps.items()
        }
        return {id: StepUse() if work is None else work.build_use(until) for id, work in found.items()}

    def _find_step(self, path: str, version: int, *, is_done: bool) -> StepRecord | None:
        """Return the work on a step, or None if none is recorded.

        If the step is done, the work may have been recorded under an earlier version of the plan.
        """
        for number in range(version, 0 if is_done else version - 1, -1):
            if (found := self.steps.get(path if number == 1 else f"{path}~{number}")) is not None:
                return found
        return None


def _iter_step_paths(operation: str) -> Iterator[str]:
    """Yield the paths of the plan steps that an operation belongs to."""
    if PLAN_STEP not in operation:
        return
    segments = operation.split("/")
    for number, segment in enumerate(segments, 1):
        if segment.startswith(PLAN_STEP):
            yield "/".join(segments[:number])


def _apply(team: TeamWork, entry: Entry) -> TeamWork:
    match entry.event:
        case PlanDrafted() as drafted:
            return replace(team, draft=drafted)
        case SnapshotTaken() as taken:
            return replace(team, snapshots=(*team.snapshots, (entry.seq, taken)))
    with suppress(InvalidTransition):  # an invalid timeline must not prevent a list of many runs from being shown
        return replace(team, progress=team.progress.apply(entry.event))
    return team


def _cancel(team: TeamWork) -> TeamWork:
    """Return the work with its state changed to cancelled, unless it has already ended."""
    with suppress(InvalidTransition):
        return replace(team, progress=team.progress.apply(WorkStateChanged(state="cancelled")))
    return team
