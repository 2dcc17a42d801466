"""One command in the sandbox; against the same command without it."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

from podium.system.child_process import build_environment, run_process
from podium.values.errors import Mistake
from podium.workspace.sandbox.bubblewrap import Sandbox

from ..harness import LIMIT, OURS, Bench, BenchmarkFailed, Sample, interleave_samples
from ..result_line import Goal, Line, make_line

ROUNDS = 50
COMMAND = ["/bin/true"]
MAX_ADDED_SECONDS = 0.010
"""The most seconds that the sandbox may add on an idle machine."""


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the time from the start of the command to its end, including setup and cleanup."""
    checkout = bench.folder / "checkout"
    checkout.mkdir()
    try:
        sandbox = asyncio.run(Sandbox.find(checkout, home=bench.folder / "home"))
    except Mistake as mistake:
        sys.stderr.write(f"sandbox: {mistake}\n")
        return
    turns = {
        OURS: partial(_time_command, lambda: sandbox.wrap(COMMAND), str(checkout)),
        LIMIT: partial(_time_command, lambda: COMMAND, str(checkout)),
    }
    taken = interleave_samples(turns, rounds=bench.scale_count(ROUNDS, quick=2))
    sandbox.remove_placeholders()
    bare = sorted(sample.wall for sample in taken[LIMIT])[len(taken[LIMIT]) // 2]
    goals = [Goal("figure", round(1e3 * (bare + MAX_ADDED_SECONDS), 1))]
    yield make_line(bench, taken, row="sandbox", what="true, in a sandbox", goals=goals)


def _time_command(command: Callable[[], list[str]], directory: str) -> Sample:
    async def once() -> tuple[float, int]:
        begin = perf_counter()
        ended = await run_process(
            command(), env=build_environment(), directory=directory, timeout=30, take=lambda chunk: True
        )
        return perf_counter() - begin, ended.code

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall, code = asyncio.run(once())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise BenchmarkFailed(f"the command ended with {code}")
    return Sample(wall=wall, cpu=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
