"""Appending to a timeline so that it survives kill -9; against SQLite given the same rows in the same batches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..harness import LIMIT, OURS, Bench, child, interleaved
from ..line import PER_SECOND, Goal, Line, at_most, line

ROUNDS = 7
EVENTS = 10_000

HALF_THE_LIMIT = at_most(2)
ENOUGH = Goal("figure", 10_000, is_least=True)

SHAPES = (
    ("each event settled, 1 run", 1, 1, [HALF_THE_LIMIT]),
    ("100 events a settling, 1 run", 1, 100, [HALF_THE_LIMIT, ENOUGH]),
    ("each event settled, 10 runs", 10, 1, [HALF_THE_LIMIT, ENOUGH]),
    ("each event settled, 100 runs", 100, 1, [HALF_THE_LIMIT, ENOUGH]),
)


def lines(bench: Bench) -> Iterator[Line]:
    """Events a second. What waits at once is written at once, so several runs share a transaction."""
    events = bench.scaled(EVENTS, quick=300)
    with child("children.podium_store", name="podium") as ours, child("children.raw_sqlite", name="sqlite") as limit:
        for what, runs, settled, goals in SHAPES:
            request = {"runs": runs, "each": events // runs, "settled": settled}
            asked = {OURS: partial(ours.ask, "append", **request), LIMIT: partial(limit.ask, "append", **request)}
            taken = interleaved(asked, rounds=bench.scaled(ROUNDS, quick=2))
            yield line(bench, taken, row="append", what=what, unit=PER_SECOND, goals=goals)
