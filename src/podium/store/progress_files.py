"""Progress files: how far each run's timeline was written, recorded outside the database.

SQLite drops damaged transactions at the end of its write-ahead log without an error, and the data of a PostgreSQL
server can be replaced by an older copy. A run resumed from the remaining entries would repeat the actions in the lost
entries. So the position of the last entry that must survive power loss is also written to a separate small file, after
the entry and before anything acts on it. These files are on the machine that wrote the entries: other machines that
share a PostgreSQL store do not have them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from ..core.journal_rows import JournalRow
from ..system.owned_files import make_private_folder
from ..values.errors import StoreCorrupt, StoreFailed
from ..values.store_address import StoreAddress, make_local_path


class Progress(NamedTuple):
    """The last recorded entry of a run. `lost` is the number of entries after it whose loss the user has accepted."""

    seq: int
    hash: bytes
    lost: int = 0


def record_progress(store: StoreAddress, run: str, progress: Progress) -> None:
    """Write a run's progress file. Raise StoreFailed if it cannot be written."""
    path = _progress_path(store, run)
    line = f"{progress.seq:020} {progress.hash.hex()} {progress.lost:020}\n".encode()
    try:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            if not isinstance(store, Path):
                make_private_folder(store.folder)
            path.parent.mkdir(mode=0o700, exist_ok=True)  # never the home, which may have been deleted
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, line, 0)  # every line has the same length
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreFailed(f"cannot write {path}: {error.strerror}; fix that, then resume the run") from error


def read_progress(store: StoreAddress, run: str) -> Progress | None:
    """Return the recorded progress of a run, or None if its file is missing or cannot be read."""
    try:
        seq, digest, lost = _progress_path(store, run).read_text().split()
        return Progress(int(seq), bytes.fromhex(digest), int(lost))
    except (OSError, ValueError):
        return None


def find_recorded_run(store: StoreAddress, prefix: str) -> str | None:
    """Return a run id that starts with `prefix` and has a progress file, even if the store lost the run."""
    return next((name for name in list_recorded_runs(store) if name.startswith(prefix)), None)


def require_no_recorded_runs(store: StoreAddress) -> None:
    """Raise StoreCorrupt if runs were written to a store whose file is missing."""
    runs = list_recorded_runs(store) if isinstance(store, Path) else []
    if runs:
        shown = ", ".join(sorted(runs)[:3]) + (" and others" if len(runs) > 3 else "")
        raise StoreCorrupt(
            f"the store {store} is missing, although runs were written to it ({shown}): its file was deleted or moved. "
            f"Put it back or restore it from a backup; to begin a new store, delete {_progress_path(store, '')}"
        )


def list_recorded_runs(store: StoreAddress) -> list[str]:
    """Return the ids of the runs that have a progress file."""
    try:
        return [unquote(path.name) for path in _progress_path(store, "").iterdir()]
    except OSError:
        return []


def forget_progress(store: StoreAddress, run: str) -> None:
    """Delete a run's progress file. Raise StoreFailed if it cannot be deleted."""
    path = _progress_path(store, run)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreFailed(f"cannot delete {path}: {error.strerror}") from error


def find_lost_entries(progress: Progress, rows: Sequence[JournalRow]) -> str | None:
    """Return a clause that describes which recorded entries are missing or different, or None if there are none."""
    last = rows[-1].seq if rows else 0
    if last < progress.seq:
        lost = f"entry {progress.seq} is" if last + 1 == progress.seq else f"entries {last + 1} to {progress.seq} are"
        return f"{lost} missing at the end of the timeline: the store was damaged, or replaced by an older copy"
    if progress.seq and rows[progress.seq - 1].hash != progress.hash:
        return f"entry {progress.seq} differs from the recorded entry: the store was replaced by another copy"
    return None


def _progress_path(store: StoreAddress, run: str) -> Path:
    return make_local_path(store, "progress") / quote(run, safe="")
