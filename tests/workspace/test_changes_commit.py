from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from podium.store.worktree_ledger import Ledger
from podium.workers.work_commit import commit_work
from podium.workspace.git.repository import Checkout, Repository
from podium.workspace.worktrees.worktree import Worktrees

from .merging import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
async def checkout(repo: Repo, tmp_path: Path) -> Checkout:
    """Make the checkout of a worker that has changed, created and removed a file."""
    worktrees = Worktrees(repository=Repository.at(repo.path), ledger=Ledger(tmp_path / "podium.db"))
    created = await worktrees.create("feat/one")
    (created.path / "a.txt").write_text("changed\n")
    (created.path / "new.txt").write_text("new\n")
    (created.path / "old.txt").unlink()
    return created


async def test_the_changes_of_a_worker_are_one_commit_on_its_branch(repo: Repo, checkout: Checkout) -> None:
    main = repo.tip()

    committed = await commit_work(checkout, subject="Add the thing\nand more", body="It was missing.")

    assert committed.commit == repo.tip("feat/one")
    assert committed.commits == (committed.commit,)
    assert committed.files == ("a.txt", "new.txt", "old.txt")
    assert (committed.added, committed.removed) == (2, 60)
    assert repo.git("log", "-1", "--format=%P %B", "feat/one") == f"{main} Add the thing and more\n\nIt was missing."
    assert repo.git("status", "--porcelain", at=checkout.path) == ""
    assert repo.tip() == main


async def test_committing_again_finds_nothing_to_do(repo: Repo, checkout: Checkout) -> None:
    first = await commit_work(checkout, subject="once")

    second = await commit_work(checkout, subject="twice")

    assert second == first
    assert repo.git("log", "--format=%s", "main..feat/one") == "once"


async def test_a_crash_right_after_the_commit_leaves_nothing_to_commit(repo: Repo, checkout: Checkout) -> None:
    first = await commit_work(checkout, subject="once")
    repo.git("read-tree", "main", at=checkout.path)  # the index as the crash left it

    second = await commit_work(checkout, subject="twice")

    assert second == first
    assert repo.git("status", "--porcelain", at=checkout.path) == ""


async def test_pipes_and_sockets_do_not_block_the_commit_and_stay_out(
    repo: Repo, checkout: Checkout, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("CANARY")
    os.mkfifo(checkout.path / "pipe")
    (checkout.path / "link").symlink_to(tmp_path / "secret")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(checkout.path):
        listener.bind("socket")
    tool = checkout.path / "tool"
    tool.write_text("x")
    tool.chmod(0o6755)

    committed = await commit_work(checkout, subject="odd things")

    assert committed.files == ("a.txt", "link", "new.txt", "old.txt", "tool")
    assert repo.git("ls-tree", "feat/one", "link", "tool").split()[::4] == ["120000", "100755"]
    assert repo.git("show", "feat/one:link") == str(tmp_path / "secret")


async def test_where_nothing_was_changed_nothing_is_committed(repo: Repo, tmp_path: Path) -> None:
    worktrees = Worktrees(repository=Repository.at(repo.path), ledger=Ledger(tmp_path / "podium.db"))

    committed = await commit_work(await worktrees.create("feat/one"), subject="nothing")

    assert committed.commit == repo.tip()
    assert (committed.commits, committed.files) == ((), ())


async def test_a_blank_subject_is_replaced(repo: Repo, checkout: Checkout) -> None:
    await commit_work(checkout, subject=" \n ")

    assert repo.git("log", "-1", "--format=%s", "feat/one") == "Changes by an agent"
