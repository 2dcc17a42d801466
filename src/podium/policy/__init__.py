"""The policy: what the rules say about something that is to be done, and why."""

from .evaluation import (
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
