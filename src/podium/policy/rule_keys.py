"""Read the keys `allow`, `ask` and `deny`, under `permissions` in settings and in agents' files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..values.key_schema import accepts
from ..values.struct_reader import Reader

if TYPE_CHECKING:
    from ..values.field_reader import FieldReader
    from .rule_entry import Kind


def _make_reader(kind: Kind) -> Reader:
    @accepts({"type": ["string", "array"]})
    def read(reader: FieldReader) -> tuple[str, ...]:
        from .rule_entry import read_rules  # imported here to keep start-up fast: most files have no rules

        return read_rules(reader, kind)

    return read


RULE_KINDS: Mapping[str, Reader] = {
    "allow rules": _make_reader("allow"),
    "ask rules": _make_reader("ask"),
    "deny rules": _make_reader("deny"),
}
"""The functions that read lists of rules."""
