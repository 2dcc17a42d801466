"""The policy: rules decide whether an action is allowed, needs approval or is denied."""

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
    "generalised",
    "narrow_rules",
    "parse_rules",
]
