"""Look up runs and workers in the store. A store that does not exist is never created."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from anyio import move_on_after, to_thread

from ..store.follower import Follower
from ..store.sqlite.reader import RunSummary, StoreReader
from ..store.sqlite.worker_index import WorkerIndex, WorkerRow
from ..system.locations import find_repo
from ..values.agent import collect_agent_names
from ..values.errors import Mistake, NoSuchRun
from ..values.event import Noticed, RunEnded, RunPaused, RunStarted
from ..values.request import Outcome
from ..workspace.git.repository import Repository

NO_RUNS = 'no runs yet; start one with: podium run AGENT "request"'


@contextmanager
def open_reader(store: Path) -> Iterator[StoreReader]:
    """Open the store for reading. Raises NoSuchRun if it does not exist yet."""
    if not store.exists():
        raise NoSuchRun(NO_RUNS)
    with StoreReader(store) as reader:
        yield reader


def find_run_id(store: Path, name: str) -> str:
    """Return the id of a run by the branch or name of its newest worker here, or by the start of the id."""
    with open_reader(store) as reader:
        # A full name takes precedence over the start of an id, as in commands about workers.
        return find_worker_run(store, name) or reader.find_run(name)


def find_worker_run(store: Path, name: str) -> str:
    """Return the run of the newest worker with this branch or name in this repository, or an empty string."""
    from ..store.sqlite.worker_index import WorkerIndex  # imported here for start-up time: rarely needed

    try:
        root = Repository.at(find_repo(Path())).main_folder
    except Mistake:
        return ""  # not in a repository, so there are no branches
    known = WorkerIndex(store).find_by_name(str(root), name) if name else []
    return known[-1].run if known else ""


POLL_SECONDS = 1.0


async def wait_for_end_or_pause(store: Path, run: str) -> RunEnded | RunPaused | None:
    """Wait for the event that ends or pauses the run; return None if its process exits and leaves it unfinished."""
    with StoreReader(store) as reader:
        while True:
            summary = await to_thread.run_sync(reader.read_summary, run)
            if isinstance(summary.last.event, RunEnded | RunPaused):
                return summary.last.event
            if derive_run_state(summary) in ("queued", "resumable"):
                return None
            # New entries wake us, but the death of a process does not, so poll for it.
            with move_on_after(POLL_SECONDS), Follower(store, run, summary.last.seq) as entries:
                async for entry in entries:
                    if isinstance(entry.event, RunEnded | RunPaused):
                        break


RunState = Outcome | Literal["running", "queued", "resumable"]


def derive_run_state(summary: RunSummary) -> RunState:
    """Return `running`, `paused`, `queued` (a worker that has not been started), `resumable`, or the outcome.

    A resumable run has not ended, and no process works on it.
    """
    match summary.last.event:
        case RunEnded(outcome=outcome):
            return outcome
        case RunPaused():
            return "paused"
    if summary.owner is not None and summary.owner.is_alive:
        return "running"
    # Notices are recorded when a worker is delegated, before it starts.
    is_not_started = summary.owner is None and isinstance(summary.last.event, RunStarted | Noticed)
    return "queued" if is_not_started and is_worker_run(summary) else "resumable"


def is_worker_run(summary: RunSummary) -> bool:
    """Return whether the run belongs to a worker, which a commander works on."""
    started = summary.first.event
    return isinstance(started, RunStarted) and started.errand is not None


def is_over(summary: RunSummary) -> bool:
    """Return whether the run has ended and will not change again."""
    return isinstance(summary.last.event, RunEnded)


def find_newest_worker(worker_index: WorkerIndex, root: str, name: str) -> WorkerRow:
    """Return the newest worker with this branch or name, or the one whose run id starts with it. Raises Mistake."""
    if known := worker_index.find_by_name(root, name):
        return known[-1]
    matches = [row for row in worker_index.list_all() if name and row.run.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        several = ", ".join(f"{row.run} ({row.name})" if row.name else row.run for row in matches)
        raise Mistake(f"{name!r} matches several workers: {several}; give more characters of the id")
    there = ", ".join(dict.fromkeys(row.name or row.run for row in worker_index.list_all(root))) or "none yet"
    raise Mistake(f"worker {name!r} not found here; available: {there}")


def resolve_recipient(summary: RunSummary, agent: str) -> str:
    """Return the agent to send to. Raise Mistake if the run has ended or has no such agent."""
    if is_over(summary):
        raise Mistake(
            f"run {summary.id} has ended ({derive_run_state(summary)}), so its agents receive no more messages"
        )
    started = summary.first.event
    assert isinstance(started, RunStarted)
    names = collect_agent_names(started.agents)
    if not agent or agent in names:
        return agent or started.agent
    close = get_close_matches(agent, names, n=1)
    there_are = f"did you mean {close[0]}?" if close else f"available: {', '.join(names)}"
    raise Mistake(f"run {summary.id} has no agent {agent!r}; {there_are}")
