"""Summarise a store: which requests are waiting for the user, which runs have not ended, and which ended last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, ClassVar

from msgspec import UNSET, UnsetType, field

from ...core.edits import EDITS, Edits
from ...store.reader import RunSummary, StoreReader
from ...store.request_list import OpenRequest, list_run_requests
from ...values.column import Document, DocumentPart
from ...values.errors import StoreCorrupt
from ...values.event import AlsoCommitted, Entry, WorkCommitted
from ...values.phase import Phase
from ...values.store_address import StoreAddress
from ...values.usage import FullUsage, Usage, sum_usage
from ...views.run_state import RunState
from ...views.run_state.model_usage import RunUsage
from ...views.run_state.plans import TeamWork
from ...views.run_state.tree import OperationNode, RunView
from ...views.run_state.worker_record import CheckRun, WorkerRecord
from .request_details import WaitingRequest, list_request
from .run_lookup import find_wakeup_time
from .team_states import StateReader, read_team_states
from .work_lookup import TeamWorkState, is_team_worker

MOST_ENDED = 10
MOST_ACTIVE_AGENTS = 6
ACTIVITY_SECONDS = 180
"""The length of the recent period in which a run's activity is counted."""
ACTIVITY_PARTS = 12
"""The number of equal intervals into which ACTIVITY_SECONDS is divided. Activity is counted for each interval."""
LONGEST_RESULT = 300
"""How many characters of a result are shown in a list."""
MOST_ENTRY_TIMES = 2000
"""A run's activity is counted from at most this many of its latest entries."""


class StepCount(DocumentPart, frozen=True, kw_only=True):
    """The number of a plan's steps that are done, and the total number."""

    done: int
    total: int


class ShownContext(DocumentPart, frozen=True, kw_only=True):
    """The size of an agent's conversation with a model. `window` is the model's context window, None if unknown."""

    agent: str
    model: str
    tokens: int
    window: int | UnsetType | None = UNSET


class OverviewRow(DocumentPart, frozen=True, kw_only=True):
    """A run in the overview. `agents` says what active agents are doing, and `model` is the model that replied last.

    For a worker, `worker` is its name, `parent` is the run that started it, and `added` and `removed` count the lines
    in its commits. `activity` counts the entries of the last three minutes in equal intervals, oldest first.
    `context` is the size of the largest conversation among its agents, and `checks` contains the checks run on its
    work. If the run has ended, `result` is the first line of its answer, or the reason why it has no answer.
    """

    id: str
    state: Phase
    agent: str
    request: str
    worker: str
    parent: str
    started_at: float
    seconds: float
    agents: tuple[str, ...]
    steps: StepCount | None
    usage: FullUsage
    model: str = ""
    added: int = 0
    removed: int = 0
    activity: tuple[int, ...] = ()
    context: ShownContext | None = None
    result: str = ""
    checks: tuple[CheckRun, ...] = ()
    wakes_at: float | None = None
    """When the run continues, in seconds since the epoch, if it is waiting for a provider's limit to reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The open requests of a store, oldest first, and its runs, newest first.

    `active` contains all runs that have not ended, and `ended` contains the newest of the ended runs.
    """

    waiting: tuple[OpenRequest, ...] = ()
    active: tuple[OverviewRow, ...] = ()
    ended: tuple[OverviewRow, ...] = ()
    damaged: Mapping[str, str] = dataclass_field(default_factory=dict)
    """The runs that cannot be read, and why."""

    @property
    def usage(self) -> Usage:
        """The usage of the active runs. A worker's usage is counted in its own run."""
        return sum_usage(one.usage for one in self.active)


def load_overview(store: StoreAddress, *, now: float, most_ended: int = MOST_ENDED) -> Overview:
    """Read the overview from a store; it is empty if there is no store yet."""
    return OverviewReader(store).load(now=now, most_ended=most_ended)


class OverviewReader:
    """Reads the overview of a store repeatedly. After the first time, it reads only new entries."""

    def __init__(self, store: StoreAddress) -> None:
        self._store = store
        self._states = StateReader(OverviewState)
        self._team_workers: dict[str, bool] = {}
        """Whether a worker's agent leads a collaborating team, keyed by the worker's run."""
        self._ended: set[str] = set()
        self._damaged: dict[str, str] = {}
        """The runs that cannot be read, and why."""
        self._lock = Lock()

    def load(self, *, now: float, most_ended: int = MOST_ENDED) -> Overview:
        """Return the overview; it is empty if there is no store yet. Several threads can call this."""
        if not self._store.exists():
            return Overview()
        with self._lock, StoreReader(self._store) as reader:
            active, ended = self._select_runs(reader, most_ended)
            self._states.forget_unread()
            waiting = [asked for one in active for asked in list_run_requests(reader, one)]
            return Overview(
                waiting=tuple(sorted(waiting, key=lambda one: one.entry.at)),
                active=tuple(self.read_row(reader, one, now=now) for one in active),
                ended=tuple(self.read_row(reader, one, now=now) for one in ended),
                damaged=dict(self._damaged),
            )

    def _select_runs(self, reader: StoreReader, most_ended: int) -> tuple[list[RunSummary], list[RunSummary]]:
        """Return the runs that have not ended, and the newest of the ended runs.

        Once a run is known to have ended, its state is not checked again, because an ended run never changes.
        """
        active: list[RunSummary] = []
        recent: dict[str, RunSummary] = {}
        ids = reader.list_run_ids()
        for summary in self._read_unknown(reader, ids):
            if summary.is_over:
                self._ended.add(summary.id)
                recent[summary.id] = summary
            else:
                active.append(summary)
        newest = islice((run for run in ids if run in self._ended), most_ended)
        ended = [recent.get(run) or reader.read_summary(run) for run in newest]
        return sorted(active, key=lambda one: one.first.at, reverse=True), ended

    def _read_unknown(self, reader: StoreReader, ids: Iterable[str]) -> list[RunSummary]:
        """Return the summaries of all runs that are not yet known to have ended or to be damaged."""
        if not self._ended:
            # The first time, one query for all runs is faster than one query for each run.
            found = reader.read_run_list()
            self._damaged |= {one.id: one.problem for one in found.damaged}
            return found.readable
        summaries: list[RunSummary] = []
        for run in ids:
            if run not in self._ended and run not in self._damaged:
                try:
                    summaries.append(reader.read_summary(run))
                except StoreCorrupt as error:
                    self._damaged[run] = str(error)
        return summaries

    def read_row(self, reader: StoreReader, summary: RunSummary, *, now: float) -> OverviewRow:
        """Return the row of one run."""
        read, includes = partial(self._states.read, reader), partial(self._leads_team, reader)
        states = read_team_states(summary.id, read, includes=includes)
        works = [work for state in states.values() for work in state.plans.teams.values()]
        return states[summary.id].build_row(summary, works, now=now)

    def _leads_team(self, reader: StoreReader, run: str) -> bool:
        if run not in self._team_workers and (is_team := is_team_worker(reader, run)) is not None:
            self._team_workers[run] = is_team
        return self._team_workers.get(run, False)


class EntryTimes(RunState):
    """When the latest entries of a run were recorded."""

    PLACE = ("entry_times",)

    latest: list[float] = field(default_factory=list)

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        edits.add(self, "latest", entry.at)
        if len(self.latest) > MOST_ENTRY_TIMES * 2:
            edits.set(self, latest=self.latest[-MOST_ENTRY_TIMES:])


class OverviewState(TeamWorkState):
    """The parts of a run's state that its row in the overview needs."""

    KINDS: ClassVar[tuple[str, ...]] = ()

    view: RunView = field(default_factory=RunView)
    usage: RunUsage = field(default_factory=RunUsage)
    record: WorkerRecord = field(default_factory=WorkerRecord)
    entry_times: EntryTimes = field(default_factory=EntryTimes)

    def build_row(self, summary: RunSummary, works: Sequence[TeamWork], *, now: float) -> OverviewRow:
        """Return the row of a run. `works` contains an item for each team of the run and of its workers."""
        started = summary.started
        state, task, root = summary.phase, started.errand, self.view.root
        is_working = state == "running"
        committed = self.record.committed
        commits: tuple[WorkCommitted | AlsoCommitted, ...] = ()
        if committed is not None:
            commits = (committed, *committed.also)
        return OverviewRow(
            id=summary.id,
            state=state,
            agent=started.agent,
            request=" ".join(started.request.text.split()),
            worker="" if task is None else task.worker_name,
            parent="" if task is None else task.parent,
            started_at=summary.first.at,
            seconds=(now if is_working else summary.last.at) - summary.first.at,
            agents=tuple(_list_active_agents(root))[:MOST_ACTIVE_AGENTS] if is_working and root is not None else (),
            steps=_count_steps(works),
            usage=FullUsage.of(self.usage.total),
            model=self.usage.model,
            added=sum(one.added for one in commits),
            removed=sum(one.removed for one in commits),
            activity=count_activity(self.entry_times.latest[-MOST_ENTRY_TIMES:], now=now) if is_working else (),
            context=None if (largest := self.usage.largest_context) is None else ShownContext.of(largest),
            result=self._find_result_line(),
            checks=tuple(self.record.checks),
            wakes_at=find_wakeup_time(summary),
        )

    def _find_result_line(self) -> str:
        if self.view.ended is None:
            return ""
        result = self.view.build_result()
        said = (result.text or result.error or "").strip()
        return said.partition("\n")[0][:LONGEST_RESULT]


def count_activity(times: Iterable[float], *, now: float) -> tuple[int, ...]:
    """Return how many timestamps fall into each interval of the last three minutes, oldest interval first."""
    length = ACTIVITY_SECONDS / ACTIVITY_PARTS
    counts = [0] * ACTIVITY_PARTS
    for at in times:
        part = int((now - at) // length)
        if 0 <= part < ACTIVITY_PARTS:
            counts[-1 - part] += 1
    return tuple(counts)


def _count_steps(works: Sequence[TeamWork]) -> StepCount | None:
    steps = [one for work in works for one in work.progress.steps.values()]
    return StepCount(done=sum(one.state == "done" for one in steps), total=len(steps)) if steps else None


def _list_active_agents(root: OperationNode) -> Iterator[str]:
    """Yield the agent and activity of each operation that has not ended and has no running operation below it."""
    for node in root.walk():
        if node.ended is None and all(child.ended is not None for child in node.children):
            yield f"{node.agent}: {node.activity}"


class OverviewDocument(Document, frozen=True, kw_only=True):
    """An overview as it is sent. The API adds the time `now`."""

    waiting: list[WaitingRequest]
    active: Sequence[OverviewRow]
    ended: Sequence[OverviewRow]
    damaged: list[dict[str, str]]
    usage: FullUsage
    now: float | UnsetType = UNSET


def build_overview_document(overview: Overview, **computed: Any) -> OverviewDocument:
    """Return an overview as it is sent, with the given fields instead of its own."""
    waiting = [list_request(one) for one in overview.waiting]
    damaged = [{"id": run, "error": error} for run, error in overview.damaged.items()]
    return OverviewDocument.of(overview, waiting=waiting, damaged=damaged, **computed)
