"""Take a manual snapshot of a run: its position on the timeline, and the commits of its checkouts.

No process may be working on the run. While agents work, the files and the timeline change independently, so a snapshot
could contain half of an action, or lack the effect of an action that is already on the timeline. Pausing a run lets its
actions finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anyio import CancelScope

from ..values.actor import Actor, act
from ..values.errors import Mistake, OutsideFailed
from ..values.event import (
    Entry,
    Event,
    RunPaused,
    RunResumed,
    RunStarted,
    SnapshotTaken,
    WorkerReturned,
    WorkerSent,
)
from .assembly.git_work import GitWork
from .runs import Runs

LONGEST_NAME = 64


@act("act")
async def take_run_snapshot(runs: Runs, run: str, *, by: Actor, name: str | None = None) -> tuple[SnapshotTaken, str]:
    """Take a snapshot of a run. Return it and, if the files could not be committed, the reason.

    Raise Mistake if the name cannot be used or the run belongs to a worker, RunOver if the run has ended, and RunHeld
    if a process is working on it.
    """
    before = await runs.read_entries(run)
    _require_no_worker(before)
    _choose_name(before, name)  # an error is reported before anything is recorded
    claimed = await runs.claim_idle(run, by=by, must_be_intact=True)
    added: list[Event] = []
    try:
        entries = await runs.read_entries(run)
        if _was_paused(entries):
            added.append(RunPaused())  # the pause ended when this process claimed the run
        chosen = _choose_name(entries, name)
        commits, why_not = await _keep_commits(entries, chosen)
        taken = SnapshotTaken(name=chosen, commits=commits)
        added.insert(0, taken)
    finally:
        with CancelScope(shield=True):
            await claimed.record_and_release(*added)
    return taken, why_not


def _require_no_worker(entries: Sequence[Entry]) -> None:
    worker_task = entries[0].started.errand
    if worker_task is not None:
        what = (
            f"take a snapshot of run {worker_task.parent}, which started the worker"
            if worker_task.parent
            else "use git log to see the commits on the worker's branch"
        )
        raise Mistake(f"run {entries[0].run} belongs to a worker, and workers have no snapshots; {what}")


def _was_paused(entries: Sequence[Entry]) -> bool:
    """Return whether a run was paused when this process claimed it."""
    ownership = [entry.event for entry in entries if isinstance(entry.event, RunStarted | RunResumed | RunPaused)]
    return isinstance(ownership[-2], RunPaused)


def _choose_name(entries: Sequence[Entry], name: str | None) -> str:
    """Return the name, or by default `manual-1`, `manual-2` and so on. Raise Mistake if it cannot be used."""
    known = {entry.event.name for entry in entries if isinstance(entry.event, SnapshotTaken)}
    if name is None:
        return next(free for number in range(1, len(known) + 2) if (free := f"manual-{number}") not in known)
    if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        rule = f"a name must have 1 to {LONGEST_NAME} printable characters and cannot consist only of spaces"
        raise Mistake(f"{name!r} cannot be the name of a snapshot; {rule}")
    if name.isdecimal():
        raise Mistake(
            f"{name!r} is a number, which --at would interpret as an entry number; use another name, such as s{name}"
        )
    if name in known:
        raise Mistake(f"run {entries[0].run} already has a snapshot {name!r}; use another name")
    return name


async def _keep_commits(entries: Sequence[Entry], name: str) -> tuple[dict[str, str], str]:
    """Commit the run's checkout, and protect this commit and those of its workers' branches from garbage collection.

    Return the commits, keyed by branch, and the reason if there are none.
    """
    started = entries[0].started
    if not started.repo:
        return {}, "the run has no folder"
    repository = GitWork(Path(started.repo), entries[0].run)
    try:
        commits = {"": await repository.commit_checkout(), **_find_worker_commits(entries)}
        await repository.keep_snapshot(name, commits)
    except (Mistake, OutsideFailed) as error:
        return {}, str(error)
    return commits, ""


def _find_worker_commits(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the last commit of each finished worker's branch, keyed by branch."""
    branches = {entry.event.run: entry.event.branch for entry in entries if isinstance(entry.event, WorkerSent)}
    return {
        branches[entry.event.run]: entry.event.commit
        for entry in entries
        if isinstance(entry.event, WorkerReturned) and entry.event.commit and branches.get(entry.event.run)
    }
