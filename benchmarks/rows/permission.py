"""A worker's permission request and the commander's answer by the rules; against SQLite writing the same rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from ..harness import LIMIT, OURS, Bench, BenchmarkFailed, interleave_samples, start_child, start_process
from ..result_line import MILLISECONDS, Goal, Line, make_line, max_ratio

ROUNDS = 9
TIMES = 100

FIGURES: tuple[tuple[str, float, list[Goal]], ...] = (
    ("edit", 0.5, [max_ratio(5)]),
    ("edit", 0.95, []),
    ("command", 0.5, [max_ratio(5)]),
    ("command", 0.95, []),
)
"""The kind of request, the share of answers that have arrived by the measured time, and the goals."""


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the time from the request to the answer on the timeline, between two processes."""
    with ExitStack() as stack:
        where = stack.enter_context(start_server("podium_commander", bench.folder / "commander"))
        raw = stack.enter_context(start_server("raw_answering", bench.folder / "raw"))
        ours = stack.enter_context(start_child("children.podium_asking", name="podium"))
        limit = stack.enter_context(start_child("children.raw_asking", name="sqlite"))
        store = str(bench.folder / "commander" / "home" / "podium.db")
        for what, share, goals in FIGURES:
            request = {"what": what, "times": bench.scale_count(TIMES, quick=20), "share": share}
            turns = {
                OURS: partial(ours.ask, "ask", where=where, store=store, **request),
                LIMIT: partial(limit.ask, "ask", where=raw, **request),
            }
            taken = interleave_samples(turns, rounds=bench.scale_count(ROUNDS, quick=2))
            label = f"permission for a new {what}: {share:.0%}"
            yield make_line(bench, taken, row="permission", what=label, unit=MILLISECONDS, goals=goals)


@contextmanager
def start_server(module: str, folder: Path) -> Iterator[str]:
    """Start a program that answers, and yield the address at which it listens."""
    folder.mkdir()
    argv = [sys.executable, "-m", f"benchmarks.children.{module}", str(folder)]
    with start_process(argv) as process:
        assert process.stdout is not None
        said = process.stdout.readline().decode()
        if not said.startswith("listening on "):
            raise BenchmarkFailed(f"{module} did not start: {said}")
        yield said.removeprefix("listening on ").strip()
