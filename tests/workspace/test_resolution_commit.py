"""Resolution commits: a conflict as a commit to work on, whose conflict markers are never merged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from podium.values.errors import Mistake
from podium.workspace.merging.merge_train import build_train
from podium.workspace.merging.resolution_commit import (
    ResolutionStart,
    commit_resolution_start,
    filter_resolution_starts,
    find_resolution_starts,
    find_unresolved_files,
    is_resolution_of,
)
from podium.workspace.merging.trial_merge import ConflictingMerge, MergeSide, try_merge

from .merging import LINES, Repo, check_not_broken, replace_line

Files = Mapping[str, str | bytes | None]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


async def start_resolution(repo: Repo, ours: Files, theirs: Files) -> ResolutionStart:
    """Start a resolution of these two, and point the branch `resolved` to its first commit."""
    sides = [MergeSide(name=name, commit=repo.branch(name, files)) for name, files in (("one", ours), ("two", theirs))]
    clash = await try_merge(repo.path, *sides)
    assert isinstance(clash, ConflictingMerge)
    beginning = await commit_resolution_start(repo.path, clash, *sides)
    repo.git("branch", "resolved", beginning.commit)
    return beginning


async def find_leftovers(repo: Repo, beginning: ResolutionStart, files: Files) -> tuple[str, ...]:
    """Return the files that are still unresolved after these changes."""
    return await find_unresolved_files(repo.path, repo.branch("tried", files, start=beginning.commit), beginning)


async def test_a_resolution_starts_with_a_commit_of_both_sides_and_their_conflict_markers(repo: Repo) -> None:
    beginning = await start_resolution(repo, {"a.txt": replace_line(0, "one")}, {"a.txt": replace_line(0, "two")})

    assert repo.git("show", "-s", "--format=%P", beginning.commit) == f"{repo.tip('one')} {repo.tip('two')}"
    assert f"<<<<<<< {beginning.ours}\none\n=======\ntwo\n" in repo.git("show", f"{beginning.commit}:a.txt")
    assert await find_resolution_starts(repo.path, beginning.commit, beyond=repo.tip()) == [beginning]
    assert await find_resolution_starts(repo.path, beginning.commit, beyond=beginning.commit) == []
    assert await filter_resolution_starts(repo.path, [repo.tip(), beginning.commit, "0" * 40]) == {
        beginning.commit: beginning
    }
    assert await is_resolution_of(repo.path, beginning, repo.tip("two"))
    assert not await is_resolution_of(repo.path, beginning, repo.tip("one"))
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


async def test_leftovers_of_a_conflict_are_found_in_whatever_form(repo: Repo) -> None:
    beginning = await start_resolution(
        repo,
        {"a.txt": replace_line(0, "one"), "b.txt": replace_line(0, "one"), "lib/a": "a\n"},
        {"a.txt": replace_line(0, "two"), "b.txt": replace_line(0, "two"), "lib": "b\n"},
    )
    stand_in = f"lib~{beginning.theirs}"
    with_markers = repo.git("show", f"{beginning.commit}:a.txt") + "\n"
    solved: Files = {
        "a.txt": replace_line(0, "both"),
        "b.txt": replace_line(0, "both"),
        stand_in: None,
        "library": "b\n",
    }

    assert await find_leftovers(repo, beginning, {"b.txt": replace_line(0, "both")}) == ("a.txt", stand_in)
    assert await find_leftovers(repo, beginning, solved) == ()
    assert await find_leftovers(repo, beginning, {**solved, "moved.txt": with_markers, "a.txt": None}) == ("moved.txt",)
    assert await find_leftovers(repo, beginning, {**solved, "a.txt": replace_line(0, "one\n=======\ntwo")}) == (
        "a.txt",
    )
    assert await find_leftovers(repo, beginning, {**solved, "b.txt": replace_line(0, "<<<<<<< HEAD\r\none")}) == (
        "b.txt",
    )
    assert await find_leftovers(repo, beginning, {**solved, "guide.md": "<<<<<<< HEAD\n"}) == ()


async def test_a_heading_that_looks_like_a_conflict_marker_is_none(repo: Repo) -> None:
    heading = "Podiums\n=======\n"
    beginning = await start_resolution(repo, {"a.txt": f"one\n{heading}{LINES}"}, {"a.txt": f"two\n{heading}{LINES}"})

    assert await find_unresolved_files(repo.path, beginning.commit, beginning) == ("a.txt",)
    assert await find_leftovers(repo, beginning, {"a.txt": heading + heading + LINES}) == ()


async def test_files_whose_names_are_not_text_are_searched_too(repo: Repo) -> None:
    name = b"caf\xe9\n.txt".decode(errors="surrogateescape")
    repo.commit({name: LINES})
    beginning = await start_resolution(repo, {name: replace_line(0, "one")}, {name: replace_line(0, "two")})

    assert await find_leftovers(repo, beginning, {name: replace_line(0, "=======")}) == ("caf\\xe9\n.txt",)
    assert await find_leftovers(repo, beginning, {name: LINES}) == ()


async def test_a_train_takes_neither_branches_with_conflict_markers_nor_those_built_on_them(repo: Repo) -> None:
    beginning = await start_resolution(repo, {"a.txt": replace_line(0, "one")}, {"a.txt": replace_line(0, "two")})
    repo.branch("built-on-it", {"new.txt": "new\n"}, start=beginning.commit)
    repo.branch("good", {"a.txt": replace_line(0, "both")}, start=beginning.commit)
    branches = [repo.train_branch(name) for name in ("resolved", "built-on-it", "good", "two")]

    result = await build_train(repo.path, branches, onto="main", integration="podium/merge", check=check_not_broken)

    assert [(one.branch, one.reason, one.files) for one in result.left_out] == [
        ("resolved", "unresolved", ("a.txt",)),
        ("built-on-it", "unresolved", ("a.txt",)),
    ]
    assert [one.branch for one in result.merged] == ["good", "two"]
    assert repo.git("show", f"{result.commit}:a.txt") == replace_line(0, "both").strip()


async def test_histories_with_no_commit_in_common_are_left_to_a_person(repo: Repo) -> None:
    other = repo.git("commit-tree", repo.tree("main"), "-m", "other")
    ours, theirs = MergeSide(name="main", commit=repo.tip()), MergeSide(name="other", commit=other)
    clash = await try_merge(repo.path, ours, theirs)
    assert isinstance(clash, ConflictingMerge)

    with pytest.raises(Mistake, match="main and other have no commit in common; merge the branch manually"):
        await commit_resolution_start(repo.path, clash, ours, theirs)
