"""`podium team show`: show one team in full."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import structs

from ...files.roster_listing import TeamDetails, TeamMember, describe_team
from ...files.team_definition import find_team
from ..terminal.command_options import json_option, repo_option
from ..terminal.text import align_columns, as_json, display_width, escape_for_terminal, fit_columns, truncate_line
from .team_lookup import load_team_context

WIDEST = 72
NARROWEST = 12


@click.command("show")
@click.argument("name")
@repo_option
@json_option
def team_show_command(name: str, repo: Path | None, is_json: bool) -> None:
    """Show the team NAME: its mode, its options, and its members with their models and prompts."""
    context = load_team_context(repo)
    team = describe_team(find_team(name, context.roster, repo=context.repo, home=context.home))
    if is_json:
        click.echo(as_json({**structs.asdict(team), "notices": context.list_notices()}))
    else:
        click.echo("\n".join(format_team(team, most=shutil.get_terminal_size().columns)))
        context.print_notices()


def format_team(team: TeamDetails, *, most: int) -> Iterator[str]:
    """Yield the lines that describe a team."""
    yield escape_for_terminal(f"{team.name}  {team.description}")
    yield escape_for_terminal(f"{team.kind}, {team.path}")
    yield escape_for_terminal(f"mode {team.mode}, lead model {team.model or 'default'}")
    if team.evaluator:
        yield escape_for_terminal(f"evaluated by {team.evaluator}")
    for key, value in team.options.items():
        is_long = isinstance(value, str) and (len(value) > WIDEST or "\n" in value)
        yield escape_for_terminal(f"{key}: {len(value):,} characters" if is_long else f"{key}: {value}")
    yield "members"
    yield from _format_members(team.members, most=most)


def _format_members(members: list[TeamMember], *, most: int) -> list[str]:
    """Return a line for each member. Role and prompt share the remaining width."""
    named = [[f"  {escape_for_terminal(one.name)}", escape_for_terminal(one.model or "default")] for one in members]
    room = (
        most
        - max((sum(map(display_width, row)) for row in align_columns([[*row, ""] for row in named])), default=0)
        - 6
    )
    roles = [truncate_line(escape_for_terminal(one.role), max(room // 2, NARROWEST)) for one in members]
    rows = [[*row, role, escape_for_terminal(one.prompt)] for row, role, one in zip(named, roles, members, strict=True)]
    return fit_columns(rows, most=most, least=NARROWEST)
