"""Waiting for a run to come to rest in another process."""

from __future__ import annotations

from pathlib import Path

from anyio import move_on_after, to_thread

from ..store.follower import Follower
from ..store.sqlite.reader import StoreReader
from ..values.event import RunEnded, RunPaused
from .run_state import derive_run_state

POLL_SECONDS = 1.0


async def wait_for_end_or_pause(store: Path, run: str) -> RunEnded | RunPaused | None:
    """The event that ended or paused the run; None when its process is gone and left it unfinished."""
    with StoreReader(store) as reader:
        while True:
            summary = await to_thread.run_sync(reader.read_summary, run)
            if isinstance(summary.last.event, RunEnded | RunPaused):
                return summary.last.event
            if derive_run_state(summary) in ("queued", "resumable"):
                return None
            # Entries ring; the death of a process does not, so that it is looked for now and then.
            with move_on_after(POLL_SECONDS), Follower(store, run, summary.last.seq) as entries:
                async for entry in entries:
                    if isinstance(entry.event, RunEnded | RunPaused):
                        break
