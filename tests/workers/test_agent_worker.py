"""Coding agents as workers, in their own process and checkout, and as leads that delegate to workers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import podium
from podium import Agent, App
from podium.core.placement import WorkerOptions
from podium.store.follower import Follower
from podium.testing import format_script
from podium.values.event import (
    ActionBegan,
    AgentSessionOpened,
    PermissionAsked,
    RunEnded,
    ToolAnswered,
    WorkCommitted,
    WorkerSent,
)

from ..installed_agents import find_goose
from ..workspace.merging import Repo
from .worker_lab import EVERYTHING, WorkerLab, call, make_scripted_agent, write


def make_mate(*moves: Any, **keys: Any) -> Agent:
    return Agent(**{"name": "mate", "engine": "mate", "prompt": format_script(*moves)} | keys)


def add_mate(lab: WorkerLab) -> None:
    """Add the scripted coding agent `mate` to the settings."""
    source = str(Path(podium.__file__).parent.parent)
    row = {"command": sys.executable, "args": ["-m", "podium.testing.acp_agent"], "mode": "ask", "readable": [source]}
    lab.write_settings(json.dumps({"engines": {"mate": row}}))


async def delegate_to_mate(lab: WorkerLab, branch: str, *moves: Any) -> str:
    add_mate(lab)
    async with App(lab.settings(), environ=lab.environ) as app:
        return await lab.create_worker(app, branch, make_mate(*moves))


async def test_it_works_in_a_worktree_and_its_work_is_committed(lab: WorkerLab) -> None:
    run = await delegate_to_mate(lab, "feat/a", write("made.txt"), "It is written.")
    lab.start_commander()
    asked = await lab.wait_asked(run)
    lab.answer(run, asked, "once")

    ended = await lab.wait_ended(run)

    assert ended.outcome == "succeeded"
    assert asked.action.directory == str(lab.worktree_path("feat/a"))
    assert lab.read_file("feat/a", "made.txt") == "x"
    assert len(lab.events(run, ActionBegan)) == 1


async def test_kill_9_of_worker_and_commander_loses_neither_the_session_nor_the_open_request(lab: WorkerLab) -> None:
    run = await delegate_to_mate(lab, "feat/a", write("made.txt"), "It is written.")
    commander = lab.start_commander()
    asked = await lab.wait_asked(run)
    worker = await lab.wait_worker(run)
    worker.kill()
    commander.kill()
    commander.wait()
    lab.start_commander()
    await lab.wait_worker(run, start=2)
    lab.answer(run, asked, "once")

    ended = await lab.wait_ended(run)

    assert ended.outcome == "succeeded"
    assert lab.read_file("feat/a", "made.txt") == "x"
    assert len(lab.events(run, AgentSessionOpened)) == 1
    assert len(lab.events(run, ActionBegan)) == 1


@pytest.mark.parametrize(("engine", "prefix"), [("mate", ""), ("goose", "podium__")])
async def test_a_coding_agent_delegates_a_task_to_a_worker_and_reads_its_result(
    lab: WorkerLab, engine: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_mate(lab)
    if engine == "goose":
        monkeypatch.setenv("PATH", os.pathsep.join((str(Path(find_goose()).parent), os.environ["PATH"])))
    moves = [
        call(f"{prefix}delegate_task", branch="feat/x", task="Write it.", agent="hand"),
        call(f"{prefix}get_worker_result", branch="feat/x"),
        call(f"{prefix}check_workers"),
        "All is done.",
    ]
    tools = ("delegate_task", "check_workers", "get_worker_result")
    model = {"model": "openai:m"} if engine == "goose" else {}
    boss = make_mate(*moves, name="boss", engine=engine, tools=tools, agents=("hand",), **model)
    hand = make_scripted_agent(write("made.txt"), "The worker is done.")

    async with App(lab.settings(EVERYTHING), environ=lab.environ) as app:
        result = await app.run(boss, "Have it done.", repo=lab.repo.path, agents=[hand])

    run = result.run_id
    [sent] = lab.events(run, WorkerSent)
    started, answer, state = [event.text for event in lab.events(run, ToolAnswered)]
    assert result.text == "All is done."
    assert (sent.branch, sent.task) == ("feat/x", "Write it.")
    assert started == f"Started a worker on feat/x (run {sent.run})."
    assert answer.startswith("The worker is done.")
    assert state == "feat/x: succeeded"
    assert lab.read_file("feat/x", "made.txt") == "x"
    assert [event.files for event in lab.events(sent.run, WorkCommitted)] == [("made.txt",)]
    assert lab.events(run, PermissionAsked) == []


async def allow_all(lab: WorkerLab, run: str) -> RunEnded:
    """Allow every request of a run, and return how the run ended."""
    with Follower(lab.store, run) as entries:
        async for entry in entries:
            if isinstance(entry.event, PermissionAsked):
                lab.answer(run, entry.event, "once")
            if isinstance(entry.event, RunEnded):
                return entry.event
    raise AssertionError("the timeline has no end")


async def test_goose_works_in_the_checkouts_of_several_repositories_in_the_sandbox(
    lab: WorkerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(find_goose()).parent), os.environ["PATH"]]))
    other, hidden = Repo(lab.folder / "other"), lab.folder / "hidden.txt"
    hidden.write_text("not for the agent\n")
    trees = [lab.folder / f"{name}-worker-feat-both" for name in ("repo", "other")]
    calls = [
        {"name": "write", "arguments": {"path": str(trees[0] / "one.txt"), "content": "one\n"}},
        {"name": "write", "arguments": {"path": str(trees[1] / "two.txt"), "content": "two\n"}},
        {"name": "shell", "arguments": {"command": f"cd {trees[1]} && cp two.txt three.txt; cat {hidden}"}},
    ]
    moves: list[Any] = [*({"says": "I work.", "calls": [one]} for one in calls), "Both are done."]
    agent = Agent(name="goose", engine="goose", model="openai:m", prompt=f"You work.\n{format_script(*moves)}")
    options = WorkerOptions(also=(str(other.path),))
    async with App(lab.settings(), environ=lab.environ) as app:
        run = await lab.create_worker(app, "feat/both", agent, options=options)
    lab.start_commander()

    ended = await allow_all(lab, run)

    assert ended.outcome == "succeeded"
    assert lab.read_file("feat/both", "one.txt") == "one"
    assert [other.git("show", f"feat/both:{name}") for name in ("two.txt", "three.txt")] == ["two", "two"]
    seen = str([received.call for received in lab.server.calls])
    assert "hidden.txt: No such file" in seen
    assert "not for the agent" not in seen
