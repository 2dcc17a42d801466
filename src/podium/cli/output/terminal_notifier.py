"""Notify the user in the terminal: with the bell, a desktop notification, or the number of open requests in the title.

The escape sequences for this contain only fixed words, run ids and numbers, and are written only to a real terminal.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, TextIO

from ...files.settings import Settings
from ...files.settings_document import NotifyTarget
from ...runs.run_notifications import RunNotices
from ...views.notification import Notification
from .text import print_to_stderr

BELL = "\a"
PUSH_TITLE, POP_TITLE = "\x1b[22;2t", "\x1b[23;2t"
"""Save and restore the title. Terminals that do not support these sequences ignore them."""
IDLE_TITLE = "podium"
WITHOUT_SEQUENCES = ("", "dumb", "unknown")
"""Values of TERM for terminals that get no notifications, because they may not support escape sequences."""
WITHOUT_TITLE = ("linux",)
DESKTOP_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty")
"""Values of TERM_PROGRAM for terminals that show a desktop notification for OSC 9."""
DESKTOP_TERMS = ("xterm-kitty", "xterm-ghostty", "wezterm")
"""Values of TERM for terminals that show a desktop notification for OSC 9."""
_UNSAFE = re.compile(r"[^ \w:()-]", re.ASCII)


class TerminalNotifier:
    """Shows notifications on a terminal, using the methods in `targets`. Restores the title when its block ends."""

    def __init__(self, stream: TextIO, targets: Collection[NotifyTarget], environ: Mapping[str, str]) -> None:
        self._stream = stream
        kind = environ.get("TERM", "")
        self._has_title = "title" in targets and kind not in WITHOUT_TITLE
        self._has_desktop = "desktop" in targets and _has_desktop_notifications(environ)
        # A terminal that shows no desktop notifications can still ring.
        self._has_bell = "bell" in targets or ("desktop" in targets and not self._has_desktop)
        self._waiting = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.show_waiting(0)

    def show(self, notification: Notification) -> None:
        """Ring the bell, show a desktop notification, or both, depending on the targets."""
        self._write(BELL if self._has_bell else "")
        # OSC 9 is the notification sequence that most terminals support.
        self._write(f"\x1b]9;Podium: {_remove_unsafe(notification.text)}{BELL}" if self._has_desktop else "")

    def show_waiting(self, count: int) -> None:
        """Show the number of open requests in the title. If there are none, restore the earlier title."""
        if not self._has_title or count == self._waiting:
            return
        is_first, self._waiting = self._waiting == 0, count
        if count:
            self._write(f"{PUSH_TITLE if is_first else ''}{_format_title_sequence(f'({count}) needs you')}")
        else:
            self._write(f"{_format_title_sequence(IDLE_TITLE)}{POP_TITLE}")

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()


def make_terminal_notifier(targets: Collection[NotifyTarget], *, is_shown: bool = True) -> TerminalNotifier:
    """Return a notifier for standard error.

    It does nothing if `is_shown` is False, if standard error is not a terminal, or if TERM is in `WITHOUT_SEQUENCES`.
    """
    can_show = is_shown and sys.stderr.isatty() and os.environ.get("TERM", "") not in WITHOUT_SEQUENCES
    return TerminalNotifier(sys.stderr, targets if can_show else (), os.environ)


def _has_desktop_notifications(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal is known to show a desktop notification for OSC 9."""
    return environ.get("TERM_PROGRAM") in DESKTOP_PROGRAMS or environ.get("TERM") in DESKTOP_TERMS


def _format_title_sequence(title: str) -> str:
    """Return the sequence that sets the title of a terminal."""
    return f"\x1b]2;{_remove_unsafe(title)}{BELL}"


def _remove_unsafe(text: str) -> str:
    """Remove all characters that could end or extend an escape sequence."""
    return _UNSAFE.sub("", text)


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
