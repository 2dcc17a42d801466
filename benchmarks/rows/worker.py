"""Workers: their start, their memory, and many at once; against `git worktree add` and the bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from time import perf_counter

from ..harness import LIMIT, OURS, Bench, Broken, Sample, Take, _process, interleaved
from ..line import Goal, Line, Unit, at_most, line
from ..yard import Yard, git, repository, yard

ROUNDS = 15
IDLERS = 3
MANY = 20
TIMES_OF_MANY = 5
MEGABYTES = Unit("MB", 1e-6)
BARE = "print('listening', flush=True); input()"

_numbers = count()


def lines(bench: Bench) -> Iterator[Line]:
    """From the wish for a worker to its first model call, with a commander that is there already."""
    with yard(bench, idlers=bench.scaled(IDLERS, quick=1)) as there:
        limit = Bare(repository(bench.folder / "limit"))
        yield from _memory(bench, there)
        yield from _start(bench, there, limit)
        yield from _many(bench, there, limit)


def _start(bench: Bench, there: Yard, limit: Bare) -> Iterator[Line]:
    for since, what in (("hired", "from delegated to its first call"), ("asked", "from asked for to its first call")):
        turns: dict[str, Take] = {OURS: partial(there.sent, since=since, until="called"), LIMIT: limit.made}
        taken = interleaved(turns, rounds=bench.scaled(ROUNDS, quick=1))
        yield line(bench, taken, row="worker", what=f"a worker, {what}", goals=[at_most(2)])


def _many(bench: Bench, there: Yard, limit: Bare) -> Iterator[Line]:
    many = bench.scaled(MANY, quick=3)
    for until, what in (("called", "until all have called"), ("over", "until all are over")):
        turns = {
            OURS: partial(there.sent, workers=many, since="asked", until=until),
            LIMIT: partial(limit.many_made, many),
        }
        taken = interleaved(turns, rounds=bench.scaled(TIMES_OF_MANY, quick=1))
        yield line(bench, taken, row="worker", what=f"{many} workers at once, {what}")


class Bare:
    """What nobody can do without: a checkout, and a process of the same interpreter."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._one_git = Lock()

    def made(self) -> Sample:
        """One of each."""
        begin = perf_counter()
        self._make()
        return Sample(wall=perf_counter() - begin)

    def many_made(self, many: int) -> Sample:
        """So many: the checkouts one after the other, the processes beside each other."""
        begin = perf_counter()
        with ThreadPoolExecutor(many) as pool:
            for done in [pool.submit(self._make) for _ in range(many)]:
                done.result()
        return Sample(wall=perf_counter() - begin)

    def _make(self) -> None:
        name = f"work-{next(_numbers)}"
        with self._one_git:
            git(self._root, "worktree", "add", "--quiet", "-b", name, f"../limit-{name}")
        subprocess.run([sys.executable, "-c", "pass"], check=True)


# Memory


def _memory(bench: Bench, there: Yard) -> Iterator[Line]:
    idlers = there.idlers
    for what, goals, read in (("resident", [Goal("figure", 80)], resident), ("its share", [], share)):
        ours = [Sample(memory=read(pid)) for pid in idlers]
        taken = {OURS: ours, LIMIT: [bare(read) for _ in idlers]}
        told = f"a worker that waits for its model: {what}"
        yield line(bench, taken, row="worker", what=told, measure="memory", unit=MEGABYTES, goals=goals)


def resident(pid: int) -> int:
    """The bytes of a process that are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def share(pid: int) -> int:
    """The same, where what several processes have in common is divided among them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def bare(read: Callable[[int], int]) -> Sample:
    """The memory of an interpreter that waits for a line."""
    with _process([sys.executable, "-c", BARE], stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise Broken("the bare interpreter did not start")
        return Sample(memory=read(process.pid))
