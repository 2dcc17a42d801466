"""`podium worktrees`: lists worktrees, removes those that are not needed, and reports each on its own line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from podium.store.worktree_ledger import Ledger
from podium.testing import make_repository, run_git
from podium.workers.queries.worktree_listing import WORKTREE_COLUMNS
from podium.workspace.git.repository import Checkout, Repository
from podium.workspace.worktrees.worktree import Worktrees

from .conftest import Desk


@pytest.fixture
def make_worktree(desk: Desk) -> Callable[..., Checkout]:
    """Make a worktree as for a worker, in a repository with a commit."""
    make_repository(desk.repo, {"a.txt": "one\n"})

    def make(branch: str, *, run: str = "") -> Checkout:
        worktrees = Worktrees(repository=Repository.at(desk.repo), ledger=Ledger(desk.store))

        async def create() -> Checkout:
            return await worktrees.create(branch, run=run)

        return anyio.run(create)

    return make


def test_without_worktrees_it_says_so_and_makes_nothing(desk: Desk, make_worktree: Callable[..., Checkout]) -> None:
    said = desk.invoke("worktrees")

    assert (said.exit_code, said.stdout, said.stderr) == (0, "", "no worktrees other than the main one\n")
    assert json.loads(desk.invoke("worktrees", "--json").stdout)["worktrees"] == []
    assert desk.invoke("worktrees", "cleanup", "--dry-run").exit_code == 0
    assert not desk.store.exists()


def test_outside_of_a_repository_it_says_what_would_help(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()

    said = desk.invoke("worktrees", "--repo", str(tmp_path / "plain"))

    assert said.exit_code == 2
    assert "is not in a git repository; create one with git init" in said.stderr


def test_the_list_shows_the_status_of_each_worktree(
    desk: Desk, make_worktree: Callable[..., Checkout], tmp_path: Path
) -> None:
    checkout = make_worktree("feat/a")
    (checkout.path / "a.txt").write_text("two\nthree\n")
    (checkout.path / "new.txt").write_text("new\n")
    run_git(checkout.path, "commit", "-q", "-a", "-m", "the work")
    run_git(desk.repo, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))

    lines = desk.run_podium("worktrees", COLUMNS="300").stdout.splitlines()
    narrow = desk.run_podium("worktrees", COLUMNS="60").stdout.splitlines()
    told = json.loads(desk.invoke("worktrees", "--json").stdout)["worktrees"]

    assert narrow[0].split() == ["BRANCH", "STATE", "AHEAD", "LINES", "OPEN", "FOLDER"]
    assert narrow[1].endswith(str(checkout.path))
    assert lines[0].split() == ["BRANCH", "STATE", "AHEAD", "BEHIND", "LINES", "OPEN", "SLOT", "SIZE", "MADE", "FOLDER"]
    assert lines[1].split()[:7] == ["feat/a", "ready", "1", "0", "+2", "-1", "1"]
    assert lines[1].endswith(str(checkout.path))
    assert lines[2].split()[:3] == ["mine", "not", "managed"]
    assert told[0].keys() == {column.name for column in WORKTREE_COLUMNS} - {"slot", "ports"}
    assert [(one["branch"], one["ours"]) for one in told] == [("feat/a", True), ("mine", False)]
    assert (told[0]["ahead"], told[0]["untracked"], told[0]["unmerged"]) == (1, 1, 1)
    assert told[0]["files"] == [{"path": "a.txt", "added": 2, "removed": 1}]
    assert [one["subject"] for one in told[0]["commits"]] == ["the work"]


def test_cleanup_prints_a_line_for_each_worktree_and_a_dry_run_removes_nothing(
    desk: Desk, make_worktree: Callable[..., Checkout]
) -> None:
    clean, dirty = make_worktree("clean"), make_worktree("dirty")
    (dirty.path / "new.txt").write_text("work\n")

    tried = desk.invoke("worktrees", "cleanup", "--dry-run").stdout
    assert clean.path.exists()
    done = desk.invoke("worktrees", "cleanup").stdout

    kept = f"kept: dirty in {dirty.path}: it has 1 untracked file"
    why = f"clean in {clean.path}: everything is committed and merged"
    assert tried.splitlines() == [f"would be removed: {why}", kept]
    assert done.splitlines() == [f"removed: {why}", kept]
    assert (clean.path.exists(), dirty.path.exists()) == (False, True)

    [line] = json.loads(desk.invoke("worktrees", "cleanup", "--force", "--json").stdout)["worktrees"]
    assert (line["branch"], line["act"]) == ("dirty", "removed")
    assert "refs/podium/saved/dirty/" in line["why"]
    assert not dirty.path.exists()


def test_the_worktree_of_a_run_that_can_go_on_is_kept(
    desk: Desk, make_worktree: Callable[..., Checkout], make_interrupted_run: Callable[[], str]
) -> None:
    run = make_interrupted_run()
    checkout = make_worktree("feat", run=run)

    said = desk.invoke("worktrees", "cleanup", "--force")

    assert said.stdout == f"kept: feat in {checkout.path}: its run {run} has not ended\n"


def test_remove_refuses_work_and_with_force_saves_it(desk: Desk, make_worktree: Callable[..., Checkout]) -> None:
    checkout = make_worktree("feat/a")
    (checkout.path / "new.txt").write_text("work\n")

    refused = desk.run_podium("worktrees", "remove", "feat/a")
    assert refused.returncode == 2
    assert "has 1 untracked file; commit and merge your work, or remove the worktree with --force" in refused.stderr
    assert checkout.path.exists()
    forced = desk.run_podium("worktrees", "remove", "feat/a", "--force")

    assert forced.returncode == 0
    command = forced.stdout.partition("its work is saved, and ")[2].partition(" restores it")[0]
    subprocess.run(command.split(), cwd=desk.repo, check=True, capture_output=True)
    assert (desk.repo / "new.txt").read_text() == "work\n"


def test_remove_deletes_a_merged_branch_if_asked_and_keeps_an_unmerged_one(
    desk: Desk, make_worktree: Callable[..., Checkout]
) -> None:
    make_worktree("feat/merged")
    unmerged = make_worktree("feat/unmerged")
    (unmerged.path / "new.txt").write_text("work\n")

    merged = desk.run_podium("worktrees", "remove", "feat/merged", "--branch")
    run_git(unmerged.path, "add", "new.txt")
    run_git(unmerged.path, "commit", "-q", "-m", "the work")
    kept = desk.run_podium("worktrees", "remove", "feat/unmerged", "--branch", "--force")

    assert "deleted the branch feat/merged" in merged.stdout
    assert "kept the branch feat/unmerged: it is not merged" in kept.stdout
    branches = subprocess.run(
        ["git", "branch", "--format=%(refname:short)"], cwd=desk.repo, capture_output=True, text=True
    )
    assert "feat/unmerged" in branches.stdout
    assert "feat/merged" not in branches.stdout


def test_an_unknown_worktree_cannot_be_removed(desk: Desk, make_worktree: Callable[..., Checkout]) -> None:
    said = desk.invoke("worktrees", "remove", "nothing")

    assert said.exit_code == 2
    assert (
        said.stderr
        == "podium: no worktree for the branch 'nothing'; Podium has created no worktrees in this repository\n"
    )


def test_a_name_that_would_act_on_the_terminal_does_not(desk: Desk, make_worktree: Callable[..., Checkout]) -> None:
    make_worktree("main2")
    run_git(desk.repo, "branch", "x\u202ey")
    run_git(desk.repo, "worktree", "add", "-q", str(desk.repo.parent / "odd"), "x\u202ey")

    assert "\u202e" not in desk.invoke("worktrees").stdout
    assert "x\\u202ey" in desk.invoke("worktrees").stdout


def test_the_list_ends_with_the_disk_usage_and_the_quota(desk: Desk, make_worktree: Callable[..., Checkout]) -> None:
    with (make_worktree("feat/a").path / "big").open("wb") as file:
        file.truncate(3_000_000)

    free = desk.invoke("worktrees").stdout.splitlines()[-1]
    (desk.home / "config.yaml").write_text("worktrees: {quota: 4MB}\n")
    within = desk.invoke("worktrees").stdout.splitlines()[-1]
    (desk.home / "config.yaml").write_text("worktrees: {quota: 2MB}\n")
    beyond = desk.invoke("worktrees").stdout.splitlines()[-1]
    told = json.loads(desk.invoke("worktrees", "--json").stdout)

    assert free == "the worktrees of workers use 3 MB"
    assert within == "the worktrees of workers use 3 MB of the 4 MB that worktrees.quota allows"
    assert beyond == (
        "the worktrees of workers use 3 MB of the 2 MB that worktrees.quota allows; no new worktrees can be created; "
        "free space with podium worktrees cleanup, or raise the quota"
    )
    assert (told["taken"] // 1_000_000, told["quota"], told["reached"]) == (3, 2_000_000, True)
