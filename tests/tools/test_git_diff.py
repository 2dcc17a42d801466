"""What has changed, as git sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.gate import InvalidCall
from podium.tools.git_diff import GitDiff

from .doing import do, repository, run_git


async def test_changes_and_new_files_are_shown(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    (repo / "a.txt").write_text("one\n2\n")
    (repo / "new.txt").write_text("new\n")

    answer = await do(GitDiff(repo))

    assert "-two\n+2" in answer.text
    assert answer.text.endswith("[new files that git does not know yet: new.txt]")


async def test_what_is_staged_is_another_matter(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    (repo / "a.txt").write_text("one\n2\n")
    run_git(repo, "add", ".")

    assert (await do(GitDiff(repo))).text == "Nothing has changed."
    assert "-two\n+2" in (await do(GitDiff(repo), staged=True)).text


async def test_a_path_narrows_it_down_also_when_its_file_is_gone(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    (repo / "*.txt").write_text("odd name\n")
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-q", "-m", "second")
    (repo / "a.txt").unlink()
    (repo / "*.txt").write_text("changed\n")

    gone = (await do(GitDiff(repo), path="a.txt")).text
    odd = (await do(GitDiff(repo), path="*.txt")).text

    assert "-one\n-two" in gone
    assert "changed" not in gone
    assert "+changed" in odd
    assert "-one" not in odd


async def test_a_file_that_usually_holds_secrets_is_left_out_unless_it_is_named(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    (repo / ".env").write_text("KEY=canary\n")
    run_git(repo, "add", "-f", ".env")

    assert (await do(GitDiff(repo), staged=True)).text == ("[left out, because such files usually hold secrets: .env]")
    assert "canary" in (await do(GitDiff(repo), staged=True, path=".env")).text


async def test_a_long_diff_is_cut_and_says_so(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    (repo / "a.txt").write_text("line\n" * 100_000)

    answer = await do(GitDiff(repo))

    assert len(answer.text) < 101_000
    assert answer.text.endswith("more characters; give a path to see less at once]")


async def test_outside_a_repository_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidCall, match="not one of a git repository"):
        await do(GitDiff(tmp_path))


async def test_a_repository_that_says_its_files_are_elsewhere_shows_those_that_are_here(tmp_path: Path) -> None:
    repo, elsewhere = repository(tmp_path / "repo"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.txt").write_text("secret\n")
    run_git(repo, "config", "core.worktree", str(elsewhere))

    answer = await do(GitDiff(repo))

    assert "secret" not in answer.text
