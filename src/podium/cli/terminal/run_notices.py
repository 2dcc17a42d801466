"""Notify the user about runs while a command works on them or follows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...setup.settings import Settings
from ...values.event import Entry
from ...views.notification import Notification, NotificationBuilder
from .terminal_notifier import TerminalNotifier, make_terminal_notifier
from .text import print_to_stderr

if TYPE_CHECKING:
    from ...runs.notifier import Notifier
    from ...runs.run_handle import Run

SETTLE_SECONDS = 0.2
"""How long a request must be open before the user is notified: some requests are denied or withdrawn immediately."""


class RunNotices:
    """Notifies the user at this terminal about a run and its workers.

    If this process works on the run, `notifier` also sends notifications about the run to commands and webhooks. The
    commander sends the notifications about workers.
    """

    def __init__(self, terminal: TerminalNotifier, notifier: Notifier | None = None) -> None:
        self._terminal = terminal
        self._notifier = notifier
        self._builder = NotificationBuilder()
        self._shown_waiting = 0
        self._pending: dict[str, Callable[[], None]] = {}
        """Functions that notify the user, keyed by request id. Each is called if its request stays open a moment."""

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
        self._terminal.show(notification)
        if self._notifier is not None:
            self._notifier.send(notification)

    def report_error(self, run: Run) -> None:
        """Notify the user if an error prevents this process from continuing the run."""
        if run.error is not None:
            self.notify(Notification(event="failed", run=run.id, at=time.time(), outcome="interrupted"))

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        """Handle a new entry of a worker's run."""
        self._handle_new_entry(entry, self._terminal.show)

    def withdraw_request(self, id: str, by: str) -> None:
        """Handle a worker's request that is no longer open."""
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
        """Show how many requests are open, up to `most`."""
        count = self._builder.count_waiting(now=time.time())
        self._shown_waiting = count if most is None else min(count, most)
        self._terminal.show_waiting(self._shown_waiting)


@asynccontextmanager
async def open_run_notices(
    settings: Settings, *, is_shown: bool, tell: Callable[[str], object] = print_to_stderr
) -> AsyncIterator[RunNotices]:
    """Yield the notices for a run that this process works on.

    With `is_shown`, notifications may be shown on the terminal. `tell` prints a message to the user.
    """
    from ...runs.notifier import open_notifier  # imported here for start-up time: following a run sends nothing

    terminal = make_terminal_notifier(settings.notify, is_shown=is_shown)
    async with open_notifier(lambda: settings.notify, home=settings.home, tell=tell) as notifier:
        with terminal, RunNotices(terminal, notifier) as notices:
            yield notices
