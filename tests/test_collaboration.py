"""A piece of work with the built-in team, in a real repository: from the goal to a merged branch with its decisions.

The model is simulated over HTTP; everything else is real: the command line, the commander, workers in worktrees, git.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from podium.core.journal_rows import find_chain_break
from podium.store.reader import StoreReader
from podium.testing import ModelServer, make_repository, read_events, run_git
from podium.values.event import (
    ActionRefused,
    DecisionCommitted,
    Event,
    ModelReplied,
    PlanStepHandedOver,
    PlanStepReopened,
    WorkEnded,
)

from .collaboration import Play, make_plan, make_step, use_tool

PODIUM = str(Path(sys.executable).with_name("podium"))


class Workshop:
    """A repository, a home and a model server in which a test calls `podium`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.repo, self.home = folder / "repo", folder / "home"
        make_repository(self.repo, {"app.py": "def export(): ...\n"}, message="Start")
        self.home.mkdir()
        self.environment = {
            **os.environ,
            "PODIUM_HOME": str(self.home),
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "a key",
            "PODIUM_MODEL": "openai:m",
            "NO_COLOR": "1",
        }
        rules = {"allow": ["Write", "Edit", "Bash(test:*)", "Bash(grep:*)"]}
        (self.home / "config.yaml").write_text(json.dumps({"permissions": rules}))

    def git(self, *arguments: str) -> str:
        return run_git(self.repo, *arguments)

    def podium(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [PODIUM, *arguments]
        return subprocess.run(
            command, cwd=self.repo, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    @property
    def run_id(self) -> str:
        found: str = json.loads(self.podium("ps", "--json", "--all").stdout)["runs"][-1]["id"]
        return found

    def read_events(self, run: str, *kinds: type[Event]) -> list[Any]:
        return read_events(self.home / "podium.db", run, *kinds)

    def end_processes(self) -> None:
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and f"PODIUM_HOME={self.home}\0".encode() in _read_environ(process):
                os.kill(int(process.name), signal.SIGKILL)


def _read_environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes() + b"\0"
    except OSError:
        return b""


@pytest.fixture
def play() -> Play:
    return Play()


@pytest.fixture
def workshop(tmp_path: Path, play: Play) -> Iterator[Workshop]:
    """Serve the model from a thread, because the tests wait for processes."""
    started, ended, urls = threading.Event(), threading.Event(), list[str]()

    async def serve() -> None:
        async with ModelServer(otherwise=play) as server:
            urls.append(server.url)
            started.set()
            await anyio.to_thread.run_sync(ended.wait)

    thread = threading.Thread(target=lambda: anyio.run(serve))
    thread.start()
    started.wait()
    workshop = Workshop(tmp_path, urls[0])
    try:
        yield workshop
    finally:
        workshop.end_processes()
        ended.set()
        thread.join()


def write(path: str, text: str) -> Any:
    return use_tool("write_file", path=path, content=text)


FIVE_STEPS = make_plan(
    make_step("s1", "builder", acceptance=[{"text": "it exports", "command": "grep -q csv app.py"}]),
    make_step("s2", "tester", policy={"tools": ["read_file", "write_file"]}),
    make_step("s3", "builder", "s1"),
    make_step("s4", "tester", "s1", "s2"),
    make_step("s5", "builder", "s3", "s4", acceptance=[{"text": "all is there", "command": "test -f a.md -a -f b.md"}]),
)
REPLIES: dict[str, Any] = {
    "plan": FIVE_STEPS,
    "vote": use_tool("cast_ballot", option="comma", reason="everybody reads it"),
    "step:s1": [
        use_tool("raise_blocker", topic="Which separator?", options=["comma", "tab"], evidence="RFC 4180"),
        write("app.py", "def export(): return 'csv'\n"),
        "it exports",
    ],
    "step:s2": [use_tool("bash", command="touch x"), write("test_app.py", "import app\n"), "a test"],
    "step:s3": [
        write("a.md", "half\n"),
        use_tool("handoff_step", to="tester", reason="it needs examples", context="the first half is there"),
        write("a.md", "whole\n"),
        "documented",
    ],
    "step:s4": [
        use_tool("raise_blocker", topic="Quote every field?", options=["comma", "no"]),
        write("b.md", "one\n"),
        "one done",
        write("b.md", "two\n"),
        "two done",
    ],
    "review:s4": ["1: NOT MET: only one of two", "1: MET"],
    "step:s5": [write("c.md", "end\n"), "put together"],
    "report": "CSV export is there.",
}


@pytest.mark.slow
def test_the_built_in_team_carries_a_goal_to_a_merged_branch(workshop: Workshop, play: Play) -> None:
    play.replies |= REPLIES

    done = workshop.podium("run", "plan-build-review", "Export to CSV", "--constraint", "No new dependency.")

    assert done.returncode == 0, done.stderr
    run = workshop.run_id
    (ended,) = workshop.read_events(run, WorkEnded)
    assert (ended.done, ended.undone) == (("s1", "s2", "s3", "s4", "s5"), ())
    assert [one.option for one in workshop.read_events(run, DecisionCommitted)] == ["comma", "comma"]
    assert [(one.step, one.receiver) for one in workshop.read_events(run, PlanStepHandedOver)] == [("s3", "tester")]
    assert [one.step for one in workshop.read_events(run, PlanStepReopened)] == ["s4"]
    with StoreReader(workshop.home / "podium.db") as reader:
        runs = [summary.id for summary in reader.list_runs()]
        assert [one for one in runs if find_chain_break(reader.read_rows(one)) is not None] == []
    refused = [one for worker in runs for one in workshop.read_events(worker, ActionRefused)]
    assert [(one.action.tool, "denies it" in one.reason) for one in refused] == [("bash", True)]

    merged = workshop.podium("merge", ended.branch, "--yes")

    assert merged.returncode == 0, merged.stderr
    files = workshop.git("ls-tree", "-r", "--name-only", "main").split()
    assert files == [
        "a.md",
        "app.py",
        "b.md",
        "c.md",
        "docs/adr/0001-which-separator.md",
        "docs/adr/0002-quote-every-field.md",
        "test_app.py",
    ]
    assert workshop.git("show", "main:a.md") == "whole\n"
    assert "No new dependency." in workshop.podium("logs", run, "--jsonl", "--kind", "team_formed").stdout


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3])
def test_a_collaboration_survives_the_death_of_all_its_processes(workshop: Workshop, play: Play, kills: int) -> None:
    play.replies |= REPLIES
    arguments = [PODIUM, "run", "plan-build-review", "Export to CSV"]
    for number in range(kills):
        with subprocess.Popen(
            arguments, cwd=workshop.repo, env=workshop.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            wait_for_calls(play, 6 * (number + 1))
            process.kill()
        workshop.end_processes()
        arguments = [PODIUM, "resume", workshop.run_id]

    done = subprocess.run(arguments, cwd=workshop.repo, env=workshop.environment, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    (ended,) = workshop.read_events(workshop.run_id, WorkEnded)
    assert ended.done == ("s1", "s2", "s3", "s4", "s5")
    with StoreReader(workshop.home / "podium.db") as reader:
        entries = [entry for summary in reader.list_runs() for entry in reader.read_entries(summary.id)]
    keys = [(entry.run, entry.key) for entry in entries if isinstance(entry.event, ModelReplied)]
    assert len(keys) == len(set(keys))


def wait_for_calls(play: Play, number: int) -> None:
    """Wait until the model has been called this many times in all."""
    with play.called:
        assert play.called.wait_for(lambda: len(play.kinds) >= number, timeout=60)
