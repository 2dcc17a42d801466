"""Collect the hooks of a run: those in the settings, and those in its agents' files that the user trusts.

The modules that call hooks are imported only if a run has hooks, because most runs have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.timeline import Timeline
from ...files.settings import Settings
from ...values.agent import Agent
from ...values.event import RunStarted

if TYPE_CHECKING:
    from ...core.run_hooks import RunHooks


def make_run_hooks(settings: Settings, timeline: Timeline, started: RunStarted) -> RunHooks | None:
    """Return the hooks of a run, or None if neither the settings nor its agents have any."""
    if not settings.hooks and not any(map(_has_hooks, started.agents)):
        return None
    # For start-up time.
    from ...core.run_hooks import RunHooks
    from ...files.agent_trust import TrustedHooks
    from .hook_calls import HookCalls

    calls = HookCalls(settings, started.checkouts)
    repo = Path(started.checkouts[0].root) if started.checkouts else None
    return RunHooks(
        timeline,
        calls.call,
        settings.hooks,
        repo=started.repo,
        hooks_of_agent=TrustedHooks(repo, settings.home),
        close=calls.close,
    )


def describe_untrusted_hooks(agents: Iterable[Agent], repo: Path | None, home: Path) -> list[str]:
    """Return a notice for each agent whose hooks are not called, because the user does not trust them."""
    with_hooks = list(filter(_has_hooks, agents))
    if not with_hooks or repo is None:
        return []
    from ...files.agent_trust import NOT_TRUSTED, iter_untrusted  # for start-up time

    return [f"{agent.name}: {NOT_TRUSTED}." for agent in iter_untrusted(with_hooks, repo, home)]


def _has_hooks(agent: Agent) -> bool:
    return bool(agent.other.get("hooks"))
