"""`podium agents`: who there is, and where each comes from."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from ...roster.discovery import PREFIX, Roster, load
from ...system.locations import find_repo, user_home
from ...values.agent import Agent
from ...values.diagnostic import errors
from ...values.event import SCHEMA
from ..terminal.measure import fitted
from ..terminal.text import as_json, visible


@click.command("agents")
@click.option(
    "--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository to look in."
)
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def command(repo: Path | None, is_json: bool) -> None:
    """List all agents with their sources; those that another of the same name hides come last."""
    home = user_home()
    roster = load(repo or find_repo(Path.cwd(), home=home), home)
    click.echo(rendered_json(roster) if is_json else rendered(roster, most=shutil.get_terminal_size().columns))


def rendered(roster: Roster, *, most: int) -> str:
    """A table of names, sources and descriptions; these are cut to what the terminal leaves of them."""
    rows: list[tuple[str, str, str]] = [
        (agent.name, agent.source, agent.description) for agent in roster.agents.values()
    ]
    rows += [(name, "broken", str(errors(findings)[0])) for name, findings in roster.broken.items()]
    rows += [(hidden_name(roster, agent), agent.source, f"(shadowed) {agent.description}") for agent in roster.shadowed]
    return "\n".join(fitted([list(map(visible, row)) for row in rows], most=most))


def hidden_name(roster: Roster, agent: Agent) -> str:
    """How a shadowed agent is called; its bare name where two folders of one source have it."""
    name = f"{PREFIX[agent.source]}:{agent.name}"
    return name if roster.placed.get(name) is agent else agent.name


def rendered_json(roster: Roster) -> str:
    """The same for programs."""
    return as_json(
        {
            "schema": SCHEMA,
            "agents": [described(agent) for agent in roster.agents.values()],
            "shadowed": [described(agent) for agent in roster.shadowed],
            "broken": [{"name": name, "findings": findings} for name, findings in roster.broken.items()],
        }
    )


def described(agent: Agent) -> dict[str, str]:
    """What a listing tells about an agent."""
    return {
        "name": agent.name,
        "source": agent.source,
        "description": agent.description,
        "path": agent.path,
    }
