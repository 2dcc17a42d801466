"""Which commands and options work with `--server`: a new option has to be put into the table or into this test."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from podium.cli.command_table import NAMES
from podium.cli.remote_access import REMOTE_COMMANDS
from podium.cli.root import podium
from podium.cli.server_option import split_output_options

CONTEXT = click.Context(podium)
RULES = {"--permissions", "--no-sandbox"}
"""Options that choose what agents may do without asking."""

LOCAL_OPTIONS = {
    "status": {"--watch"},
    **{name: {"--file"} for name in ("show", "logs", "verify")},
    "results": {"--synthesis", "--agent"},
    "plan": {"--edit"},
    "send": {"--attach"},
    "run": RULES,
    "resume": {*RULES, "--accept-loss"},
    "fork": RULES,
    "retry": RULES,
    "delegate": {"--auto-approve", "--also"},
    "merge": {"--pull-request"},
    "workers merge": {"--pull-request"},
}
LOCAL_COMMANDS = {
    *("chat", "decide", "serve", "mcp", "acp", "login", "demo", "check", "trust", "undo", "policy", "models", "config"),
    *("doctor", "store", "host", "hosts", "engines", "schedule", "watch"),
    *("decisions merge-inbox", "workers cleanup", "worktrees cleanup", "worktrees remove"),
    *("team save", "team set", "team export", "team delete"),
    *(f"group {name}" for name in "rename pin unpin archive unarchive move order delete".split()),
}


def walk_commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(CONTEXT):
        command = group.get_command(CONTEXT, name)
        assert command is not None
        yield f"{before}{name}", command
        if isinstance(command, click.Group) and f"{before}{name}" not in LOCAL_COMMANDS:
            yield from walk_commands(command, f"{before}{name} ")


COMMANDS = dict(walk_commands(podium))


def test_every_command_works_with_a_server_or_is_known_to_be_local() -> None:
    assert set(NAMES) <= set(COMMANDS)
    assert set(COMMANDS) == set(REMOTE_COMMANDS) | LOCAL_COMMANDS
    assert not set(REMOTE_COMMANDS) & LOCAL_COMMANDS


@pytest.mark.parametrize("path", REMOTE_COMMANDS)
def test_every_option_works_with_a_server_or_is_known_to_be_local(path: str) -> None:
    options = {
        option
        for one in COMMANDS[path].params
        if isinstance(one, click.Option)
        for option in one.opts
        if option.startswith("--")
    }

    assert options - set(REMOTE_COMMANDS[path].options) == LOCAL_OPTIONS.get(path, set())
    assert set(REMOTE_COMMANDS[path].options) <= options


def test_only_options_that_choose_the_output_are_separated_from_those_of_the_run() -> None:
    words = ["run", "--json", "lead", "--constraint", "--plain", "--strict", "--model=x", "--", "--quiet"]

    output, others = split_output_options(words)

    assert output == ["--json", "--strict"]
    assert others == ["run", "lead", "--constraint", "--plain", "--model=x", "--", "--quiet"]
