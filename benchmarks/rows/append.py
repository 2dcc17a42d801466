"""Appending to a timeline so that it survives kill -9; against SQLite inserting the same rows in the same batches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..harness import LIMIT, OURS, Bench, interleave_samples, start_child
from ..result_line import PER_SECOND, Goal, Line, make_line, max_ratio

ROUNDS = 7
EVENTS = 10_000

HALF_THE_LIMIT = max_ratio(2)
ENOUGH = Goal("figure", 10_000, is_least=True)

SHAPES = (
    ("each event settled, 1 run", 1, 1, [HALF_THE_LIMIT]),
    ("100 events a settling, 1 run", 1, 100, [HALF_THE_LIMIT, ENOUGH]),
    ("each event settled, 10 runs", 10, 1, [HALF_THE_LIMIT, ENOUGH]),
    ("each event settled, 100 runs", 100, 1, [HALF_THE_LIMIT, ENOUGH]),
)


def lines(bench: Bench) -> Iterator[Line]:
    """Measure events per second. Events that wait together are written together, so runs share transactions."""
    events = bench.scale_count(EVENTS, quick=300)
    with (
        start_child("children.podium_store", name="podium") as ours,
        start_child("children.raw_sqlite", name="sqlite") as limit,
    ):
        for what, runs, batch, goals in SHAPES:
            request = {"runs": runs, "each": events // runs, "settled": batch}
            asked = {OURS: partial(ours.ask, "append", **request), LIMIT: partial(limit.ask, "append", **request)}
            taken = interleave_samples(asked, rounds=bench.scale_count(ROUNDS, quick=2))
            yield make_line(bench, taken, row="append", what=what, unit=PER_SECOND, goals=goals)
