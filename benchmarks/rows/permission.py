"""A worker's request for permission and the commander's answer by the rules; against a bare echo of as many bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from ..harness import LIMIT, OURS, Bench, BenchmarkFailed, interleave_samples, start_child, start_process
from ..result_line import Goal, Line, Unit, make_line, max_ratio

ROUNDS = 9
TIMES = 400
MICROSECONDS = Unit("µs", 1e6)

FIGURES: tuple[tuple[str, float, str, list[Goal]], ...] = (
    ("edit", 0.5, "loop", [max_ratio(5)]),
    ("edit", 0.95, "loop", []),
    ("command", 0.5, "loop", [max_ratio(5)]),
    ("command", 0.95, "loop", []),
    ("edit", 0.5, "blocking", []),
)
"""What is asked for, the share of the answers that are there by then, and how the echo is done."""


def lines(bench: Bench) -> Iterator[Line]:
    """From the request's leaving the worker to the answer's being there, between two processes."""
    with ExitStack() as stack:
        where = stack.enter_context(start_server("podium_commander", bench.folder / "commander"))
        echoes = {
            how: stack.enter_context(start_server("raw_echo", bench.folder / how, how)) for how in ("loop", "blocking")
        }
        ours = stack.enter_context(start_child("children.podium_asking", name="podium"))
        limit = stack.enter_context(start_child("children.raw_asking", name="bare echo"))
        for what, share, how, goals in FIGURES:
            request = {"what": what, "times": bench.scale_count(TIMES, quick=20), "share": share}
            turns = {
                OURS: partial(ours.ask, "ask", where=where, **request),
                LIMIT: partial(limit.ask, f"ask_{how}", where=echoes[how], **request),
            }
            taken = interleave_samples(turns, rounds=bench.scale_count(ROUNDS, quick=2))
            label = f"permission for a new {what}: {share:.0%}{', against a blocking echo' * (how == 'blocking')}"
            yield make_line(bench, taken, row="permission", what=label, unit=MICROSECONDS, goals=goals)


@contextmanager
def start_server(module: str, folder: Path, *options: str) -> Iterator[str]:
    """Where a program listens that answers, in a process of its own."""
    folder.mkdir()
    argv = [sys.executable, "-m", f"benchmarks.children.{module}", str(folder), *options]
    with start_process(argv) as process:
        assert process.stdout is not None
        said = process.stdout.readline().decode()
        if not said.startswith("listening on "):
            raise BenchmarkFailed(f"{module} did not start: {said}")
        yield said.removeprefix("listening on ").strip()
