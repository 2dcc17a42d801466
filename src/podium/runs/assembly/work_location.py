"""Prepare a run that can move between machines: use the paths on this machine, and push the work to the remote."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from msgspec import structs

from ...values.event import Entry, RunStarted
from ...values.worker_task import WorkerTask


class Push(Protocol):
    """Pushes a worker's files to its remote."""

    def push_during(self, tools: AbstractAsyncContextManager[object]) -> AbstractAsyncContextManager[object]:
        """Return a context manager that opens `tools` and, while they are open, pushes the files after every step."""
        ...

    async def push(self) -> None:
        """Push the current files, and record the result."""
        ...


def locate_run(first: Entry, home: Path) -> Entry:
    """Return the first entry of a run, with its paths replaced by those on this machine.

    If the run cannot move to another machine, the entry is unchanged.
    """
    started = first.event
    if not isinstance(started, RunStarted) or started.errand is None or started.errand.origin is None:
        return first
    from ...workspace.travel.run_location import locate_task  # imported here to keep start-up fast: few runs can move

    task = locate_task(started.errand, first.run, home)
    return structs.replace(first, event=structs.replace(started, errand=task, repo=task.path))


def can_be_pushed(task: WorkerTask) -> bool:
    """Return whether a worker's files are pushed to a remote, so that another machine can continue the work."""
    return task.has_checkout and task.origin is not None and bool(task.origin.remote)
