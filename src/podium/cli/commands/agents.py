"""`podium agents`: list the available agents and their sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from ...roster.discovery import SOURCE_PREFIXES, Roster, load_roster
from ...system.locations import find_home_folder, find_repo
from ...values.agent import Agent
from ...values.diagnostic import filter_errors
from ...values.event import SCHEMA
from ..terminal.text import as_json, escape_for_terminal, fit_columns


@click.command("agents")
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to look in.")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def agents_command(repo: Path | None, is_json: bool) -> None:
    """List all agents with their sources. Agents overridden by an agent of the same name come last."""
    home = find_home_folder()
    roster = load_roster(repo or find_repo(Path.cwd(), home=home), home)
    click.echo(
        format_agents_json(roster) if is_json else format_agents_table(roster, most=shutil.get_terminal_size().columns)
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


def format_agents_json(roster: Roster) -> str:
    """Return the agents as JSON."""
    return as_json(
        {
            "schema": SCHEMA,
            "agents": [agent_fields(agent) for agent in roster.agents.values()],
            "shadowed": [agent_fields(agent) for agent in roster.shadowed],
            "broken": [{"name": name, "findings": findings} for name, findings in roster.broken.items()],
        }
    )


def agent_fields(agent: Agent) -> dict[str, str]:
    """Return the fields of an agent for the JSON list."""
    return {
        "name": agent.name,
        "source": agent.source,
        "description": agent.description,
        "path": agent.path,
    }


def format_shadowed_name(roster: Roster, agent: Agent) -> str:
    """Return the qualified name of a shadowed agent, or its bare name if the qualified name refers to another agent."""
    name = f"{SOURCE_PREFIXES[agent.source]}:{agent.name}"
    return name if roster.by_qualified_name.get(name) is agent else agent.name
