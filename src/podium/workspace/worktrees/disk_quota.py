"""The quota of worktrees: how much disk those of a store take, and whether there is room for another.

The ledger remembers what each took when it was last measured: when it was made, when its worker ended, and
when it was listed. Before another is made only those are measured that somebody works in, and not for long,
so that this takes less time than making it. What is merely remembered refuses nobody: then all are measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import move_on_after, to_thread

from ...store.sqlite.worker_index import WorkerIndex
from ...store.sqlite.worktree_ledger import Ledger, WorktreeRow
from ...values.byte_size import format_size
from ...values.errors import Mistake

MOST_NAMED = 3
MEASURING_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeDiskUsage:
    """What the worktrees of a store take, the largest first, and how much they may; None is as much as there is."""

    worktrees: tuple[WorktreeRow, ...]
    quota: int | None

    @property
    def total_size(self) -> int:
        return sum(one.size for one in self.worktrees)

    @property
    def is_reached(self) -> bool:
        """Whether there is no room for another."""
        return self.quota is not None and self.total_size >= self.quota

    def __str__(self) -> str:
        repositories = len({one.repository for one in self.worktrees})
        where = f" in {repositories} repositories" if repositories > 1 else ""
        of = "" if self.quota is None else f" of the {format_size(self.quota)} that worktrees.quota allows"
        return f"the worktrees of workers{where} take {format_size(self.total_size)}{of}"


async def read_disk_usage(ledger: Ledger, quota: int | None) -> WorktreeDiskUsage:
    """What they take, as far as it is remembered."""
    there = sorted(await ledger.list_worktrees(), key=lambda one: one.size, reverse=True)
    return WorktreeDiskUsage(worktrees=tuple(there), quota=quota)


async def must_be_within_quota(ledger: Ledger, quota: int | None) -> None:
    """Raises Mistake where the worktrees of a store take all that they may, with those that take most."""
    if quota is None:
        return
    there = await read_disk_usage(ledger, quota)
    if not there.is_reached:
        # By branches, because a checkout that workers share belongs to the run of their team.
        at_work = {hired.name for hired in await to_thread.run_sync(WorkerIndex(ledger.store).list_open)}
        grown = [one for one in there.worktrees if one.branch in at_work or not one.run]
        with move_on_after(MEASURING_SECONDS):
            # The newest first: of them only is known what they took when they were made.
            await measure_worktrees(ledger, sorted(grown, key=lambda one: one.created, reverse=True))
        there = await read_disk_usage(ledger, quota)
    if there.is_reached:
        await measure_worktrees(ledger, there.worktrees)
        there = await read_disk_usage(ledger, quota)
    if there.is_reached:
        largest = ", ".join(f"{one.path} ({format_size(one.size)})" for one in there.worktrees[:MOST_NAMED])
        raise Mistake(
            f"no worktree can be made, because {there}; the largest: {largest}; "
            "podium worktrees cleanup makes room, and a higher quota would do as well"
        )


async def measure_worktrees(ledger: Ledger, worktrees: Iterable[WorktreeRow]) -> None:
    """Look what these take by now, and remember it."""
    for one in worktrees:
        if one.state == "ready":
            size = await to_thread.run_sync(measure_folder, one.path, abandon_on_cancel=True)
            if size != one.size:
                await ledger.record_size(one, size)


def measure_folder(folder: Path) -> int:
    """The bytes of the files in a folder, without what its links lead to; 0 where there is none."""
    total, left = 0, [str(folder)]
    while left:
        path = left.pop()
        # What a worker removes or closes meanwhile is not counted, nor what lies too deep to have a path.
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                    continue
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total
