"""Placeholders: empty folders that stand where protected paths would be, while a command runs.

A sandbox can only write-protect what exists. So what does not exist is put there for as long as a command
runs: an empty folder, because git shows none, not even one that a crash left behind. The names of those
that we made are kept in the Podium home; who finds nobody else at work in the checkout takes them away.
"""

from __future__ import annotations

import atexit
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock, Timer

RECORD_FOLDER = "sandbox"
IDLE = 0.2
"""Seconds without a command after which placeholders go."""


class Placeholders:
    """The placeholders of one checkout, for one sandbox.

    They go a moment after the last command has ended, in a thread: removing folders takes longer than most
    commands do, and the next command often comes at once. What ends the process removes them, too.
    """

    def __init__(self, checkout: Path, names: Iterable[str], *, home: Path) -> None:
        self._checkout = checkout
        self._names = tuple(names)
        self._record = home / RECORD_FOLDER / sha256(os.fsencode(checkout)).hexdigest()[:32]
        self._descriptor: int | None = None
        self._holders = 0
        self._lock = Lock()
        self._timer: Timer | None = None

    def acquire(self) -> tuple[str, ...]:
        """Put one wherever nothing is; until `release` they stay. The names of all that are there now."""
        with self._lock:
            self._cancel_timer()
            if self._descriptor is None:
                self._descriptor = self._open_record()
                # All that run commands here share it; who takes placeholders away needs it alone.
                fcntl.flock(self._descriptor, fcntl.LOCK_SH)
                atexit.register(self.remove)
            self._holders += 1
            for name in self._names:
                if not os.path.lexists(self._checkout / name):
                    self._make_placeholder(name, self._descriptor)
            return self._read_record(self._descriptor)

    def release(self) -> None:
        """A command has ended. Where it was the last one, the placeholders go soon."""
        with self._lock:
            self._holders -= 1
            self._cancel_timer()
            if not self._holders:
                self._timer = Timer(IDLE, self.remove)
                self._timer.daemon = True
                self._timer.start()

    def remove(self) -> None:
        """Take them away now, unless a command runs, here or in another process: then that one will."""
        with self._lock:
            if self._holders or self._descriptor is None:
                return
            self._cancel_timer()
            with suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for name in self._read_record(self._descriptor):
                    with suppress(OSError):  # somebody has made something of it, so it is theirs
                        (self._checkout / name).rmdir()
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
            atexit.unregister(self.remove)

    def remove_stale(self) -> None:
        """Take away what a process left that was killed, unless a command runs."""
        with self._lock:
            if self._descriptor is None and self._record.exists():
                self._descriptor = self._open_record()
        self.remove()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _open_record(self) -> int:
        self._record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(self._record, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _make_placeholder(self, name: str, record: int) -> None:
        # Written down first: a folder that is not in the record would stay for ever.
        os.write(record, f"{name}\n".encode())
        with suppress(OSError):  # somebody was faster, or nobody can make anything here
            (self._checkout / name).mkdir(mode=0o755)

    def _read_record(self, record: int) -> tuple[str, ...]:
        """Those that we or others put here. Whatever else the record holds is not ours to touch."""
        held = os.pread(record, os.fstat(record).st_size, 0).decode(errors="replace")
        return tuple(sorted({name for name in held.splitlines() if name in self._names}))
