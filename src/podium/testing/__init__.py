"""For your own tests: models that say what a script says, in the test's process or over HTTP."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engines.scripted import Fails, Move, ScriptedWire, ToolCall
    from .model_server import ModelServer, Received

__all__ = ["Fails", "ModelServer", "Move", "Received", "ScriptedWire", "ToolCall"]

_MODULES = {"ModelServer": ".model_server", "Received": ".model_server"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "..engines.scripted"), __name__), name)
