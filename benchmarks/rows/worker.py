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

from ..harness import LIMIT, OURS, Bench, BenchmarkFailed, Sample, Take, interleave_samples, start_process
from ..result_line import Goal, Line, Unit, make_line, max_ratio
from ..worker_lab import WorkerLab, make_repository, open_worker_lab, run_git

ROUNDS = 15
IDLERS = 3
MANY = 20
TIMES_OF_MANY = 5
MEGABYTES = Unit("MB", 1e-6)
BARE = "print('listening', flush=True); input()"

_numbers = count()


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the time from the request for a worker to its first model call, with a commander already running."""
    with open_worker_lab(bench, idlers=bench.scale_count(IDLERS, quick=1)) as lab:
        limit = BareWorker(make_repository(bench.folder / "limit"))
        yield from _measure_memory(bench, lab)
        yield from _measure_start(bench, lab, limit)
        yield from _measure_many(bench, lab, limit)


def _measure_start(bench: Bench, lab: WorkerLab, limit: BareWorker) -> Iterator[Line]:
    for since, what in (("hired", "from delegated to its first call"), ("asked", "from asked for to its first call")):
        turns: dict[str, Take] = {OURS: partial(lab.time_workers, since=since, until="called"), LIMIT: limit.make_one}
        taken = interleave_samples(turns, rounds=bench.scale_count(ROUNDS, quick=1))
        yield make_line(bench, taken, row="worker", what=f"a worker, {what}", goals=[max_ratio(2)])


def _measure_many(bench: Bench, lab: WorkerLab, limit: BareWorker) -> Iterator[Line]:
    many = bench.scale_count(MANY, quick=3)
    for until, what in (("called", "until all have called"), ("over", "until all are over")):
        turns = {
            OURS: partial(lab.time_workers, workers=many, since="asked", until=until),
            LIMIT: partial(limit.make_many, many),
        }
        taken = interleave_samples(turns, rounds=bench.scale_count(TIMES_OF_MANY, quick=1))
        yield make_line(bench, taken, row="worker", what=f"{many} workers at once, {what}")


class BareWorker:
    """The minimum that every worker needs: a checkout, and a process of the same interpreter."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._git_lock = Lock()

    def make_one(self) -> Sample:
        """Make one of each."""
        begin = perf_counter()
        self._make_checkout_and_process()
        return Sample(wall=perf_counter() - begin)

    def make_many(self, many: int) -> Sample:
        """Make several: the checkouts one after the other, the processes in parallel."""
        begin = perf_counter()
        with ThreadPoolExecutor(many) as pool:
            for done in [pool.submit(self._make_checkout_and_process) for _ in range(many)]:
                done.result()
        return Sample(wall=perf_counter() - begin)

    def _make_checkout_and_process(self) -> None:
        name = f"work-{next(_numbers)}"
        with self._git_lock:
            run_git(self._root, "worktree", "add", "--quiet", "-b", name, f"../limit-{name}")
        subprocess.run([sys.executable, "-c", "pass"], check=True)


# Memory


def _measure_memory(bench: Bench, lab: WorkerLab) -> Iterator[Line]:
    idlers = lab.idle_pids
    for what, goals, read in (
        ("resident", [Goal("figure", 80)], resident_set_size),
        ("its share", [], proportional_set_size),
    ):
        ours = [Sample(memory=read(pid)) for pid in idlers]
        taken = {OURS: ours, LIMIT: [measure_bare_interpreter(read) for _ in idlers]}
        label = f"a worker that waits for its model: {what}"
        yield make_line(bench, taken, row="worker", what=label, measure="memory", unit=MEGABYTES, goals=goals)


def resident_set_size(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def proportional_set_size(pid: int) -> int:
    """Return the same, with shared memory divided among the processes that share it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def measure_bare_interpreter(read: Callable[[int], int]) -> Sample:
    """Return the memory of an interpreter that waits for a line of input."""
    with start_process([sys.executable, "-c", BARE], stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise BenchmarkFailed("the bare interpreter did not start")
        return Sample(memory=read(process.pid))
