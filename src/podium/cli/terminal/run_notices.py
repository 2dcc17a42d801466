"""Notify the user at this terminal about a run that this process is working on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ...files.settings import Settings
from ...runs.run_notices import RunNotices
from .terminal_notifier import make_terminal_notifier
from .text import print_to_stderr


@asynccontextmanager
async def open_run_notices(
    settings: Settings, *, is_shown: bool, tell: Callable[[str], object] = print_to_stderr
) -> AsyncIterator[RunNotices]:
    """Yield the notices for a run that this process is working on.

    If `is_shown`, notifications may be shown on the terminal. `tell` prints a message to the user.
    """
    from ...runs.notifier import open_notifier  # imported here to keep start-up fast: podium follow does not need it

    terminal = make_terminal_notifier(settings.notify, is_shown=is_shown)
    async with open_notifier(lambda: settings.notify, home=settings.home, tell=tell) as notifier:
        with terminal, RunNotices(terminal, notifier) as notices:
            yield notices
