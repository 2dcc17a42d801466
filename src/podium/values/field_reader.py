"""Read the fields of a file as typed values.

Reading an invalid value adds a diagnostic and returns a harmless placeholder, so one pass over a
file reports every problem. The caller ignores files with errors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from .errors import Diagnostic, Severity
from .located_yaml import ListNode, LocatedNode, MappingNode, ScalarNode, describe_node, quote_text
from .plain_text import join_words, parse_size, split_at_commas, truncate_text

MAX_DIAGNOSTICS = 100
MAX_HINTS = 5
"""The closest known key is looked up only until a file has this many diagnostics."""
LIKELY_KEYS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseContext:
    """The file being read: its path, its path for display, and the diagnostics about it.

    `lines` maps every known key to its line; nested keys are spelled as `team.members`. A `foreign`
    file was written for another program, so names in it do not have to follow Podium's rules.
    `ignores_unknown_keys` is set if other programs also read the file. `is_yours` is set for a file of the user's own
    that no repository can change.
    """

    file: Path
    display_path: str
    root: Path | None = None
    foreign: bool = False
    ignores_unknown_keys: bool = False
    is_yours: bool = False
    diagnostics: list[Diagnostic] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of diagnostics has been reached."""
        return len(self.diagnostics) >= MAX_DIAGNOSTICS

    @property
    def has_error(self) -> bool:
        """Whether the file has an error and so cannot be used."""
        return any(diagnostic.severity == "error" for diagnostic in self.diagnostics)

    def add_diagnostic(self, severity: Severity, message: str, *, line: int | None = None, key: str = "") -> None:
        """Add a diagnostic about this file. If the list is full, drop the diagnostic, unless it is the first error."""
        if self.is_full and (severity != "error" or self.has_error):
            return
        place = truncate_text(" ".join(key.split()))
        self.diagnostics.append(
            Diagnostic(severity=severity, path=self.display_path, line=line, key=place, message=message)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldReader:
    """Reads a value in the file. `key` is its path as spelled in the file; `known_key` uses the standard spelling."""

    context: ParseContext
    node: LocatedNode
    key: str = ""
    known_key: str = ""

    def add_error(self, message: str) -> None:
        self.context.add_diagnostic("error", message, line=self.node.line, key=self.key)

    def add_warning(self, message: str) -> None:
        self.context.add_diagnostic("warning", message, line=self.node.line, key=self.key)

    def report_expected(self, expected: str) -> None:
        """Add an error that says what was expected and what was found."""
        self.add_error(f"expected {expected}, got {describe_node(self.node)}")

    @property
    def is_empty(self) -> bool:
        """Whether the key has no value."""
        return isinstance(self.node, ScalarNode) and self.node.kind == "nothing"

    @property
    def text(self) -> str | None:
        """The string without surrounding whitespace, or None if the value is not a string."""
        return self.node.raw.strip() if isinstance(self.node, ScalarNode) and self.node.kind == "text" else None

    def read_text(self, expected: str = "a string", *, allow_blank: bool = False) -> str:
        """Return a string without surrounding whitespace."""
        text = self.text
        if text is None or not (text or allow_blank):
            self.report_expected(expected)
        return text or ""

    def read_single_line(self) -> str:
        """Return a string on one line, which may be blank; line breaks become spaces."""
        return " ".join(self.read_text(allow_blank=True).split())

    def read_secret(self) -> str:
        """Return a secret string unchanged. Error messages never include its value."""
        if isinstance(self.node, ScalarNode) and self.node.kind == "text":
            return self.node.raw
        self.add_error("expected a string, got another type")
        return ""

    def read_url(self) -> str:
        """Return an HTTP URL without trailing slashes. Error messages never include it: it may contain a password."""
        text = self.read_secret().strip()
        host = text.partition("://")[2]
        if not text.startswith(("http://", "https://")) or not host or any(sign.isspace() for sign in text):
            self.add_error("not a valid URL; expected one such as https://host.example/v1")
        return text.rstrip("/")

    def read_bool(self) -> bool:
        """Return a boolean."""
        if isinstance(self.node, ScalarNode) and isinstance(self.node.value, bool):
            return self.node.value
        self.report_expected("true or false")
        return False

    def read_int(self, least: int = 1) -> int:
        """Return an integer of at least `least`."""
        if isinstance(self.node, ScalarNode) and self.node.kind == "whole" and int(self.node.raw) >= least:
            return int(self.node.raw)
        self.report_expected(f"an integer of at least {least}")
        return least

    def read_positive_number(self, expected: str = "a number above 0") -> float:
        """Return a number above zero, such as a duration in seconds or an amount of money."""
        if isinstance(self.node, ScalarNode) and self.node.kind in ("whole", "number"):
            value = float(self.node.raw)
            if value > 0:
                return value
        self.report_expected(expected)
        return 1.0

    def read_size(self) -> int:
        """Return a positive size in bytes, which is written as a plain number or with a unit."""
        size = parse_size(self.node.raw.replace("_", "")) if isinstance(self.node, ScalarNode) else None
        if size is None:
            self.report_expected("a size such as 20GB, 500MB or a number of bytes")
        return size or 1

    def read_choice(self, words: Collection[str], *, also: Mapping[str, str] | None = None) -> str:
        """Return one of `words`; `also` maps other spellings to them."""
        right = join_words(list(words), last="or")
        spelled = self.read_text(right)
        word = (also or {}).get(spelled, spelled)
        if spelled and word not in words:
            self.add_error(f"unknown value {quote_text(spelled)}; expected {right}")
        return word

    def read_texts(self, expected: str = "a list of strings", *, allow_blank: bool = False) -> tuple[str, ...]:
        """Return the strings in a list, except blank ones. A single string is treated as a list with one item."""
        right = "a string" if isinstance(self.node, ListNode) else expected
        return tuple(text for item in self.iter_items() if (text := item.read_text(right, allow_blank=allow_blank)))

    def read_comma_list(self, expected: str = "a list of strings") -> tuple[str, ...]:
        """Return a list of strings, given as a list or as one comma-separated string; see `split_at_commas`."""
        if self.text is None:
            return self.read_texts(expected, allow_blank=True)
        return tuple(word for part in split_at_commas(self.text) if (word := part.strip()))

    def iter_items(self) -> Iterator[FieldReader]:
        """Yield a reader for each item of a list, or this reader if the value is not a list."""
        if not isinstance(self.node, ListNode):
            yield self
            return
        for item in self.node.items:
            yield FieldReader(context=self.context, key=self.key, known_key=self.known_key, node=item)

    def iter_entries(self, expected: str) -> Iterator[tuple[str, FieldReader]]:
        """Yield the name and a reader for each entry of a mapping; `expected` describes the mapping in an error."""
        if not isinstance(self.node, MappingNode):
            self.report_expected(expected)
            return
        for spelled, node in self.node.fields.items():
            name = spelled.strip()
            reader = self._make_entry_reader(name, name, node)
            self.context.lines[reader.known_key] = node.line
            if not name:
                reader.add_error("the name is empty; enter a name")
            elif reader.is_empty:
                reader.add_error("the value is missing; enter a value, or remove the entry")
            else:
                yield name, reader

    def read_fields(
        self, known: Collection[str], *, also: Mapping[str, str] | None = None, below: Mapping[str, str] | None = None
    ) -> dict[str, FieldReader]:
        """Return the entries of a mapping that have a value. The keys of the result are spelled as in `known`.

        In the file, keys can also be in camelCase, and `also` maps further spellings to known keys. An unknown key is
        ignored with a warning. `below` maps each key that belongs in a nested mapping to the key of that mapping, so
        that the warning can say where the key belongs.
        """
        if not isinstance(self.node, MappingNode):
            self.report_expected(f"a mapping with keys such as {join_words(list(known)[:3], last='or')}")
            return {}
        spellings = {to_camel_case(key): key for key in known} | {key: key for key in known} | dict(also or {})
        found: dict[str, FieldReader] = {}
        for spelled, node in self.node.fields.items():
            key = spellings.get(spelled)
            reader = self._make_entry_reader(spelled, key or spelled, node)
            if key is None:
                reader._warn_unknown_key(spelled, spellings, below or {})
            elif key in found:
                first = found[key]
                reader.add_error(f"same key as {first.key} on line {first.node.line}; remove one of them")
            elif not reader.is_empty:
                found[key] = reader
                self.context.lines[reader.known_key] = node.line
        return found

    def _make_entry_reader(self, spelled: str, known: str, node: LocatedNode) -> FieldReader:
        key = f"{self.key}.{spelled}" if self.key else spelled
        known_key = f"{self.known_key}.{known}" if self.known_key else known
        return FieldReader(context=self.context, key=key, known_key=known_key, node=node)

    def _warn_unknown_key(self, spelled: str, known: Collection[str], below: Mapping[str, str]) -> None:
        """Add a warning about an unknown key, and name the key that it belongs under or the closest known key."""
        if self.context.is_full or self.context.ignores_unknown_keys:
            return
        if spelled in below:
            self.add_warning(f"unknown key here, ignored; it belongs under {below[spelled]}")
            return
        if len(self.context.diagnostics) >= MAX_HINTS:
            self.add_warning("unknown key, ignored")
            return
        near = _find_closest_key(spelled[:40], tuple(known))
        self.add_warning(f"unknown key, ignored; the closest known key is {near}")


@lru_cache(maxsize=1000)
def _find_closest_key(word: str, known: tuple[str, ...]) -> str:
    """Return the known key that is most similar to `word`.

    Only the keys that share most letters with it are compared, because a comparison is slow and there may be thousands
    of files with unknown keys.
    """
    from difflib import get_close_matches  # imported here for start-up time: most keys are spelled right

    letters = frozenset(word)

    def compare_letters(key: str) -> tuple[float, str]:
        return -len(letters & _find_letters(key)) / len(letters | _find_letters(key)), key

    return get_close_matches(word, sorted(known, key=compare_letters)[:LIKELY_KEYS], n=1, cutoff=0.0)[0]


_find_letters = cache(frozenset[str])


def read_command(reader: FieldReader) -> tuple[str, ...]:
    """Read a command. A string is run by the shell; a list is a program with its arguments."""
    if not isinstance(reader.node, ListNode):
        return ("sh", "-c", reader.read_text("a command"))
    if not reader.node.items:
        reader.add_error("expected a program with its arguments, got an empty list")
    return reader.read_texts()


@cache
def to_camel_case(key: str) -> str:
    """Convert snake_case to camelCase: `max_turns` becomes `maxTurns`."""
    head, *tail = key.split("_")
    return head + "".join(word.capitalize() for word in tail)
