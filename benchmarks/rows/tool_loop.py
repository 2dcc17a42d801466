"""One agent that calls a tool five times before it answers; against the raw client in the same conversation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..harbour import ANSWER
from ..harness import Bench, interleaved, model_server
from ..line import Line, at_most, line
from .contest import contest

ROUNDS = 12
CONVERSATIONS = 70
"""So many that a sample has its share of what Podium puts off, as with single calls."""


def lines(bench: Bench) -> Iterator[Line]:
    """The time of six model calls and five tool calls, and what the processor has to do with them."""
    conversations = bench.scaled(CONVERSATIONS, quick=3)
    with model_server(latency=0) as url, contest(bench, "tool_loop") as children:
        request = {"url": url, "reply": ANSWER, "at_once": 1, "waves": conversations, "warm_up": 2}
        asked = {name: partial(one.ask, "calls", **request) for name, one in children.items()}
        taken = interleaved(asked, rounds=bench.scaled(ROUNDS, quick=3))
    what = "5 tool calls, then the answer"
    yield line(bench, taken, row="tool_loop", what=what, goals=[at_most(2)], has_peers=True)
    yield line(bench, taken, row="tool_loop", what=f"{what}: processor", measure="cpu", has_peers=True)
