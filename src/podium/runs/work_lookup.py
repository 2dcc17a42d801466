"""Find the timelines that record the work of a run's collaborating teams.

A team with its own checkout works in a worker, so its plan is on the timeline of the worker's run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..store.reader import StoreReader
from ..values.errors import NoSuchRun
from ..values.event import Entry, RunStarted, WorkerSent
from ..views.step_use import read_step_use
from ..views.work_fields import work_fields
from ..views.work_progress import TeamWork, read_team_work


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRun:
    """A run and its timeline.

    `until` is the current time if a process is working on the run, otherwise the time of its last entry.
    """

    id: str
    entries: Sequence[Entry]
    until: float

    @property
    def started(self) -> RunStarted:
        """The event that started the run."""
        return self.entries[0].started

    @property
    def teams(self) -> list[TeamWork]:
        """The work of the collaborating teams on this timeline."""
        return read_team_work(self.entries)

    def iter_team_fields(self) -> Iterator[dict[str, Any]]:
        """Yield the work of each team as JSON fields."""
        for team in self.teams:
            yield {"run": self.id, **work_fields(team, read_step_use(self.entries, team, until=self.until))}


def iter_work_runs(reader: StoreReader, run: str) -> Iterator[WorkRun]:
    """Yield a run and, recursively, the runs of its workers that lead collaborating teams."""
    summary = reader.read_summary(run)
    until = time.time() if summary.phase == "running" else summary.last.at
    found = WorkRun(id=run, entries=reader.read_entries(run), until=until)
    yield found
    for entry in found.entries:
        if isinstance(entry.event, WorkerSent) and is_team_worker(reader, entry.event.run):
            yield from iter_work_runs(reader, entry.event.run)


def is_team_worker(reader: StoreReader, run: str) -> bool | None:
    """Return whether a worker's agent leads a collaborating team, or None if its run has not been written yet."""
    try:
        started = reader.read_summary(run).started
    except NoSuchRun:
        return None
    lead = next((agent for agent in started.agents if agent.name == started.agent), None)
    return lead is not None and lead.team is not None and lead.team.mode == "collaborate"
