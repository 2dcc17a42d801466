"""Current settings: a change by a person or a repository applies from the next request on."""

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


def make_cache(home: Path) -> SettingsCache:
    return SettingsCache({"PODIUM_HOME": str(home)})


def test_settings_of_files_that_stay_are_not_read_again(home: Path, repo: Path) -> None:
    cache = make_cache(home)

    first = cache.get_settings(str(repo))

    assert cache.get_settings(str(repo)) is first


def test_a_rule_in_a_file_of_the_person_counts_at_once(home: Path, repo: Path) -> None:
    cache = make_cache(home)
    cache.get_settings(str(repo))

    for rule in ("Bash(ls)", "Bash(rm)"):  # of the same length, and right after each other
        (home / "config.yaml").write_text(f"permissions: {{allow: ['{rule}']}}\n")

        assert cache.get_settings(str(repo)).permissions.allow == (rule,)


def test_a_rule_of_the_repository_counts_at_once(home: Path, repo: Path) -> None:
    cache = make_cache(home)
    cache.get_settings(str(repo))

    (repo / "podium.yaml").write_text("permissions: {deny: ['Bash(rm)']}\n")

    assert cache.get_settings(str(repo)).narrowing.deny == ("Bash(rm)",)


def test_the_rules_of_a_removed_file_no_longer_apply(home: Path, repo: Path) -> None:
    (home / "config.yaml").write_text("permissions: {allow: ['Bash(ls)']}\n")
    cache = make_cache(home)
    cache.get_settings(str(repo))

    (home / "config.yaml").unlink()

    assert cache.get_settings(str(repo)).permissions.allow == ()


def test_an_unreadable_file_is_a_mistake_until_it_is_fixed(home: Path, repo: Path) -> None:
    cache = make_cache(home)
    cache.get_settings(str(repo))
    (home / "config.yaml").write_text("permissions: [\n")

    with pytest.raises(Mistake):
        cache.get_settings(str(repo))
    (home / "config.yaml").write_text("workers: 7\n")

    assert cache.get_settings(str(repo)).workers == 7


def test_repositories_are_kept_apart(home: Path, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (repo / "podium.yaml").write_text("permissions: {deny: ['Bash(rm)']}\n")
    cache = make_cache(home)

    assert cache.get_settings(str(repo)).narrowing.deny == ("Bash(rm)",)
    assert cache.get_settings(str(tmp_path / "other")).narrowing.deny == ()


def test_without_a_repository_the_files_of_the_person_hold(home: Path, repo: Path) -> None:
    cache = make_cache(home)
    (repo / "podium.yaml").write_text("workers: 7\n")
    before = cache.get_settings().workers

    (home / "config.yaml").write_text("workers: 2\n")

    assert (before, cache.get_settings().workers) == (4, 2)
