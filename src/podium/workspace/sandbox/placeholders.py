"""Create placeholders while commands run: empty folders in place of missing protected paths.

A sandbox can only write-protect existing paths, so without a placeholder, a command could create a missing path. Git
ignores empty folders, even if a crash leaves them behind. The names of the placeholders are recorded in the Podium
home. If several processes run commands in the checkout, the last one to finish removes the placeholders.
"""

from __future__ import annotations

import atexit
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from threading import Lock, Timer

from ...system.private_folder import make_private_folder

RECORD_FOLDER = "sandbox"
IDLE = 0.2
"""How many seconds after the last command the placeholders are removed."""


class Placeholders:
    """The placeholders of one checkout, for one sandbox.

    They are removed in a thread shortly after the last command has ended, because removing folders takes longer than
    most commands, and the next command often follows at once. They are also removed when the process exits.
    """

    def __init__(self, checkout: Path, names: Iterable[str], *, home: Path) -> None:
        self._checkout = checkout
        self._places = tuple((name, str(checkout / name)) for name in names)
        self._record = home / RECORD_FOLDER / sha256(os.fsencode(checkout)).hexdigest()[:32]
        self._descriptor: int | None = None
        self._holders = 0
        self._lock = Lock()
        self._timer: Timer | None = None

    def acquire(self) -> tuple[str, ...]:
        """Create missing placeholders and keep them at least until `release`. Return the names of all placeholders."""
        with self._lock:
            self._cancel_timer()
            if self._descriptor is None:
                self._descriptor = self._open_record()
                # Processes that run commands here share the lock; removing placeholders needs it exclusively.
                fcntl.flock(self._descriptor, fcntl.LOCK_SH)
                atexit.register(self.remove)
            self._holders += 1
            for name, place in self._places:
                if not os.path.lexists(place):
                    self._make_placeholder(name, self._descriptor)
            return self._read_record(self._descriptor)

    def release(self) -> None:
        """Record that a command has ended. Shortly after the last command, the placeholders are removed."""
        with self._lock:
            self._holders -= 1
            self._cancel_timer()
            if not self._holders:
                self._timer = Timer(IDLE, self.remove)
                self._timer.daemon = True
                self._timer.start()

    def remove(self) -> None:
        """Remove the placeholders, unless this or another process is still running commands in the checkout.

        In that case, the last of these processes to finish removes them.
        """
        with self._lock:
            if self._holders or self._descriptor is None:
                return
            self._cancel_timer()
            with suppress(OSError):  # another process runs commands, or the disk is full: a later call removes them
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # In reverse order, so that the contents of a folder are removed before the folder.
                for name in reversed(self._read_record(self._descriptor)):
                    with suppress(OSError):  # no longer an empty folder, so not a placeholder any more
                        (self._checkout / name).rmdir()
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
            atexit.unregister(self.remove)

    def remove_stale(self) -> None:
        """Remove the placeholders that a killed process left behind, unless a command is running."""
        with self._lock:
            if self._descriptor is None and self._record.exists():
                self._descriptor = self._open_record()
        self.remove()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _open_record(self) -> int:
        make_private_folder(self._record.parent)
        return os.open(self._record, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _make_placeholder(self, name: str, record: int) -> None:
        """Create an empty folder and its missing parents, unless one of the parents is a link."""
        if "\n" in name:  # the record has one name per line
            return
        *above, _ = PurePosixPath(name).parents
        for folder in (*map(str, reversed(above)), name):
            place = self._checkout / folder
            if place.is_symlink():
                return
            if not place.exists():
                # Recorded first: a folder that is not in the record would never be removed.
                os.write(record, f"{folder}\n".encode(errors="surrogateescape"))
                with suppress(OSError):  # the path was created in the meantime, or the checkout is not writable
                    place.mkdir(mode=0o755)

    def _read_record(self, record: int) -> tuple[str, ...]:
        """Return the recorded placeholders of all processes, sorted."""
        held = os.pread(record, os.fstat(record).st_size, 0).decode(errors="surrogateescape")
        return tuple(sorted({name for name in held.split("\n") if name}))
