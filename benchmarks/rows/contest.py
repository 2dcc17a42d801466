"""The programs of a row that has its own: Podium, the limit and the peers, each in its own process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ..harness import LIMIT, OURS, Bench, BenchmarkFailed, Child, start_child
from ..peers.environment import PEERS


@contextmanager
def start_contestants(bench: Bench, row: str) -> Iterator[dict[str, Child]]:
    """Start the row's programs of Podium, the limit and the peers, leaving out peers that do not start."""
    with ExitStack() as stack:
        children = {
            OURS: stack.enter_context(start_child(f"children.podium_{row}", name="podium")),
            LIMIT: stack.enter_context(start_child(f"children.raw_{row}", name="raw aiohttp")),
        }
        for name, python in bench.peers.items():
            try:
                children[name] = stack.enter_context(
                    start_child(f"peers.{PEERS[name]}_{row}", name=name, python=python)
                )
            except BenchmarkFailed as error:
                sys.stderr.write(f"{error}\n")
        yield children
