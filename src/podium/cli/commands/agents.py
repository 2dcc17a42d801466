"""`podium agents`: list the available agents and their sources.

Each subcommand has its own module, which is imported when the subcommand is called.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from ...files.discovery import Roster, load_roster
from ...files.roster_listing import format_shadowed_name, list_agents
from ...system.locations import find_home_folder, find_repo
from ...values.errors import filter_errors
from ..lazy_group import LazyCommandGroup, require_no_group_options
from ..terminal.text import as_json, escape_for_terminal, fit_columns

NAMES = ("show",)


@click.group("agents", cls=LazyCommandGroup, subcommands=NAMES, invoke_without_command=True)
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to look in.")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def agents_command(ctx: click.Context, repo: Path | None, is_json: bool) -> None:
    """List all agents with their sources, or show one.

    Agents that are overridden by another agent of the same name are listed last.
    """
    if ctx.invoked_subcommand is not None:
        require_no_group_options(ctx, repo=repo, json=is_json)
        return
    home = find_home_folder()
    roster = load_roster(repo or find_repo(Path.cwd(), home=home), home)
    click.echo(
        as_json(list_agents(roster))
        if is_json
        else format_agents_table(roster, most=shutil.get_terminal_size().columns)
    )


def format_agents_table(roster: Roster, *, most: int) -> str:
    """Return a table of names, sources and descriptions. Descriptions are truncated to fit `most` columns."""
    rows: list[tuple[str, str, str]] = [
        (agent.name, agent.source, agent.description) for agent in roster.agents.values()
    ]
    rows += [(name, "broken", str(filter_errors(findings)[0])) for name, findings in roster.broken.items()]
    rows += [
        (format_shadowed_name(roster, agent), agent.source, f"(shadowed) {agent.description}")
        for agent in roster.shadowed
    ]
    return "\n".join(fit_columns([list(map(escape_for_terminal, row)) for row in rows], most=most))
