"""An agent that fixes a failing test: it reads, edits, checks and answers, and survives a crash at any entry."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from podium import Agent, App, Result, Settings
from podium.core.journal_rows import find_chain_break
from podium.store.fault_injection import EXIT_CODE, refuse_after
from podium.store.reader import StoreReader
from podium.testing import ModelServer, make_repository, read_entries, read_events
from podium.values.agent import Permissions
from podium.values.event import ActionBegan, CallFailed, ModelReplied, RunEnded, ToolAnswered
from podium.values.store_address import StoreAddress
from podium.views.run_state.tree import RunView

from .studio import expire_leases

BROKEN = "def add(a, b):\n    return a - b\n\n\n# changes:\n"
FIXED = "def add(a, b):\n    return a + b\n\n\n# changes:\n# fixed add\n"
ANSWER = "add() subtracted; it adds now, and the test passes."
SCRIPT: list[dict[str, Any] | str] = [
    {"says": "I look at it.", "calls": [{"name": "read_file", "arguments": {"path": "calc.py"}}]},
    {
        "calls": [
            {
                "name": "edit_file",
                "arguments": {
                    "path": "calc.py",
                    "edits": [
                        {"old_text": "a - b", "new_text": "a + b"},
                        {"old_text": "# changes:\n", "new_text": "# changes:\n# fixed add\n"},
                    ],
                },
            }
        ]
    },
    {"calls": [{"name": "run_checks", "arguments": {}}]},
    ANSWER,
]
FIXER = Agent(name="fixer", prompt="You fix failing tests.", tools=("Read", "Edit", "run_checks"))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo")


def make_repo(repo: Path) -> Path:
    """Make a repository with a failing test."""
    make_repository(repo)
    (repo / "calc.py").write_text(BROKEN)
    (repo / "test_calc.py").write_text("from calc import add\n\nassert add(1, 2) == 3\n")
    return repo


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(SCRIPT) as server:
        yield server


def settings(home: Path, url: str) -> Settings:
    return Settings.load(
        {},
        home=home,
        model="openai:m",
        base_url=url,
        permissions=Permissions(allow=("Edit(/calc.py)", "run_checks")),
        checks={"test": (sys.executable, "test_calc.py")},
    )


def read_tool_answers(store: StoreAddress, run: str) -> list[str]:
    return [event.text for event in read_events(store, run, ToolAnswered)]


async def test_an_agent_reads_edits_checks_and_answers(server: ModelServer, repo: Path, tmp_path: Path) -> None:
    using = settings(tmp_path / "home", server.url)
    async with App(using, environ={}) as app:
        result = await app.run(FIXER, "Fix the test.", repo=repo)

    assert (result.outcome, result.text) == ("succeeded", ANSWER)
    assert (repo / "calc.py").read_text() == FIXED
    seen, edited, checked = read_tool_answers(using.store, result.run_id)
    assert "return a - b" in seen
    assert "calc.py" in edited
    assert "PASS" in checked


async def test_it_survives_death_at_any_entry_and_does_nothing_twice(server: ModelServer, tmp_path: Path) -> None:
    number, ends = 0, False
    while not ends:
        number += 1
        home, repo = tmp_path / f"home{number}", make_repo(tmp_path / f"repo{number}")
        using = settings(home, server.url)
        async with App(using, environ={}, fault=refuse_after(number)) as app:
            result = await app.run(FIXER, "Fix the test.", repo=repo)
        ends = result.succeeded
        if not ends and number > 1:
            result = await resume_run(server, using, result.run_id)
        if number > 1:
            check_fixed_once(using, repo, result)

    assert number > 15


async def resume_run(server: ModelServer, using: Settings, run: str) -> Result:
    """Resume a run whose process died, and check that no finished call is repeated."""
    expire_leases(using.store)
    finished = {
        f"{run}/{entry.key}"
        for entry in read_entries(using.store, run)
        if isinstance(entry.event, ModelReplied | CallFailed)
    }
    made = {key: server.count(key) for key in finished}
    async with App(using, environ={}) as app, app.resume(run) as resumed:
        result = await resumed.result()
    assert {key: server.count(key) for key in finished} == made
    return result


def check_fixed_once(using: Settings, repo: Path, result: Result) -> None:
    assert (result.outcome, result.text) == ("succeeded", ANSWER)
    assert (repo / "calc.py").read_text() == FIXED
    with StoreReader(using.store) as reader:
        entries = reader.read_entries(result.run_id)
        assert find_chain_break(reader.read_rows(result.run_id)) is None
    assert sum(isinstance(entry.event, RunEnded) for entry in entries) == 1
    edits = [entry for entry in entries if isinstance(entry.event, ActionBegan) and entry.event.action.outputs]
    assert len(edits) == 1
    assert not any(isinstance(entry.event, ToolAnswered) and entry.event.is_error for entry in entries)
    assert RunView.from_entries(entries).build_result().usage.calls == 4


PROGRAM = """
import anyio, sys
from pathlib import Path
from podium import App
from tests.test_fixing import FIXER, settings

async def main(home, url, repo, run):
    async with App(settings(Path(home), url)) as app:
        if run:
            async with app.resume(run) as resumed:
                await resumed.result()
        else:
            await app.run(FIXER, "Fix the test.", repo=repo)

anyio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("number", [7, 13])
async def test_a_run_whose_process_crashes_is_resumed_by_another_process(
    server: ModelServer, tmp_path: Path, number: int
) -> None:
    await crash_and_resume(server, tmp_path, {"PODIUM_FAULT": str(number)})


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2, 18))
async def test_a_run_whose_process_crashes_at_any_entry_is_resumed_by_another_process(
    server: ModelServer, tmp_path: Path, number: int
) -> None:
    await crash_and_resume(server, tmp_path, {"PODIUM_FAULT": str(number)})


async def crash_and_resume(server: ModelServer, tmp_path: Path, environ: dict[str, str]) -> None:
    from anyio import run_process

    home, repo = tmp_path / "home", make_repo(tmp_path / "repo")
    using = settings(home, server.url)
    argv = [sys.executable, "-c", PROGRAM, str(home), server.url, str(repo)]
    died = await run_process([*argv, ""], check=False, env=os.environ | environ, cwd=Path(__file__).parents[1])
    assert died.returncode in (EXIT_CODE, -signal.SIGKILL, 0), died.stderr.decode()
    with StoreReader(using.store) as reader:
        [summary] = reader.list_runs()
    if died.returncode == 0:
        return

    result = await resume_run(server, using, summary.id)

    check_fixed_once(using, repo, result)
