"""Rules that the user allowed permanently when answering permission requests, stored next to the settings.

They have the same effect as `allow` rules in the user's own settings file, which is not changed.
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
    """A permanently allowed rule; `at` is the time, and `run` the run that asked."""

    rule: str
    at: float
    by: str = ""
    run: str = ""


def load_allowed_rules(home: Path) -> tuple[AllowedRule, ...]:
    """Load the permanently allowed rules. Raise Mistake if the file cannot be read."""
    path = home / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[AllowedRule, ...])
    except FileNotFoundError:
        return ()
    except (msgspec.MsgspecError, OSError) as error:
        raise Mistake(f"{path} cannot be read ({error}); fix it, or delete it to revoke the rules in it") from error


def save_allowed_rule(home: Path, rule: AllowedRule) -> None:
    """Save a permanently allowed rule."""
    path = home / FILE
    with hold_file_lock(home / LOCK, protects=path):
        kept = [one for one in load_allowed_rules(home) if one.rule != rule.rule]
        replace_file(path, msgspec.json.format(msgspec.json.encode([*kept, rule]), indent=1) + b"\n")
