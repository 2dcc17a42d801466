"""`podium acp`: serve an agent or a team to editors that speak the Agent Client Protocol."""

from __future__ import annotations

from pathlib import Path

import anyio
import click

from ...files.discovery import load_roster
from ...files.settings import Settings
from ...system.locations import find_repo


@click.command("acp")
@click.argument("agent")
def acp_command(agent: str) -> None:
    """Serve AGENT to an editor, on standard input and output. The editor sees a team as a single agent.

    An editor that speaks the Agent Client Protocol starts this command. Permission requests are shown in the
    editor, and podium approvals lists them too; the first answer counts.
    """
    from ...protocols.acp_agent import serve_acp  # imported here for start-up time

    place = find_repo(Path())
    load_roster(place, Settings.load(repo=place).home).resolve_team(agent)
    anyio.run(serve_acp, agent, lambda folder: Settings.load(repo=folder))
