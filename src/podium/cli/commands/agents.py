"""`podium agents` and `graph`: list the available agents and their sources, and draw their workflow."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from ...files.discovery import Roster, load_roster
from ...files.roster_listing import build_graph, format_shadowed_name, list_agents
from ...files.workflow_graph import render_mermaid, render_svg, render_tree
from ...system.locations import find_home_folder, find_repo
from ...values.errors import filter_errors
from ..lazy_group import LazyCommandGroup, require_no_group_options
from ..output.text import as_json, escape_for_terminal, fit_columns

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
        else _format_agents_table(roster, most=shutil.get_terminal_size().columns)
    )


def _format_agents_table(roster: Roster, *, most: int) -> str:
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
