"""A worker lab: a repository, a model, and a running commander to which tasks can be delegated.

The commander keeps running because some of its workers, the idle ones, wait for a model that never answers.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from podium.store.reader import StoreReader
from podium.store.worker_index import WorkerIndex
from podium.values.event import Entry, RunEnded, RunResumed

from .harness import (
    MAX_SAMPLE_SECONDS,
    Bench,
    BenchmarkFailed,
    Child,
    Sample,
    start_child,
    start_model_server,
    start_process,
)

FOLDERS = 20
FILES = 10
"""Files in each folder, of about a kilobyte each."""

MAX_WORKERS = 24
"""The number of workers that the commander runs at once."""

POLL_SECONDS = 0.01

_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLab:
    """A place for workers. `about` is the information that the delegating program needs."""

    sender: Child
    about: dict[str, Any]

    def time_workers(self, *, workers: int = 1, since: str, until: str) -> Sample:
        """Delegate to workers, wait until all of them have ended, and return the time between these two moments."""
        branches = [f"work-{next(_numbers)}" for _ in range(workers)]
        return self.sender.ask("send", **self.about, branches=branches, since=since, until=until)

    @property
    def idle_pids(self) -> list[int]:
        """Return the process ids of the workers that wait for their model."""
        store = Path(self.about["home"], "podium.db")
        with StoreReader(store) as reader:
            timelines = [reader.read_entries(row.run) for row in WorkerIndex(store).list_open()]
        waiting = [[entry.event for entry in entries] for entries in timelines if not has_ended(entries)]
        return [event.pid for events in waiting for event in events if isinstance(event, RunResumed)]


def has_ended(entries: Sequence[Entry]) -> bool:
    return isinstance(entries[-1].event, RunEnded)


@contextmanager
def open_worker_lab(bench: Bench, *, idlers: int = 1) -> Iterator[WorkerLab]:
    """Open a worker lab whose commander is warmed up."""
    folder = bench.folder / f"yard-{next(_numbers)}"
    home = folder / "home"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(f"workers: {MAX_WORKERS}\n")
    log = folder / "calls"
    with ExitStack() as stack:
        url = stack.enter_context(start_model_server(latency=0, log=log))
        environ = {"PODIUM_HOME": str(home), "PODIUM_MODEL": "openai:loopback"}
        environ |= {"OPENAI_API_KEY": "a key", "OPENAI_BASE_URL": url}
        sender = stack.enter_context(start_child("children.podium_delegating", name="podium"))
        about = {"environ": environ, "home": str(home), "repo": str(make_repository(folder / "repo")), "log": str(log)}
        sender.ask("enlist", **about, branches=[f"idle-{next(_numbers)}" for _ in range(idlers)])
        argv = [sys.executable, "-m", "podium.programs.commander"]
        stack.enter_context(start_process(argv, environ=environ))
        wait_for_calls(log, idlers)
        lab = WorkerLab(sender=sender, about=about)
        lab.time_workers(since="asked", until="over")  # load what is only loaded once
        yield lab


def wait_for_calls(log: Path, count: int) -> None:
    """Wait until the model has been called this many times."""
    begin = time.monotonic()
    while log.read_text().count("\n") < count:
        if time.monotonic() > begin + MAX_SAMPLE_SECONDS:
            raise BenchmarkFailed(
                f"{count} workers were to call the model, and did not within {MAX_SAMPLE_SECONDS:g} s"
            )
        time.sleep(POLL_SECONDS)


def make_repository(root: Path) -> Path:
    """Make a repository of a few hundred files."""
    for folder in range(FOLDERS):
        (root / f"part{folder}").mkdir(parents=True)
        for file in range(FILES):
            (root / f"part{folder}" / f"file{file}.txt").write_text(f"{folder} {file} and the sea\n" * 50)
    run_git(root, "init", "--quiet", "--initial-branch=main")
    run_git(root, "add", ".")
    run_git(root, "-c", "user.name=A", "-c", "user.email=a@localhost", "commit", "--quiet", "--message=All")
    return root


def run_git(root: Path, *args: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", *args], cwd=root, check=True)
