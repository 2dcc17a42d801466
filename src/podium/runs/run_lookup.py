"""Looking into the store from a command: opened where there is one, and never made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from anyio import move_on_after, to_thread

from ..store.follower import Follower
from ..store.sqlite.reader import RunSummary, StoreReader
from ..store.sqlite.worker_index import WorkerIndex, WorkerRow
from ..system.locations import find_repo
from ..values.errors import Mistake, NoSuchRun
from ..values.event import Noticed, RunEnded, RunPaused, RunStarted
from ..values.request import Outcome
from ..workspace.git.repository import Repository

NO_RUNS = 'no runs yet; podium run AGENT "request" begins one'


@contextmanager
def open_reader(store: Path) -> Iterator[StoreReader]:
    """The store, to be read; raises NoSuchRun where there is none yet."""
    if not store.exists():
        raise NoSuchRun(NO_RUNS)
    with StoreReader(store) as reader:
        yield reader


def find_run_id(store: Path, name: str) -> str:
    """The id of the run that is meant: that of the newest worker of this name here, or the one that begins so."""
    with open_reader(store) as reader:
        # A whole name comes before the beginning of an id, as it does where workers alone are meant.
        return find_worker_run(store, name) or reader.find_run(name)


def find_worker_run(store: Path, name: str) -> str:
    """The newest worker of a branch or a name in this repository; empty where there is none."""
    from ..store.sqlite.worker_index import WorkerIndex  # here, because most commands look for no worker

    try:
        root = Repository.at(find_repo(Path())).main_folder
    except Mistake:
        return ""  # in no repository, where nobody has a branch
    known = WorkerIndex(store).find_by_name(str(root), name) if name else []
    return known[-1].run if known else ""


POLL_SECONDS = 1.0


async def wait_for_end_or_pause(store: Path, run: str) -> RunEnded | RunPaused | None:
    """The event that ended or paused the run; None when its process is gone and left it unfinished."""
    with StoreReader(store) as reader:
        while True:
            summary = await to_thread.run_sync(reader.read_summary, run)
            if isinstance(summary.last.event, RunEnded | RunPaused):
                return summary.last.event
            if derive_run_state(summary) in ("queued", "resumable"):
                return None
            # Entries ring; the death of a process does not, so that it is looked for now and then.
            with move_on_after(POLL_SECONDS), Follower(store, run, summary.last.seq) as entries:
                async for entry in entries:
                    if isinstance(entry.event, RunEnded | RunPaused):
                        break


RunState = Outcome | Literal["running", "queued", "resumable"]


def derive_run_state(summary: RunSummary) -> RunState:
    """`running`, `paused`, `queued` (a worker that nobody has begun yet), `resumable`, or how it ended.

    A resumable run has not ended, and nobody works on it.
    """
    match summary.last.event:
        case RunEnded(outcome=outcome):
            return outcome
        case RunPaused():
            return "paused"
    if summary.owner is not None and summary.owner.is_alive:
        return "running"
    # What the person should know is noted when a worker is hired, before anybody begins.
    is_not_started = summary.owner is None and isinstance(summary.last.event, RunStarted | Noticed)
    return "queued" if is_not_started and is_worker_run(summary) else "resumable"


def is_worker_run(summary: RunSummary) -> bool:
    """Whether the run is a worker's, which a commander works on."""
    started = summary.first.event
    return isinstance(started, RunStarted) and started.errand is not None


def is_over(summary: RunSummary) -> bool:
    """Whether the run has ended and will not change again."""
    return isinstance(summary.last.event, RunEnded)


def find_newest_worker(worker_index: WorkerIndex, root: str, name: str) -> WorkerRow:
    """The newest worker of a branch or a name, or the one whose run's id begins so. Raises Mistake."""
    if known := worker_index.find_by_name(root, name):
        return known[-1]
    matches = [row for row in worker_index.list_all() if name and row.run.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        several = ", ".join(f"{row.run} ({row.name})" if row.name else row.run for row in matches)
        raise Mistake(f"{name!r} is the beginning of several workers' ids: {several}; give more of the one you mean")
    there = ", ".join(dict.fromkeys(row.name or row.run for row in worker_index.list_all(root))) or "none yet"
    raise Mistake(f"there is no worker {name!r} here; there are: {there}")
