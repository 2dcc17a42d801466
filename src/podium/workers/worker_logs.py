"""Write and read worker logs, which contain the workers' output and the commander's messages about them."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from ..system.folder_removal import make_private_folder
from ..values.plain_text import escape_unprintable, truncate_text

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
