"""Parsing slash commands into `podium` command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.cli.chat.slash_commands import build_arguments, find_slash_command, format_slash_help
from podium.cli.output.text import display_width
from podium.values.errors import Mistake

HERE = Path("/shop")


def parse_slash_line(line: str) -> list[str]:
    name, _, rest = line.partition(" ")
    return build_arguments(find_slash_command(name), rest, place=HERE)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("feat/x write the tests", ["--", "feat/x", "write the tests"]),
        ("feat/x don't  break it", ["--", "feat/x", "don't  break it"]),
        ('feat/x call "a" what was "b"', ["--", "feat/x", 'call "a" what was "b"']),
        ("feat/x a - b is -1", ["--", "feat/x", "a - b is -1"]),
        ('feat/x "write tests"', ["--", "feat/x", "write tests"]),
        ("feat/x wait", ["--", "feat/x", "wait"]),
        (
            'feat/x "write tests" --role tests --after feat/y',
            ["feat/x", "write tests", "--role", "tests", "--after", "feat/y"],
        ),
        ("feat/x don't break it --role tests", ["feat/x", "don't break it", "--role", "tests"]),
        ("feat/x 'mend --quiet' --model \"a b\"", ["feat/x", "mend --quiet", "--model", "a b"]),
        ("feat/x -- mend --quiet, don't ask", ["--", "feat/x", "mend --quiet, don't ask"]),
        ('--role tests feat/x "write it"', ["--role", "tests", "feat/x", "write it"]),
        ('feat/x --role tests "write it"', ["feat/x", "--role", "tests", "write it"]),
        ("--help", ["--help"]),
        ("feat/x --help", ["feat/x", "--help"]),
    ],
)
def test_a_task_is_taken_verbatim_up_to_the_first_option(said: str, words: list[str]) -> None:
    assert parse_slash_line(f"delegate {said}") == ["delegate", "--repo=/shop", *words]


@pytest.mark.parametrize("said", ["", "feat/x", "feat/x -"])
def test_delegating_nothing_is_a_mistake(said: str) -> None:
    with pytest.raises(Mistake, match="/delegate needs a branch and a task"):
        parse_slash_line(f"delegate {said}")


def test_quotes_that_do_not_end_among_options_are_a_mistake() -> None:
    with pytest.raises(Mistake, match=r"cannot parse .*: No closing quotation"):
        parse_slash_line('delegate feat/x write it --role "tests')


def test_workers_are_those_of_the_chats_repository() -> None:
    assert parse_slash_line("workers cancel feat/x") == ["workers", "--repo=/shop", "cancel", "feat/x"]


def test_the_list_of_commands_fits_on_a_terminal_of_eighty_columns() -> None:
    assert [line for line in format_slash_help() if display_width(line) > 80] == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("xyzzy", "type /help to list all commands;"),
        ("statsu", "did you mean /status?"),
        ("", "type /help to list all commands;"),
    ],
)
def test_an_unknown_command_is_refused_in_one_sentence(name: str, near: str) -> None:
    with pytest.raises(Mistake) as told:
        find_slash_command(name)

    assert str(told.value) == f"unknown command /{name}; {near} to send it to the agent, type //{name}"


@pytest.mark.parametrize("name", ["approve", "deny"])
def test_an_answer_to_nothing_is_a_mistake(name: str) -> None:
    with pytest.raises(Mistake, match="the request id is missing"):
        parse_slash_line(name)
