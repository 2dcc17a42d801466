"""Podium: run teams of AI agents and record everything they do on a durable timeline."""

# Importing TYPE_CHECKING from typing would take longer than the rest of `podium --help`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .api import run as run
    from .api import start as start
    from .app import App as App
    from .files.settings import Settings as Settings
    from .runs.run_handle import Run as Run
    from .tools.python_function import repeatable as repeatable
    from .values.agent import Advisors as Advisors
    from .values.agent import Agent as Agent
    from .values.agent import Budget as Budget
    from .values.agent import Member as Member
    from .values.agent import Permissions as Permissions
    from .values.agent import Router as Router
    from .values.agent import Team as Team
    from .values.errors import AgentFailed as AgentFailed
    from .values.errors import AlreadyAnswered as AlreadyAnswered
    from .values.errors import BadAgent as BadAgent
    from .values.errors import Mistake as Mistake
    from .values.errors import NoSuchRun as NoSuchRun
    from .values.errors import OutsideFailed as OutsideFailed
    from .values.errors import PodiumError as PodiumError
    from .values.errors import RequestClosed as RequestClosed
    from .values.errors import RunHeld as RunHeld
    from .values.errors import RunIsPaused as RunIsPaused
    from .values.errors import RunNotConfirmed as RunNotConfirmed
    from .values.errors import RunOver as RunOver
    from .values.errors import RunRefused as RunRefused
    from .values.errors import StoreCorrupt as StoreCorrupt
    from .values.errors import StoreFailed as StoreFailed
    from .values.errors import StoreUnreachable as StoreUnreachable
    from .values.plugin import Plugin as Plugin
    from .values.request import Result as Result

__version__ = "0.1.0"

_MODULES = {
    "Advisors": ".values.agent",
    "Agent": ".values.agent",
    "AgentFailed": ".values.errors",
    "AlreadyAnswered": ".values.errors",
    "App": ".app",
    "BadAgent": ".values.errors",
    "Budget": ".values.agent",
    "Member": ".values.agent",
    "Mistake": ".values.errors",
    "NoSuchRun": ".values.errors",
    "OutsideFailed": ".values.errors",
    "Permissions": ".values.agent",
    "Plugin": ".values.plugin",
    "PodiumError": ".values.errors",
    "Result": ".values.request",
    "Router": ".values.agent",
    "Run": ".runs.run_handle",
    "RequestClosed": ".values.errors",
    "RunHeld": ".values.errors",
    "RunIsPaused": ".values.errors",
    "RunNotConfirmed": ".values.errors",
    "RunOver": ".values.errors",
    "RunRefused": ".values.errors",
    "Settings": ".files.settings",
    "StoreCorrupt": ".values.errors",
    "StoreFailed": ".values.errors",
    "StoreUnreachable": ".values.errors",
    "Team": ".values.agent",
    "repeatable": ".tools.python_function",
    "run": ".api",
    "start": ".api",
}
"""The module that defines each public name."""

__all__ = [
    "Advisors",
    "Agent",
    "AgentFailed",
    "AlreadyAnswered",
    "App",
    "BadAgent",
    "Budget",
    "Member",
    "Mistake",
    "NoSuchRun",
    "OutsideFailed",
    "Permissions",
    "Plugin",
    "PodiumError",
    "RequestClosed",
    "Result",
    "Router",
    "Run",
    "RunHeld",
    "RunIsPaused",
    "RunNotConfirmed",
    "RunOver",
    "RunRefused",
    "Settings",
    "StoreCorrupt",
    "StoreFailed",
    "StoreUnreachable",
    "Team",
    "repeatable",
    "run",
    "start",
]


def __getattr__(name: str) -> object:
    """Import a public name's module only when the name is used, so that importing the package is fast."""
    if name in _MODULES:
        from importlib import import_module  # imported here to keep start-up fast: podium --help does not need it

        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
