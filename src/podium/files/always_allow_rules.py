"""Store the allow rules that the user added when answering permission requests.

The rules have the same effect as `allow` rules in the user's own settings file, but are stored in a separate file. A
rule applies in the repository where it was added, or everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ..system.file_lock import hold_file_lock
from ..system.whole_file import replace_file
from ..values.errors import Mistake

FILE = "allowed.json"
LOCK = ".allowed.lock"


class AllowedRule(Struct, frozen=True, kw_only=True):
    """An allow rule that the user added at the time `at`. `run` is the id of the run that asked for permission.

    `repo` is the root folder of the repository where the rule applies. If it is empty, the rule applies everywhere.
    """

    rule: str
    at: float
    by: str = ""
    run: str = ""
    repo: str = ""

    def applies_in(self, repo: Path | None) -> bool:
        """Return whether the rule applies in `repo`, or outside any repository if `repo` is None."""
        return not self.repo or (repo is not None and self.repo == identify_repo(repo))


def identify_repo(repo: Path) -> str:
    """Return the string that identifies a repository: its root folder, with symbolic links resolved."""
    return os.path.realpath(repo)


def load_allowed_rules(home: Path) -> tuple[AllowedRule, ...]:
    """Load the saved rules. Raise Mistake if the file exists and cannot be read."""
    path = home / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[AllowedRule, ...])
    except FileNotFoundError:
        return ()
    except (msgspec.MsgspecError, OSError) as error:
        raise Mistake(f"{path} cannot be read ({error}); fix it, or delete it to revoke the rules in it") from error


def save_allowed_rule(home: Path, rule: AllowedRule) -> None:
    """Save a rule, replacing any identical rule for the same repository."""
    with hold_file_lock(home / LOCK, protects=home / FILE):
        kept = [one for one in load_allowed_rules(home) if (one.rule, one.repo) != (rule.rule, rule.repo)]
        _write_rules(home, [*kept, rule])


def revoke_allowed_rule(home: Path, named: str, repo: Path) -> AllowedRule:
    """Delete a saved rule and return it. `named` is the text of the rule or its number in the list.

    If the same rule is stored more than once, delete the rule for `repo`. Raise Mistake if no rule matches, or if
    several match and none of them is for `repo`.
    """
    with hold_file_lock(home / LOCK, protects=home / FILE):
        rules = load_allowed_rules(home)
        number = _find_rule_number(rules, named.strip(), repo)
        _write_rules(home, [one for at, one in enumerate(rules, 1) if at != number])
        return rules[number - 1]


def _find_rule_number(rules: Sequence[AllowedRule], named: str, repo: Path) -> int:
    if named.isdecimal():
        if 1 <= int(named) <= len(rules):
            return int(named)
        raise Mistake(
            f"there is no rule number {named}; run podium policy list to see the saved rules and their numbers"
        )
    found = [number for number, one in enumerate(rules, 1) if one.rule == named]
    here = [number for number in found if rules[number - 1].repo == identify_repo(repo)]
    if not found:
        raise Mistake(
            f'there is no saved rule "{named}"; run podium policy list to see the saved rules and their numbers'
        )
    if len(found) > 1 and len(here) != 1:
        numbers = ", ".join(map(str, found))
        raise Mistake(f'"{named}" is saved more than once; give one of the numbers {numbers} instead')
    return here[0] if here else found[0]


def _write_rules(home: Path, rules: Sequence[AllowedRule]) -> None:
    replace_file(home / FILE, msgspec.json.format(msgspec.json.encode(rules), indent=1) + b"\n")
