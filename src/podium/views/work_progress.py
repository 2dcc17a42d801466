"""Read the plans of a run's collaborating teams, and the progress of each step, from the timeline."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from ..core.plan_state import InvalidTransition, WorkProgress
from ..values.event import (
    ArtifactStored,
    Entry,
    PlanDrafted,
    RunEnded,
    SnapshotTaken,
    TeamFormed,
    WorkStateChanged,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamWork:
    """The work of one team. `draft` is the last draft of its plan, which may not be committed yet."""

    operation: str
    progress: WorkProgress
    draft: PlanDrafted | None = None
    artifacts: tuple[ArtifactStored, ...] = ()
    snapshots: tuple[tuple[int, SnapshotTaken], ...] = ()
    """The snapshots with their positions on the timeline."""


class TeamWorkBuilder:
    """Builds the `TeamWork` of each collaborating team of a run, entry by entry."""

    def __init__(self) -> None:
        self._found: dict[str, TeamWork] = {}

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        if isinstance(entry.event, RunEnded) and entry.event.outcome == "cancelled":
            self._found = {operation: _cancel(work) for operation, work in self._found.items()}
        if isinstance(entry.event, TeamFormed):
            self._found.setdefault(entry.operation, TeamWork(operation=entry.operation, progress=WorkProgress()))
        if entry.operation in self._found:
            self._found[entry.operation] = _apply(self._found[entry.operation], entry)

    @property
    def works(self) -> list[TeamWork]:
        """The work of each team, in the order in which the teams were formed."""
        return list(self._found.values())


def read_team_work(entries: Iterable[Entry]) -> list[TeamWork]:
    """Return the work of each collaborating team of a run, in the order in which the teams were formed."""
    builder = TeamWorkBuilder()
    for entry in entries:
        builder.apply(entry)
    return builder.works


def _apply(work: TeamWork, entry: Entry) -> TeamWork:
    match entry.event:
        case PlanDrafted() as drafted:
            return replace(work, draft=drafted)
        case ArtifactStored() as stored:
            return replace(work, artifacts=(*work.artifacts, stored))
        case SnapshotTaken() as taken:
            return replace(work, snapshots=(*work.snapshots, (entry.seq, taken)))
    with suppress(InvalidTransition):  # an invalid timeline must not prevent a list of many runs from being shown
        return replace(work, progress=work.progress.apply(entry.event))
    return work


def _cancel(work: TeamWork) -> TeamWork:
    """Return the work with its state changed to cancelled, unless it has already ended."""
    with suppress(InvalidTransition):
        return replace(work, progress=work.progress.apply(WorkStateChanged(state="cancelled")))
    return work
