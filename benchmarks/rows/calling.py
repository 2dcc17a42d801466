"""The programs that call a model in turns: Podium, the raw client and the peers, each in its own process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from ..harness import LIMIT, OURS, REPLY, Bench, BenchmarkFailed, Child, Sample, interleave_samples, start_child
from ..peers.environment import PEERS

WARM_UP = 5


class Callers:
    """The processes that call."""

    def __init__(self, children: dict[str, Child]) -> None:
        self._children = children

    def measure(self, url: str, *, at_once: int, waves: int, rounds: int) -> dict[str, list[Sample]]:
        """Return the samples of a wave of calls for each program."""
        request = {"url": url, "reply": REPLY, "at_once": at_once, "waves": waves, "warm_up": WARM_UP}
        asked = {name: partial(one.ask, "calls", **request) for name, one in self._children.items()}
        return interleave_samples(asked, rounds=rounds)


@contextmanager
def start_callers(bench: Bench) -> Iterator[Callers]:
    """Start Podium, the limit and the peers, leaving out peers that do not start."""
    with ExitStack() as stack:
        children = {
            OURS: stack.enter_context(start_child("children.podium_app", name="podium")),
            LIMIT: stack.enter_context(start_child("children.raw_aiohttp", name="raw aiohttp")),
        }
        for name, python in bench.peers.items():
            try:
                children[name] = stack.enter_context(start_child(f"peers.{PEERS[name]}", name=name, python=python))
            except BenchmarkFailed as error:
                sys.stderr.write(f"{error}\n")
        yield Callers(children)
