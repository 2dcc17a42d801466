"""Starting `podium`; against starting the same interpreter for nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

from podium import Agent, App, Settings

from ..harness import LIMIT, OURS, Bench, Broken, Sample, interleaved
from ..line import Goal, Line, at_most, line

ROUNDS = 15
RUNS = 10

PODIUM = str(Path(sys.executable).with_name("podium"))
NOTHING = (sys.executable, "-c", "pass")


def lines(bench: Bench) -> Iterator[Line]:
    """From the start of the process to its end."""
    environ = {**os.environ, "PODIUM_HOME": str(bench.folder / "home")}
    asyncio.run(_rehearse(bench.folder / "home"))
    commands: tuple[tuple[str, tuple[str, ...], list[Goal]], ...] = (
        ("podium --help", (PODIUM, "--help"), [at_most(3)]),
        (f"podium ps, {RUNS} runs", (PODIUM, "ps"), []),
        ("import podium", (sys.executable, "-c", "import podium"), []),
    )
    for what, command, goals in commands:
        started = {OURS: partial(timed, command, environ), LIMIT: partial(timed, NOTHING, environ)}
        taken = interleaved(started, rounds=bench.scaled(ROUNDS, quick=2))
        yield line(bench, taken, row="start_up", what=what, goals=goals)


def timed(command: tuple[str, ...], environ: dict[str, str]) -> Sample:
    """What a process takes from its start to its end."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begin = perf_counter()
    pid = os.posix_spawn(command[0], command, environ, file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    wall = perf_counter() - begin
    if status:
        raise Broken(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return Sample(wall=wall, cpu=used.ru_utime + used.ru_stime)


async def _rehearse(home: Path) -> None:
    """A small store, as one has it after some use."""
    async with App(Settings.load({}, home=home, model="rehearsal"), environ={}) as app:
        for _ in range(RUNS):
            await app.run(Agent(name="poet", prompt="You are a poet."), "Say something about the sea.")
