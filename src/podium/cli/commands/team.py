"""`podium team`: show, save, change, export or delete a team.

Each subcommand has its own module, which is imported when the subcommand is called.
"""

from __future__ import annotations

import click

from ..lazy_group import LazyCommandGroup

NAMES = ("show", "save", "set", "export", "delete")


@click.group("team", cls=LazyCommandGroup, subcommands=NAMES)
def team_command() -> None:
    """Show, save, change, export or delete a team. podium teams lists all teams."""
