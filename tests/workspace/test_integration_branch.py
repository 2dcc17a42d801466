"""Integration branches: those that a merge train has replaced are removed, all others stay."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from podium.workspace.merging.merge_train import Train, build_train
from podium.workspace.merging.trial_merge import (
    list_integration_branches,
    name_integration_branch,
    remove_integration_branch,
    remove_superseded_branches,
)

from .merging import Repo, check_not_broken


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo(tmp_path / "repo")
    repo.branch("one", {"one.txt": "one\n"})
    repo.branch("two", {"two.txt": "two\n"})
    return repo


async def merge_branches(repo: Repo, *branches: str) -> Train:
    """Merge these branches in this order, on a new integration branch."""
    name = name_integration_branch(datetime(2031, 5, 6, 7, 8, 9))
    train_branches = [repo.train_branch(branch) for branch in branches]
    return await build_train(repo.path, train_branches, onto="main", integration=name, check=check_not_broken)


async def list_names(repo: Repo) -> list[str]:
    return [one.branch for one in await list_integration_branches(repo.path)]


async def test_only_branches_of_merge_trains_are_listed(repo: Repo) -> None:
    await merge_branches(repo, "one")
    repo.git("branch", "podium/other", "main")
    repo.git("tag", "podium/merge-1", "main")

    [listed] = await list_integration_branches(repo.path)

    assert listed.branch == "podium/merge-20310506-070809"
    assert (listed.commit, listed.tree) == (repo.tip(listed.branch), repo.tree(listed.branch))


async def test_a_branch_with_the_same_result_as_a_later_train_is_removed(repo: Repo) -> None:
    await merge_branches(repo, "one", "two")
    partly = await merge_branches(repo, "one")
    last = await merge_branches(repo, "two", "one")

    removed = await remove_superseded_branches(repo.path, last.commit, except_ref=last.ref)

    assert removed == ["podium/merge-20310506-070809"]
    assert [f"refs/heads/{name}" for name in await list_names(repo)] == [partly.ref, last.ref]


async def test_a_branch_with_a_commit_of_the_persons_own_stays(repo: Repo) -> None:
    earlier = await merge_branches(repo, "one")
    assert earlier.ref is not None
    repo.git("switch", "-q", earlier.ref.removeprefix("refs/heads/"))
    repo.git("commit", "-q", "--allow-empty", "-m", "a note")
    repo.git("switch", "-q", "main")
    later = await merge_branches(repo, "one")

    assert await remove_superseded_branches(repo.path, later.commit, except_ref=later.ref) == []
    assert len(await list_names(repo)) == 2


async def test_a_branch_that_is_checked_out_stays(repo: Repo) -> None:
    earlier = await merge_branches(repo, "one")
    assert earlier.ref is not None
    repo.git("switch", "-q", earlier.ref.removeprefix("refs/heads/"))
    later = await merge_branches(repo, "one")

    assert await remove_superseded_branches(repo.path, later.commit, except_ref=later.ref) == []
    assert not await remove_integration_branch(repo.path, earlier.ref, earlier.commit)
    assert len(await list_names(repo)) == 2


async def test_a_branch_that_has_moved_is_not_removed(repo: Repo) -> None:
    train = await merge_branches(repo, "one")
    assert train.ref is not None
    repo.git("update-ref", train.ref, repo.tip("two"))

    assert not await remove_integration_branch(repo.path, train.ref, train.commit)
    assert len(await list_names(repo)) == 1
