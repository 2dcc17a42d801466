"""The files of a run when another process takes it over, also after a restart of the machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from podium import Agent, App, Settings
from podium.runs.checkout_recovery import describe_restart
from podium.store.fault_injection import refuse_after
from podium.store.reader import StoreReader
from podium.system.identity import read_machine_boot
from podium.system.owned_files import WRITTEN, make_owned_name
from podium.testing import ModelServer, format_script
from podium.values.action import Action
from podium.values.event import (
    ActionBegan,
    Entry,
    Event,
    MessageReceived,
    MessagesDelivered,
    RunResumed,
    RunStarted,
    ToolAnswered,
    WorkCommitted,
)
from podium.values.request import Request
from podium.workspace.git.lost_files import restore_lost_files
from podium.workspace.git.repository import Repository

from ..studio import expire_leases
from ..workspace.merging import LINES, Repo

PROGRAM = """
import sys
import anyio
from pathlib import Path
from podium import App
from tests.runs.test_checkout_recovery import make_agent, settings

async def main(home, url, repo):
    async with App(settings(Path(home), url, Path(repo))) as app:
        await app.run(make_agent(), "make it", repo=repo)

anyio.run(main, *sys.argv[1:])
"""


def make_agent() -> Agent:
    moves: list[Any] = [
        {"calls": [{"name": "bash", "arguments": {"command": "echo x > made.txt"}}]},
        {"calls": [{"name": "write_file", "arguments": {"path": "sub/new.txt", "content": "y\n"}}]},
        "done",
    ]
    prompt = f"You are played.\n{format_script(*moves)}"
    return Agent(name="hand", prompt=prompt, tools=("Bash", "Write"))


def settings(home: Path, url: str, repo: Path) -> Settings:
    return Settings.load({}, home=home, repo=repo, model="openai:m", base_url=url, permission_mode="bypass")


def read_entries(home: Path) -> list[Entry]:
    with StoreReader(home / "podium.db") as reader:
        [run] = reader.list_runs()
        return reader.read_entries(run.id)


def run_in_earlier_boot(home: Path, url: str, repo: Path, entries: int = 0) -> None:
    """Run the agent in a process that sees another boot id, and dies after this many entries, if it is given."""
    if shutil.which("bwrap") is None or not read_machine_boot():
        pytest.skip("another boot cannot be simulated here: bwrap or /proc is missing")
    home.mkdir()
    (home / "boot_id").write_text("01234567-89ab-cdef-0123-456789abcdef\n")
    mounts = ("--dev-bind", "/", "/", "--ro-bind", str(home / "boot_id"), "/proc/sys/kernel/random/boot_id")
    argv = ["bwrap", *mounts, "--", sys.executable, "-c", PROGRAM, str(home), url, str(repo)]
    environ = {**os.environ, "PODIUM_FAULT": str(entries or "")}
    done = subprocess.run(argv, cwd=Path(__file__).parents[2], env=environ, capture_output=True, text=True)
    assert done.returncode == (137 if entries else 0), done.stderr


def find_entries(home: Path, kind: type[Event]) -> list[int]:
    return [entry.seq for entry in read_entries(home) if isinstance(entry.event, kind)]


async def run_whole(server: ModelServer, home: Path, repo: Path) -> None:
    async with App(settings(home, server.url, repo), environ={}) as app:
        await app.run(make_agent(), "make it", repo=str(repo))


async def test_agents_are_told_which_commands_ended_before_the_machine_restarted(
    server: ModelServer, tmp_path: Path
) -> None:
    repo = Repo(tmp_path / "repo").path
    whole, home = tmp_path / "whole", tmp_path / "home"
    await to_thread.run_sync(run_in_earlier_boot, whole, server.url, repo)
    [number, _] = find_entries(whole, ToolAnswered)
    await to_thread.run_sync(run_in_earlier_boot, home, server.url, repo, number)
    expire_leases(home / "podium.db")

    async with App(settings(home, server.url, repo), environ={}) as app, app.resume(read_entries(home)[0].run) as live:
        result = await live.result()

    assert result.outcome == "succeeded"
    events = [entry.event for entry in read_entries(home)]
    [told] = [event for event in events if isinstance(event, MessageReceived)]
    assert (told.to, told.by) == ("hand", "Podium")
    assert "machine was restarted" in told.text
    assert "- hand: echo x > made.txt" in told.text
    assert any(isinstance(event, MessagesDelivered) and told.id in event.ids for event in events)


async def test_nobody_is_told_of_a_restart_that_did_not_happen(server: ModelServer, tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repo").path
    whole, home = tmp_path / "whole", tmp_path / "home"
    await run_whole(server, whole, repo)
    [number, _] = find_entries(whole, ToolAnswered)
    async with App(settings(home, server.url, repo), environ={}, fault=refuse_after(number)) as app:
        first = await app.run(make_agent(), "make it", repo=str(repo))
    expire_leases(home / "podium.db")

    async with App(settings(home, server.url, repo), environ={}) as app, app.resume(first.run_id) as live:
        assert (await live.result()).outcome == "succeeded"

    events = [entry.event for entry in read_entries(home)]
    assert [event for event in events if isinstance(event, MessageReceived)] == []
    boots = [event.boot for event in events if isinstance(event, RunStarted | RunResumed)]
    assert boots == [read_machine_boot()] * 2


async def test_a_half_written_file_of_a_killed_process_is_removed_when_the_run_resumes(
    server: ModelServer, tmp_path: Path
) -> None:
    repo = Repo(tmp_path / "repo").path
    whole, home = tmp_path / "whole", tmp_path / "home"
    await run_whole(server, whole, repo)
    [_, second] = find_entries(whole, ActionBegan)
    (repo / "sub" / "new.txt").unlink()
    async with App(settings(home, server.url, repo), environ={}, fault=refuse_after(second)) as app:
        first = await app.run(make_agent(), "make it", repo=str(repo))
    with subprocess.Popen(["true"]) as ended:
        pass
    left = repo / "sub" / make_owned_name(WRITTEN).replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    left.write_text("half")
    expire_leases(home / "podium.db")

    async with App(settings(home, server.url, repo), environ={}) as app, app.resume(first.run_id) as live:
        assert (await live.result()).outcome == "succeeded"

    assert (repo / "sub" / "new.txt").read_text() == "y\n"
    assert not left.exists()


def make_entries(*events: Event) -> list[Entry]:
    return [
        Entry(run="r", seq=seq, at=float(seq), scope=f"hand/{(seq + 1) // 2}", operation="hand", event=event)
        for seq, event in enumerate(events, 1)
    ]


def run_command(command: str) -> tuple[Event, Event]:
    action = Action(run="r", agent="hand", tool="bash", arguments={"command": command})
    return ActionBegan(action=action, allowed_by="a rule"), ToolAnswered(id="1", text="done")


def test_commands_before_a_commit_and_of_earlier_restarts_are_not_named() -> None:
    host = socket.gethostname()
    started = RunStarted(agent="hand", request=Request(text="x"), host=host, boot="first")
    resumed = RunResumed(host=host, pid=1, boot="second")
    marked = RunResumed(host=host, pid=2)

    text = describe_restart(
        make_entries(
            started,
            marked,
            *run_command("make first"),
            resumed,
            marked,
            *run_command("make committed"),
            WorkCommitted(branch="b", commit="c"),
            marked,
            *run_command("make 'second'\nmake third"),
        ),
        ["a.txt"],
    )

    assert [line for line in text.splitlines() if line.startswith("- ")] == ["- hand: make 'second' make third"]
    assert "written again as last committed: a.txt" in text
    assert describe_restart(make_entries(started, resumed), []) == ""


async def test_files_that_lost_their_content_before_the_index_was_written_are_written_again(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repo")
    index = repo.path / ".git" / "index"
    for name, content, age in (("a.txt", "", -1), ("b.txt", LINES[:10], -1), ("old.txt", "", 1)):
        (repo.path / name).write_text(content)
        moment = index.stat().st_mtime + age
        os.utime(repo.path / name, (moment, moment))

    lost = await restore_lost_files(Repository.at(repo.path))

    assert sorted(lost) == ["a.txt", "b.txt"]
    assert (repo.path / "a.txt").read_text() == (repo.path / "b.txt").read_text() == LINES
    assert (repo.path / "old.txt").read_text() == ""  # emptied later, by somebody
