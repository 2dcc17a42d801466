"""`podium mcp`: serve agents and teams as MCP tools to other programs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import click

from ...files.settings import Settings
from ...system.locations import find_repo


@click.command("mcp")
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to work in.")
def mcp_command(repo: Path | None) -> None:
    """Serve agents and teams as MCP tools on standard input and output, until the input ends.

    An MCP client starts this command. The tools are list_agents, run_agent, delegate_task, check_workers,
    get_result and pending_approvals. If the client supports elicitation, it shows you permission requests.
    podium approvals lists all open requests.
    """
    from ...protocols.mcp_server import serve_mcp  # imported here to keep start-up fast: the MCP package is large

    place = find_repo(repo or Path())
    anyio.run(serve_mcp, place, partial(Settings.load, repo=place))
