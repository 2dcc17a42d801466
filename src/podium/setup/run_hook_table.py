"""Collect the hooks of a run: those of the settings, and those of its agents' files that the user trusts."""

from __future__ import annotations

from pathlib import Path

from ..core.run_hooks import RunHooks
from ..core.timeline import Timeline
from ..values.event import RunStarted
from .agent_hooks import TrustedHooks
from .hook_calls import HookCalls
from .settings import Settings


def make_run_hooks(settings: Settings, timeline: Timeline, started: RunStarted) -> RunHooks:
    """Return the hooks of a run."""
    directory = Path(started.repo) if started.repo else None
    repo = directory if started.errand is None else Path(started.errand.root)
    calls = HookCalls(settings, directory)
    return RunHooks(
        timeline,
        calls.call,
        settings.hooks,
        repo=started.repo,
        hooks_of_agent=TrustedHooks(repo, settings.home),
        close=calls.close,
    )
