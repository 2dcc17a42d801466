"""The disk quota of worktrees: none is created above the quota, and stored sizes are enough to decide that."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from podium.store.worktree_ledger import Ledger
from podium.testing import run_git
from podium.values.errors import Mistake
from podium.workspace.git.repository import Repository
from podium.workspace.worktrees.cleanup import clean_up_worktrees, list_worktrees
from podium.workspace.worktrees.disk_quota import measure_folder, read_disk_usage
from podium.workspace.worktrees.worktree import Worktrees

from .test_repository import repo

__all__ = ["repo"]

MB = 1_000_000


@pytest.fixture
def worktrees(repo: Path, tmp_path: Path) -> Worktrees:
    return Worktrees(repository=Repository.at(repo), ledger=Ledger(tmp_path / "home" / "podium.db"), quota=10 * MB)


def fill(folder: Path, megabytes: int) -> None:
    """Make a sparse file of this many megabytes, which takes no disk space."""
    with (folder / "big").open("wb") as file:
        file.truncate(megabytes * MB)


async def test_once_the_quota_is_reached_no_worktree_is_made_and_the_error_says_what_would_work(
    worktrees: Worktrees,
) -> None:
    small, large = await worktrees.create("small"), await worktrees.create("large")
    fill(small.path, 4)
    fill(large.path, 7)

    with pytest.raises(Mistake) as refused:
        await worktrees.create("more")
    with pytest.raises(Mistake, match=r"cannot create a worktree"):
        await worktrees.must_be_creatable("more")

    assert str(refused.value) == (
        "cannot create a worktree, because the worktrees of workers use 11 MB of the 10 MB that "
        "worktrees.quota allows; "
        f"the largest: {large.path} (7 MB), {small.path} (4 MB); "
        "run podium worktrees cleanup to make room, or raise the quota"
    )
    assert [one.branch for one in await worktrees.ledger.list_worktrees()] == ["small", "large"]
    assert (await replace(worktrees, quota=12 * MB).create("more")).path.exists()


async def test_room_that_was_made_by_hand_or_by_cleaning_up_counts_at_once(worktrees: Worktrees, repo: Path) -> None:
    first = await worktrees.create("first")
    (repo / ".git" / "info" / "exclude").write_text("big\n")
    fill(first.path, 11)
    with pytest.raises(Mistake, match=r"use 11 MB of the 10 MB"):
        await worktrees.create("second")

    (first.path / "big").unlink()
    second = await worktrees.create("second")
    fill(second.path, 11)
    with pytest.raises(Mistake, match=r"use 11 MB of the 10 MB"):
        await worktrees.create("third")
    await clean_up_worktrees(worktrees)

    assert (await worktrees.create("third")).path.exists()


async def test_the_worktrees_of_every_repository_of_the_store_count(
    worktrees: Worktrees, repo: Path, tmp_path: Path
) -> None:
    run_git(tmp_path, "clone", "-q", str(repo), "other")
    other = replace(worktrees, repository=Repository.at(tmp_path / "other"))
    fill((await other.create("theirs")).path, 6)
    fill((await worktrees.create("ours")).path, 6)

    with pytest.raises(Mistake, match=r"the worktrees of workers in 2 repositories use 12 MB of the 10 MB"):
        await worktrees.create("more")


async def test_listing_records_the_measured_sizes_and_a_missing_worktree_takes_nothing(worktrees: Worktrees) -> None:
    kept, gone = await worktrees.create("kept", run="over"), await worktrees.create("gone", run="over")
    fill(kept.path, 3)
    before = await read_disk_usage(worktrees.ledger, None)
    gone.path.rename(gone.path.with_name("elsewhere"))

    found = await list_worktrees(worktrees)

    assert before.total_size < MB
    assert [(one.branch, one.size // MB, one.state) for one in found] == [("kept", 3, "ready"), ("gone", 0, "missing")]
    assert (await read_disk_usage(worktrees.ledger, None)).total_size == sum(one.size for one in found)


async def test_only_worktrees_in_use_are_measured_for_a_new_one(worktrees: Worktrees) -> None:
    over = await worktrees.create("over", run="a run that is no open worker's")
    fill(over.path, 11)
    idle = await worktrees.create("idle")

    remembered = {one.branch: one.size // MB for one in await worktrees.ledger.list_worktrees()}
    fill(idle.path, 2)
    await worktrees.create("more", run="another")

    assert remembered == {"over": 0, "idle": 0}
    assert {one.branch: one.size // MB for one in await worktrees.ledger.list_worktrees()} == {
        "over": 0,
        "idle": 2,
        "more": 0,
    }


async def test_without_a_quota_nothing_is_refused_and_the_total_is_reported(worktrees: Worktrees) -> None:
    worktrees = replace(worktrees, quota=None)
    fill((await worktrees.create("feat")).path, 2000)
    await list_worktrees(worktrees)

    usage = await read_disk_usage(worktrees.ledger, None)

    assert (str(usage), usage.is_reached) == ("the worktrees of workers use 2 GB", False)
    assert (await worktrees.create("more")).path.exists()


def test_measuring_follows_no_link_and_never_fails(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "sub").mkdir(parents=True)
    outside.mkdir()
    fill(outside, 5)
    (inside / "sub" / "a").write_bytes(b"x" * 100)
    (inside / "link").symlink_to(outside)
    (inside / "broken").symlink_to("nowhere")
    (inside / "loop").symlink_to(inside)
    os.mkfifo(inside / "pipe")

    links = sum((inside / name).lstat().st_size for name in ("link", "broken", "loop"))
    assert measure_folder(inside) == 100 + links
    assert measure_folder(tmp_path / "nothing") == 0


def test_very_deep_folders_are_measured_as_far_as_a_path_can_reach(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    try:
        at = os.open(tmp_path, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("deep", dir_fd=at)
            below = os.open("deep", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(at)

        size = measure_folder(tmp_path)
    finally:
        # Removed here, because pytest cannot remove folders this deep.
        subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)

    assert size == 10
