"""Notify the user when a background worker needs an answer, finishes or fails, and keep the logs of workers.

Only the commander sends these notifications, so that the user gets each of them once, even if several processes
follow the worker.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from anyio import to_thread

from ..runs.notifier import Notifier
from ..store.reader import StoreReader
from ..system.owned_files import make_private_folder
from ..values.errors import PodiumError
from ..values.plain_text import escape_unprintable, truncate_text
from ..values.store_address import StoreAddress
from ..views.notification import Notification, notify_of_end

FOLDER = "logs"
TAIL_LINES = 8
LONGEST_TAIL = 2000


class WorkerLogs:
    """The logs in Podium's home directory, one for each run."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def make_folder(self) -> None:
        """Create the log folder, accessible only to its owner."""
        make_private_folder(self._folder)

    def log_path(self, run: str) -> Path:
        """Return the path of a run's log."""
        return self._folder / f"{run}.log"

    def write_line(self, run: str, text: str) -> None:
        """Write a line to a run's log. Errors are ignored, so that a failure to log never stops a worker."""
        with suppress(OSError), self.log_path(run).open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {escape_unprintable(text)}\n")

    def read_tail(self, run: str) -> str:
        """Return the last lines of a run's log, joined into one line."""
        try:
            with self.log_path(run).open(encoding="utf-8", errors="replace") as log:
                lines = deque(log, maxlen=TAIL_LINES)
        except OSError:
            return "no log found"
        return truncate_text(" / ".join(escape_unprintable(line.strip()) for line in lines), LONGEST_TAIL)


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
