"""Whoever takes part in a row that has programs of its own: Podium, the limit and the peers, a process each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ..harness import LIMIT, OURS, Bench, BenchmarkFailed, Child, start_child
from ..peers.environment import PEERS


@contextmanager
def start_contestants(bench: Bench, row: str) -> Iterator[dict[str, Child]]:
    """Ours, the limit and all peers that start, each running its program for this row."""
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
