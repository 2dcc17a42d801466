"""Find the hooks in agents' files that may be called.

Hooks in the user's own agent files, and in agents built in code, need no approval. Hooks in a repository's agent files
are called only if the user has trusted those exact hooks in that repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from ..values.agent import Agent
from ..values.hook import HookTable
from .repo_proposal import Proposal, make_proposal
from .trust import Trust

NOT_TRUSTED = "its hooks are not called until you trust them with podium trust"


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


def _is_trusted(proposal: Proposal, trust: Trust) -> bool:
    return trust.is_trusted(proposal.kind, proposal.name, proposal.digest)
