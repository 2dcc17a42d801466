"""Wait until a run ends or pauses in another process."""

from __future__ import annotations

from anyio import move_on_after, to_thread

from ..store.follower import Follower
from ..store.reader import StoreReader
from ..values.event import RunEnded, RunPaused
from ..values.store_address import StoreAddress

POLL_SECONDS = 1.0


async def wait_for_end_or_pause(store: StoreAddress, run: str) -> RunEnded | RunPaused | None:
    """Wait for the event that ends or pauses a run, and return it. Return None if no process is working on it."""
    with StoreReader(store) as reader:
        while True:
            summary = await to_thread.run_sync(reader.read_summary, run)
            if isinstance(summary.last.event, RunEnded | RunPaused):
                return summary.last.event
            if summary.phase in ("queued", "resumable"):
                return None
            # New entries wake this process, but the exit of the run's process does not, so poll for that.
            with move_on_after(POLL_SECONDS), Follower(store, run, summary.last.seq) as entries:
                async for entry in entries:
                    if isinstance(entry.event, RunEnded | RunPaused):
                        break
