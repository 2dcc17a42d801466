"""Thousands of agent files: the time grows with their number only, whatever mistakes they contain."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.files.discovery import check_path

KEYS_PER_FILE = 40
MISSING_PER_FILE = 20


def write_plain(number: int) -> str:
    return f"handoff: work-{number - number % 10}\n" if number % 10 else ""


def write_unknown_keys(number: int) -> str:
    return "".join(f"tool{number}part{key}: 3\n" for key in range(KEYS_PER_FILE))


def write_missing_names(number: int) -> str:
    return f"agents: [{', '.join(f'other-{number}-{name}' for name in range(MISSING_PER_FILE))}]\n"


def write_agents(repo: Path, count: int, write: Callable[[int], str]) -> Path:
    folder = repo / ".podium" / "agents"
    folder.mkdir(parents=True)
    for number in range(count):
        text = f"---\nname: work-{number}\ndescription: Does part {number}\ntools: [Read, Grep]\n{write(number)}---\n"
        (folder / f"work-{number}.md").write_text(f"{text}You do part {number}.\n")
    return repo


def measure_check(repo: Path) -> float:
    """Return the processor time of a check, which other programs on the machine hardly change."""
    started = time.process_time()
    check_path(repo, repo / "home")
    return time.process_time() - started


@pytest.mark.parametrize("write", [write_unknown_keys, write_missing_names])
def test_mistakes_in_many_files_cost_little_more_than_correct_files(
    tmp_path: Path, write: Callable[[int], str]
) -> None:
    plain = write_agents(tmp_path / "plain", 300, write_plain)
    wrong = write_agents(tmp_path / "wrong", 300, write)
    measure_check(plain)

    assert measure_check(wrong) < 30 * measure_check(plain)


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_plain, write_unknown_keys, write_missing_names])
def test_ten_times_as_many_agent_files_take_about_ten_times_as_long(
    tmp_path: Path, write: Callable[[int], str]
) -> None:
    few = write_agents(tmp_path / "few", 300, write)
    many = write_agents(tmp_path / "many", 3_000, write)
    measure_check(few)

    short, long = measure_check(few), measure_check(many)

    assert long < 25 * short
    assert long < 20
