"""Find the timelines that record the work of a run's collaborating teams.

A team with its own checkout works in a worker, so its plan is on the timeline of the worker's run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..store.reader import StoreReader
from ..values.errors import NoSuchRun
from ..values.event import KINDS, RunStarted, WorkerSent, decode_entry
from ..views.run_plans import RunPlans, TeamWork
from ..views.work_fields import work_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRun:
    """A run and the plans of its collaborating teams.

    `until` is the current time if a process is working on the run, otherwise the time of its last entry.
    """

    id: str
    started: RunStarted
    plans: RunPlans
    until: float

    @property
    def teams(self) -> list[TeamWork]:
        """The work of the collaborating teams on this timeline."""
        return [*self.plans.teams.values()]

    def iter_team_fields(self) -> Iterator[dict[str, Any]]:
        """Yield the work of each team as JSON fields."""
        for team in self.teams:
            yield {"run": self.id, **work_fields(team, self.plans.measure_steps(team, until=self.until))}


def iter_work_runs(reader: StoreReader, run: str) -> Iterator[WorkRun]:
    """Yield a run and, recursively, the runs of its workers that lead collaborating teams."""
    summary = reader.read_summary(run)
    plans, workers = RunPlans(), []
    for row in reader.read_rows_of_kinds(run, (*RunPlans.KINDS, KINDS[WorkerSent])):
        entry = decode_entry(row.line, run=run)
        plans.apply(entry)
        if isinstance(entry.event, WorkerSent):
            workers.append(entry.event.run)
    until = time.time() if summary.phase == "running" else summary.last.at
    yield WorkRun(id=run, started=summary.started, plans=plans, until=until)
    for worker in workers:
        if is_team_worker(reader, worker):
            yield from iter_work_runs(reader, worker)


def is_team_worker(reader: StoreReader, run: str) -> bool | None:
    """Return whether a worker's agent leads a collaborating team, or None if its run has not been written yet."""
    try:
        started = reader.read_summary(run).started
    except NoSuchRun:
        return None
    lead = next((agent for agent in started.agents if agent.name == started.agent), None)
    return lead is not None and lead.team is not None and lead.team.mode == "collaborate"
