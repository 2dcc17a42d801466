"""Typed reading of the values in an agent's file.

Reading an invalid value adds a diagnostic and returns a harmless placeholder, so one pass over a
file reports every problem. A file with an error never becomes an agent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from ..values.diagnostic import Diagnostic, Severity
from ..values.located_yaml import (
    ListNode,
    LocatedNode,
    MappingNode,
    ScalarNode,
    describe_node,
    quote_text,
    truncate_text,
)
from ..values.plain_text import join_words
from .agent_name import is_agent_name, to_agent_name

MAX_DIAGNOSTICS = 100

_SOURCES = ("builtin:", "user:", "repo:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseContext:
    """The file being read: its path, its path as shown to people, and the diagnostics so far.

    `lines` maps every known key to its line; nested keys are spelled as `team.members`. A `foreign`
    file was written for another program, so names in it need not follow our rule.
    """

    file: Path
    display_path: str
    root: Path | None = None
    foreign: bool = False
    diagnostics: list[Diagnostic] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of diagnostics is reached."""
        return len(self.diagnostics) >= MAX_DIAGNOSTICS

    @property
    def has_error(self) -> bool:
        """Whether the file has an error and so cannot become an agent."""
        return any(diagnostic.severity == "error" for diagnostic in self.diagnostics)

    def add_diagnostic(self, severity: Severity, message: str, *, line: int | None = None, key: str = "") -> None:
        """Add a diagnostic about this file. When the list is full, add only the first error."""
        if self.is_full and (severity != "error" or self.has_error):
            return
        place = truncate_text(" ".join(key.split()))
        self.diagnostics.append(
            Diagnostic(severity=severity, path=self.display_path, line=line, key=place, message=message)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueReader:
    """A value of the file and its key, spelled as in the file."""

    context: ParseContext
    key: str
    node: LocatedNode

    def add_error(self, message: str) -> None:
        self.context.add_diagnostic("error", message, line=self.node.line, key=self.key)

    def add_warning(self, message: str) -> None:
        self.context.add_diagnostic("warning", message, line=self.node.line, key=self.key)

    def report_expected(self, expected: str) -> None:
        """Add the error that says what was expected and what was found."""
        self.add_error(f"expected {expected}, got {describe_node(self.node)}")

    def is_empty(self) -> bool:
        """Return whether the value is empty."""
        return isinstance(self.node, ScalarNode) and self.node.kind == "nothing"

    def read_text(self) -> str:
        """Return a string without surrounding whitespace."""
        if isinstance(self.node, ScalarNode) and self.node.kind == "text":
            return self.node.raw.strip()
        self.report_expected("a string")
        return ""

    def read_single_line(self) -> str:
        """Return a string on one line; line breaks become spaces."""
        return " ".join(self.read_text().split())

    def read_bool(self) -> bool:
        """Return a boolean."""
        if isinstance(self.node, ScalarNode) and isinstance(self.node.value, bool):
            return self.node.value
        self.report_expected("true or false")
        return False

    def read_int(self, least: int = 1) -> int:
        """Return an integer of at least `least`."""
        if isinstance(self.node, ScalarNode) and self.node.kind == "whole":
            value = int(self.node.raw)
            if value >= least:
                return value
        self.report_expected(f"an integer of at least {least}")
        return least

    def read_positive_number(self) -> float:
        """Return a number above zero, such as seconds or money."""
        if isinstance(self.node, ScalarNode) and self.node.kind in ("whole", "number"):
            value = float(self.node.raw)
            if value > 0:
                return value
        self.report_expected("a number above 0")
        return 1.0

    def read_choice(self, words: Collection[str], *, also: Mapping[str, str] | None = None) -> str:
        """Return one of `words`; `also` maps other spellings to them."""
        spelled = self.node.raw if isinstance(self.node, ScalarNode) and self.node.kind == "text" else ""
        word = (also or {}).get(spelled, spelled)
        right = join_words(list(words), last="or")
        if not spelled:
            self.report_expected(right)
        elif word not in words:
            self.add_error(f"unknown value {quote_text(spelled)}; expected {right}")
        return word

    def iter_items(self) -> Iterator[ValueReader]:
        """Yield a reader for each item of a list, or this reader if the value is not a list."""
        if not isinstance(self.node, ListNode):
            yield self
            return
        for item in self.node.items:
            yield ValueReader(context=self.context, key=self.key, node=item)

    def read_texts(self, expected: str = "a list of strings") -> tuple[str, ...]:
        """Return a list of strings, one for each item."""
        if isinstance(self.node, MappingNode):
            self.report_expected(expected)
            return ()
        return tuple(text for item in self.iter_items() if (text := item.read_text()))

    def read_comma_list(self, expected: str = "a list of strings") -> tuple[str, ...]:
        """Return a list of strings, given as a list or as one string with commas; see `split_at_commas`."""
        if not isinstance(self.node, ScalarNode):
            return self.read_texts(expected)
        if self.node.kind != "text":
            self.report_expected(expected)
            return ()
        return tuple(word for part in split_at_commas(self.node.raw) if (word := part.strip()))

    def read_agent_name(self) -> str:
        """Return the name of one agent."""
        if isinstance(self.node, ScalarNode) and self.node.kind == "text" and self.node.raw.strip():
            return self.resolve_agent_name(self.node.raw.strip())
        self.report_expected("the name of one agent")
        return ""

    def read_agent_names(self) -> tuple[str, ...]:
        """Return a list of agent names without duplicates."""
        words = [self.resolve_agent_name(word) for word in self.read_comma_list("a list of agent names")]
        names = tuple(dict.fromkeys(words))
        if len(names) < len(words):
            twice = next(name for name, count in Counter(words).items() if count > 1)
            self.add_warning(f"{quote_text(twice)} is listed more than once; list it once")
        return names

    def resolve_agent_name(self, word: str) -> str:
        """Return `word` as an agent name; in a foreign file a display name is converted to a name."""
        if self.context.foreign and not is_agent_name(word) and not word.startswith(_SOURCES):
            return to_agent_name(word) or word
        return word

    def iter_entries(self) -> Iterator[tuple[str, ValueReader]]:
        """Yield the entries of a mapping by their keys as spelled; nothing if the value is not a mapping."""
        fields = self.node.fields if isinstance(self.node, MappingNode) else {}
        for spelled, node in fields.items():
            yield spelled, ValueReader(context=self.context, key=self.join_key(spelled), node=node)

    def join_key(self, key: str) -> str:
        """Return the full path of a nested key: `members` below `team` is `team.members`."""
        return f"{self.key}.{key}" if self.key else key

    def read_fields(self, known: Collection[str], *, also: Mapping[str, str] | None = None) -> dict[str, ValueReader]:
        """Return the entries of a mapping by key, in snake_case however they are spelled; empty ones are left out.

        A key that is not `known` gets a warning and is left out. `also` maps other spellings to known keys.
        """
        if not isinstance(self.node, MappingNode):
            self.report_expected(f"a mapping with keys such as {join_words(list(known)[:3], last='or')}")
            return {}
        spellings = {to_camel_case(key): key for key in known} | {key: key for key in known} | dict(also or {})
        found: dict[str, ValueReader] = {}
        for spelled, reader in self.iter_entries():
            if (key := spellings.get(spelled)) is None:
                reader.warn_unknown_key(spelled, spellings)
            elif key in found:
                first = found[key]
                reader.add_error(f"same key as {first.key} on line {first.node.line}; remove one of them")
            elif not reader.is_empty():
                found[key] = reader
                self.context.lines[self.join_key(key)] = reader.node.line
        return found

    def warn_unknown_key(self, spelled: str, known: Collection[str]) -> None:
        """Add a warning about an unknown key, with the closest known key."""
        if self.context.is_full:
            return
        near = get_close_matches(spelled[:40], sorted(known), n=1, cutoff=0.0)
        self.add_warning(f"unknown key, ignored; the closest known key is {near[0]}")


@cache
def to_camel_case(key: str) -> str:
    """Convert snake_case to camelCase: `max_turns` becomes `maxTurns`."""
    head, *tail = key.split("_")
    return head + "".join(word.capitalize() for word in tail)


def split_at_commas(text: str) -> Iterator[str]:
    """Split `text` at its commas, except those inside parentheses."""
    depth, start = 0, 0
    for match in re.finditer(r"[(),]", text):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth = max(0, depth - 1)
        elif depth == 0:
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]
