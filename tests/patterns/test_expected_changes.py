"""Agents and teams that must change files: what counts as a change, and what becomes of work that changed nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium import Result
from podium.patterns.step_changes import is_test
from podium.store.fault_injection import refuse_after
from podium.testing import make_repository
from podium.values.agent import Member, Team
from podium.values.event import ChangesExpected

from ..studio import Studio

EDIT = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}
MISSED = {
    "calls": [{"name": "edit_file", "arguments": {"path": "a.txt", "edits": [{"old_text": "n", "new_text": "m"}]}}]
}
COMMAND = {"calls": [{"name": "bash", "arguments": {"command": "echo x > b.txt"}}]}
LOOK = {"calls": [{"name": "bash", "arguments": {"command": "ls"}}]}
NOTHING = "lead: it changed no files, but it must change files (expects: changes)"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "r", {"a.txt": "a\n"}, message="x")


async def run_lead(studio: Studio, repo: Path, **given: Any) -> Result:
    studio.settings = structs.replace(studio.settings, permission_mode="bypass")
    async with studio.app(**given) as app:
        return await app.run(studio.agents["lead"], "fix it", repo=repo, agents=studio.agents.values())


def add_fixer(studio: Studio, *moves: Any, **keys: Any) -> None:
    tools = ("Read", "Edit", "Write", "Bash")
    studio.agent("lead", says=[*moves, "I fixed it."], tools=tools, **({"expects": "changes"} | keys))


@pytest.mark.parametrize("move", [EDIT, COMMAND])
async def test_a_change_by_a_tool_or_a_command_is_a_change(studio: Studio, repo: Path, move: Any) -> None:
    add_fixer(studio, move)

    result = await run_lead(studio, repo)

    assert (result.error, result.text) == (None, "I fixed it.")


@pytest.mark.parametrize("moves", [[], [LOOK], [MISSED]])
async def test_a_fixer_that_changed_nothing_has_failed(studio: Studio, repo: Path, moves: Any) -> None:
    add_fixer(studio, *moves)

    result = await run_lead(studio, repo)

    assert (result.outcome, result.error) == ("failed", NOTHING)
    assert [part.text for part in result.parts] == ["I fixed it."]


async def test_without_the_key_an_agent_may_change_nothing(studio: Studio, repo: Path) -> None:
    add_fixer(studio, expects="")

    result = await run_lead(studio, repo)

    assert result.succeeded
    assert not studio.events(result, ChangesExpected)


@pytest.mark.parametrize(("moves", "outcome"), [([EDIT], "succeeded"), ([], "failed")])
async def test_a_team_must_have_changed_something(studio: Studio, repo: Path, moves: list[Any], outcome: str) -> None:
    studio.agent("fixer", says=[*moves, "done"], tools=("Write",))
    studio.agent("reader", says=["I read it."])
    team = Team(
        mode="broadcast", members=(Member(agent="fixer"), Member(agent="reader")), options={"expects": "changes"}
    )
    studio.agent("lead", says=[], team=team)

    result = await run_lead(studio, repo)

    assert result.outcome == outcome
    assert result.error == (None if outcome == "succeeded" else NOTHING)


async def test_a_resumed_run_compares_with_the_state_at_its_start(studio: Studio, repo: Path) -> None:
    add_fixer(studio, COMMAND)
    first = await run_lead(studio, repo, fault=refuse_after(12))
    assert not first.succeeded
    studio.expire_leases()

    result = await studio.resume(first.run_id)

    assert result.text == "I fixed it."
    assert len(studio.events(result, ChangesExpected)) == 1


CACHES = {
    "calls": [
        {
            "name": "bash",
            "arguments": {"command": "mkdir __pycache__; echo x > __pycache__/a.pyc; echo x > .coverage"},
        }
    ]
}


async def test_caches_are_no_change(studio: Studio, repo: Path) -> None:
    add_fixer(studio, CACHES)

    result = await run_lead(studio, repo)

    assert result.error == NOTHING
    assert (repo / "__pycache__").is_dir()


async def test_a_tracked_file_is_a_change_wherever_it_is(studio: Studio, repo: Path) -> None:
    (repo / "htmlcov").mkdir()
    (repo / "htmlcov" / "own.js").write_text("1")
    for words in (["add", "-f", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "y"]):
        subprocess.run(["git", "-C", repo, *words], check=True)
    add_fixer(studio, {"calls": [{"name": "write_file", "arguments": {"path": "htmlcov/own.js", "content": "2"}}]})

    assert (await run_lead(studio, repo)).error is None


@pytest.mark.parametrize(
    ("files", "unproved"),
    [
        (("test_a.py",), "lead: it changed only tests that were there before: test_a.py"),
        (("test_a.py", "a.txt"), None),
        (("test_new.py",), None),
    ],
)
async def test_an_edit_of_the_test_instead_of_the_code_is_named(
    studio: Studio, repo: Path, files: tuple[str, ...], unproved: str | None
) -> None:
    (repo / "test_a.py").write_text("assert False\n")
    for words in (["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "y"]):
        subprocess.run(["git", "-C", repo, *words], check=True)
    calls = [{"name": "write_file", "arguments": {"path": file, "content": "assert True\n"}} for file in files]
    add_fixer(studio, {"calls": calls})

    result = await run_lead(studio, repo)

    assert (result.error, result.unproved) == (None, unproved)


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("test_a.py", True),
        ("pkg/a_test.go", True),
        ("src/tests/data.json", True),
        ("a.spec.ts", True),
        ("ATest.java", True),
        ("latest.py", False),
        ("contest/a.py", False),
        ("src/testing.py", False),
    ],
)
def test_a_test_is_known_by_its_name(path: str, is_one: bool) -> None:
    assert is_test(path) == is_one


async def test_an_agent_that_only_plans_need_not_change_files(studio: Studio, repo: Path) -> None:
    add_fixer(studio, permission_mode="plan")

    assert (await run_lead(studio, repo)).error is None
