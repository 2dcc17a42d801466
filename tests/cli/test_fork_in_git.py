"""`podium fork` in a real repository, with a model over HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podium.store.reader import StoreReader
from podium.testing import Move, calls, make_repository, read_entries
from podium.testing import run_git as git
from podium.testing.served_model import ServedModel, serve_model
from podium.values.event import ModelReplied, RunStarted, ToolAnswered

from .conftest import Desk


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedModel]:
    with serve_model() as model:
        for name, value in model.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PODIUM_MODEL", "openai:m")
        yield model


@pytest.fixture
def source(desk: Desk, model: ServedModel) -> str:
    """A run that wrote two files in a repository, and its id."""
    (desk.repo / ".gitignore").write_text(".podium/podium.db*\n")
    desk.write_agent("hand", write("one.txt"), write("two.txt"), "done", engine="model", tools=["Write"])
    make_repository(desk.repo, {})
    (desk.home / "config.yaml").write_text("permissions: {allow: [Write]}\n")
    assert desk.invoke("run", "hand", "go").exit_code == 0
    return desk.run_id()


def write(name: str) -> Move:
    return calls("write_file", path=name, content=f"{name}\n")


def find_folder(desk: Desk, run: str) -> Path:
    started = read_entries(desk.store, run)[0].event
    assert isinstance(started, RunStarted)
    return Path(started.repo)


def count_calls(desk: Desk, model: ServedModel, run: str) -> list[int]:
    """Return how often each model call on a run's timeline was made by that run."""
    made = [received.headers["idempotency-key"] for received in model.calls]
    keys = [entry.key for entry in read_entries(desk.store, run) if isinstance(entry.event, ModelReplied)]
    return [made.count(f"{run}/{key}") for key in keys]


def test_a_run_and_its_forks_have_branches_of_their_own(desk: Desk, model: ServedModel, source: str) -> None:
    at = str(next(entry.seq for entry in read_entries(desk.store, source) if isinstance(entry.event, ToolAnswered)))

    said = desk.invoke("fork", source, "--at", at)
    first = desk.run_id()
    again = desk.invoke("fork", first, "--at", at)
    second = desk.run_id()

    assert [one.exit_code for one in (said, again)] == [0, 0], said.stderr + again.stderr
    assert [count_calls(desk, model, run) for run in (source, first, second)] == [[1, 1, 1], [0, 1, 1], [0, 1, 1]]
    assert f"; it works on podium/fork/{first} in {find_folder(desk, first)}\n" in said.stderr
    assert "notice: no snapshot was taken" in said.stderr
    branches = git(desk.repo, "branch", "--format=%(refname:short)").split()
    assert sorted(branches) == sorted(["main", f"podium/fork/{first}", f"podium/fork/{second}"])
    listed = json.loads(desk.invoke("worktrees", "--json").stdout)["worktrees"]
    assert {one["run"]: one["branch"] for one in listed} == {run: f"podium/fork/{run}" for run in (first, second)}
    for run, files in ((source, ["one.txt", "two.txt"]), (first, ["two.txt"]), (second, ["two.txt"])):
        assert sorted(path.name for path in find_folder(desk, run).glob("*.txt")) == files
        assert desk.invoke("verify", run).exit_code == 0


def test_the_checkout_of_an_unfinished_fork_is_not_removed(desk: Desk, model: ServedModel, source: str) -> None:
    variables = {**model.environment(), "PODIUM_MODEL": "openai:m"}
    died = desk.run_podium("fork", source, "--at", "4", PODIUM_FAULT="8", **variables)
    fork = desk.run_id()

    said = desk.invoke("worktrees", "remove", f"podium/fork/{fork}")
    cleaned = desk.invoke("worktrees", "cleanup")

    assert (died.returncode, said.exit_code) == (137, 2)
    assert f"run {fork} is still using podium/fork/{fork}; stop it first with: podium stop {fork}" in said.stderr
    assert f"its run {fork} has not ended" in cleaned.stdout
    assert desk.invoke("resume", fork).stdout == "done\n"
    assert (find_folder(desk, fork) / "two.txt").exists()


def test_a_fork_stays_in_the_store_of_the_repository(desk: Desk, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_STORE", "local")
    desk.invoke("run", "hand", "go")
    with StoreReader(desk.repo / ".podium" / "podium.db") as reader:
        [run] = reader.list_runs()

    said = desk.invoke("fork", run.id, "--at", "4")

    assert (said.exit_code, said.stdout) == (0, "done\n"), said.stderr
    with StoreReader(desk.repo / ".podium" / "podium.db") as reader:
        assert len(reader.list_runs()) == 2


def test_the_setup_of_the_repository_runs_in_the_checkout_of_a_fork(desk: Desk, source: str) -> None:
    program = "import pathlib; pathlib.Path('ready').touch()"
    (desk.home / "config.yaml").write_text(
        f"permissions: {{allow: [Write]}}\nsandbox: false\nworktrees: {{setup: [{sys.executable}, -c, {program!r}]}}\n"
    )

    said = desk.invoke("fork", source, "--at", "4")

    assert said.exit_code == 0, said.stderr
    assert (find_folder(desk, desk.run_id()) / "ready").exists()


def list_refs(desk: Desk, run: str) -> list[str]:
    return [ref for ref in git(desk.repo, "for-each-ref", "--format=%(refname)").split() if run in ref]


@pytest.mark.parametrize("command", ["worktrees", "fork"])
def test_a_fork_that_is_killed_while_its_checkout_is_made_leaves_no_branch_and_no_worktree(
    desk: Desk, source: str, command: str
) -> None:
    (desk.home / "config.yaml").write_text("worktrees: {setup: 'echo begun; sleep 999'}\n")
    with desk.start_podium("fork", source, "--at", "3") as process:
        while not (made := git(desk.repo, "branch", "--list", "podium/fork/*", "--format=%(refname:short)").strip()):
            assert process.poll() is None
        while not any(desk.repo.parent.glob("*fork*/.git")):
            assert process.poll() is None
        process.kill()
        process.wait()
    (desk.home / "config.yaml").write_text("permissions: {allow: [Write]}\n")
    killed = made.rpartition("/")[2]

    said = desk.run_podium(*(["worktrees"] if command == "worktrees" else ["fork", source, "--at", "3"]))

    assert said.returncode == 0, said.stderr
    assert list_refs(desk, killed) == []
    assert killed not in git(desk.repo, "worktree", "list")
    assert not any(killed in path.name for path in desk.repo.parent.iterdir())
    assert len(desk.runs()) == (1 if command == "worktrees" else 2)
