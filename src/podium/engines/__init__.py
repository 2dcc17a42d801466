"""Engines run an agent's turns. This package exports the types you need to write your own engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.engine import Engine, EngineAction, EngineSession, EngineSessionSpec, Finished, Piece, Reasoning, Text
    from ..core.scope import Scope

__all__ = [
    "Engine",
    "EngineAction",
    "EngineSession",
    "EngineSessionSpec",
    "Finished",
    "Piece",
    "Reasoning",
    "Scope",
    "Text",
]

_MODULES = {
    "Engine": "..core.engine",
    "EngineAction": "..core.engine",
    "EngineSession": "..core.engine",
    "EngineSessionSpec": "..core.engine",
    "Finished": "..core.engine",
    "Piece": "..core.engine",
    "Reasoning": "..core.engine",
    "Scope": "..core.scope",
    "Text": "..core.engine",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
