from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from podium.store.sqlite.worktree_ledger import Ledger
from podium.workers.work_commit import commit_work
from podium.workspace.git.repository import Checkout, Repository
from podium.workspace.worktrees.worktree import Worktrees

from .merging import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
async def checkout(repo: Repo, tmp_path: Path) -> Checkout:
    """The checkout of a worker that has changed, made and removed a file."""
    of = Worktrees(repository=Repository.at(repo.path), ledger=Ledger(tmp_path / "podium.db"))
    made = await of.create("feat/one")
    (made.path / "a.txt").write_text("changed\n")
    (made.path / "new.txt").write_text("new\n")
    (made.path / "old.txt").unlink()
    return made


async def test_what_a_worker_changed_is_one_commit_on_its_branch(repo: Repo, checkout: Checkout) -> None:
    main = repo.tip()

    brought = await commit_work(checkout, subject="Add the thing\nand more", body="It was missing.")

    assert brought.commit == repo.tip("feat/one")
    assert brought.commits == (brought.commit,)
    assert brought.files == ("a.txt", "new.txt", "old.txt")
    assert (brought.added, brought.removed) == (2, 60)
    assert repo.git("log", "-1", "--format=%P %B", "feat/one") == f"{main} Add the thing and more\n\nIt was missing."
    assert repo.git("status", "--porcelain", at=checkout.path) == ""
    assert repo.tip() == main


async def test_bringing_it_home_again_finds_nothing_to_do(repo: Repo, checkout: Checkout) -> None:
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


async def test_what_is_no_file_holds_nothing_up_and_stays_out(repo: Repo, checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("CANARY")
    os.mkfifo(checkout.path / "pipe")
    (checkout.path / "link").symlink_to(tmp_path / "secret")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(checkout.path):
        listener.bind("socket")
    tool = checkout.path / "tool"
    tool.write_text("x")
    tool.chmod(0o6755)

    brought = await commit_work(checkout, subject="odd things")

    assert brought.files == ("a.txt", "link", "new.txt", "old.txt", "tool")
    assert repo.git("ls-tree", "feat/one", "link", "tool").split()[::4] == ["120000", "100755"]
    assert repo.git("show", "feat/one:link") == str(tmp_path / "secret")


async def test_where_nothing_was_changed_nothing_is_committed(repo: Repo, tmp_path: Path) -> None:
    of = Worktrees(repository=Repository.at(repo.path), ledger=Ledger(tmp_path / "podium.db"))

    brought = await commit_work(await of.create("feat/one"), subject="nothing")

    assert brought.commit == repo.tip()
    assert (brought.commits, brought.files) == ((), ())


async def test_a_subject_that_says_nothing_is_given_another(repo: Repo, checkout: Checkout) -> None:
    await commit_work(checkout, subject=" \n ")

    assert repo.git("log", "-1", "--format=%s", "feat/one") == "Work of an agent"
