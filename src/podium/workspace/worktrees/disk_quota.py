"""Enforce the disk quota for worktrees: measure a store's worktrees, and check whether another worktree fits.

The ledger stores the last measured size of each worktree. A worktree is measured when it is created, when its worker
ends, and when worktrees are listed. Before a new worktree is created, only worktrees in use are measured, with a short
time limit. If the sizes reach the quota, all worktrees are measured before a new worktree is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import move_on_after, to_thread

from ...store.worker_index import WorkerIndex
from ...store.worktree_ledger import Ledger, WorktreeRow
from ...values.errors import Mistake
from ...values.plain_text import format_size

MOST_NAMED = 3
MEASURING_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeDiskUsage:
    """The worktrees of a store with their sizes, largest first. `quota` is None if there is no limit."""

    worktrees: tuple[WorktreeRow, ...]
    quota: int | None

    @property
    def total_size(self) -> int:
        return sum(one.size for one in self.worktrees)

    @property
    def is_reached(self) -> bool:
        """Whether the worktrees use the whole quota, so that no other worktree can be created."""
        return self.quota is not None and self.total_size >= self.quota

    def __str__(self) -> str:
        repositories = len({one.repository for one in self.worktrees})
        where = f" in {repositories} repositories" if repositories > 1 else ""
        of = "" if self.quota is None else f" of the {format_size(self.quota)} that worktrees.quota allows"
        return f"the worktrees of workers{where} use {format_size(self.total_size)}{of}"


async def read_disk_usage(ledger: Ledger, quota: int | None) -> WorktreeDiskUsage:
    """Return the disk usage according to the sizes in the ledger."""
    there = sorted(await ledger.list_worktrees(), key=lambda one: one.size, reverse=True)
    return WorktreeDiskUsage(worktrees=tuple(there), quota=quota)


async def must_be_within_quota(ledger: Ledger, quota: int | None) -> None:
    """Raise Mistake, with a list of the largest worktrees, if a store's worktrees have reached their quota."""
    if quota is None:
        return
    there = await read_disk_usage(ledger, quota)
    if not there.is_reached:
        # Compare branches, because a checkout that workers share belongs to their team's run.
        at_work = {hired.name for hired in await to_thread.run_sync(WorkerIndex(ledger.store).list_open)}
        grown = [one for one in there.worktrees if one.branch in at_work or not one.run]
        with move_on_after(MEASURING_SECONDS):
            # Measure the newest worktrees first: they may not have been measured since they were created.
            await measure_worktrees(ledger, sorted(grown, key=lambda one: one.created, reverse=True))
        there = await read_disk_usage(ledger, quota)
    if there.is_reached:
        await measure_worktrees(ledger, there.worktrees)
        there = await read_disk_usage(ledger, quota)
    if there.is_reached:
        largest = ", ".join(f"{one.path} ({format_size(one.size)})" for one in there.worktrees[:MOST_NAMED])
        raise Mistake(
            f"cannot create a worktree, because {there}; the largest: {largest}; "
            "run podium worktrees cleanup to make room, or raise the quota"
        )


async def measure_worktrees(ledger: Ledger, worktrees: Iterable[WorktreeRow]) -> None:
    """Measure these worktrees, and record their sizes."""
    for one in worktrees:
        if one.state == "ready":
            size = await to_thread.run_sync(measure_folder, one.path, abandon_on_cancel=True)
            if size != one.size:
                await ledger.record_size(one, size)


def measure_folder(folder: Path) -> int:
    """Return the total size in bytes of the files in a folder, or 0 if it does not exist. Links are not followed."""
    total, left = 0, [str(folder)]
    while left:
        path = left.pop()
        # Skip files and folders that disappear or cannot be read, and paths that are too long.
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                    continue
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total
