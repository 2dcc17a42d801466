"""Resolutions: a clash as a commit to work on, and no mark of it gets any further."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from podium.values.errors import Mistake
from podium.workspace.merging.merge_train import train
from podium.workspace.merging.resolution_commit import (
    ResolutionStart,
    commit_resolution_start,
    filter_resolution_starts,
    find_resolution_starts,
    find_unresolved_files,
    is_resolution_of,
)
from podium.workspace.merging.trial_merge import ConflictingMerge, MergeSide, try_merge

from .merging import LINES, Repo, edited, passing

Files = Mapping[str, str | bytes | None]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


async def begun(repo: Repo, ours: Files, theirs: Files) -> ResolutionStart:
    """What resolving these two begins with; it is what the branch `resolved` is at."""
    sides = [MergeSide(name=name, commit=repo.branch(name, files)) for name, files in (("one", ours), ("two", theirs))]
    clash = await try_merge(repo.path, *sides)
    assert isinstance(clash, ConflictingMerge)
    beginning = await commit_resolution_start(repo.path, clash, *sides)
    repo.git("branch", "resolved", beginning.commit)
    return beginning


async def left(repo: Repo, beginning: ResolutionStart, files: Files) -> tuple[str, ...]:
    """What is left of the clash after these changes."""
    return await find_unresolved_files(repo.path, repo.branch("tried", files, start=beginning.commit), beginning)


async def test_a_resolution_begins_with_a_commit_of_both_sides_and_their_marks(repo: Repo) -> None:
    beginning = await begun(repo, {"a.txt": edited(0, "one")}, {"a.txt": edited(0, "two")})

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


async def test_what_is_left_of_a_clash_is_found_in_whatever_form(repo: Repo) -> None:
    beginning = await begun(
        repo,
        {"a.txt": edited(0, "one"), "b.txt": edited(0, "one"), "lib/a": "a\n"},
        {"a.txt": edited(0, "two"), "b.txt": edited(0, "two"), "lib": "b\n"},
    )
    stand_in = f"lib~{beginning.theirs}"
    marked = repo.git("show", f"{beginning.commit}:a.txt") + "\n"
    solved: Files = {"a.txt": edited(0, "both"), "b.txt": edited(0, "both"), stand_in: None, "library": "b\n"}

    assert await left(repo, beginning, {"b.txt": edited(0, "both")}) == ("a.txt", stand_in)
    assert await left(repo, beginning, solved) == ()
    assert await left(repo, beginning, {**solved, "moved.txt": marked, "a.txt": None}) == ("moved.txt",)
    assert await left(repo, beginning, {**solved, "a.txt": edited(0, "one\n=======\ntwo")}) == ("a.txt",)
    assert await left(repo, beginning, {**solved, "b.txt": edited(0, "<<<<<<< HEAD\r\none")}) == ("b.txt",)
    assert await left(repo, beginning, {**solved, "guide.md": "<<<<<<< HEAD\n"}) == ()


async def test_a_heading_that_looks_like_a_mark_is_none(repo: Repo) -> None:
    heading = "Podiums\n=======\n"
    beginning = await begun(repo, {"a.txt": f"one\n{heading}{LINES}"}, {"a.txt": f"two\n{heading}{LINES}"})

    assert await find_unresolved_files(repo.path, beginning.commit, beginning) == ("a.txt",)
    assert await left(repo, beginning, {"a.txt": heading + heading + LINES}) == ()


async def test_names_that_are_no_text_are_looked_into_as_well(repo: Repo) -> None:
    name = b"caf\xe9\n.txt".decode(errors="surrogateescape")
    repo.commit({name: LINES})
    beginning = await begun(repo, {name: edited(0, "one")}, {name: edited(0, "two")})

    assert await left(repo, beginning, {name: edited(0, "=======")}) == ("caf\\xe9\n.txt",)
    assert await left(repo, beginning, {name: LINES}) == ()


async def test_no_train_takes_what_has_marks_nor_what_is_built_on_it(repo: Repo) -> None:
    beginning = await begun(repo, {"a.txt": edited(0, "one")}, {"a.txt": edited(0, "two")})
    repo.branch("built-on-it", {"new.txt": "new\n"}, start=beginning.commit)
    repo.branch("good", {"a.txt": edited(0, "both")}, start=beginning.commit)
    cars = [repo.car(name) for name in ("resolved", "built-on-it", "good", "two")]

    result = await train(repo.path, cars, onto="main", integration="podium/merge", check=passing)

    assert [(one.branch, one.reason, one.files) for one in result.left_out] == [
        ("resolved", "unresolved", ("a.txt",)),
        ("built-on-it", "unresolved", ("a.txt",)),
    ]
    assert [one.branch for one in result.coupled] == ["good", "two"]
    assert repo.git("show", f"{result.commit}:a.txt") == edited(0, "both").strip()


async def test_histories_that_never_met_are_for_a_person(repo: Repo) -> None:
    other = repo.git("commit-tree", repo.tree("main"), "-m", "other")
    ours, theirs = MergeSide(name="main", commit=repo.tip()), MergeSide(name="other", commit=other)
    clash = await try_merge(repo.path, ours, theirs)
    assert isinstance(clash, ConflictingMerge)

    with pytest.raises(Mistake, match="main and other have no commit in common; bring them together by hand"):
        await commit_resolution_start(repo.path, clash, ours, theirs)
