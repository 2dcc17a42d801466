"""`podium undo`: what a run changed in a real checkout is put back, and nothing that anybody changed since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.system.identity import get_username
from podium.testing import ServedModel, make_repository, run_git

from .conftest import Desk


def git(desk: Desk, *arguments: str) -> str:
    return run_git(desk.repo, *arguments)


@pytest.fixture
def yard(desk: Desk) -> Desk:
    """A repository with a commit, an uncommitted change and an untracked file, and an agent that may do anything."""
    folder = desk.repo / ".podium" / "agents"
    folder.mkdir(parents=True)
    (folder / "coder.md").write_text("---\ndescription: d\ntools: [Read, Write, Edit, Bash]\n---\nYou code.\n")
    (desk.repo / "kept.txt").write_text("kept\n")
    (desk.repo / "tool.sh").write_text("#!/bin/sh\n")
    (desk.repo / "tool.sh").chmod(0o755)
    (desk.repo / "gone.txt").write_text("gone\n")
    make_repository(desk.repo, {}, message="start")
    (desk.repo / "kept.txt").write_text("kept, and changed by me\n")
    (desk.repo / "mine.txt").write_text("mine\n")
    (desk.repo / ".env").write_text("TOKEN=secret\n")
    return desk


def write(path: str, content: str) -> dict[str, Any]:
    return {"name": "write_file", "arguments": {"path": path, "content": content}}


def bash(command: str) -> dict[str, Any]:
    return {"name": "bash", "arguments": {"command": command}}


def run(desk: Desk, model: ServedModel, *calls: dict[str, Any], **more: str) -> str:
    """Run the agent without asking, and return the run's id."""
    model.says(*({"calls": [call]} for call in calls), "done")
    desk.run_podium("run", "coder", "go", "--permissions", "bypass", "--no-input", **model.environment(), **more)
    return desk.run_id()


def read_tree(folder: Path) -> dict[str, tuple[str, int]]:
    files = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(folder)): (path.read_text(), path.stat().st_mode) for path in files}


def undo(desk: Desk, run: str, *options: str) -> tuple[int, dict[str, str]]:
    said = desk.run_podium("undo", run, "--json", *options)
    assert said.returncode in (0, 1), said.stderr
    return said.returncode, {file["path"]: file["state"] for file in json.loads(said.stdout)["files"]}


def test_all_that_a_run_changed_is_put_back(yard: Desk, model: ServedModel) -> None:
    before, index = read_tree(yard.repo), git(yard, "status", "--porcelain")
    id = run(
        yard,
        model,
        write("kept.txt", "overwritten\n"),
        write("new/deep/file.txt", "new\n"),
        bash("rm gone.txt tool.sh; echo more >>mine.txt"),
    )
    assert read_tree(yard.repo) != before
    assert ".env" not in git(yard, "ls-tree", "-r", "--name-only", f"refs/podium/undo/{id}/before")

    shown = yard.run_podium("undo", id, "--dry-run")
    unasked = yard.run_podium("undo", id)
    code, states = undo(yard, id, "--yes")
    again, already = undo(yard, id, "--yes")

    assert "kept.txt: changed: can be undone" in shown.stdout.splitlines()
    assert (
        "gone.txt: deleted (by a command in the run, or by someone else while the run was active): can be undone"
        in shown.stdout
    )
    assert (unasked.returncode, "use --yes" in unasked.stderr) == (2, True)
    assert code == 0
    assert set(states) == {"kept.txt", "new/deep/file.txt", "gone.txt", "tool.sh", "mine.txt"}
    assert set(states.values()) == {"undone"}
    assert read_tree(yard.repo) == before
    assert git(yard, "status", "--porcelain") == index
    assert not (yard.repo / "new").exists()
    assert (again, set(already.values())) == (0, {"already as before"})
    assert "overwritten" in git(yard, "show", f"refs/podium/undo/{id}/undone:kept.txt")
    said_by = git(yard, "log", "-1", "--format=%s", f"refs/podium/undo/{id}/undone")
    assert said_by == f"before run {id} was undone by {get_username()} (command)\n"


def test_what_somebody_changed_since_is_left_and_said(yard: Desk, model: ServedModel, tmp_path: Path) -> None:
    id = run(yard, model, write("kept.txt", "by the run\n"), write("a.txt", "a\n"), write("sub/b.txt", "b\n"))
    (yard.repo / "a.txt").write_text("a, and mine\n")
    (yard.repo / "sub" / "b.txt").unlink()
    (yard.repo / "sub").rmdir()
    (yard.repo / "sub").symlink_to(tmp_path)
    (tmp_path / "b.txt").write_text("outside\n")
    (yard.repo / "other.txt").write_text("not the run's\n")

    code, states = undo(yard, id, "--yes")

    assert code == 1
    assert states["kept.txt"] == "undone"
    assert states["a.txt"] == "changed since"
    assert states["sub/b.txt"] in ("already as before", "changed since")
    assert (yard.repo / "kept.txt").read_text() == "kept, and changed by me\n"
    assert (yard.repo / "a.txt").read_text() == "a, and mine\n"
    assert (tmp_path / "b.txt").read_text() == "outside\n"
    assert "other.txt" not in states


def test_a_run_that_was_killed_can_be_undone_after_it_has_ended(yard: Desk, model: ServedModel) -> None:
    (yard.home / "config.yaml").write_text("permissions: {allow: [Write]}\n")
    before = read_tree(yard.repo)
    complete = run(yard, model, write("kept.txt", "by the run\n"), write("a.txt", "a\n"))
    kinds = yard.kinds(complete)
    assert undo(yard, complete, "--yes")[0] == 0
    for number in (kinds.index("checkout_saved") + 1, len(kinds) - 2):
        id = run(yard, model, write("kept.txt", "by the run\n"), write("a.txt", "a\n"), PODIUM_FAULT=str(number))
        early = yard.run_podium("undo", id, "--yes")
        resumed = yard.run_podium("resume", id, "--no-input", **model.environment())

        code, states = undo(yard, id, "--yes")

        assert (early.returncode, "has not ended" in early.stderr) == (2, True)
        assert resumed.returncode == 0, resumed.stderr
        assert (code, states) == (0, {"kept.txt": "undone", "a.txt": "undone"}), f"killed after entry {number}"
        assert read_tree(yard.repo) == before


@pytest.mark.slow
def test_an_undo_that_is_killed_is_completed_by_the_next_one(yard: Desk, model: ServedModel) -> None:
    names = [f"f{number:02}.txt" for number in range(25)]
    for name in names:
        (yard.repo / name).write_text("mine\n")
    before = read_tree(yard.repo)
    id = run(yard, model, bash("for file in f*.txt; do echo theirs >$file; done"))

    with yard.start_podium("undo", id, "--yes") as process:
        while (yard.repo / names[0]).read_text() != "mine\n":
            assert process.poll() is None
        process.kill()
        process.wait()
    restored = [name for name in names if (yard.repo / name).read_text() == "mine\n"]
    code, states = undo(yard, id, "--yes")

    assert 0 < len(restored) < len(names)
    assert code == 0
    assert {name for name, state in states.items() if state == "undone"} == set(names) - set(restored)
    assert read_tree(yard.repo) == before
    assert git(yard, "show", f"refs/podium/undo/{id}/after:{names[0]}") == "theirs\n"


def test_runs_that_cannot_be_undone_say_why(yard: Desk, model: ServedModel) -> None:
    idle = run(yard, model)
    nothing = yard.run_podium("undo", idle, "--yes")
    (yard.repo / ".gitignore").write_text("*.log\n")
    ignored = run(yard, model, write("a.log", "x"))
    left = yard.run_podium("undo", ignored, "--yes")
    git(yard, "update-ref", "-d", "HEAD")
    unborn = yard.run_podium("undo", run(yard, model, write("b.txt", "x")), "--yes")

    assert (nothing.returncode, "changed nothing in your checkout" in nothing.stderr) == (2, True)
    assert (left.returncode, "left no changes in your checkout" in left.stdout) == (0, True)
    assert (unborn.returncode, "its files were not saved" in unborn.stderr) == (2, True)
