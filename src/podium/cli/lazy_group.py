"""A command group that imports its subcommands only when needed, because imports take up most of a command's time."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from .command_table import find_command_module


class LazyCommandGroup(click.Group):
    """A group whose subcommands may be in other modules.

    The subcommand `show` of the group `team` is `team_show_command` in the module that the command table names.
    """

    def __init__(self, *arguments: Any, subcommands: Sequence[str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._names = tuple(subcommands)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._names:
            return None
        module = import_module(f"{__package__}.{find_command_module(f'{self.name} {cmd_name}')}")
        command: click.Command = getattr(module, f"{self.name}_{cmd_name}_command")
        return command


def require_no_group_options(ctx: click.Context, **options: object) -> None:
    """Raise UsageError if a group's option is given before a subcommand, where it would have no effect."""
    for name, value in options.items():
        if value:
            option, subcommand = f"--{name}", ctx.invoked_subcommand
            raise click.UsageError(
                f"{option} cannot come before {subcommand}; run {ctx.command_path} {subcommand} --help to list its "
                "options"
            )
