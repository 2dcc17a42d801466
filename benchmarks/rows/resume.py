"""Loading the timeline of a long run, as resuming it begins; against reading its rows with bare SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from ..harness import LIMIT, OURS, Bench, child, interleaved
from ..history import write_long_run
from ..line import Line, at_most, line

ROUNDS = 9
EVENTS = 10_000
TIMES = 5


def lines(bench: Bench) -> Iterator[Line]:
    """The time until everything that was recorded can be answered from memory."""
    events = bench.scaled(EVENTS, quick=500)
    store = bench.folder / "long.db"
    asyncio.run(write_long_run(store, "long", events=events))
    request = {"store": str(store), "run": "long", "events": events, "times": bench.scaled(TIMES, quick=2)}
    with child("children.podium_store", name="podium") as ours, child("children.raw_sqlite", name="sqlite") as limit:
        asked = {OURS: partial(ours.ask, "load", **request), LIMIT: partial(limit.ask, "load", **request)}
        taken = interleaved(asked, rounds=bench.scaled(ROUNDS, quick=2))
    yield line(bench, taken, row="resume", what=f"a run of {events:,} events", goals=[at_most(2)])
