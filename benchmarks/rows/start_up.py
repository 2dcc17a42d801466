"""Starting `podium`; against starting the same interpreter with nothing to do."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

from podium import Agent, App, Settings

from ..harness import LIMIT, OURS, Bench, BenchmarkFailed, Sample, interleave_samples
from ..result_line import Goal, Line, make_line, max_ratio

ROUNDS = 15
RUNS = 10

PODIUM = str(Path(sys.executable).with_name("podium"))
NOTHING = (sys.executable, "-c", "pass")


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the time from the start of the process to its end."""
    environ = {**os.environ, "PODIUM_HOME": str(bench.folder / "home")}
    asyncio.run(_fill_store(bench.folder / "home"))
    commands: tuple[tuple[str, tuple[str, ...], list[Goal]], ...] = (
        ("podium --help", (PODIUM, "--help"), [max_ratio(3)]),
        (f"podium ps, {RUNS} runs", (PODIUM, "ps"), []),
        ("import podium", (sys.executable, "-c", "import podium"), []),
    )
    for what, command, goals in commands:
        started = {OURS: partial(time_process, command, environ), LIMIT: partial(time_process, NOTHING, environ)}
        taken = interleave_samples(started, rounds=bench.scale_count(ROUNDS, quick=2))
        yield make_line(bench, taken, row="start_up", what=what, goals=goals)


def time_process(command: tuple[str, ...], environ: dict[str, str]) -> Sample:
    """Return the time of a process from its start to its end."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begin = perf_counter()
    pid = os.posix_spawn(command[0], command, environ, file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    wall = perf_counter() - begin
    if status:
        raise BenchmarkFailed(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return Sample(wall=wall, cpu=used.ru_utime + used.ru_stime)


async def _fill_store(home: Path) -> None:
    """Fill a small store, as it looks after some use."""
    async with App(Settings.load({}, home=home, model="rehearsal"), environ={}) as app:
        for _ in range(RUNS):
            await app.run(Agent(name="poet", prompt="You are a poet."), "Say something about the sea.")
