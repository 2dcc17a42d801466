"""A rule as it stands in a file: a text, or a mapping with the examples that keep it honest.

Where it stands is for those who read the file; what a rule means belongs to the policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from ..values.errors import Mistake
from ..values.located_yaml import ListNode, LocatedNode, MappingNode, to_plain_value
from .evaluation import parse_rules

Kind = Literal["allow", "ask", "deny"]
KINDS: tuple[Kind, ...] = ("allow", "ask", "deny")

_HERE = "here"


class RuleExample(Struct, frozen=True, kw_only=True):
    """Something that a rule shall cover, or shall not; `wrong` says why it does otherwise."""

    text: str
    is_match: bool
    wrong: str


class RuleEntry(Struct, frozen=True, kw_only=True):
    """A rule with its examples, and the line on which it stands."""

    kind: Kind
    line: int
    rule: str
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    def check_examples(self) -> Iterator[RuleExample]:
        """Every example, and whether it holds."""
        for key, texts in (("match", self.match), ("not_match", self.not_match)):
            for text in texts:
                wrong = ""
                try:
                    _parse_rule_text(self.kind, {"rule": self.rule, key: [text]})
                except Mistake as mistake:
                    wrong = str(mistake)
                yield RuleExample(text=text, is_match=key == "match", wrong=wrong)


def find_rule_entries(top: MappingNode) -> Iterator[tuple[Kind, LocatedNode]]:
    """All that stands in the lists of rules of a file, whose mapping `top` is."""
    permissions = top.fields.get("permissions")
    for kind in KINDS:
        found = permissions.fields.get(kind) if isinstance(permissions, MappingNode) else None
        if found is not None:
            yield from ((kind, item) for item in (found.items if isinstance(found, ListNode) else (found,)))


def parse_rule_entry(written: LocatedNode, kind: Kind) -> RuleEntry:
    """The rule that stands there, its examples not tried. Raises Mistake, which says no place."""
    value = to_plain_value(written)
    if isinstance(value, str):
        value = value.strip()
    if not isinstance(value, dict):
        return RuleEntry(kind=kind, line=written.line, rule=_parse_rule_text(kind, value))
    examples = {key: _parse_examples(key, value.pop(key)) for key in ("match", "not_match") if key in value}
    return RuleEntry(kind=kind, line=written.line, rule=_parse_rule_text(kind, value), **examples)


def parse_verified_entry(written: LocatedNode, kind: Kind) -> RuleEntry:
    """The rule that stands there, which does what its examples say. Raises Mistake, which says no place."""
    entry = parse_rule_entry(written, kind)
    for example in entry.check_examples():
        if example.wrong:
            raise Mistake(example.wrong)
    return entry


def _parse_rule_text(kind: Kind, value: object) -> str:
    try:
        (rule,) = getattr(parse_rules({kind: [value]}, _HERE), kind)
    except Mistake as mistake:
        raise Mistake(str(mistake).removeprefix(_HERE).removeprefix(":").lstrip()) from mistake
    return str(rule)


def _parse_examples(key: str, value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Mistake(f"{key} is no list of texts; a text for each example would be right")
    return tuple(texts)
