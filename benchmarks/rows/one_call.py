"""One agent and one streamed call to a model without latency; against the raw client making the same call."""

from __future__ import annotations

from collections.abc import Iterator

from ..harness import Bench, start_model_server
from ..result_line import Line, make_line, max_ratio
from .calling import start_callers

ROUNDS = 12
CALLS = 400
"""Enough calls for a sample to include its share of deferred work, such as SQLite's checkpoints."""


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the time and processor time of a call; Podium's call is also stored durably on the timeline."""
    with start_model_server(latency=0) as url, start_callers(bench) as calling:
        taken = calling.measure(
            url, at_once=1, waves=bench.scale_count(CALLS, quick=10), rounds=bench.scale_count(ROUNDS, quick=3)
        )
    what = "one agent, one call"
    yield make_line(bench, taken, row="one_call", what=what, goals=[max_ratio(2)], has_peers=True)
    yield make_line(bench, taken, row="one_call", what=f"{what}: processor", measure="cpu", has_peers=True)
