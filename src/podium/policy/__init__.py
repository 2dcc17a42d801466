"""Use rules to decide whether an action is allowed, needs approval or is denied."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from .risk_facts import find_risk_facts

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
    """Import a public name when it is first used."""
    if name == "find_risk_facts":
        from .risk_facts import find_risk_facts  # imported here for start-up time: most runs make no requests

        return find_risk_facts
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
