"""A workforce: several workers as one report, with what they brought together.

It tells what the timelines say. Whether branches would merge is for git, and is tried elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from .event import Entry, WorkerSent
from .usage import NOTHING, Usage, total
from .worker_state import WorkerState


class SharedFile(Struct, frozen=True, kw_only=True):
    """A file that more than one worker changed."""

    path: str
    workers: tuple[str, ...]


class Workforce(Struct, frozen=True, kw_only=True):
    """Workers in the order in which they were hired, and what they come to together."""

    workers: tuple[WorkerState, ...]
    shared: tuple[SharedFile, ...] = ()
    added: int = 0
    removed: int = 0
    usage: Usage = NOTHING

    @classmethod
    def of(cls, workers: Iterable[WorkerState]) -> Workforce:
        """What these workers come to."""
        them = tuple(workers)
        by_file: dict[str, dict[str, None]] = {}
        for worker in them:
            for file in worker.files:
                by_file.setdefault(file, {})[worker.name] = None
        return cls(
            workers=them,
            shared=tuple(
                SharedFile(path=path, workers=tuple(names)) for path, names in sorted(by_file.items()) if len(names) > 1
            ),
            added=sum(worker.added for worker in them),
            removed=sum(worker.removed for worker in them),
            usage=total(worker.usage for worker in them),
        )

    def branches(self) -> dict[str, str]:
        """The branches that hold something, each with the commit that its newest worker began at."""
        return {
            worker.errand.branch: worker.base
            for worker in self.workers
            if not worker.errand.is_reader and worker.base and worker.commits
        }


def sent(entries: Iterable[Entry]) -> list[str]:
    """The runs of the workers that a run sent, in the order in which it did."""
    return list(dict.fromkeys(entry.event.run for entry in entries if isinstance(entry.event, WorkerSent)))
