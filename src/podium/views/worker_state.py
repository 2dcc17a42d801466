"""Build a worker's state: its status, and the details that lists and reports show.

Like the run view, the state is computed from the timeline of the worker's run. The timeline does not show whether a
process is working on the run, so the caller passes this information.

A summary of several workers is built only from the timelines; it does not check whether the branches merge cleanly.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Literal

from msgspec import Struct, field

from ..values.event import (
    KINDS,
    AlsoCommitted,
    Entry,
    PermissionAsked,
    QuestionAsked,
    ReasoningStreamed,
    TextStreamed,
    WorkCommitted,
    WorkerPlaced,
)
from ..values.phase import FINAL_PHASES, Activity, Lease, Phase
from ..values.usage import NO_USAGE, Usage, sum_usage
from ..values.worker_task import WorkerTask
from .run_state import RunState
from .run_state.model_usage import ContextUse, RunUsage
from .run_state.sent_workers import SentWorkers
from .run_state.tree import RunView
from .run_state.worker_record import CheckRun, WorkerRecord


class SharedFile(Struct, frozen=True, kw_only=True):
    """A file that more than one worker changed."""

    path: str
    workers: tuple[str, ...]


class WorkersSummary(Struct, frozen=True, kw_only=True):
    """Workers, in the order in which they were passed to `from_workers`, and their totals.

    `seconds` is the time from the first worker's start to the last known entry of any worker.
    """

    workers: tuple[WorkerState, ...]
    shared: tuple[SharedFile, ...] = ()
    added: int = 0
    removed: int = 0
    usage: Usage = NO_USAGE
    seconds: float = 0.0

    @classmethod
    def from_workers(cls, workers: Iterable[WorkerState]) -> WorkersSummary:
        """Build the summary of these workers."""
        all_workers = tuple(workers)
        counted = {run for worker in all_workers for run in worker.counts}
        begun = [worker for worker in all_workers if worker.begun_at]
        # Each worker reports all changes on its branch, so only the latest worker of each branch is counted.
        last = {worker.name: worker for worker in sorted(all_workers, key=lambda one: one.at)}.values()
        by_file: dict[str, dict[str, None]] = {}
        for worker in all_workers:
            for file in worker.files:
                by_file.setdefault(file, {})[worker.name] = None
        return cls(
            workers=all_workers,
            shared=tuple(
                SharedFile(path=path, workers=tuple(names)) for path, names in sorted(by_file.items()) if len(names) > 1
            ),
            added=sum(worker.added for worker in last),
            removed=sum(worker.removed for worker in last),
            usage=sum_usage(worker.usage for worker in all_workers if worker.run not in counted),
            seconds=max(worker.at for worker in begun) - min(worker.begun_at for worker in begun) if begun else 0.0,
        )

    def list_branches(self) -> dict[str, str]:
        """Return the branches that have commits, each with the base commit of the last worker that committed to it."""
        return {
            worker.worker_task.branch: worker.base
            for worker in self.workers
            if worker.worker_task.has_checkout and worker.base and worker.works[0].commits
        }


WorkerStatus = Literal[
    "queued",
    "starting",
    "idle",
    "thinking",
    "tool_call",
    "waiting_permission",
    "waiting_limit",
    "paused",
    "resumable",
    "complete",
    "failed",
    "cancelled",
]
"""The status of a worker: what it is doing, what it is waiting for, or how it ended.

A worker in `waiting_limit` continues by itself when a provider's limit resets. A `queued` worker has not started;
a `resumable` one has started, but no process is working on it.
"""
PHASE_STATUSES: dict[Phase, WorkerStatus] = {
    "queued": "queued",
    "waiting": "waiting_limit",
    "paused": "paused",
    "resumable": "resumable",
    "succeeded": "complete",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "cancelled",
}
"""The status of a worker in each phase of its run except `running`, in which the worker's activity is its status."""
ACTIVITY_STATUSES: dict[Activity, WorkerStatus] = {
    "waiting": "waiting_permission",
    "tool": "tool_call",
    "thinking": "thinking",
    "workers": "tool_call",
    "idle": "idle",
    "starting": "starting",
}
REASONS: dict[WorkerStatus, str] = {
    "complete": "",
    "failed": "it failed",
    "cancelled": "it was stopped",
    "queued": "it has not started yet",
    "paused": "it is paused",
    "resumable": "its process has exited; a commander has to resume it",
    "waiting_permission": "it is waiting for your answer",
}
"""Why a worker has no answer, unless more is known."""
WORKERS_TOOL = "workers"
"""The tool name that is shown for a worker while it waits for workers that it started."""


class CheckoutWork(Struct, frozen=True, kw_only=True):
    """A worker's work in one of its checkouts.

    `base` is set when the worker gets the checkout; `commit`, `commits`, `files`, `added` and `removed` are set when
    its work is committed.
    """

    root: str
    name: str
    path: str
    base: str = ""
    commit: str = ""
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0


def list_checkout_work(
    worker_task: WorkerTask, placed: WorkerPlaced | None, committed: WorkCommitted | None
) -> tuple[CheckoutWork, ...]:
    """Return a worker's work in each of its checkouts, the primary one first, from what its timeline recorded last."""
    bases: dict[str, str] = {}
    if placed is not None:
        bases = {worker_task.root: placed.base, **{one.root: one.base for one in placed.also}}
    commits: dict[str, WorkCommitted | AlsoCommitted] = {}
    if committed is not None:
        commits = {worker_task.root: committed, **{one.root: one for one in committed.also}}
    nothing = AlsoCommitted(root="", commit="")
    return tuple(
        CheckoutWork(
            root=one.root,
            name=one.name,
            path=one.path,
            base=bases.get(one.root, ""),
            commit=(done := commits.get(one.root, nothing)).commit,
            commits=done.commits,
            files=done.files,
            added=done.added,
            removed=done.removed,
        )
        for one in worker_task.checkouts
    )


class WorkerState(Struct, frozen=True, kw_only=True):
    """A worker's state. If there is no answer, `answer` is None and `why` is the reason.

    `waiting_since` is the time of the oldest unanswered request or question, or 0 if there is none; `waiting_for`
    contains the ids of all unanswered requests and questions. `unproved` is why the work of a complete worker is
    unproved, if it is. `works` contains its work in each of its checkouts, the primary one
    first. `usage` includes the usage of the workers that this worker started and that have ended; `counts` contains the
    run ids of those workers. `context` is the size of the largest open conversation of the worker's agents or, if none
    is open, of the last conversation. `model` is the model that replied last.
    """

    run: str
    phase: Phase
    state: WorkerStatus
    agent: str
    task: str
    worker_task: WorkerTask
    tool: str = ""
    waiting_since: float = 0.0
    waiting_for: tuple[str, ...] = ()
    answer: str | None = None
    why: str = ""
    unproved: str = ""
    works: tuple[CheckoutWork, ...]
    checks: tuple[CheckRun, ...] = ()
    usage: Usage = NO_USAGE
    counts: tuple[str, ...] = ()
    delegated_at: float = 0.0
    begun_at: float = 0.0
    at: float = 0.0
    restarts: int = 0
    context: ContextUse | None = None
    model: str = ""
    wakes_at: float | None = None
    """When the worker continues, in seconds since the epoch, if it is waiting for a provider's limit to reset."""
    expects_changes: bool = False
    """Whether the worker's agent must change files."""

    @property
    def name(self) -> str:
        """The worker's display name."""
        return self.worker_task.worker_name or self.run

    @property
    def is_over(self) -> bool:
        return self.phase in FINAL_PHASES

    @property
    def base(self) -> str:
        """The commit that the worker's branch starts at in its primary repository."""
        return self.works[0].base

    @property
    def commit(self) -> str:
        """The last commit on the worker's branch in its primary repository."""
        return self.works[0].commit

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits in all repositories."""
        return tuple(commit for one in self.works for commit in one.commits)

    @property
    def files(self) -> tuple[str, ...]:
        """The changed files in all repositories. Those in additional ones begin with the name of the repository."""
        first, *others = self.works
        return (*first.files, *(f"{one.name}/{file}" for one in others for file in one.files))

    @property
    def added(self) -> int:
        return sum(one.added for one in self.works)

    @property
    def removed(self) -> int:
        return sum(one.removed for one in self.works)

    @property
    def seconds(self) -> float:
        """The time from the start of the worker's work to the last known entry of its run."""
        return self.at - self.begun_at if self.begun_at else 0.0


def build_worker_state(entries: Iterable[Entry], lease: Lease, *, posted: Collection[str] = ()) -> WorkerState:
    """Build a worker's state from the entries of its run.

    `posted` contains the ids of requests with an answer in the mailbox.
    """
    return WorkerRunState.from_entries(entries).build_state(lease, posted=posted)


class WorkerRunState(RunState):
    """The parts of a run's state that its worker's state needs."""

    KINDS = tuple(name for event, name in KINDS.items() if event not in (TextStreamed, ReasoningStreamed))

    view: RunView = field(default_factory=RunView)
    record: WorkerRecord = field(default_factory=WorkerRecord)
    usage: RunUsage = field(default_factory=RunUsage)
    workers: SentWorkers = field(default_factory=SentWorkers)

    def build_state(self, lease: Lease, *, posted: Collection[str] = ()) -> WorkerState:
        """Return the worker's current state. `posted` contains the ids of requests with an answer in the mailbox."""
        view, record, started = self.view, self.record, self.view.started
        assert started is not None, "the first entry of a run must be RunStarted"
        assert started.errand is not None, "a worker's run must have a worker task"
        result = view.build_result()
        asked = view.requests.list_open(now=time.time(), posted=posted)
        phase, activity = view.derive_phase(lease, is_worker=True), record.ongoing.derive_activity(asked)
        status = ACTIVITY_STATUSES[activity] if phase == "running" else PHASE_STATUSES[phase]
        return WorkerState(
            run=view.run,
            phase=phase,
            state=status,
            agent=started.agent,
            task=started.request.text,
            worker_task=started.errand,
            tool=self._find_current_tool(asked) if status in ("tool_call", "waiting_permission") else "",
            waiting_since=min((entry.at for entry in asked.values()), default=0.0),
            waiting_for=tuple(asked),
            answer=result.text if result.succeeded else None,
            why=self._explain_missing_answer(status),
            unproved=result.unproved or "",
            works=list_checkout_work(started.errand, record.placed, record.committed),
            checks=tuple(record.checks),
            usage=view.usage,
            counts=tuple(self.workers.returned),
            delegated_at=view.started_at,
            begun_at=record.begun_at,
            at=view.at,
            restarts=record.restarts,
            context=self.usage.largest_context,
            model=self.usage.model,
            wakes_at=view.wakes_at if lease == "held" or phase == "waiting" else None,
            expects_changes=any(one.expects_changes for one in started.agents if one.name == started.agent),
        )

    def _find_current_tool(self, asked: dict[str, Entry]) -> str:
        """Return the tool that is waiting for the user or, if there is none, the running tool that was started last."""
        for entry in asked.values():
            match entry.event:
                case PermissionAsked(action=action):
                    return action.tool
                case QuestionAsked():
                    return "ask_person"
        work = self.record.ongoing
        if work.tools:
            return next(reversed(work.tools.values())).name
        return WORKERS_TOOL if work.workers and not work.turns else ""

    def _explain_missing_answer(self, status: WorkerStatus) -> str:
        """Return why there is no answer."""
        ended = self.view.ended
        if ended is not None and ended.failure is not None:
            return str(ended.failure)
        if status == "cancelled" and self.view.stopped_by:
            return f"it was stopped by {self.view.stopped_by}"
        if status == "waiting_limit":
            return f"it is waiting for {self.view.waits_for or 'the limit of its provider'} to reset"
        return REASONS.get(status, "it has not ended")
