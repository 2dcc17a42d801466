"""Summarise workers: their states, the files that more than one of them changed, and their total usage.

A summary is built only from the timelines; it does not check whether the branches merge cleanly.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..values.usage import NO_USAGE, Usage, sum_usage
from .worker_state import WorkerState


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
