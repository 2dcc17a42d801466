"""Loading the timeline of a long run, the first step of resuming it; against reading its rows with bare SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from ..harness import LIMIT, OURS, Bench, interleave_samples, start_child
from ..result_line import Line, make_line, max_ratio
from ..sample_timelines import write_long_run

ROUNDS = 9
EVENTS = 10_000
TIMES = 5


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the time until all recorded results are available in memory."""
    events = bench.scale_count(EVENTS, quick=500)
    store = bench.folder / "long.db"
    asyncio.run(write_long_run(store, "long", events=events))
    request = {"store": str(store), "run": "long", "events": events, "times": bench.scale_count(TIMES, quick=2)}
    with (
        start_child("children.podium_store", name="podium") as ours,
        start_child("children.raw_sqlite", name="sqlite") as limit,
    ):
        asked = {OURS: partial(ours.ask, "load", **request), LIMIT: partial(limit.ask, "load", **request)}
        taken = interleave_samples(asked, rounds=bench.scale_count(ROUNDS, quick=2))
    yield make_line(bench, taken, row="resume", what=f"a run of {events:,} events", goals=[max_ratio(2)])
