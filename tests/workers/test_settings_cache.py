"""The latest settings: what a person or a repository says counts from the next question on."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.values.errors import Mistake
from podium.workers.settings_cache import SettingsCache


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


def latest(home: Path) -> SettingsCache:
    return SettingsCache({"PODIUM_HOME": str(home)})


def test_settings_of_files_that_stay_are_not_read_again(home: Path, repo: Path) -> None:
    there = latest(home)

    first = there.get_settings(str(repo))

    assert there.get_settings(str(repo)) is first


def test_a_rule_in_a_file_of_the_person_counts_at_once(home: Path, repo: Path) -> None:
    there = latest(home)
    there.get_settings(str(repo))

    for rule in ("Bash(ls)", "Bash(rm)"):  # as long, and right after each other
        (home / "config.yaml").write_text(f"permissions: {{allow: ['{rule}']}}\n")

        assert there.get_settings(str(repo)).permissions.allow == (rule,)


def test_a_rule_of_the_repository_counts_at_once(home: Path, repo: Path) -> None:
    there = latest(home)
    there.get_settings(str(repo))

    (repo / "podium.yaml").write_text("permissions: {deny: ['Bash(rm)']}\n")

    assert there.get_settings(str(repo)).narrowing.deny == ("Bash(rm)",)


def test_a_file_that_goes_takes_its_rules_along(home: Path, repo: Path) -> None:
    (home / "config.yaml").write_text("permissions: {allow: ['Bash(ls)']}\n")
    there = latest(home)
    there.get_settings(str(repo))

    (home / "config.yaml").unlink()

    assert there.get_settings(str(repo)).permissions.allow == ()


def test_what_cannot_be_read_is_a_mistake_until_it_is_mended(home: Path, repo: Path) -> None:
    there = latest(home)
    there.get_settings(str(repo))
    (home / "config.yaml").write_text("permissions: [\n")

    with pytest.raises(Mistake):
        there.get_settings(str(repo))
    (home / "config.yaml").write_text("workers: 7\n")

    assert there.get_settings(str(repo)).workers == 7


def test_repositories_are_kept_apart(home: Path, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (repo / "podium.yaml").write_text("permissions: {deny: ['Bash(rm)']}\n")
    there = latest(home)

    assert there.get_settings(str(repo)).narrowing.deny == ("Bash(rm)",)
    assert there.get_settings(str(tmp_path / "other")).narrowing.deny == ()


def test_without_a_repository_the_files_of_the_person_hold(home: Path, repo: Path) -> None:
    there = latest(home)
    (repo / "podium.yaml").write_text("workers: 7\n")
    before = there.get_settings().workers

    (home / "config.yaml").write_text("workers: 2\n")

    assert (before, there.get_settings().workers) == (4, 2)
