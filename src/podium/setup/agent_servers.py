"""Require trust before an agent file of a repository uses the user's own MCP servers.

A server starts with the user's rights and keys when an agent lists its tools, so a fresh clone must not be able to
start one by naming it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from ..config.repo_proposal import Proposal, make_proposal
from ..config.trust import Trust
from ..values.agent import Agent
from ..values.mcp_server import McpServer

SERVERS = ".mcpServers"
"""The end of the key of an item that lets an agent use the user's servers."""
PREFIX = "mcp__"


def find_own_servers(servers: Iterable[McpServer]) -> frozenset[str]:
    """Return the names of the servers that the user defined."""
    return frozenset(server.name for server in servers if server.source == "user")


def propose_agent_servers(agent: Agent, own: Collection[str], repo: Path) -> Proposal | None:
    """Return the proposal of a repository's agent to use the user's servers, or None if it uses none of them."""
    if agent.source != "repo":
        return None
    used = tuple(sorted({_read_server(entry) for entry in agent.tools or ()} & frozenset(own)))
    return make_proposal(f"agents.{agent.name}{SERVERS}", used, repo) if used else None


def select_trusted_tools(
    agent: Agent, own: Collection[str], repo: Path | None, trust: Trust
) -> tuple[Sequence[str], str]:
    """Return the entries of an agent's list of tools that may be used, and a notice if some may not, or ""."""
    entries = agent.tools or ()
    proposal = None if repo is None else propose_agent_servers(agent, own, repo)
    if proposal is None or trust.is_trusted(proposal.kind, proposal.name, proposal.digest):
        return entries, ""
    return [entry for entry in entries if _read_server(entry) not in own], describe_untrusted_servers(agent, own)


def iter_untrusted_servers(
    agents: Iterable[Agent], own: Collection[str], repo: Path, trust: Trust
) -> Iterator[tuple[Agent, str]]:
    """Yield each agent that may not use the servers that it lists, with a notice."""
    for agent in agents:
        _, notice = select_trusted_tools(agent, own, repo, trust)
        if notice:
            yield agent, notice


def describe_untrusted_servers(agent: Agent, own: Collection[str]) -> str:
    """Return the notice that an agent of a repository may not use the user's servers yet."""
    used = sorted({_read_server(entry) for entry in agent.tools or ()} & frozenset(own))
    return (
        f"its file comes with the repository and uses MCP servers from your settings ({', '.join(used)}), "
        "which are not started for it until you trust that with podium trust"
    )


def _read_server(entry: str) -> str:
    """Return the server in an entry of a list of tools, or "" if the entry names no server's tools."""
    return entry.removeprefix(PREFIX).partition("__")[0] if entry.startswith(PREFIX) else ""
