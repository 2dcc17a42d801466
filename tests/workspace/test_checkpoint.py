"""Checkpoints: the files of a checkout as a commit, and the same files in another clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.store.worktree_ledger import Ledger
from podium.testing import make_repository
from podium.workspace.git.repository import Checkout, Repository
from podium.workspace.travel.repository_cache import (
    RepositoryCache,
    list_left_out,
    object_folder,
    restore_checkpoint,
    run_ref,
    take_checkpoint,
)
from podium.workspace.travel.run_location import open_run_clone
from podium.workspace.worktrees.worktree import Worktrees

from .merging import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo(tmp_path / "repo")
    repo.commit({".gitignore": "*.log\nbuild/\n"})
    repo.git("clone", "-q", "--bare", str(repo.path), str(tmp_path / "remote.git"))
    return repo


@pytest.fixture
async def checkout(repo: Repo) -> Checkout:
    worktrees = Worktrees(repository=Repository.at(repo.path), ledger=Ledger(repo.path.parent / "podium.db"))
    return await worktrees.create("feat/one")


async def test_committed_and_uncommitted_changes_are_the_same_in_another_clone(
    repo: Repo, checkout: Checkout, tmp_path: Path
) -> None:
    head = repo.commit({"done.txt": "done\n"}, at=checkout.path)
    (checkout.path / "new.txt").write_text("new\n")
    (checkout.path / "a.txt").unlink()
    (checkout.path / "script").write_text("#!/bin/sh\n")
    (checkout.path / "script").chmod(0o755)
    (checkout.path / "link").symlink_to("new.txt")
    status = repo.git("status", "--porcelain", at=checkout.path)
    checkpoint = await take_checkpoint(checkout, run="r1", epoch=2)
    laptop = RepositoryCache(home=tmp_path / "laptop").open_mirror(str(tmp_path / "remote.git"))
    await laptop.push(object_folder(checkout), checkpoint.commit, run_ref("r1", 2))

    server = RepositoryCache(home=tmp_path / "server").open_mirror(str(tmp_path / "remote.git"))
    await server.fetch_runs(["r1"])
    clone = await open_run_clone(server, "r1", checkpoint.head)
    repo.git("branch", "feat/one", checkpoint.head, at=clone.root)
    worktrees = Worktrees(repository=clone, ledger=Ledger(tmp_path / "server.db"))
    restored = await worktrees.create("feat/one", at=tmp_path / "restored")
    await restore_checkpoint(restored, checkpoint.commit)

    assert checkpoint.head == head == repo.git("rev-parse", "HEAD", at=restored.path)
    assert repo.git("status", "--porcelain", at=restored.path) == status
    assert (restored.path / "new.txt").read_text() == "new\n"
    assert (restored.path / "link").is_symlink()
    assert (restored.path / "script").stat().st_mode & 0o111
    assert repo.git("fsck", "--no-dangling", at=clone.root) == ""


async def test_a_checkpoint_contains_the_one_before_it_and_is_on_no_branch(repo: Repo, checkout: Checkout) -> None:
    (checkout.path / "a.txt").write_text("1\n")
    first = await take_checkpoint(checkout, run="r1", epoch=2)
    (checkout.path / "a.txt").write_text("2\n")

    second = await take_checkpoint(checkout, run="r1", epoch=2, previous=first.commit)

    assert repo.git("rev-list", "--parents", "-1", second.commit).split()[1:] == [checkout.base, first.commit]
    assert "Podium-Run: r1\nPodium-Epoch: 2" in repo.git("log", "-1", "--format=%B", second.commit)
    assert repo.git("rev-parse", "feat/one") == checkout.base


async def test_nothing_new_is_the_same_checkpoint_and_a_commit_is_a_new_one(repo: Repo, checkout: Checkout) -> None:
    (checkout.path / "a.txt").write_text("1\n")
    first = await take_checkpoint(checkout, run="r1", epoch=2)

    again = await take_checkpoint(checkout, run="r1", epoch=3, previous=first.commit)
    repo.commit({}, at=checkout.path)
    committed = await take_checkpoint(checkout, run="r1", epoch=3, previous=again.commit)

    assert again == first
    assert committed.commit != first.commit
    assert committed.head == repo.git("rev-parse", "feat/one")


async def test_files_that_a_checkpoint_leaves_out_are_listed_and_limited(repo: Repo, checkout: Checkout) -> None:
    (checkout.path / "build").mkdir()
    (checkout.path / "build" / "out.o").touch()
    make_repository(checkout.path / "nested")
    (checkout.path / "nested" / "file").touch()

    assert await list_left_out(checkout) == ("build/", "nested/")

    for number in range(30):
        (checkout.path / f"{number:02}.log").touch()
    left = await list_left_out(checkout)
    assert len(left) == 21
    assert left[-1] == "and 12 more"
