"""A repository is located once, by reading files; from then on git gets explicit paths."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from podium.testing import run_git
from podium.values.errors import JournalMismatch, Mistake, OutsideFailed
from podium.workspace.git.repository import Checkout, Repository, call_git, read_git_output, resolve_location

from .test_repository import canary, repo

__all__ = ["canary", "repo"]


def test_a_repository_is_found_from_any_folder_in_it(repo: Path, tmp_path: Path) -> None:
    (repo / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(repo)

    found = Repository.at(repo)

    assert found == Repository(root=repo, git_dir=repo / ".git", common_dir=repo / ".git")
    assert Repository.at(repo / "deep" / "er") == Repository.at(tmp_path / "link") == found == resolve_location(repo)
    assert found.main_folder == repo


def test_a_worktree_has_its_own_git_directory_in_the_same_repository(repo: Path, tmp_path: Path) -> None:
    run_git(repo, "worktree", "add", "-q", "-b", "w", str(tmp_path / "w"))

    found = Repository.at(tmp_path / "w")

    assert found.git_dir == repo / ".git" / "worktrees" / "w"
    assert (found.root, found.common_dir, found.main_folder) == (tmp_path / "w", repo / ".git", repo)


async def test_a_worktree_of_a_bare_repository_and_a_submodule_are_repositories(repo: Path, tmp_path: Path) -> None:
    run_git(tmp_path, "clone", "-q", "--bare", str(repo), str(tmp_path / "bare.git"))
    run_git(tmp_path / "bare.git", "worktree", "add", "-q", str(tmp_path / "of bare"), "main")
    run_git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "bare.git"), "sub")

    of_bare, sub = Repository.at(tmp_path / "of bare"), Repository.at(repo / "sub")

    assert of_bare.main_folder == tmp_path / "of bare"
    assert await read_git_output(of_bare, "rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert sub.git_dir == repo / ".git" / "modules" / "sub"
    assert await read_git_output(sub, "status", "--porcelain") == ""


def test_a_folder_that_is_no_repository_is_refused_with_a_reason(repo: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    run_git(tmp_path, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"), str(made))
    for name in ("plain", "hollow/.git", "linked", "long", "words"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "linked" / ".git").symlink_to(repo / ".git")
    (tmp_path / "long" / ".git").write_text("gitdir: " + "x" * 10_000)
    (tmp_path / "words" / ".git").write_text("hello\n")

    for name, complaint in (
        ("plain", "is not in a git repository"),
        ("hollow", "is not a git repository"),
        ("linked", r"\.git is a symbolic link"),
        ("long", "must be a regular file of at most 8192 bytes"),
        ("words", "does not contain a path"),
        ("made", "not to a worktree or submodule"),
    ):
        with pytest.raises(Mistake, match=complaint):
            Repository.at(tmp_path / name)


def test_a_git_file_that_names_the_place_of_another_worktree_is_refused(repo: Path, tmp_path: Path) -> None:
    for name in ("mine", "other"):
        run_git(repo, "worktree", "add", "-q", "-b", name, str(tmp_path / name))
    (tmp_path / "mine" / ".git").write_text(f"gitdir: {repo}/.git/worktrees/other\n")

    with pytest.raises(Mistake, match=r"which belongs to a worktree in another folder; run git worktree repair"):
        Repository.at(tmp_path / "mine")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_repository_of_another_user_is_refused(repo: Path) -> None:
    os.chown(repo / ".git", 12345, 12345)

    with pytest.raises(Mistake, match=r"belongs to another user \(uid 12345\)"):
        Repository.at(repo)


async def test_git_with_explicit_paths_discovers_nothing(repo: Path, tmp_path: Path) -> None:
    run_git(repo, "worktree", "add", "-q", "-b", "w", str(tmp_path / "w"))
    place = Repository.at(tmp_path / "w")
    checkout = Checkout(path=place.root, git_dir=place.git_dir, common_dir=place.common_dir, branch="w", base="")
    (tmp_path / "w" / ".git").unlink()
    (tmp_path / "w" / "new.txt").write_text("new\n")

    for at in (place, checkout):
        assert await read_git_output(at, "status", "--porcelain", "--branch") == "## w\n?? new.txt"
    assert (await call_git(place.root, "status")).code != 0


async def test_an_index_of_its_own_leaves_the_other_alone(repo: Path, tmp_path: Path) -> None:
    place = Repository.at(repo)
    (repo / "new.txt").write_text("new\n")

    await read_git_output(place, "read-tree", "HEAD", index=tmp_path / "index")
    await read_git_output(place, "update-index", "--add", "new.txt", index=tmp_path / "index")

    assert await read_git_output(place, "ls-files", index=tmp_path / "index") == "a.txt\nnew.txt"
    assert await read_git_output(place, "ls-files") == "a.txt"


async def test_a_failing_command_is_reported_and_an_invalid_one_is_not_started(repo: Path) -> None:
    place = Repository.at(repo)

    with pytest.raises(OutsideFailed, match=r"git rev-parse failed in .*repo: fatal"):
        await read_git_output(place, "rev-parse", "--verify", "nowhere")
    with pytest.raises(OutsideFailed, match=r"git status could not be started"):
        await call_git(replace(place, root=repo / "gone"), "status")
    for args in ((), ("-c", "alias.x=!id", "x")):
        with pytest.raises(JournalMismatch):
            await call_git(place, *args)


async def test_git_that_does_not_read_all_of_its_input_reports_why(repo: Path) -> None:
    done = await call_git(Repository.at(repo), "update-index", "--no-such-option", stdin=b"x" * 10_000_000)

    assert done.code == 129
    assert "usage" in done.err
