"""A worker lab: a repository, a store with a short path, a scripted model over HTTP, and processes that work there."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

from anyio import fail_after, move_on_after, to_thread, wait_readable

from podium import Agent, App, Settings
from podium.core.journal_rows import find_chain_break
from podium.engines.model.model_wire import ModelCall
from podium.engines.script import echo_request
from podium.runs.notifier import Notifier, open_notifier
from podium.store.follower import Follower
from podium.store.mailbox import post_to_mailbox
from podium.store.reader import StoreReader
from podium.store.run_leases import read_process_start
from podium.store.wakeup import ensure_socket_folder
from podium.store.worker_index import WorkerIndex
from podium.testing import ModelServer, Move, calls, format_script, read_entries
from podium.values.agent import Permissions
from podium.values.event import (
    CallFailed,
    Decision,
    Entry,
    Event,
    ModelReplied,
    PermissionAnswered,
    PermissionAsked,
    RunEnded,
    RunResumed,
    StopAsked,
)
from podium.values.store_address import StoreAddress, make_postgres_address
from podium.workers.delegation import NewWorker, create_worker

from ..actors import ADA
from ..preloaded_podium import ForkedProcess, run_podium_command, start_commander_process
from ..workspace.merging import Repo

LONG = 40.0
"""Seconds after which a test that waits has failed."""

KEY = "sk-the-key-of-the-model"
TOOLS = ("Read", "Write", "Edit", "Bash")
EVERYTHING = ("Write", "Edit", "Bash")
"""The rules of workers that need no permission requests."""


call = calls


def bash(command: str) -> Move:
    return call("bash", command=command)


def write(path: str, content: str = "x\n") -> Move:
    return call("write_file", path=path, content=content)


SILENT: dict[str, Any] = {"silent": True}
"""The script step of an agent that waits until it is ended."""


def make_scripted_agent(*moves: Any, **keys: Any) -> Agent:
    """Make an agent that follows these script steps."""
    prompt = f"You are played.\n{format_script(*moves)}"
    return Agent(name="hand", prompt=prompt, **({"tools": TOOLS} | keys))


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the lab, as the system shows it."""

    pid: int

    @property
    def is_alive(self) -> bool:
        return bool(read_process_start(self.pid))

    def kill(self, sign: signal.Signals = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, sign)


@dataclass
class WorkerLab:
    """A place where tests delegate to workers. Every process started here ends with it."""

    folder: Path
    server: ModelServer
    store_url: str = ""
    """The URL of a PostgreSQL database that holds the store, instead of a file."""
    repo: Repo = field(init=False)
    commanders: list[ForkedProcess | subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.repo = Repo(self.folder / "repo")

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def store(self) -> StoreAddress:
        return make_postgres_address(self.store_url, self.home) if self.store_url else self.home / "podium.db"

    @property
    def root(self) -> str:
        return str(self.repo.path)

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "PODIUM_HOME": str(self.home),
            "PODIUM_STORE": self.store_url,
            "PODIUM_MODEL": "openai:m",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": self.server.url,
        }

    def settings(self, allow: Sequence[str] = (), **options: Any) -> Settings:
        return Settings.load(self.environ, repo=self.repo.path, permissions=Permissions(allow=tuple(allow)), **options)

    def write_settings(self, text: str) -> None:
        """Write the person's settings."""
        self.home.mkdir(exist_ok=True)
        (self.home / "config.yaml").write_text(text)

    def write_agent(self, agent: Agent) -> None:
        """Write an agent's file, for the person."""
        folder = self.home / "agents"
        folder.mkdir(parents=True, exist_ok=True)
        tools = ", ".join(agent.tools or ())
        (folder / f"{agent.name}.md").write_text(f"---\ndescription: Is played.\ntools: {tools}\n---\n{agent.prompt}\n")

    # Delegating

    async def delegate(self, branch: str, *moves: Any, allow: Sequence[str] = EVERYTHING, **options: Any) -> str:
        """Delegate a task to a worker that follows these script steps, and return the id of its run."""
        [run] = await self.delegate_all({branch: moves}, allow=allow, **options)
        return run

    async def delegate_all(
        self,
        moves_by_branch: dict[str, Sequence[Any]],
        *,
        allow: Sequence[str] = EVERYTHING,
        tools: Sequence[str] | None = TOOLS,
        expects: Literal["", "changes"] = "",
        **options: Any,
    ) -> list[str]:
        async with App(self.settings(allow), environ=self.environ) as app:
            return [
                await self.create_worker(
                    app,
                    branch,
                    make_scripted_agent(*moves, tools=tools, expects=expects),
                    task=f"work on {branch}",
                    **options,
                )
                for branch, moves in moves_by_branch.items()
            ]

    async def create_worker(
        self,
        app: App,
        branch: str,
        *team: Agent,
        task: str = "go",
        run: str = "",
        settings: Settings | None = None,
        **options: Any,
    ) -> str:
        """Delegate a task to the first agent of a team, without starting a commander."""
        new = NewWorker(at=self.repo.path, branch=branch, task=task, agent=team, **options)
        return await create_worker(app.runs, settings or app.runs.settings, new, by=ADA, run=run)

    def start_commander(self, **variables: str) -> ForkedProcess | subprocess.Popen[bytes]:
        """Start a commander in a separate process."""
        with (self.folder / "commander.log").open("ab") as log:
            process = start_commander_process(env={**self.environ, **variables}, log=log.fileno())
        self.commanders.append(process)
        return process

    async def run_podium(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Call podium in a separate process, and wait for its end."""

        environ = {**self.environ, **variables}
        return await to_thread.run_sync(
            lambda: run_podium_command(arguments, cwd=self.repo.path, env=environ, timeout=LONG)
        )

    def notifier(self) -> AbstractAsyncContextManager[Notifier]:
        """Open a notifier for a commander in this process, without any command or webhook."""
        return open_notifier(tuple, home=self.home, tell=print)

    def worktree_path(self, branch: str) -> Path:
        return self.folder / f"repo-worker-{branch.replace('/', '-')}"

    # Watching

    def entries(self, run: str) -> list[Entry]:
        return read_entries(self.store, run)

    def events(self, run: str, *kinds: type[Event]) -> list[Any]:
        return [entry.event for entry in self.entries(run) if not kinds or isinstance(entry.event, kinds)]

    async def wait_for_entry(self, run: str, matches: Callable[[Entry], bool], after: int = 0) -> Entry:
        """Wait for the first entry of a run that matches, and return it."""
        with move_on_after(LONG), Follower(self.store, run, after) as entries:
            async for entry in entries:
                if matches(entry):
                    return entry
        raise AssertionError(f"run {run} has not come to it: {self.events(run)[-3:]}\n{self.logs(run)}")

    async def wait_for_event(self, run: str, *kinds: type[Event], count: int = 1) -> Any:
        """Wait for the n-th event of these kinds on the timeline, and return it."""
        left = count

        def is_nth_event(entry: Entry) -> bool:
            nonlocal left
            left -= isinstance(entry.event, kinds)
            return left == 0

        return (await self.wait_for_entry(run, is_nth_event)).event

    async def wait_ended(self, run: str) -> RunEnded:
        ended = await self.wait_for_event(run, RunEnded)
        assert isinstance(ended, RunEnded)
        return ended

    async def wait_asked(self, run: str, number: int = 1) -> PermissionAsked:
        asked = await self.wait_for_event(run, PermissionAsked, count=number)
        assert isinstance(asked, PermissionAsked)
        return asked

    async def wait_called(self, count: int) -> None:
        """Wait until the model has been called this many times."""
        with fail_after(LONG):
            await self.server.wait_calls(count)

    async def wait_finished(self) -> None:
        """Wait until all commanders, and with them every process of the lab, have ended by themselves."""
        for process in self.commanders:
            await wait_exited(process.pid)
            process.wait()
        await self.wait_no_processes()

    async def wait_no_processes(self) -> None:
        """Wait until no process of the lab is left."""
        while found := self.list_processes():
            for process in found:
                await wait_exited(process.pid)

    def logs(self, run: str) -> str:
        files = (self.home / "logs" / f"{run}.log", self.folder / "commander.log")
        return "\n".join(file.read_text() for file in files if file.exists())

    # Steering

    def answer(self, run: str, asked: PermissionAsked, decision: Decision, comment: str = "", by: str = "me") -> bool:
        answered = PermissionAnswered(id=asked.id, decision=decision, by=by, comment=comment, at=time.time())
        return post_to_mailbox(self.store, run, answered, ref=asked.id)

    def stop(self, run: str) -> None:
        post_to_mailbox(self.store, run, StopAsked(by="me"))

    # Processes

    def list_processes(self) -> list[Process]:
        """Return every process that belongs to the lab, including those in sandboxes."""
        # The environment of a forked commander cannot be seen from outside.
        found = {one.pid: Process(one.pid) for one in self.commanders if one.poll() is None}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                about = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                about += os.fsencode((folder / "cwd").readlink())
            except OSError:
                continue
            if str(self.folder).encode() in about and int(folder.name) != os.getpid():
                found[int(folder.name)] = Process(int(folder.name))
        return [*found.values()]

    async def wait_worker(self, run: str, start: int = 1) -> Process:
        """Wait for the n-th process of a worker, and return it."""
        resumed = await self.wait_for_event(run, RunResumed, count=start)
        return Process(resumed.pid)

    def list_running_workers(self, *runs: str) -> list[Process]:
        """Return the processes that are working on these runs."""
        known = [self.events(run, RunResumed) for run in runs]
        return [one for one in (Process(resumed[-1].pid) for resumed in known if resumed) if one.is_alive]

    # Checks at the end

    def assert_clean_end(self, *runs: str) -> None:
        """Check that no process and no open worker is left, and that every timeline is complete."""
        assert self.list_processes() == []
        assert WorkerIndex(self.store).list_open() == []
        assert [
            path.name for path in ensure_socket_folder(self.store).iterdir() if path.name.startswith("commander")
        ] == []
        for run in runs:
            with StoreReader(self.store) as reader:
                rows = reader.read_rows(run)
            assert find_chain_break(rows) is None
            entries = self.entries(run)
            assert [isinstance(entry.event, RunEnded) for entry in entries].count(True) == 1
            assert isinstance(entries[-1].event, RunEnded)

    def finished_calls(self, *runs: str) -> dict[str, int]:
        """Return how often each model call on a timeline was made, by its key."""
        return {
            key: self.server.count(key)
            for run in runs
            for entry in self.entries(run)
            if entry.key and isinstance(entry.event, ModelReplied | CallFailed)
            for key in [f"{run}/{entry.key}"]
        }

    def commits(self, branch: str, base: str = "main") -> list[str]:
        return self.repo.git("log", "--format=%s", f"{base}..{branch}").splitlines()

    def read_file(self, branch: str, path: str) -> str:
        return self.repo.git("show", f"{branch}:{path}")

    async def close(self) -> None:
        for process in self.commanders:
            process.kill()
            process.wait()
        for one in self.list_processes():
            one.kill()
        await self.wait_no_processes()


L = TypeVar("L", bound=WorkerLab)


@asynccontextmanager
async def open_worker_lab(
    make: Callable[[Path, ModelServer], L], *, otherwise: Callable[[ModelCall], Move] = echo_request
) -> AsyncIterator[L]:
    """Open a lab that is made in this way; every process that was started in it ends with the block."""
    # Not in pytest's own folder, whose paths are too long for sockets.
    with TemporaryDirectory(prefix="pdm-") as folder:
        async with ModelServer(otherwise=otherwise) as server:
            lab = make(Path(folder).resolve(), server)
            try:
                yield lab
            finally:
                await lab.close()


async def wait_exited(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except (ProcessLookupError, FileNotFoundError):  # the latter while the process is being reaped
        return
    try:
        with fail_after(LONG):
            await wait_readable(descriptor)
    finally:
        os.close(descriptor)
