"""Refs that keep the commits of snapshots from git's collection."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.testing import run_git
from podium.values.errors import OutsideFailed
from podium.workspace.git.snapshot import SNAPSHOT_REFS, keep_snapshot, resolve_commit, take_snapshot

from .test_repository import repo
from .test_snapshot import git_output

__all__ = ["repo"]


def list_refs(repo: Path) -> dict[str, str]:
    lines = git_output(repo, "for-each-ref", "--format=%(refname) %(objectname)", SNAPSHOT_REFS).splitlines()
    return {name.removeprefix(f"{SNAPSHOT_REFS}/"): commit for name, commit in (line.split() for line in lines)}


async def test_the_commits_of_a_snapshot_survive_a_collection(repo: Path) -> None:
    (repo / "new.txt").write_text("first\n")
    kept = await take_snapshot(repo)
    (repo / "new.txt").write_text("second\n")
    lost = await take_snapshot(repo)
    head = await resolve_commit(repo, "HEAD")

    await keep_snapshot(repo, "r1", "plan", {"": kept, "feat/a": head, "feat/b": kept})
    run_git(repo, "gc", "-q", "--prune=now")

    assert list_refs(repo) == {"r1/plan/0": kept, "r1/plan/1": head}
    assert await resolve_commit(repo, kept) == kept
    assert git_output(repo, "show", f"{kept}:new.txt") == "first\n"
    with pytest.raises(OutsideFailed, match="update-ref"):
        await keep_snapshot(repo, "r1", "lost", {"": lost})


async def test_keeping_a_snapshot_again_changes_nothing(repo: Path) -> None:
    head = await resolve_commit(repo, "HEAD")

    for _ in range(2):
        await keep_snapshot(repo, "r1", "plan", {"": head})

    assert list_refs(repo) == {"r1/plan/0": head}


@pytest.mark.parametrize(
    "name", ["step:s1", "../../heads/main", "a b", "s1.lock", "~1", "-x", "é", "@{0}", "a//b", "x\n"]
)
async def test_a_snapshot_can_have_any_name(repo: Path, name: str) -> None:
    head = await resolve_commit(repo, "HEAD")
    before = git_output(repo, "for-each-ref", "refs/heads")

    await keep_snapshot(repo, "r1", name, {"": head})

    assert len(list_refs(repo)) == 1
    assert git_output(repo, "for-each-ref", "refs/heads") == before
