"""Check that a run is complete before it is resumed, and let the user accept that entries were lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..core.journal_rows import GENESIS, JournalRow, find_chain_break, must_survive_power_loss
from ..values.errors import StoreCorrupt
from ..values.event import decode_entry
from ..values.store_address import StoreAddress
from .progress_files import Progress, find_lost_entries, read_progress, record_progress

NO_PROGRESS_NOTICE = (
    "the progress file of this run is missing, for example because the store was restored from a backup; "
    "entries lost at the end cannot be detected"
)


def require_intact_run(store: StoreAddress, run: str, rows: Sequence[JournalRow]) -> str:
    """Raise StoreCorrupt if a run's entries were changed, or if entries were lost or may have been lost.

    Otherwise, return a notice if a loss cannot be detected or was accepted earlier, or else an empty string.
    """
    if (chain_break := find_chain_break(rows)) is not None:
        raise StoreCorrupt(
            f"run {run} has been altered or damaged: {chain_break}; it was not resumed, and nothing was changed. "
            f"Restore the store from a backup, or end the run with: podium stop {run}"
        )
    progress = read_progress(store, run)
    if progress is not None and (lost := find_lost_entries(progress, rows)) is not None:
        raise StoreCorrupt(
            f"run {run} has lost entries: {lost}; it was not resumed, because it would repeat the work in them. "
            f"Restore the store, or check the run's last actions and continue with: podium resume {run} --accept-loss"
        )
    if not isinstance(store, Path):
        from .postgres.server_check import require_same_server  # imported here because it needs optional packages

        notice = require_same_server(store, run, rows)
    else:
        notice = _find_missing_progress(store, run, rows)
    if progress is None or not progress.lost:
        return notice
    entries = f"entry {progress.seq + 1}" if progress.lost == 1 else f"{progress.lost} entries after {progress.seq}"
    return f"this run was resumed although {entries} had been lost"


def accept_lost_entries(store: StoreAddress, run: str, rows: Sequence[JournalRow]) -> None:
    """Record that a run continues without its lost entries."""
    progress = read_progress(store, run)
    if not isinstance(store, Path):
        from .postgres.server_check import accept_server  # imported here because it needs optional packages

        accept_server(store, run)
        if progress is None or find_lost_entries(progress, rows) is None:
            return
    seq, digest = (rows[-1].seq, rows[-1].hash) if rows else (0, GENESIS)
    lost = 0 if progress is None else max(progress.seq - seq, 1)
    record_progress(store, run, Progress(seq, digest, lost))


def describe_undetectable_loss(store: StoreAddress, run: str, rows: Sequence[JournalRow]) -> str:
    """Return why a loss of a run's last entries cannot be detected, or an empty string if it can be."""
    if isinstance(store, Path):
        return _find_missing_progress(store, run, rows)
    from .postgres.server_check import find_server_change  # imported here because it needs optional packages

    return find_server_change(store, run, rows)


def _find_missing_progress(store: Path, run: str, rows: Sequence[JournalRow]) -> str:
    """Return a notice if a run in a SQLite store should have a progress file, but has none."""
    if read_progress(store, run) is None and any(must_survive_power_loss(decode_entry(row.line).event) for row in rows):
        return NO_PROGRESS_NOTICE
    return ""
