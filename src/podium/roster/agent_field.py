"""A slot: one key of an agent's file with the value that stands there, and how such values are read.

Reading a value that is wrong notes a finding on the page and gives a harmless stand-in, so that
one look at a file tells everything about it; a page with an error never becomes an agent.
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
from .agent_name import is_agent_name, join_words, to_agent_name

MAX_DIAGNOSTICS = 100

_SOURCES = ("builtin:", "user:", "repo:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseContext:
    """The file being read: where it is, how it is shown, and what was found out so far.

    `lines` has the line of every known key, nested ones as `team.members`. A `foreign` file was
    written for another program, so that names in it need not follow our rule.
    """

    file: Path
    display_path: str
    root: Path | None = None
    foreign: bool = False
    diagnostics: list[Diagnostic] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether there are as many findings as anybody reads."""
        return len(self.diagnostics) >= MAX_DIAGNOSTICS

    @property
    def has_error(self) -> bool:
        """Whether the file can no longer become an agent."""
        return any(diagnostic.severity == "error" for diagnostic in self.diagnostics)

    def add_diagnostic(self, severity: Severity, message: str, *, line: int | None = None, key: str = "") -> None:
        """Keep one finding about this file; on a full page only if it is the first error."""
        if self.is_full and (severity != "error" or self.has_error):
            return
        place = truncate_text(" ".join(key.split()))
        self.diagnostics.append(
            Diagnostic(severity=severity, path=self.display_path, line=line, key=place, message=message)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueReader:
    """One value of a page under its key, spelled as in the file."""

    context: ParseContext
    key: str
    node: LocatedNode

    def add_error(self, message: str) -> None:
        self.context.add_diagnostic("error", message, line=self.node.line, key=self.key)

    def add_warning(self, message: str) -> None:
        self.context.add_diagnostic("warning", message, line=self.node.line, key=self.key)

    def report_expected(self, expected: str) -> None:
        """The error that says what stands here and what would be right."""
        self.add_error(f"{describe_node(self.node)}; {expected} would be right")

    def is_empty(self) -> bool:
        """Whether nothing stands here."""
        return isinstance(self.node, ScalarNode) and self.node.kind == "nothing"

    def read_text(self) -> str:
        """Text, without the blanks around it."""
        if isinstance(self.node, ScalarNode) and self.node.kind == "text":
            return self.node.raw.strip()
        self.report_expected("text in quotes")
        return ""

    def read_single_line(self) -> str:
        """Text on one line, whatever line breaks it is written with."""
        return " ".join(self.read_text().split())

    def read_bool(self) -> bool:
        """True or false."""
        if isinstance(self.node, ScalarNode) and isinstance(self.node.value, bool):
            return self.node.value
        self.report_expected("true or false")
        return False

    def read_int(self, least: int = 1) -> int:
        """A whole number of at least `least`."""
        if isinstance(self.node, ScalarNode) and self.node.kind == "whole":
            value = int(self.node.raw)
            if value >= least:
                return value
        self.report_expected(f"a whole number of at least {least}")
        return least

    def read_positive_number(self) -> float:
        """A number above zero, such as seconds or money."""
        if isinstance(self.node, ScalarNode) and self.node.kind in ("whole", "number"):
            value = float(self.node.raw)
            if value > 0:
                return value
        self.report_expected("a number above 0")
        return 1.0

    def read_choice(self, words: Collection[str], *, also: Mapping[str, str] | None = None) -> str:
        """One of `words`; a spelling in `also` stands for the word it leads to."""
        spelled = self.node.raw if isinstance(self.node, ScalarNode) and self.node.kind == "text" else ""
        word = (also or {}).get(spelled, spelled)
        right = join_words(list(words), last="or")
        if not spelled:
            self.report_expected(right)
        elif word not in words:
            self.add_error(f"{quote_text(spelled)} is not known; {right} would be right")
        return word

    def iter_items(self) -> Iterator[ValueReader]:
        """The items of a list, each as a slot of its own; the slot itself where no list stands."""
        if not isinstance(self.node, ListNode):
            yield self
            return
        for item in self.node.items:
            yield ValueReader(context=self.context, key=self.key, node=item)

    def read_texts(self, expected: str = "a list of texts") -> tuple[str, ...]:
        """A list of texts, one text for each item."""
        if isinstance(self.node, MappingNode):
            self.report_expected(expected)
            return ()
        return tuple(text for item in self.iter_items() if (text := item.read_text()))

    def read_comma_list(self, expected: str = "a list of texts") -> tuple[str, ...]:
        """A list of texts, or one text with commas; commas inside parentheses separate nothing."""
        if not isinstance(self.node, ScalarNode):
            return self.read_texts(expected)
        if self.node.kind != "text":
            self.report_expected(expected)
            return ()
        return tuple(word for part in split_at_commas(self.node.raw) if (word := part.strip()))

    def read_agent_name(self) -> str:
        """The name of one agent."""
        if isinstance(self.node, ScalarNode) and self.node.kind == "text" and self.node.raw.strip():
            return self.resolve_agent_name(self.node.raw.strip())
        self.report_expected("one agent's name")
        return ""

    def read_agent_names(self) -> tuple[str, ...]:
        """A list of agents' names, each once."""
        words = [self.resolve_agent_name(word) for word in self.read_comma_list("a list of agents' names")]
        names = tuple(dict.fromkeys(words))
        if len(names) < len(words):
            twice = next(name for name, count in Counter(words).items() if count > 1)
            self.add_warning(f"{quote_text(twice)} stands here twice; once would be right")
        return names

    def resolve_agent_name(self, word: str) -> str:
        """`word` as the name of an agent; in a foreign file a display name stands for the name made from it."""
        if self.context.foreign and not is_agent_name(word) and not word.startswith(_SOURCES):
            return to_agent_name(word) or word
        return word

    def iter_entries(self) -> Iterator[tuple[str, ValueReader]]:
        """The values of a mapping under their keys as spelled; nothing where no mapping stands."""
        fields = self.node.fields if isinstance(self.node, MappingNode) else {}
        for spelled, node in fields.items():
            yield spelled, ValueReader(context=self.context, key=self.join_key(spelled), node=node)

    def join_key(self, key: str) -> str:
        """The place of a nested key: `members` in the slot `team` is `team.members`."""
        return f"{self.key}.{key}" if self.key else key

    def read_fields(self, known: Collection[str], *, also: Mapping[str, str] | None = None) -> dict[str, ValueReader]:
        """The values of a mapping by key, in snake_case however they are spelled; without those left empty.

        A key that is not `known` is warned about and left out; a spelling in `also` stands for the key
        it leads to.
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
                reader.add_error(f"says the same as {first.key} on line {first.node.line}; one of them would be right")
            elif not reader.is_empty():
                found[key] = reader
                self.context.lines[self.join_key(key)] = reader.node.line
        return found

    def warn_unknown_key(self, spelled: str, known: Collection[str]) -> None:
        """The warning about a key that nobody reads, with the nearest one that is read."""
        if self.context.is_full:
            return
        near = get_close_matches(spelled[:40], sorted(known), n=1, cutoff=0.0)
        self.add_warning(f"is not a known key and is ignored; the nearest known key is {near[0]}")


@cache
def to_camel_case(key: str) -> str:
    """`max_turns` as `maxTurns`."""
    head, *tail = key.split("_")
    return head + "".join(word.capitalize() for word in tail)


def split_at_commas(text: str) -> Iterator[str]:
    """`text` split at its commas, but for those inside parentheses."""
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
