"""Show the progress of a download: as a bar in a terminal, otherwise as a line for every 10 percent."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from ...values.plain_text import format_size
from ..terminal.text import print_to_stderr

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

STEPS = 10


class DownloadProgress:
    """Shows the progress of one download on standard error."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._step = 0

    def show(self, done: int, total: int | None) -> None:
        """Show that `done` of `total` bytes have arrived. Without a terminal, show nothing if the total is unknown."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif total and (step := STEPS * done // total) > self._step:
            self._step = step
            print_to_stderr(f"{self._what}: {format_size(done)} of {format_size(total)}")

    def __enter__(self) -> DownloadProgress:
        if sys.stderr is not None and sys.stderr.isatty():
            # Imported here to keep start-up fast: the progress bar is shown only on a terminal.
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=None)
            self._bar.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
