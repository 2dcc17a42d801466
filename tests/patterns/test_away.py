"""Members that work away, in a process and a checkout of their own; and agents that send workers themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from podium import Agent, App, Settings
from podium.agent import Member, Permissions, Team
from podium.event import (
    OperationEnded,
    RunEnded,
    ToolAnswered,
    TurnStarted,
    WorkCommitted,
    WorkerReturned,
    WorkerSent,
)
from podium.store.fault import refusal_after
from podium.store.follow import Follower
from podium.store.reader import Reader
from podium.testing import ModelServer

from ..studio import bury


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return folder


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path, server: ModelServer) -> Iterator[Settings]:
    home = tmp_path / "h"
    made = Settings.load(
        {}, home=home, model="openai:m", base_url=server.url, permissions=Permissions(allow=("Write",))
    )
    yield made
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and f"PODIUM_HOME={home}\0".encode() in _environ(process):
            os.kill(int(process.name), signal.SIGKILL)


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes() + b"\0"
    except OSError:
        return b""


def scripted(*moves: Any) -> str:
    return f"```script\n{json.dumps(moves)}\n```"


def writes(name: str) -> dict[str, Any]:
    return {"calls": [{"name": "write_file", "arguments": {"path": name, "content": f"{name}\n"}}]}


def git(repo: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", repo, *words], check=True, capture_output=True, text=True).stdout


async def test_a_member_with_a_process_of_its_own_answers_and_leaves_its_work_on_a_branch(
    repo: Path, settings: Settings
) -> None:
    away = Agent(name="away", prompt=scripted(writes("new.txt"), "I made it."), tools=("Write",), isolation="process")
    here = Agent(name="here", prompt=scripted("I only watched."))
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"), Member(agent="here"))))

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make a file.", repo=repo, agents=[away, here])
        entries = await app.entries(result.run_id)

    assert [part.outcome for part in result.parts] == ["succeeded", "succeeded"]
    assert result.parts[0].text.startswith("I made it.")
    [sent] = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    [returned] = [entry.event for entry in entries if isinstance(entry.event, WorkerReturned)]
    assert returned.usage.calls == 2
    assert result.usage.calls == 3
    assert git(repo, "show", f"{sent.branch}:new.txt") == "new.txt\n"
    assert not (repo / "new.txt").exists()
    with Reader(settings.store) as reader:
        left = [entry.event for entry in reader.entries(sent.run) if isinstance(entry.event, WorkCommitted)]
    assert left[0].files == ("new.txt",)


async def test_stopping_a_run_ends_the_workers_that_it_sent(repo: Path, settings: Settings) -> None:
    away = Agent(name="away", prompt=scripted({"says": "never", "silent": True}), isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))

    async with App(settings, environ={}) as app, app.start(lead, "Wait.", repo=repo, agents=[away]) as run:
        async for entry in run.entries():
            if isinstance(entry.event, WorkerSent):
                sent = entry.event.run
                break
        with Follower(settings.store, sent) as worker:
            async for entry in worker:
                if isinstance(entry.event, TurnStarted):
                    break
        await run.stop()
        result = await run.result()

    assert result.outcome == "cancelled"
    with Follower(settings.store, sent) as worker:
        events = [entry.event async for entry in worker]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].outcome == "cancelled"


async def test_an_agent_sends_a_worker_waits_for_it_and_uses_what_it_brought(repo: Path, settings: Settings) -> None:
    task = scripted(writes("by-worker.txt"), "The worker is done.")
    boss = Agent(
        name="boss",
        tools=("delegate_task", "check_workers", "get_worker_result", "cancel_worker"),
        prompt=scripted(
            {"calls": [{"name": "delegate_task", "arguments": {"branch": "feat/x", "task": task}}]},
            {"calls": [{"name": "get_worker_result", "arguments": {"branch": "feat/x"}}]},
            {"calls": [{"name": "check_workers", "arguments": {}}]},
            {"calls": [{"name": "cancel_worker", "arguments": {"branch": "nobody"}}]},
            "All is done.",
        ),
    )

    async with App(settings, environ={}) as app:
        result = await app.run(boss, "Have it done.", repo=repo)
        entries = await app.entries(result.run_id)

    assert result.text == "All is done."
    told = [entry.event.text for entry in entries if isinstance(entry.event, ToolAnswered)]
    assert told[0].startswith("A worker is on feat/x")
    assert told[1].startswith("The worker is done.")
    assert told[2] == "feat/x: succeeded"
    assert told[3].startswith("You have sent no worker to 'nobody'")
    assert git(repo, "show", "feat/x:by-worker.txt") == "by-worker.txt\n"
    assert all(entry.event.outcome == "succeeded" for entry in entries if isinstance(entry.event, OperationEnded))


async def test_a_run_that_dies_while_its_worker_is_away_finds_it_again(repo: Path, settings: Settings) -> None:
    away = Agent(name="away", prompt=scripted(writes("new.txt"), "I made it."), tools=("Write",), isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))
    sent_at = 4  # the run, the lead, the member, and that its worker is sent

    async with App(settings, environ={}, fault=refusal_after(sent_at)) as app:
        died = await app.run(lead, "Make a file.", repo=repo, agents=[away])
    assert died.outcome == "interrupted"
    bury(settings.store)
    async with App(settings, environ={}) as app, app.resume(died.run_id) as resumed:
        result = await resumed.result()
        entries = await app.entries(died.run_id)

    assert result.succeeded, result.error
    sent = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    assert [entry.seq for entry in entries if isinstance(entry.event, WorkerSent)] == [sent_at]
    assert git(repo, "rev-list", "--count", f"HEAD..{sent[0].branch}") == "1\n"
