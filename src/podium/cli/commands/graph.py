"""`podium graph`: draw the workflow that agent files define."""

from __future__ import annotations

from pathlib import Path

import click

from ...files.discovery import load_roster
from ...files.roster_listing import build_graph
from ...files.workflow_graph import render_mermaid, render_svg, render_tree
from ...system.locations import find_home_folder, find_repo
from ..terminal.text import as_json, escape_for_terminal


@click.command("graph")
@click.argument("agent")
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to look in.")
@click.option("--mermaid", "is_mermaid", is_flag=True, help="Print a Mermaid flowchart.")
@click.option("--svg", "is_svg", is_flag=True, help="Print an SVG image.")
@click.option("--json", "is_json", is_flag=True, help="Print the graph as JSON.")
def graph_command(agent: str, repo: Path | None, is_mermaid: bool, is_svg: bool, is_json: bool) -> None:
    """Draw AGENT and the agents that it uses, and show which of them can give the final answer."""
    if is_mermaid + is_svg + is_json > 1:
        raise click.UsageError("--mermaid, --svg and --json cannot be combined; give one of them")
    home = find_home_folder()
    team = load_roster(repo or find_repo(Path.cwd(), home=home), home).resolve_team(agent)
    agents = {member.name: member for member in team}
    name = team[0].name
    if is_json:
        click.echo(as_json(build_graph(agents, name)))
    elif is_svg:
        click.echo(render_svg(agents, name))
    else:
        click.echo(escape_for_terminal(render_mermaid(agents, name) if is_mermaid else render_tree(agents, name)))
