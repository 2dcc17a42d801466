"""`podium team`: show, save, change, export or delete a team.

Each subcommand has its own module, which is imported when it is called.
"""

from __future__ import annotations

from importlib import import_module

import click

NAMES = ("show", "save", "set", "export", "delete")


class TeamCommandGroup(click.Group):
    """The subcommands of `podium team`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return None
        command: click.Command = getattr(import_module(f"podium.cli.team.{cmd_name}"), f"team_{cmd_name}_command")
        return command


@click.group("team", cls=TeamCommandGroup)
def team_command() -> None:
    """Show, save, change, export or delete a team. podium teams lists all teams."""
