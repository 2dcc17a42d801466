"""A client of the dashboard's server, and a run that it watches."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp

from podium.core.timeline import Timeline
from podium.store.follower import Follower
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.values.event import RunStarted
from podium.values.request import Request

from ..child import Clock, serve
from ..sample_timelines import STREAMED, write_long_run

LONG_RUN = "long"
_numbers = count()
_shared: dict[str, Any] = {}
NOTHING = {"wall": 0.0, "cpu": 0.0}


async def prepare(request: dict[str, Any]) -> dict[str, float]:
    """Remember the server, and write the long run if there is to be one."""
    _shared.update(request, headers={"Authorization": f"Bearer {request['token']}"})
    if request["events"]:
        await write_long_run(Path(request["store"]), LONG_RUN, events=request["events"])
    return NOTHING


@asynccontextmanager
async def open_session() -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session that is signed in, without limits on connections or on the size of lines."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        _shared["address"], headers=_shared["headers"], connector=connector, read_bufsize=2**22
    ) as session:
        yield session


async def open_run(request: dict[str, Any]) -> dict[str, float]:
    """Load all entries of the long run."""
    async with open_session() as session:
        with Clock() as clock:
            async with session.get(f"/api/runs/{LONG_RUN}/entries") as reply:
                entries = json.loads(await reply.read())["entries"]
    return clock.as_sample(1, failed=float(len(entries) != _shared["events"]))


async def read_rows(request: dict[str, Any]) -> dict[str, float]:
    """Read the rows of the long run from the store and decode them, without a server."""
    with Clock() as clock, StoreReader(Path(_shared["store"])) as reader:
        for row in reader.read_rows(LONG_RUN):
            json.loads(row.line)
    return clock.as_sample(1)


async def follow_run(request: dict[str, Any]) -> dict[str, float]:
    """Append entries at a steady rate, and return the median time until a client has them."""
    delays: list[float] = []
    wanted = request["per_second"] * request["seconds"]
    async with open_session() as session, RunStore(Path(_shared["store"])) as store:
        timeline = begin_run(store)
        await timeline.wait_written()
        async with session.get("/api/events", params={"runs": timeline.run}) as reply:
            watching = asyncio.create_task(collect_delays(reply, delays, wanted))
            await append_steadily(timeline, wanted, request["per_second"])
            async with asyncio.timeout(30):
                await watching
    return {"wall": median(delays), "cpu": 0.0, "failed": float(len(delays) != wanted)}


async def follow_store(request: dict[str, Any]) -> dict[str, float]:
    """Append entries at the same rate, and return the median time until a reader of the store has them."""
    delays: list[float] = []
    wanted = request["per_second"] * request["seconds"]
    path = Path(_shared["store"])
    async with RunStore(path) as store:
        timeline = begin_run(store)
        await timeline.wait_written()
        with Follower(path, timeline.run, after=1) as entries:
            watching = asyncio.create_task(collect_store_delays(entries, delays, wanted))
            await append_steadily(timeline, wanted, request["per_second"])
            async with asyncio.timeout(30):
                await watching
    return {"wall": median(delays), "cpu": 0.0}


async def collect_store_delays(entries: Follower, delays: list[float], wanted: int) -> None:
    """Read the store until all entries are there, and note how old each was when it arrived."""
    async for entry in entries:
        delays.append(time.time() - entry.at)
        if len(delays) == wanted:
            return


async def collect_delays(reply: aiohttp.ClientResponse, delays: list[float], wanted: int) -> None:
    """Read the stream until all entries are there, and note how old each was when it arrived."""
    async for line in reply.content:
        if line.startswith(b"data: [") and len(delays) < wanted:
            now = time.time()
            delays += [now - entry["at"] for entry in json.loads(line[6:]) if entry["event"]["type"] == "text_streamed"]
        if len(delays) >= wanted:
            return


async def write_run(request: dict[str, Any]) -> dict[str, float]:
    """Append entries at a steady rate, durable, and return the time of the whole run."""
    async with RunStore(Path(_shared["store"])) as store:
        timeline = begin_run(store)
        await timeline.wait_written()
        with Clock() as clock:
            await append_steadily(timeline, request["events"], request["per_second"])
    return clock.as_sample(1)


async def append_steadily(timeline: Timeline, events: int, per_second: int) -> None:
    """Append this many entries, ten at a time, and wait for each ten to be written."""
    begin = time.perf_counter()
    for number in range(events):
        timeline.append(STREAMED, scope="poet", operation="poet")
        if number % 10 == 9:
            await timeline.wait_written()
            await asyncio.sleep(max(0.0, begin + number / per_second - time.perf_counter()))
    await timeline.wait_written()


async def watch(request: dict[str, Any]) -> dict[str, float]:
    """Connect clients that read everything, until `leave`."""
    stack = _shared["stack"] = AsyncExitStack()
    session = await stack.enter_async_context(open_session())
    _shared["tasks"] = []
    for _ in range(request["viewers"]):
        reply = await stack.enter_async_context(session.get("/api/events"))
        _shared["tasks"].append(asyncio.create_task(read_all(reply)))
    return NOTHING


async def read_all(reply: aiohttp.ClientResponse) -> None:
    """Read a stream until it ends."""
    while await reply.content.readany():
        pass


async def leave(request: dict[str, Any]) -> dict[str, float]:
    """Disconnect the clients."""
    for task in _shared["tasks"]:
        task.cancel()
    await _shared["stack"].aclose()
    return NOTHING


def begin_run(store: RunStore) -> Timeline:
    """Begin another run."""
    run = f"watched{next(_numbers)}"
    timeline = Timeline(run, store.begin_run(run))
    timeline.append(RunStarted(agent="poet", request=Request(text="write"), agents=()), scope="")
    return timeline


if __name__ == "__main__":
    serve(
        prepare=prepare,
        open_run=open_run,
        read_rows=read_rows,
        follow_run=follow_run,
        follow_store=follow_store,
        write_run=write_run,
        watch=watch,
        leave=leave,
    )
