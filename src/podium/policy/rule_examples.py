"""Find examples of what a rule covers and what it does not, so that a person can judge the rule before saving it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import structs

from ..values.action import Action
from ..values.errors import Mistake
from .rule_evaluation import Rules, check

MOST_EXAMPLES = 3


class RuleExamples(NamedTuple):
    """Commands, paths or URLs that a rule allows, and similar ones that it does not allow."""

    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


def find_rule_examples(rule: str, action: Action) -> RuleExamples:
    """Return examples for a rule that was suggested for an action, at most three of each kind.

    Every example was checked against the rule.
    """
    key = next((one for one in ("command", "url", "path") if isinstance(action.arguments.get(one), str)), None)
    if key is None:
        return RuleExamples()
    found: dict[bool, list[str]] = {True: [], False: []}
    for example in dict.fromkeys(_list_candidates(key, action.arguments[key])):
        changed = structs.replace(action, arguments={**action.arguments, key: example})
        found[_is_covered(changed, rule)].append(example)
    return RuleExamples(tuple(found[True][:MOST_EXAMPLES]), tuple(found[False][:MOST_EXAMPLES]))


def _is_covered(action: Action, rule: str) -> bool:
    try:
        verdict = check(action, Rules(allow=(rule,)))
    except Mistake:
        return False
    return verdict.decision == "allow" and verdict.rule == rule


def _list_candidates(key: str, asked: str) -> Iterator[str]:
    """Yield the requested command, path or URL, and variations of it."""
    if key == "command":
        first, both = asked.split()[:1], asked.split()[:2]
        yield from (asked, f"{asked} && rm -rf build", f"{asked} > /etc/passwd", f"sudo {asked}")
        yield from (f"{asked} docs", " ".join([*both, "docs"]), " ".join([*first, "--help"]), f"{asked} --verbose")
    elif key == "url":
        host = urlsplit(asked).hostname or ""
        yield from (asked, f"https://{host}/", f"https://{host}/other?page=2")
        yield from (f"https://{host}.example.com/", f"https://example.com/{host}", f"https://www.{host}/")
    else:
        folder, name = posixpath.split(asked)
        yield from (asked, posixpath.join(folder, f"other-{name}"), posixpath.join(folder, "new", name))
        yield from (posixpath.join(folder, "..", "..", name), f"{asked}/../../.git/config")
