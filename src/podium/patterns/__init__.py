"""Patterns are async functions that run an operation. This package exports the types you need to write your own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.operation import Operation
    from ..values.request import Answer, Request
    from .discuss import Discussion
    from .own_pattern import run_step

__all__ = [
    "Answer",
    "Discussion",
    "Operation",
    "Request",
    "run_step",
]

_MODULES = {
    "Answer": "..values.request",
    "Discussion": ".discuss",
    "Operation": "..core.operation",
    "Request": "..values.request",
    "run_step": ".own_pattern",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
