"""A workforce: several workers as one report, with what they brought together.

It tells what the timelines say. Whether branches would merge is for git, and is tried elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, structs

from ..values.event import Entry, WorkerReturned, WorkerSent
from ..values.usage import NO_USAGE, Usage, sum_usage
from .worker_state import WorkerState


class SharedFile(Struct, frozen=True, kw_only=True):
    """A file that more than one worker changed."""

    path: str
    workers: tuple[str, ...]


class SentWorker(Struct, frozen=True, kw_only=True):
    """A worker that a run sent; `why` is what went wrong with it, as far as that run knows."""

    run: str
    branch: str
    task: str
    why: str = ""


class WorkersSummary(Struct, frozen=True, kw_only=True):
    """Workers in the order in which they were hired, and what they come to together.

    `seconds` are those from the first moment of work of any to the last that is known.
    """

    workers: tuple[WorkerState, ...]
    shared: tuple[SharedFile, ...] = ()
    added: int = 0
    removed: int = 0
    usage: Usage = NO_USAGE
    seconds: float = 0.0

    @classmethod
    def from_workers(cls, workers: Iterable[WorkerState]) -> WorkersSummary:
        """What these workers come to."""
        all_workers = tuple(workers)
        counted = {run for worker in all_workers for run in worker.counts}
        begun = [worker for worker in all_workers if worker.begun_at]
        # Several on one branch each tell of all that is on it; the one that came home last knows of everything.
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
        """The branches that hold something, each with the commit that its newest worker began at."""
        return {
            worker.errand.branch: worker.base
            for worker in self.workers
            if worker.errand.has_checkout and worker.base and worker.commits
        }


def list_sent_workers(entries: Iterable[Entry]) -> list[SentWorker]:
    """The workers that a run sent, in the order in which it did."""
    found: dict[str, SentWorker] = {}
    why: dict[str, str] = {}
    for entry in entries:
        match entry.event:
            case WorkerSent(run=run, branch=branch, task=task):
                found.setdefault(run, SentWorker(run=run, branch=branch, task=task))
            case WorkerReturned(run=run, error=error):
                why[run] = error
    return [structs.replace(one, why=why.get(run, "")) for run, one in found.items()]
