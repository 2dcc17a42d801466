"""Repositories for tests, made by `podium.testing`."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.testing import make_repository, run_git


def test_a_repository_has_one_commit_with_the_files_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("there\n")

    repo = make_repository(tmp_path, {"src/app.py": "x = 1\n", "logo.png": b"\0"}, message="Begin")

    assert repo == tmp_path
    assert run_git(repo, "ls-files").split() == ["logo.png", "src/app.py", "there.txt"]
    assert run_git(repo, "log", "--format=%s by %an", "main") == "Begin by Tester\n"
    assert run_git(repo, "status", "--porcelain") == ""
    assert (repo / "logo.png").read_bytes() == b"\0"


def test_a_repository_without_files_has_no_commit_and_one_with_an_empty_choice_of_files_has_one(tmp_path: Path) -> None:
    bare, empty = make_repository(tmp_path / "a" / "unborn", branch="trunk"), make_repository(tmp_path / "empty", {})

    assert run_git(bare, "symbolic-ref", "HEAD") == "refs/heads/trunk\n"
    assert run_git(bare, "rev-list", "--all", "--count") == "0\n"
    assert run_git(empty, "rev-list", "--count", "main") == "1\n"


def test_git_settings_of_the_person_do_not_reach_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings").write_text(
        "[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = false\n[core]\n\tautocrlf = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "settings"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))

    repo = make_repository(tmp_path / "repo", {"a.txt": "a\r\n"})

    assert run_git(repo, "cat-file", "-p", "main:a.txt") == "a\r\n"
    assert not (tmp_path / "elsewhere").exists()


def test_an_existing_repository_keeps_its_commits(tmp_path: Path) -> None:
    make_repository(tmp_path, {"a.txt": "a"})

    make_repository(tmp_path)

    assert run_git(tmp_path, "rev-list", "--count", "main") == "1\n"
