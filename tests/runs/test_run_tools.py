"""Run tools: they are available from the first call on, and the sandbox is ready before any of them is used."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium import Result
from podium.testing import calls as call_tool
from podium.testing import make_repository, run_git
from podium.values.event import ActionBegan, ModelReplied, ToolAnswered

from ..studio import Studio


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    (repo / "a.txt").write_text("a\n")
    run_git(repo, "add", ".")
    return repo


async def run_agent(studio: Studio, repo: Path, *moves: Any) -> Result:
    studio.settings = structs.replace(studio.settings, permission_mode="bypass")
    studio.agent("worker", says=[*moves, "done"], tools=("Bash", "Glob", "Read"))
    async with studio.app() as app:
        return await app.run(studio.agents["worker"], "go", repo=repo, agents=studio.agents.values())


def git_status(repo: Path) -> str:
    return subprocess.run(["git", "status", "--short"], cwd=repo, check=True, capture_output=True, text=True).stdout


async def test_the_first_command_of_a_model_that_answers_at_once_runs_in_the_sandbox(
    studio: Studio, repo: Path
) -> None:
    result = await run_agent(studio, repo, call_tool("bash", command="grep Seccomp: /proc/self/status"))

    assert result.succeeded, result.error
    assert [began.action.sandbox for began in studio.events(result, ActionBegan)] == ["workspace"]
    assert "Seccomp:\t2" in studio.events(result, ToolAnswered)[0].text


async def test_tools_see_no_traces_of_the_sandbox_self_test(studio: Studio, repo: Path) -> None:
    result = await run_agent(studio, repo, call_tool("glob", pattern="**"), call_tool("bash", command="ls"))

    seen, listed = studio.events(result, ToolAnswered)
    assert seen.text.split() == ["a.txt"]
    assert "probe" not in listed.text


async def test_a_run_that_ends_at_once_leaves_no_traces_of_the_sandbox_self_test(studio: Studio, repo: Path) -> None:
    before = git_status(repo)

    result = await run_agent(studio, repo)

    assert result.succeeded, result.error
    assert len(studio.events(result, ModelReplied)) == 1
    assert git_status(repo) == before
    assert sorted(path.name for path in repo.iterdir()) == [".git", "a.txt"]
