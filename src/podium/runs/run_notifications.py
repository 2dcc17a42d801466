"""Notify the user about a run while this process works on it or follows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from anyio import to_thread

from ..values.event import Entry
from ..views.notification import Notification, NotificationBuilder

if TYPE_CHECKING:
    from ..files.settings import Settings
    from .notifier import Notifier
    from .run_handle import Run

SETTLE_SECONDS = 0.2
"""How long a request must be open before the user is notified.

Rules answer many requests immediately. The user does not need to know about these requests.
"""


class NoticeDisplay(Protocol):
    """Shows notifications to the user of this process, for example in its terminal."""

    def show(self, notification: Notification) -> None:
        """Show a notification."""

    def show_waiting(self, count: int) -> None:
        """Show the number of open requests."""


class NoDisplay:
    """Shows nothing; for a process that has no terminal to show notifications on."""

    def show(self, notification: Notification) -> None:
        """Show nothing."""

    def show_waiting(self, count: int) -> None:
        """Show nothing."""


class RunNotices:
    """Notifies the user about a run and its workers.

    If this process works on the run, `notifier` also sends notifications about the run to commands and webhooks. The
    commander sends the notifications about workers.
    """

    def __init__(self, display: NoticeDisplay, notifier: Notifier | None = None) -> None:
        self._display = display
        self._notifier = notifier
        self._builder = NotificationBuilder()
        self._shown_waiting = 0
        self._pending: dict[str, Callable[[], None]] = {}
        """Functions that notify the user, keyed by request id. Each is called if its request is not answered soon."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for id in list(self._pending) if exc_type is None else ():
            self._settle_request(id)

    def apply_past(self, entry: Entry) -> None:
        """Apply an entry that is not new. The user is not notified."""
        self._builder.apply(entry)
        self._show_waiting()

    def handle_run_entry(self, entry: Entry) -> None:
        """Handle a new entry of the run itself."""
        self._handle_new_entry(entry, self.notify)

    def notify(self, notification: Notification) -> None:
        """Notify the user about the run itself."""
        self._display.show(notification)
        if self._notifier is not None:
            self._notifier.send(notification)

    def report_error(self, run: Run) -> None:
        """Notify the user if an error prevents this process from continuing the run."""
        if run.error is not None:
            self.notify(Notification(event="failed", run=run.id, at=time.time(), outcome="interrupted"))

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        """Handle a new entry of a worker's run."""
        self._handle_new_entry(entry, self._display.show)

    def withdraw_request(self, id: str, by: str) -> None:
        """Stop counting a worker's request as open, and show the new number of open requests."""
        self._builder.withdraw_request(id)
        self._show_waiting(most=self._shown_waiting)

    def _handle_new_entry(self, entry: Entry, notify: Callable[[Notification], None]) -> None:
        notification = self._builder.apply(entry)
        self._show_waiting(most=self._shown_waiting)
        if notification is None:
            return
        if notification.event == "needs-input":
            self._pending[notification.request] = partial(notify, notification)
            asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._settle_request, notification.request)
        else:
            notify(notification)

    def _settle_request(self, id: str) -> None:
        """Notify the user about a new request, unless it is no longer open."""
        notify = self._pending.pop(id, None)
        if notify is not None and self._builder.is_waiting(id, now=time.time()):
            self._show_waiting()
            notify()

    def _show_waiting(self, *, most: int | None = None) -> None:
        """Show the number of open requests, but at most `most`."""
        count = self._builder.count_waiting(now=time.time())
        self._shown_waiting = count if most is None else min(count, most)
        self._display.show_waiting(self._shown_waiting)


async def follow_with_notices(settings: Settings, run: Run, tell: Callable[[str], None]) -> None:
    """Send the notifications about a run to commands and webhooks, until this process stops working on the run.

    `tell` is called with a message if sending fails.
    """
    # Imported here to keep start-up fast: most commands send no notifications.
    from ..files.settings import Settings
    from .notifier import open_notifier

    begun = time.time()
    current = await to_thread.run_sync(partial(Settings.load, store=settings.store, home=settings.home))
    async with open_notifier(lambda: current.notify, home=settings.home, tell=tell) as notifier:
        with RunNotices(NoDisplay(), notifier) as notices, run.entries() as entries:
            async for entry in entries:
                (notices.apply_past if entry.at < begun else notices.handle_run_entry)(entry)
            await run.result()
            notices.report_error(run)
