"""The logs of workers: what each wrote itself, and what its commander has to say about it."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from ..values.plain_text import escape_unprintable, truncate_text

FOLDER = "logs"
TAIL_LINES = 8
LONGEST_TAIL = 2000


class WorkerLogs:
    """The logs in a Podium home, one for each run."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def make_folder(self) -> None:
        """See that they have a folder, which only its owner can enter."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def log_path(self, run: str) -> Path:
        """The log of a run."""
        return self._folder / f"{run}.log"

    def write_line(self, run: str, text: str) -> None:
        """Write a line. A log that cannot be written keeps nobody from working."""
        with suppress(OSError), self.log_path(run).open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {escape_unprintable(text)}\n")

    def read_tail(self, run: str) -> str:
        """Its last lines in one."""
        try:
            with self.log_path(run).open(encoding="utf-8", errors="replace") as log:
                lines = deque(log, maxlen=TAIL_LINES)
        except OSError:
            return "it left no log"
        return truncate_text(" / ".join(escape_unprintable(line.strip()) for line in lines), LONGEST_TAIL)
