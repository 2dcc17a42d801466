"""A coding agent as a worker: in its own process and checkout, with its requests in the common inbox."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import podium
from podium import Agent, App
from podium.values.event import ActionBegan, AgentSessionOpened
from podium.workers.delegate import delegate_to_worker

from .worker_lab import WorkerLab, write


def make_mate(*moves: Any) -> Agent:
    return Agent(name="mate", engine="mate", prompt=f"```script\n{json.dumps(moves)}\n```")


async def delegate_to_mate(lab: WorkerLab, branch: str, *moves: Any) -> str:
    source = str(Path(podium.__file__).parent.parent)
    row = {"command": sys.executable, "args": ["-m", "podium.testing.acp_agent"], "mode": "ask", "readable": [source]}
    lab.write_settings(json.dumps({"engines": {"mate": row}}))
    async with App(lab.settings(), environ=lab.environ) as app:
        return await delegate_to_worker(app.launcher, make_mate(*moves), "go", at=lab.repo.path, branch=branch)


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
