"""Use rules to decide whether an action is allowed, needs approval or is denied."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .risk_facts import find_risk_facts
    from .rule_evaluation import (
        Mode,
        Rules,
        Verdict,
        check,
        escape_path,
        find_ignored_rules,
        generalised,
        narrow_rules,
        parse_rules,
    )

__all__ = [
    "Mode",
    "Rules",
    "Verdict",
    "check",
    "escape_path",
    "find_ignored_rules",
    "find_risk_facts",
    "generalised",
    "narrow_rules",
    "parse_rules",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, for start-up time: many commands need no rules."""
    if name in __all__:
        return getattr(
            import_module(".risk_facts" if name == "find_risk_facts" else ".rule_evaluation", __name__), name
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
