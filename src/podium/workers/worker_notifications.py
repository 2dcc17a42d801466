"""Notify the user when a background worker needs an answer, finishes or fails.

Only the commander sends these notifications, so that the user gets each of them once, even if several processes
follow the worker.
"""

from __future__ import annotations

import time

from anyio import to_thread

from ..runs.notifier import Notifier
from ..store.reader import StoreReader
from ..values.errors import PodiumError
from ..values.store_address import StoreAddress
from ..views.notification import Notification, notify_of_end
from .worker_logs import WorkerLogs


class WorkerNotifications:
    """Sends notifications about a commander's workers."""

    def __init__(self, store: StoreAddress, notifier: Notifier, logs: WorkerLogs) -> None:
        self._store = store
        self._notifier = notifier
        self._logs = logs
        self._told: set[str] = set()
        """The requests that the user was notified about, kept because a restarted worker announces them again."""

    async def notify_request(self, run: str, id: str) -> None:
        """Notify the user about an open request or question from a worker, unless this has already been done."""
        if id in self._told or not self._notifier.is_needed:
            return
        try:
            waiting = await to_thread.run_sync(self._list_waiting, run)
        except PodiumError as error:
            self._logs.write_line(run, f"no notification was sent about request {id}: {error}")
            return
        if id in waiting:
            self._told.add(id)
            self._notifier.send(
                Notification(event="needs-input", run=run, at=time.time(), waiting=len(waiting), request=id)
            )

    async def notify_end(self, run: str) -> None:
        """Notify the user that a worker has finished or failed, unless another run started it and reports on it."""
        if not self._notifier.is_needed:
            return
        try:
            notification = await to_thread.run_sync(self._read_end, run)
        except PodiumError as error:
            self._logs.write_line(run, f"no notification was sent about the end of this run: {error}")
            return
        if notification is not None:
            self._notifier.send(notification)

    def _list_waiting(self, run: str) -> list[str]:
        """Return the ids of a run's open requests."""
        with StoreReader(self._store) as reader:
            posted = reader.read_mailbox_refs(run)
            return list(reader.read_requests(run).list_open(now=time.time(), posted=posted))

    def _read_end(self, run: str) -> Notification | None:
        with StoreReader(self._store) as reader:
            summary = reader.read_summary(run)
        task = summary.started.errand
        return None if task is not None and task.parent else notify_of_end(summary.last)
