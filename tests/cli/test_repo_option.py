"""Every command that takes `--repo` answers an unusual folder with a message and a documented exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from podium.cli.output import exit_codes
from podium.cli.root import podium

from .conftest import Desk

DOCUMENTED = {
    exit_codes.GOAL_MET,
    exit_codes.GOAL_NOT_MET,
    exit_codes.USAGE,
    exit_codes.ASKS,
    exit_codes.DENIED,
    exit_codes.LIMIT,
    exit_codes.CONFLICT,
    exit_codes.MISSING,
    exit_codes.INTEGRITY,
}
ENDLESS = {("serve",), ("mcp",), ("watch",), ("chat",)}
"""These commands run until they are stopped."""


def iter_commands(command: click.Command, path: tuple[str, ...], ctx: click.Context) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command that takes `--repo`, with an argument for each one that it needs."""
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from iter_commands(below, (*path, name), ctx)
    if any("--repo" in option.opts for option in command.params):
        yield (*path, *("word" for option in command.params if option.required))


COMMANDS = list(iter_commands(podium, (), click.Context(podium)))


@pytest.mark.parametrize("place", ["missing", "file", "/etc", "/", "/proc"])
def test_a_folder_that_is_no_repository_never_causes_an_internal_error(desk: Desk, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (desk.home / "agents").mkdir()
    agent = '---\ndescription: Answers\nengine: scripted\n---\n```script\n["The end."]\n```\n'
    (desk.home / "agents" / "word.md").write_text(agent, encoding="utf-8")
    wrong = {}

    for words in COMMANDS:
        if words in ENDLESS and place.startswith("/"):
            continue
        said = desk.invoke(*words, "--repo", str(tmp_path / place))
        is_refused = said.exit_code == exit_codes.USAGE or place.startswith("/")
        is_internal = "Traceback" in said.output or "internal error" in said.output
        if said.exit_code not in DOCUMENTED or is_internal or not is_refused:
            wrong[words] = (said.exit_code, said.output)

    assert len(COMMANDS) > 30
    assert wrong == {}
