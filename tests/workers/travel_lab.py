"""A lab with several machines: each has its own Podium home and clone, and they share only a store and a remote."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.core.placement import WorkerOptions
from podium.system.identity import read_host_id
from podium.values.event import Entry, ToolAnswered, WorkPushed

from .worker_lab import WorkerLab, wait_exited


@dataclass
class TravelLab(WorkerLab):
    """A worker lab on the machine `machine`. Its repository has the remote `remote.git`."""

    machine: str = "laptop"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.remote = self.folder / "remote.git"
        self.repo.git("clone", "-q", "--bare", str(self.repo.path), str(self.remote))
        self.repo.git("remote", "add", "origin", str(self.remote))
        self.repo.git("fetch", "-q", "origin")

    @property
    def home(self) -> Path:
        return self.folder / self.machine

    @property
    def store(self) -> Path:
        return self.folder / "store" / "podium.db"

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "PODIUM_STORE": str(self.store)}

    @property
    def host(self) -> str:
        return read_host_id(self.home)

    async def delegate_moving(self, branch: str, *moves: Any, after: tuple[str, ...] = (), **options: Any) -> str:
        """Delegate a task to a worker that can move to another machine."""
        return await self.delegate(branch, *moves, can_move=True, options=WorkerOptions(after=after), **options)

    async def wait_pushed(self, run: str, *, steps: int) -> WorkPushed:
        """Wait until this many tool calls are finished and pushed, and return the push."""
        await self.wait_for_event(run, ToolAnswered, count=steps)
        answered = [entry.seq for entry in self.entries(run) if isinstance(entry.event, ToolAnswered)][steps - 1]

        def contains_steps(entry: Entry) -> bool:
            return isinstance(entry.event, WorkPushed) and entry.event.through >= answered

        pushed = (await self.wait_for_entry(run, contains_steps)).event
        assert isinstance(pushed, WorkPushed)
        return pushed

    def list_remote_refs(self) -> list[str]:
        """Return the refs of Podium on the remote."""
        return self.repo.git("for-each-ref", "--format=%(refname)", "refs/podium", at=self.remote).splitlines()

    def show_remote(self, revision: str) -> str:
        return self.repo.git("show", revision, at=self.remote)

    async def lose_machine(self) -> None:
        """Kill every process on this machine at once, and take away its files."""
        for process in self.commanders:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        for one in self.list_processes():
            one.kill()
            await wait_exited(one.pid)
        lost = self.folder / f"lost-{self.machine}"
        lost.mkdir()
        for path in (self.home, self.repo.path, *self.folder.glob("repo-worker-*")):
            if path.exists():
                path.rename(lost / path.name)
        self.commanders.clear()

    def return_machine(self, machine: str) -> None:
        """Give a lost machine its files back, and continue on it."""
        self.machine = machine
        lost = self.folder / f"lost-{machine}"
        for path in lost.iterdir():
            path.rename(self.folder / path.name)
        lost.rmdir()
