"""Podium: teams of AI agents on your work, on one durable timeline."""

from __future__ import annotations

from importlib import import_module

# Importing typing for its constant of this name would take longer than all the rest of `podium --help`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .api import run as run
    from .api import start as start
    from .app import App as App
    from .runs.run_handle import Run as Run
    from .setup.settings import Settings as Settings
    from .values.agent import Agent as Agent
    from .values.errors import PodiumError as PodiumError
    from .values.result import Result as Result

__version__ = "0.1.0"

_HOMES = {
    "Agent": ".values.agent",
    "App": ".app",
    "PodiumError": ".values.errors",
    "Result": ".values.result",
    "Run": ".runs.run_handle",
    "Settings": ".setup.settings",
    "run": ".api",
    "start": ".api",
}

__all__ = ["Agent", "App", "PodiumError", "Result", "Run", "Settings", "run", "start"]


def __getattr__(name: str) -> object:
    """Each name is imported when it is first used, so that importing the package costs nothing."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
