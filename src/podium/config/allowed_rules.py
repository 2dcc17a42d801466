"""What the person has allowed for good: rules from answers to requests, kept beside the settings.

They count like the `allow` rules of the person's own settings file, which stays untouched.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from ..system.atomic_file import replace_file
from ..system.file_lock import hold_file_lock
from ..values.errors import Mistake

FILE = "allowed.json"
LOCK = ".allowed.lock"


class AllowedRule(Struct, frozen=True, kw_only=True):
    """A rule that somebody allowed for good; `at` is when, and `run` the run that asked."""

    rule: str
    at: float
    by: str = ""
    run: str = ""


def load_allowed_rules(home: Path) -> tuple[AllowedRule, ...]:
    """The rules that were allowed so far."""
    path = home / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[AllowedRule, ...])
    except FileNotFoundError:
        return ()
    except (msgspec.MsgspecError, OSError) as error:
        raise Mistake(f"{path} cannot be read ({error}); mend it, or remove it to forget what it allows") from error


def save_allowed_rule(home: Path, rule: AllowedRule) -> None:
    """Add a rule to those that are allowed for good."""
    path = home / FILE
    with hold_file_lock(home / LOCK, protects=path):
        kept = [one for one in load_allowed_rules(home) if one.rule != rule.rule]
        replace_file(path, msgspec.json.format(msgspec.json.encode([*kept, rule]), indent=1) + b"\n")
