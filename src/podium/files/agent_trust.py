"""Require trust before an agent file of a repository uses the user's own MCP servers, or calls hooks.

A server starts with the user's rights and keys when an agent lists its tools, so a fresh clone must not be able to
start one by naming it.

Hooks in the user's own agent files, and in agents built in code, need no approval. Hooks in a repository's agent files
are called only if the user has trusted those exact hooks in that repository.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from ..core.journal_rows import compute_digest
from ..values.agent import Agent
from ..values.errors import JournalMismatch
from ..values.hook import HookTable
from ..values.mcp_server import McpServer
from ..values.worker_task import WorkerTask
from .trust import Trust
from .trust_proposal import Proposal, make_proposal

NOT_TRUSTED = "its hooks are not called until you trust them with podium trust"


class TrustedHooks:
    """Finds the agent hooks that may be called in one repository."""

    def __init__(self, repo: Path | None, home: Path) -> None:
        self._repo = repo
        self._home = home
        self._load_trust = cache(lambda: Trust.load(home))

    def __call__(self, agent: Agent) -> HookTable:
        """Return the hooks in an agent's file, if the user has trusted them or they need no approval."""
        if not agent.other.get("hooks"):
            return {}
        proposal = None if self._repo is None else propose_agent_hooks(agent, self._repo)
        is_allowed = agent.source != "repo" or (proposal is not None and _is_trusted(proposal, self._load_trust()))
        return read_agent_hooks(agent) if is_allowed else {}


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


def digest_servers(
    agents: Iterable[Agent], servers: Mapping[str, McpServer], worker_task: WorkerTask | None = None
) -> dict[str, str]:
    """Return a digest of the definition of each server that an agent names.

    Return nothing for a worker that can move to another machine, because that has settings of its own.
    """
    if worker_task is not None and worker_task.origin is not None:
        return {}
    named = {_read_server(entry) for agent in agents for entry in agent.tools or ()}
    return {name: compute_digest(msgspec.to_builtins(servers[name])) for name in sorted(named & servers.keys())}


def require_same_servers(run: str, began_with: Mapping[str, str], servers: Mapping[str, McpServer]) -> None:
    """Raise JournalMismatch if the definition of an MCP server has changed since a run began."""
    for name, digest in began_with.items():
        if name in servers and compute_digest(msgspec.to_builtins(servers[name])) == digest:
            continue
        what = "has another definition now" if name in servers else "is no longer in the settings"
        raise JournalMismatch(
            f"run {run} began with the MCP server {name!r}, which {what}, so the run was not resumed: its tools could "
            f"differ from those that the agents have used. Restore the definition under mcpServers, or use the new one "
            f"in a fork: podium fork {run}"
        )


def select_trusted_tools(
    agent: Agent, own: Collection[str], repo: Path | None, trust: Trust
) -> tuple[Sequence[str], str]:
    """Return the entries of an agent's list of tools that may be used, and a notice if some may not, or ""."""
    entries = agent.tools or ()
    proposal = None if repo is None else propose_agent_servers(agent, own, repo)
    if proposal is None or trust.is_trusted(proposal.kind, proposal.name, proposal.digest):
        return entries, ""
    return [entry for entry in entries if _read_server(entry) not in own], _describe_untrusted_servers(agent, own)


def iter_untrusted_servers(
    agents: Iterable[Agent], own: Collection[str], repo: Path, trust: Trust
) -> Iterator[tuple[Agent, str]]:
    """Yield each agent that may not use the servers that it lists, with a notice."""
    for agent in agents:
        _, notice = select_trusted_tools(agent, own, repo, trust)
        if notice:
            yield agent, notice


def _describe_untrusted_servers(agent: Agent, own: Collection[str]) -> str:
    """Return the notice that an agent of a repository may not use the user's servers yet."""
    used = sorted({_read_server(entry) for entry in agent.tools or ()} & frozenset(own))
    return (
        f"its file comes with the repository and uses MCP servers from your settings ({', '.join(used)}), "
        "which are not started for it until you trust that with podium trust"
    )


def _read_server(entry: str) -> str:
    """Return the server in an entry of a list of tools, or "" if the entry names no server's tools."""
    return entry.removeprefix(PREFIX).partition("__")[0] if entry.startswith(PREFIX) else ""


def read_agent_hooks(agent: Agent) -> HookTable:
    """Return the hooks in an agent's file, whether or not they are trusted."""
    try:
        return msgspec.convert(agent.other.get("hooks", {}), HookTable)
    except msgspec.ValidationError:
        return {}  # an earlier release stored this key without checking it, and ignored it


def propose_agent_hooks(agent: Agent, repo: Path) -> Proposal | None:
    """Return the proposal with an agent's hooks, or None if it has no hooks or they need no approval."""
    hooks = read_agent_hooks(agent)
    if not hooks or agent.source != "repo":
        return None
    return make_proposal(f"agents.{agent.name}.hooks", hooks, repo)


def iter_untrusted(agents: Iterable[Agent], repo: Path, home: Path) -> Iterator[Agent]:
    """Yield the agents whose hooks are not called because the user has not trusted these hooks."""
    trust = Trust.load(home)
    for agent in agents:
        if (proposal := propose_agent_hooks(agent, repo)) is not None and not _is_trusted(proposal, trust):
            yield agent


def _is_trusted(proposal: Proposal, trust: Trust) -> bool:
    return trust.is_trusted(proposal.kind, proposal.name, proposal.digest)
