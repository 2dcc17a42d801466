"""One agent, one streamed call of a model without latency; against the raw client making the same call."""

from __future__ import annotations

from collections.abc import Iterator

from ..harness import Bench, start_model_server
from ..result_line import Line, make_line, max_ratio
from .calling import start_callers

ROUNDS = 12
CALLS = 400
"""So many that a sample has its share of what Podium puts off: now and then SQLite's log goes into the file."""


def lines(bench: Bench) -> Iterator[Line]:
    """The time of a call and what the processor has to do with it; ours is durable and on the timeline."""
    with start_model_server(latency=0) as url, start_callers(bench) as calling:
        taken = calling.measure(
            url, at_once=1, waves=bench.scale_count(CALLS, quick=10), rounds=bench.scale_count(ROUNDS, quick=3)
        )
    what = "one agent, one call"
    yield make_line(bench, taken, row="one_call", what=what, goals=[max_ratio(2)], has_peers=True)
    yield make_line(bench, taken, row="one_call", what=f"{what}: processor", measure="cpu", has_peers=True)
