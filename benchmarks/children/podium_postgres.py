"""Podium's timeline in PostgreSQL."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from podium.core.timeline import Timeline
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.values.store_address import PostgresAddress

from ..child import Clock, serve
from ..sample_timelines import STREAMED


async def append(request: dict[str, Any]) -> dict[str, float]:
    """Append `each` events to each of `runs` new runs at once, waiting for the server after every `settled` events."""
    runs, each, batch = request["runs"], request["each"], request["settled"]

    async def write(timeline: Timeline) -> None:
        for _ in range(each // batch):
            for _ in range(batch):
                timeline.append(STREAMED, scope="poet/turn#1", operation="poet")
            await timeline.wait_written()

    names = [secrets.token_hex(6) for _ in range(runs)]
    with TemporaryDirectory() as folder:
        address = PostgresAddress(request["url"], Path(folder))
        async with RunStore(address) as store:
            timelines = [Timeline(name, store.begin_run(name)) for name in names]
            for timeline in timelines:
                await timeline.wait_written()
            with Clock() as clock:
                async with asyncio.TaskGroup() as group:
                    for timeline in timelines:
                        group.create_task(write(timeline))
        with StoreReader(address) as reader:
            written = sum(len(reader.read_rows(name)) for name in names)
    return clock.as_sample(runs * each, failed=runs * each - written)


if __name__ == "__main__":
    serve(append=append)
