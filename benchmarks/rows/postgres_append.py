"""Appending to timelines in PostgreSQL; against a bare connection inserting the same rows in pipelined transactions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from podium.testing.postgres_cluster import run_cluster

from ..harness import LIMIT, OURS, Bench, interleave_samples, start_child
from ..result_line import PER_SECOND, Line, make_line, max_ratio

ROUNDS = 5
EVENTS = 5_000

SHAPES = (
    ("each event settled, 1 run", 1, 1),
    ("100 events a settling, 1 run", 1, 100),
    ("each event settled, 100 runs", 100, 1),
)


def lines(bench: Bench) -> Iterator[Line]:
    """Measure events per second on a server that waits for the disk, as a fleet's server does."""
    events = bench.scale_count(EVENTS, quick=200)
    with (
        run_cluster(is_durable=True) as cluster,
        start_child("children.podium_postgres", name="podium") as ours,
        start_child("children.raw_postgres", name="psycopg") as limit,
    ):
        urls = {OURS: cluster.create_database("ours"), LIMIT: cluster.create_database("limit")}
        for what, runs, batch in SHAPES:
            request = {"runs": runs, "each": events // runs, "settled": batch}
            asked = {
                OURS: partial(ours.ask, "append", url=urls[OURS], **request),
                LIMIT: partial(limit.ask, "append", url=urls[LIMIT], **request),
            }
            taken = interleave_samples(asked, rounds=bench.scale_count(ROUNDS, quick=1))
            yield make_line(bench, taken, row="postgres_append", what=what, unit=PER_SECOND, goals=[max_ratio(2)])
