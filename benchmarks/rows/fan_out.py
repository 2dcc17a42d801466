"""Many agents at once in one process, each calling a model that takes 50 ms; against the raw client."""

from __future__ import annotations

from collections.abc import Iterator

from ..harness import Bench, start_model_server
from ..result_line import Line, make_line, max_ratio
from .calling import start_callers

LATENCY = 0.05
ROUNDS = 7


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the time until all have answered, on new connections each time."""
    with start_model_server(latency=LATENCY) as url, start_callers(bench) as calling:
        for agents in (10, 20) if bench.is_quick else (200, 1000):
            taken = calling.measure(url, at_once=agents, waves=1, rounds=bench.scale_count(ROUNDS, quick=2))
            what = f"{agents:,} agents at once, 50 ms"
            yield make_line(bench, taken, row="fan_out", what=what, goals=[max_ratio(3)], has_peers=True)
            yield make_line(bench, taken, row="fan_out", what=f"{what}: processor", measure="cpu", has_peers=True)
