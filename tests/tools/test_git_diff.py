"""Showing changes, as git sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.gate import InvalidCall
from podium.testing import make_repository, run_git
from podium.tools.git_diff import GitDiff

from .doing import call_tool


async def test_changes_and_new_files_are_shown(tmp_path: Path) -> None:
    repo = make_repository(tmp_path, {"a.txt": "one\ntwo\n"})
    (repo / "a.txt").write_text("one\n2\n")
    (repo / "new.txt").write_text("new\n")

    answer = await call_tool(GitDiff(repo))

    assert "-two\n+2" in answer.text
    assert answer.text.endswith("[untracked files: new.txt]")


async def test_staged_changes_are_shown_only_on_request(tmp_path: Path) -> None:
    repo = make_repository(tmp_path, {"a.txt": "one\ntwo\n"})
    (repo / "a.txt").write_text("one\n2\n")
    run_git(repo, "add", ".")

    assert (await call_tool(GitDiff(repo))).text == "Nothing has changed."
    assert "-two\n+2" in (await call_tool(GitDiff(repo), staged=True)).text


async def test_a_path_narrows_the_diff_even_when_its_file_was_deleted(tmp_path: Path) -> None:
    repo = make_repository(tmp_path, {"a.txt": "one\ntwo\n"})
    (repo / "*.txt").write_text("odd name\n")
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-q", "-m", "second")
    (repo / "a.txt").unlink()
    (repo / "*.txt").write_text("changed\n")

    gone = (await call_tool(GitDiff(repo), path="a.txt")).text
    odd = (await call_tool(GitDiff(repo), path="*.txt")).text

    assert "-one\n-two" in gone
    assert "changed" not in gone
    assert "+changed" in odd
    assert "-one" not in odd


async def test_a_file_that_usually_holds_secrets_is_left_out_unless_it_is_named(tmp_path: Path) -> None:
    repo = make_repository(tmp_path, {"a.txt": "one\ntwo\n"})
    (repo / ".env").write_text("KEY=canary\n")
    run_git(repo, "add", "-f", ".env")

    assert (await call_tool(GitDiff(repo), staged=True)).text == (
        "[files omitted because they may contain secrets or because a rule denies access to them: .env]"
    )
    assert "canary" in (await call_tool(GitDiff(repo), staged=True, path=".env")).text


async def test_a_long_diff_is_cut_and_says_so(tmp_path: Path) -> None:
    repo = make_repository(tmp_path, {"a.txt": "one\ntwo\n"})
    (repo / "a.txt").write_text("line\n" * 100_000)

    answer = await call_tool(GitDiff(repo))

    assert len(answer.text) < 101_000
    assert answer.text.endswith("more characters; give a path to narrow the diff]")


async def test_outside_a_repository_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidCall, match="is not in a git work tree"):
        await call_tool(GitDiff(tmp_path))


async def test_a_configured_worktree_elsewhere_is_ignored(tmp_path: Path) -> None:
    repo, elsewhere = make_repository(tmp_path / "repo", {"a.txt": "one\ntwo\n"}), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.txt").write_text("secret\n")
    run_git(repo, "config", "core.worktree", str(elsewhere))

    answer = await call_tool(GitDiff(repo))

    assert "secret" not in answer.text
