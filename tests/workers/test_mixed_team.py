"""A team of a model engine, goose and another coding agent, with one inbox and kill -9 of everything."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, fail_after

import podium
from podium import Agent, App
from podium.store.follower import Follower
from podium.testing import format_script
from podium.values.agent import Member, Team
from podium.values.event import (
    ActionBegan,
    AgentSessionOpened,
    PermissionAsked,
    PlanStepCompleted,
    RunEnded,
    StatusReported,
)

from ..collaboration import make_plan, make_step
from ..installed_agents import find_agent, find_goose
from .worker_lab import WorkerLab

pytestmark = pytest.mark.slow

DONE = "[[GROUP_REFLECT_COMPLETE]]"
ACCEPT = "ACCEPT\n1: MET"
WRITES = {
    "model": ("write_file", "path", "content"),
    "goose": ("write", "path", "content"),
    "mate": ("write_file", "path", "content"),
    "copilot": ("create", "path", "file_text"),
}
"""The name of each engine's tool that writes files, and of its arguments."""
REPORTS = {"mate": "report_status", "goose": "podium__report_status", "copilot": "podium-report_status"}


class MixedTeam:
    """The members `own`, `goose` and `other` in one worktree. Each writes a file and says something."""

    def __init__(self, lab: WorkerLab, other: str) -> None:
        self.engines = {"own": "model", "goose": "goose", "other": other}
        self._lab = lab
        source = str(Path(podium.__file__).parent.parent)
        row = {"command": sys.executable, "args": ["-m", "podium.testing.acp_agent"], "mode": "ask"}
        lab.write_settings(json.dumps({"engines": {"mate": row | {"readable": [source]}}}))

    def make_agent(self, name: str, branch: str, *says: str, is_reporting: bool = False) -> Agent:
        engine = self.engines[name]
        tool, path, content = WRITES[engine]
        file = str(self._lab.worktree_path(branch) / f"{name}.txt")
        calls = [{"name": tool, "arguments": {path: file, content: "x\n"}}]
        if is_reporting:
            calls.insert(0, {"name": REPORTS[engine], "arguments": {"text": f"{name} reports"}})
        moves = [*({"says": "I work.", "calls": [call]} for call in calls), *says]
        model = {} if engine == "mate" else {"model": "openai:m"}
        tools = ("Read", "Write") if engine == "model" else None
        return make_played(name, moves, engine=engine, tools=tools, **model)

    def make_members(self, branch: str, *says: str) -> list[Agent]:
        return [self.make_agent(name, branch, *says) for name in self.engines]

    async def delegate(self, branch: str, agent: Agent, *members: Agent) -> str:
        async with App(self._lab.settings(), environ=self._lab.environ) as app:
            return await self._lab.create_worker(app, branch, agent, *members)


def make_played(name: str, moves: list[Any], **keys: Any) -> Agent:
    return Agent(name=name, prompt=f"You are {name}.\n{format_script(*moves)}", **keys)


def make_lead(team: Team, *moves: Any) -> Agent:
    return make_played("lead", list(moves), model="openai:m", tools=("Read",), team=team)


async def allow_all(lab: WorkerLab, run: str) -> None:
    """Allow every request of a run until it ends."""
    with Follower(lab.store, run) as entries:
        async for entry in entries:
            if isinstance(entry.event, PermissionAsked):
                lab.answer(run, entry.event, "once", by="ada")
            if isinstance(entry.event, RunEnded) and entry.operation == "":
                return


def find_path(kind: str) -> str:
    """Return a PATH with goose and this agent; skip the test if the agent is not installed."""
    folders = [str(Path(find_goose()).parent)]
    if kind != "mate":
        folders.append(str(Path(find_agent(kind)).parent))
    return os.pathsep.join([*folders, os.environ["PATH"]])


@pytest.mark.parametrize("other", ["mate", pytest.param("copilot", marks=pytest.mark.engines)])
async def test_a_mixed_team_reflects_collaborates_and_works_in_worktrees_through_kill_9_of_everything(
    lab: WorkerLab, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", find_path(other))
    mixed = MixedTeam(lab, other)
    members = tuple(Member(agent=name) for name in mixed.engines)
    parts = "\n".join(f"@worker:{name} your part" for name in mixed.engines)
    steps = [make_step(f"s{number}", name) for number, name in enumerate(mixed.engines, 1)]
    reflect = make_lead(Team(mode="reflect", members=members), parts, f"It is good.\n{DONE}", "The end.")
    collaborate = make_lead(Team(mode="collaborate", members=members), make_plan(*steps), "The report.")
    runs = {
        "feat/reflect": await mixed.delegate("feat/reflect", reflect, *mixed.make_members("feat/reflect", "done")),
        "feat/plan": await mixed.delegate("feat/plan", collaborate, *mixed.make_members("feat/plan", *[ACCEPT] * 9)),
        "feat/goose": await mixed.delegate(
            "feat/goose", mixed.make_agent("goose", "feat/goose", "It is written.", is_reporting=True)
        ),
    }
    with fail_after(400):
        lab.start_commander()
        for run in runs.values():
            await lab.wait_asked(run)
        for process in lab.list_processes():
            process.kill()
        lab.commanders[0].wait()
        lab.start_commander()
        async with create_task_group() as group:
            for run in runs.values():
                group.start_soon(allow_all, lab, run)

    for run in runs.values():
        [ended] = lab.events(run, RunEnded)
        assert ended.outcome == "succeeded"
        unasked = [event.action for event in lab.events(run, ActionBegan) if event.allowed_by != "ada"]
        assert [(action.agent, action.tool, action.arguments) for action in unasked] == []
    # copilot tells its model that the call was interrupted, and the scripted model does not repeat it.
    writers = [name for name, engine in mixed.engines.items() if engine != "copilot"]
    for branch, names in {"feat/reflect": writers, "feat/plan": writers, "feat/goose": ["goose"]}.items():
        made = set(lab.repo.git("ls-tree", "--name-only", branch).split())
        assert made >= {f"{name}.txt" for name in names}, branch
    assert {one.owner for one in lab.events(runs["feat/plan"], PlanStepCompleted)} == set(mixed.engines)
    assert [event.text for event in lab.events(runs["feat/goose"], StatusReported)] == ["goose reports"]
    opened = lab.events(runs["feat/reflect"], AgentSessionOpened)
    assert {event.agent for event in opened} == {"goose", "other"}
