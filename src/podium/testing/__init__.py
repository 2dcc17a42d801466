"""Use scripted models in your own tests, in the test's process or over HTTP, and repositories for agents to work in.

With pytest, the fixtures `scripted` and `model_server` are available without configuration.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engines.script import Fails, Move, ScriptedWire, ToolCall
    from ..values.event import CallFailed
    from ..values.usage import TurnLimits
    from .git_repository import make_repository, run_git
    from .model_server import ModelServer, Received
    from .moves import calls, fails, format_script
    from .scripted import Scripted
    from .served_model import ServedModel
    from .timeline_reader import read_entries, read_events

    Patience = TurnLimits

__all__ = [
    "CallFailed",
    "Fails",
    "ModelServer",
    "Move",
    "Received",
    "Scripted",
    "ScriptedWire",
    "ServedModel",
    "ToolCall",
    "TurnLimits",
    "calls",
    "fails",
    "format_script",
    "make_repository",
    "read_entries",
    "read_events",
    "run_git",
]

_MODULES = {
    "CallFailed": "..values.event",
    "ModelServer": ".model_server",
    "TurnLimits": "..values.usage",
    "Received": ".model_server",
    "Scripted": ".scripted",
    "ServedModel": ".served_model",
    "calls": ".moves",
    "fails": ".moves",
    "format_script": ".moves",
    "make_repository": ".git_repository",
    "read_entries": ".timeline_reader",
    "read_events": ".timeline_reader",
    "run_git": ".git_repository",
}


def __getattr__(name: str) -> object:
    if name == "Patience":  # the former name of TurnLimits
        name = "TurnLimits"
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "..engines.script"), __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
