"""A fleet on this machine: a temporary PostgreSQL, two hosts and a team. One host is killed, and the other takes over.

`make fleet-demo` runs it. The model is scripted; everything else is real: processes, homes, logins, git and the store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio import to_thread

from podium.core.journal_rows import find_chain_break
from podium.store.reader import StoreReader
from podium.store.worker_index import WorkerIndex
from podium.system.identity import read_host_id
from podium.testing import ModelServer
from podium.testing.postgres_cluster import run_cluster
from podium.values.event import Entry, Event, RunEnded, RunResumed, WorkCommitted, WorkerPlaced, WorkMoved, WorkPushed
from podium.values.store_address import PostgresAddress, make_postgres_address

HOSTS = ("north", "south")
LEASE = 3.0
PATIENCE = 60.0
MEMBERS = ("parser", "writer")
CALLS_BEFORE_KILL = 5
"""The three calls of one member, and two of the other, whose second reply does not come."""


@dataclass
class FleetDemo:
    """The folders, processes and addresses of the demonstration."""

    folder: Path
    url: str
    server: ModelServer
    stack: ExitStack
    hosts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def home(self) -> Path:
        return self.folder / "laptop"

    @property
    def repo(self) -> Path:
        return self.folder / "shop"

    @property
    def store(self) -> PostgresAddress:
        return make_postgres_address(self.url, self.home)

    def make_environment(self, name: str, store: str) -> dict[str, str]:
        """Return the environment of a machine: its own home and login, and the scripted model."""
        return {
            **os.environ,
            "PODIUM_HOME": str(self.folder / name),
            "PODIUM_STORE": store,
            "PODIUM_MODEL": "openai:scripted",
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": self.server.url,
        }

    def say(self, text: str) -> None:
        """Print what happens, with the seconds since the beginning."""
        print(f"{time.monotonic() - self.began:5.1f} s  {text}", flush=True)

    async def run_podium(self, *arguments: str) -> str:
        """Call podium on the laptop, and return its output."""

        def call() -> str:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "podium", *arguments],
                cwd=self.repo,
                env=self.make_environment("laptop", self.url),
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise SystemExit(f"podium {' '.join(arguments)} failed: {done.stderr}")
            return done.stdout.strip()

        return await to_thread.run_sync(call)

    def start_podium(self, machine: str, store: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start podium on a machine. It ends with the demonstration."""
        log = self.stack.enter_context((self.folder / f"{machine}.log").open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "podium", *arguments],
            cwd=self.repo,
            env=self.make_environment(machine, store),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    def list_events(self, run: str, kind: type[Event]) -> list[Entry]:
        """Return the entries of a run whose events are of this kind."""
        with StoreReader(self.store) as reader:
            return [entry for entry in reader.read_entries(run) if isinstance(entry.event, kind)]

    async def wait_until(self, is_true: Callable[[], bool], what: str) -> None:
        """Wait until something is true. Exit with the logs of the machines if it does not become true."""
        with anyio.move_on_after(PATIENCE):
            while not await to_thread.run_sync(is_true):  # noqa: ASYNC110 - rows of a database
                await anyio.sleep(0.1)
            return
        logs = "\n".join(path.read_text() for path in self.folder.glob("*.log"))
        raise SystemExit(f"{what} did not happen within {PATIENCE:g} s\n{logs}")


def write_script(*moves: object) -> str:
    """Return the part of a prompt that tells the scripted model what to reply."""
    return f"```script\n{json.dumps(moves)}\n```"


def write_file(path: str) -> dict[str, object]:
    """Return the move of a model that writes a file."""
    return {"calls": [{"name": "write_file", "arguments": {"path": path, "content": f"# {path}\n"}}]}


def prepare_machines(demo: FleetDemo) -> None:
    """Create a repository with a bare remote, and the agents and settings of the laptop."""
    demo.repo.mkdir()
    git = ["git", "-c", "user.name=Demo", "-c", "user.email=demo@example.com"]
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["commit", "-q", "--allow-empty", "-m", "Begin"],
        ["clone", "-q", "--bare", ".", str(demo.folder / "shop.git")],
        ["remote", "add", "origin", str(demo.folder / "shop.git")],
        ["fetch", "-q", "origin"],
        ["config", "user.name", "Demo"],
        ["config", "user.email", "demo@example.com"],
    ):
        subprocess.run([*git, *arguments], cwd=demo.repo, check=True)
    agents = demo.home / "agents"
    agents.mkdir(parents=True)
    (demo.home / "config.yaml").write_text("permissions:\n  allow: [Write]\n")
    (agents / "lead.md").write_text(
        "---\ndescription: Leads.\nteam:\n  mode: broadcast\n  worktrees: each\n"
        f"  members: [{', '.join(MEMBERS)}]\n---\nLead.\n{write_script('Both parts are there.')}\n"
    )
    for name in MEMBERS:
        # The second reply of one member takes so long at first that its host can be killed meanwhile.
        second = write_file(f"{name}_test.py") | ({"silent": 1} if name == MEMBERS[-1] else {})
        moves = write_script(write_file(f"{name}.py"), second, f"{name} is done.")
        (agents / f"{name}.md").write_text(f"---\ndescription: Works.\ntools: Write\n---\nWork.\n{moves}\n")


async def start_hosts(demo: FleetDemo) -> None:
    """Create the logins of the hosts, and start the hosts."""
    for name in HOSTS:
        address = await demo.run_podium("hosts", "add", name)
        demo.hosts[name] = demo.start_podium(
            name, address, "host", "--labels", name, "--slots", "1", "--lease", str(LEASE)
        )
    await demo.wait_until(
        lambda: all(b"is ready" in (demo.folder / f"{name}.log").read_bytes() for name in HOSTS),
        "the start of the hosts",
    )
    demo.say("two hosts with their own homes and logins are ready:")
    print(await demo.run_podium("hosts"))


async def run_team(demo: FleetDemo) -> list[str]:
    """Start a team on the laptop, kill one host in the middle, and wait for the end. Return the runs."""
    team = demo.start_podium("laptop", demo.url, "run", "lead", "Build the shop.", "--no-input")
    index = WorkerIndex(demo.store)
    await demo.wait_until(
        lambda: (
            len(rows := index.list_all()) == len(MEMBERS) and all(demo.list_events(row.run, WorkPushed) for row in rows)
        ),
        "the work on both hosts",
    )
    runs = [row.run for row in index.list_all()]
    machines = {read_host_id(demo.folder / name): name for name in HOSTS}
    where = {run: machines[_get_host(demo, run)] for run in runs}
    demo.say("a team works: " + ", ".join(f"run {run} on {host}" for run, host in where.items()))
    [lost] = [row.run for row in index.list_all() if MEMBERS[-1] in row.name]
    survivor = next(host for run, host in where.items() if run != lost)
    await demo.server.wait_calls(CALLS_BEFORE_KILL)
    demo.hosts[where[lost]].kill()
    killed = time.time()
    demo.say(f"kill -9 of host {where[lost]}, with a lease of {LEASE:g} s")
    await demo.wait_until(lambda: bool(demo.list_events(lost, WorkMoved)), "the takeover")
    taken = demo.list_events(lost, RunResumed)[-1].at - killed
    demo.say(f"host {survivor} took over run {lost} {taken:.1f} s after the kill, and continues from the last push")
    await demo.wait_until(lambda: team.poll() is not None, "the end of the team")
    demo.say(f"the team has ended with exit code {team.returncode}")
    return runs


def _get_host(demo: FleetDemo, run: str) -> str:
    placed = demo.list_events(run, WorkerPlaced)[0].event
    assert isinstance(placed, WorkerPlaced)
    return placed.host


async def show_result(demo: FleetDemo, runs: list[str]) -> None:
    """Show what the workers committed, and verify their timelines."""
    for run in runs:
        ended, committed = demo.list_events(run, RunEnded)[-1].event, demo.list_events(run, WorkCommitted)[-1].event
        assert isinstance(ended, RunEnded)
        assert isinstance(committed, WorkCommitted)
        with StoreReader(demo.store) as reader:
            assert find_chain_break(reader.read_rows(run)) is None
        demo.say(f"run {run}: {ended.outcome}, {', '.join(committed.files)}; {await demo.run_podium('verify', run)}")


async def show_fleet() -> None:
    """Run the demonstration."""
    with TemporaryDirectory(prefix="podium-fleet-") as folder, run_cluster() as cluster, ExitStack() as stack:
        async with ModelServer() as server:
            demo = FleetDemo(Path(folder), cluster.create_database("fleet"), server, stack)
            demo.say("a temporary PostgreSQL is running")
            await to_thread.run_sync(prepare_machines, demo)
            await start_hosts(demo)
            await show_result(demo, await run_team(demo))
            stack.close()


if __name__ == "__main__":
    anyio.run(show_fleet)
