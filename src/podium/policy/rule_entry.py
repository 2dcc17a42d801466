"""Read rules from a file. A rule is a string, or a mapping with examples that the rule is tested against.

Callers add the file and line to errors. The module `rule` defines what rules mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from ..values.agent import Permissions
from ..values.errors import Mistake
from ..values.field_reader import FieldReader
from ..values.located_yaml import ListNode, LocatedNode, MappingNode, to_plain_value
from .rule_evaluation import parse_rules

Kind = Literal["allow", "ask", "deny"]
KINDS: tuple[Kind, ...] = ("allow", "ask", "deny")

_HERE = "here"


class RuleExample(Struct, frozen=True, kw_only=True):
    """An example that a rule must or must not match. If the rule fails the example, `wrong` is the error message."""

    text: str
    is_match: bool
    wrong: str


class RuleEntry(Struct, frozen=True, kw_only=True):
    """A rule with its examples, and its line in the file."""

    kind: Kind
    line: int
    rule: str
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    def check_examples(self) -> Iterator[RuleExample]:
        """Check the rule against each of its examples, and yield the examples with the results."""
        for key, texts in (("match", self.match), ("not_match", self.not_match)):
            for text in texts:
                wrong = ""
                try:
                    _parse_rule_text(self.kind, {"rule": self.rule, key: [text]})
                except Mistake as mistake:
                    wrong = str(mistake)
                yield RuleExample(text=text, is_match=key == "match", wrong=wrong)


def find_rule_entries(top: MappingNode) -> Iterator[tuple[Kind, LocatedNode]]:
    """Yield the entries in the rule lists of a file, each with its kind. `top` is the file's top-level mapping."""
    permissions = top.fields.get("permissions")
    for kind in KINDS:
        found = permissions.fields.get(kind) if isinstance(permissions, MappingNode) else None
        if found is not None:
            yield from ((kind, item) for item in (found.items if isinstance(found, ListNode) else (found,)))


def read_rule_lists(fields: Mapping[str, FieldReader]) -> Permissions:
    """Return the rules under `allow`, `ask` and `deny`, after checking each rule against its examples."""
    return Permissions(**{kind: read_rules(fields[kind], kind) for kind in KINDS if kind in fields})


def read_rules(reader: FieldReader, kind: Kind) -> tuple[str, ...]:
    """Check each rule in a list against its examples. Return the valid rules as strings, and report the others."""
    if isinstance(reader.node, MappingNode):
        reader.report_expected("a list of rules")
        return ()
    found = []
    for item in reader.iter_items():
        try:
            entry = _parse_verified_entry(item.node, kind)
        except Mistake as mistake:
            item.add_error(str(mistake))
        else:
            found.append(entry.rule)
            reader.context.lines[f"{reader.known_key}.{entry.rule}"] = entry.line
    return tuple(found)


def parse_rule_entry(written: LocatedNode, kind: Kind) -> RuleEntry:
    """Parse a rule without testing its examples.

    Raise Mistake if the rule is invalid. The message does not include the file name or the line number.
    """
    value = to_plain_value(written)
    if isinstance(value, str):
        value = value.strip()
    if not isinstance(value, dict):
        return RuleEntry(kind=kind, line=written.line, rule=_parse_rule_text(kind, value))
    examples = {key: _parse_examples(key, value.pop(key)) for key in ("match", "not_match") if key in value}
    return RuleEntry(kind=kind, line=written.line, rule=_parse_rule_text(kind, value), **examples)


def _parse_verified_entry(written: LocatedNode, kind: Kind) -> RuleEntry:
    """Parse a rule and test its examples.

    Raise Mistake if the rule is invalid or an example fails. The message does not include the file name or the line
    number.
    """
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
        raise Mistake(f"expected a list of strings under {key}, got {value!r}")
    return tuple(texts)
