"""Podium's timeline by itself: appending to it, and loading it again."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from podium.core.timeline import Timeline
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore

from ..child import Clock, serve
from ..sample_timelines import STREAMED, MemoryLease


async def append(request: dict[str, Any]) -> dict[str, float]:
    """Append `each` events to each of `runs` runs at once, waiting for the disk after every `settled` events."""
    runs, each, batch = request["runs"], request["each"], request["settled"]

    async def write(timeline: Timeline) -> None:
        for _ in range(each // batch):
            for _ in range(batch):
                timeline.append(STREAMED, scope="poet/turn#1", operation="poet")
            await timeline.wait_written()

    with TemporaryDirectory() as folder:
        path = Path(folder, "podium.db")
        async with RunStore(path) as store:
            timelines = [Timeline(str(number), store.begin_run(str(number))) for number in range(runs)]
            for timeline in timelines:
                await timeline.wait_written()
            with Clock() as clock:
                if runs == 1:
                    await write(timelines[0])
                else:
                    async with asyncio.TaskGroup() as group:
                        for timeline in timelines:
                            group.create_task(write(timeline))
            with closing(sqlite3.connect(path)) as look:
                written = look.execute("SELECT count(*) FROM entry").fetchone()[0]
    return clock.as_sample(runs * each, failed=runs * each - written)


async def load(request: dict[str, Any]) -> dict[str, float]:
    """Read and decode a run's rows, as resuming the run does."""
    with Clock() as clock:
        for _ in range(request["times"]):
            with StoreReader(Path(request["store"])) as reader:
                rows = reader.read_rows(request["run"])
            timeline = Timeline(request["run"], MemoryLease())
            timeline.load(rows)
    return clock.as_sample(request["times"], failed=request["events"] - timeline.seq)


if __name__ == "__main__":
    serve(append=append, load=load)
