"""One agent that calls a tool five times before it answers; against the raw client in the same conversation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..harness import Bench, interleave_samples, start_model_server
from ..result_line import Line, make_line, max_ratio
from ..tool_loop_scenario import ANSWER
from .contest import start_contestants

ROUNDS = 12
CONVERSATIONS = 70
"""Enough for a sample to include its share of deferred work, as with single calls."""


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the time and processor time of six model calls and five tool calls."""
    conversations = bench.scale_count(CONVERSATIONS, quick=3)
    with start_model_server(latency=0) as url, start_contestants(bench, "tool_loop") as children:
        request = {"url": url, "reply": ANSWER, "at_once": 1, "waves": conversations, "warm_up": 2}
        asked = {name: partial(one.ask, "calls", **request) for name, one in children.items()}
        taken = interleave_samples(asked, rounds=bench.scale_count(ROUNDS, quick=3))
    what = "5 tool calls, then the answer"
    yield make_line(bench, taken, row="tool_loop", what=what, goals=[max_ratio(2)], has_peers=True)
    yield make_line(bench, taken, row="tool_loop", what=f"{what}: processor", measure="cpu", has_peers=True)
