"""`podium teams`: list the available teams and their sources."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ...roster.discovery import Roster
from ...roster.team_definition import is_team
from ...values.agent import Agent, Source
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ..team.team_lookup import load_team_context
from ..terminal.command_options import json_option, repo_option
from ..terminal.text import as_json, escape_for_terminal, fit_columns
from .agents import format_shadowed_name

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


def list_teams(roster: Roster) -> Iterator[dict[str, Any]]:
    """Yield the fields of every team. Shadowed teams come last."""
    yield from (team_summary_fields(agent, agent.name) for agent in roster.agents.values() if is_team(agent))
    yield from (
        team_summary_fields(agent, format_shadowed_name(roster, agent), True)
        for agent in roster.shadowed
        if is_team(agent)
    )


def team_summary_fields(agent: Agent, name: str, is_hidden: bool = False) -> dict[str, Any]:
    """Return the fields of a team for the JSON list."""
    members = [one.name or one.agent for one in agent.team.members] if agent.team else list(agent.destinations)
    return {
        "name": name,
        "title": agent.display_name or agent.name,
        "source": agent.source,
        "mode": agent.team.mode if agent.team else "router",
        "members": members,
        "description": agent.description,
        "path": agent.path,
        "shadowed": is_hidden,
    }


def format_teams(rows: list[dict[str, Any]], *, most: int) -> Iterator[str]:
    """Yield lines that list the teams in sections. Descriptions are truncated to fit `most` columns."""
    for source, title in SECTIONS:
        yield title
        cells = [
            [
                f"  {escape_for_terminal(row['name'])}",
                row["mode"],
                format_count(len(row["members"]), "member" if row["mode"] != "router" else "destination"),
                escape_for_terminal(f"{'(shadowed) ' if row['shadowed'] else ''}{row['description']}"),
            ]
            for row in rows
            if row["source"] == source
        ]
        yield from fit_columns(cells, most=most)
        if not cells:
            yield "  none"
