"""Summarise a store: which requests wait for the user, which agents are active, and which runs have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..store.sqlite.open_requests import OpenRequest, list_open_requests
from ..store.sqlite.reader import RunSummary, StoreReader
from ..values.event import Entry, RunStarted
from ..values.usage import Usage, sum_usage
from ..views.run_view import OperationNode, RunView, usage_of_event
from ..views.work_progress import read_team_work
from .run_lookup import RunState, derive_run_state, is_over

MOST_ENDED = 10
MOST_ACTIVE_AGENTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCount:
    """How many steps of a plan are done."""

    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run in the overview. `agents` lists the active agents; `parent` is the run that started this worker."""

    id: str
    state: RunState
    agent: str
    request: str
    worker: str
    parent: str
    started_at: float
    seconds: float
    agents: tuple[str, ...]
    steps: StepCount | None
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of all runs of a store. Requests are sorted oldest first, and runs newest first."""

    waiting: tuple[OpenRequest, ...] = ()
    active: tuple[RunStatus, ...] = ()
    ended: tuple[RunStatus, ...] = ()

    @property
    def usage(self) -> Usage:
        """The usage of the active runs. A worker's usage is counted in its own run."""
        return sum_usage(one.usage for one in self.active)


def load_overview(store: Path, *, now: float, most_ended: int = MOST_ENDED) -> Overview:
    """Read the overview from a store; it is empty if there is no store yet."""
    if not store.exists():
        return Overview()
    with StoreReader(store) as reader:
        runs = sorted(reader.list_runs(), key=lambda one: one.first.at, reverse=True)
        active = [one for one in runs if not is_over(one)]
        ended = [one for one in runs if is_over(one)][:most_ended]
        return Overview(
            waiting=tuple(list_open_requests(store)),
            active=tuple(_read_status(reader, one, now=now) for one in active),
            ended=tuple(_read_status(reader, one, now=now) for one in ended),
        )


def _read_status(reader: StoreReader, summary: RunSummary, *, now: float) -> RunStatus:
    entries = reader.read_entries(summary.id)
    view, started = RunView.from_entries(entries), summary.first.event
    assert isinstance(started, RunStarted)
    state, task = derive_run_state(summary), started.errand
    is_working = state == "running"
    return RunStatus(
        id=summary.id,
        state=state,
        agent=started.agent,
        request=" ".join(started.request.text.split()),
        worker="" if task is None else task.worker_name,
        parent="" if task is None else task.parent,
        started_at=summary.first.at,
        seconds=(now if is_working else summary.last.at) - summary.first.at,
        agents=tuple(_list_active_agents(view.root))[:MOST_ACTIVE_AGENTS] if is_working and view.root else (),
        steps=_count_steps(entries),
        # Entries that a fork shares with another run, and the results of workers, are counted in their own runs.
        usage=sum_usage(usage_of_event(entry.event) for entry in entries[1 + started.shared :]),
    )


def _list_active_agents(root: OperationNode) -> Iterator[str]:
    """Yield the active agents: those of the innermost operations that have not ended."""
    for node in root.walk():
        if node.ended is None and all(child.ended is not None for child in node.children):
            yield f"{node.agent}: {node.activity}"


def _count_steps(entries: list[Entry]) -> StepCount | None:
    steps = [one for work in read_team_work(entries) for one in work.progress.steps.values()]
    return StepCount(done=sum(one.state == "done" for one in steps), total=len(steps)) if steps else None
