"""Find the timelines that record the work of a run's collaborating teams.

A team with its own checkout works in a worker, so its plan is on the timeline of the worker's run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from msgspec import field

from ...store.reader import RunSummary, StoreReader
from ...values.column import DocumentPart
from ...values.errors import NoSuchRun
from ...values.event import RunStarted
from ...values.operation_path import parse_agent_name
from ...values.plan import Criterion, Finding, StepPolicy, StepState, WorkPlan, WorkState
from ...views.run_state import RunState
from ...views.run_state.plans import RunPlans, StepUse, TeamWork
from ...views.run_state.sent_workers import SentWorkers
from .team_states import StateReader, read_team_states


class PlanStepState(DocumentPart, frozen=True, kw_only=True):
    """A step of a plan, its progress, and what it has used."""

    id: str
    state: StepState
    owner: str
    attempt: int
    description: str
    depends_on: tuple[str, ...]
    acceptance: tuple[Criterion, ...]
    policy: StepPolicy
    used: StepUse
    findings: tuple[Finding, ...]
    reason: str
    branch: str | None
    commit: str | None


class NamedSnapshot(DocumentPart, frozen=True, kw_only=True):
    """A snapshot and its position on the timeline."""

    name: str
    seq: int


class TeamPlan(DocumentPart, frozen=True, kw_only=True):
    """The plan of a collaborating team. `draft` is the last draft, which may not be committed yet."""

    run: str
    agent: str
    state: WorkState
    version: int
    goal: str
    draft: WorkPlan | None
    steps: list[PlanStepState]
    snapshots: list[NamedSnapshot]


def _build_team_plan(run: WorkRun, work: TeamWork) -> TeamPlan:
    progress, used = work.progress, run.plans.measure_steps(work, until=run.until)
    steps = []
    for id, one in progress.steps.items():
        step = {name: getattr(one.step, name) for name in ("description", "depends_on", "acceptance", "policy")}
        branch, commit = one.branch or None, one.commit or None
        steps.append(PlanStepState.of(one, id=id, used=used[id], branch=branch, commit=commit, **step))
    return TeamPlan.of(
        progress,
        run=run.id,
        agent=parse_agent_name(work.operation),
        goal="" if progress.formed is None else progress.formed.goal,
        draft=None if work.draft is None else work.draft.plan,
        steps=steps,
        snapshots=[NamedSnapshot(name=taken.name, seq=seq) for seq, taken in work.snapshots],
    )


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

    def list_plans(self) -> list[TeamPlan]:
        """Return the plan of each team."""
        return [_build_team_plan(self, team) for team in self.teams]


class TeamWorkState(RunState):
    """The parts of a run's state that its plans need."""

    KINDS = (*RunPlans.KINDS, *SentWorkers.KINDS)

    plans: RunPlans = field(default_factory=RunPlans)
    workers: SentWorkers = field(default_factory=SentWorkers)

    @property
    def worker_runs(self) -> Iterable[str]:
        """The runs of the workers that the run started."""
        return self.workers.worker_runs


def list_work_runs(reader: StoreReader, run: str) -> list[WorkRun]:
    """Return a run and, level by level, the runs of its workers that lead collaborating teams."""
    read, includes = partial(StateReader(TeamWorkState).read, reader), partial(is_team_worker, reader)
    return [
        _make_work_run(reader.read_summary(run), state.plans)
        for run, state in read_team_states(run, read, includes=includes).items()
    ]


def _make_work_run(summary: RunSummary, plans: RunPlans) -> WorkRun:
    until = time.time() if summary.phase == "running" else summary.last.at
    return WorkRun(id=summary.id, started=summary.started, plans=plans, until=until)


def is_team_worker(reader: StoreReader, run: str) -> bool | None:
    """Return whether a worker's agent leads a collaborating team, or None if its run has not been written yet."""
    try:
        started = reader.read_summary(run).started
    except NoSuchRun:
        return None
    lead = next((agent for agent in started.agents if agent.name == started.agent), None)
    return lead is not None and lead.team is not None and lead.team.mode == "collaborate"
