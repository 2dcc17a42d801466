"""`podium teams`: list the available teams and their sources."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import click

from ...files.roster_listing import TeamItem, list_teams
from ...values.agent import Source
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ..team.team_lookup import load_team_context
from ..terminal.command_options import json_option, repo_option
from ..terminal.text import as_json, escape_for_terminal, fit_columns

SECTIONS: tuple[tuple[Source, str], ...] = (
    ("repo", "From this repository"),
    ("built-in", "Built-in"),
    ("user", "Mine"),
)


@click.command("teams")
@repo_option
@json_option
def teams_command(repo: Path | None, is_json: bool) -> None:
    """List all teams and routers: the repository's, the built-in ones and your own."""
    context = load_team_context(repo)
    rows = list(list_teams(context.roster))
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "teams": rows, "notices": context.list_notices()}))
    else:
        click.echo("\n".join(format_teams(rows, most=shutil.get_terminal_size().columns)))
        context.print_notices()


def format_teams(rows: list[TeamItem], *, most: int) -> Iterator[str]:
    """Yield lines that list the teams in sections. Descriptions are truncated to fit `most` columns."""
    for source, title in SECTIONS:
        yield title
        cells = [
            [
                f"  {escape_for_terminal(row.name)}",
                row.mode,
                format_count(len(row.members), "member" if row.mode != "router" else "destination"),
                escape_for_terminal(f"{'(shadowed) ' if row.shadowed else ''}{row.description}"),
            ]
            for row in rows
            if row.source == source
        ]
        yield from fit_columns(cells, most=most)
        if not cells:
            yield "  none"
