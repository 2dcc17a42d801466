"""Typed reading of the values in a settings file.

Reading an invalid value adds a diagnostic and returns a harmless placeholder, so one pass over a
file reports every problem. A file with an error has no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from ..values.byte_size import parse_size
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

MOST_DIAGNOSTICS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiagnostics:
    """The file being read and its diagnostics so far; `lines` maps every known key to its line.

    A `foreign` file is also read by other programs, so unknown keys in it are ignored.
    """

    path: str
    foreign: bool = False
    diagnostics: list[Diagnostic] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def add_diagnostic(self, severity: Severity, message: str, *, line: int | None = None, key: str = "") -> None:
        """Add a diagnostic about this file, up to the maximum number."""
        if len(self.diagnostics) < MOST_DIAGNOSTICS:
            place = truncate_text(" ".join(key.split()))
            self.diagnostics.append(
                Diagnostic(severity=severity, path=self.path, line=line, key=place, message=message)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingValue:
    """A value of the file and its key."""

    page: FileDiagnostics
    key: str
    written: LocatedNode

    def add_error(self, message: str) -> None:
        self.page.add_diagnostic("error", message, line=self.written.line, key=self.key)

    def add_warning(self, message: str) -> None:
        self.page.add_diagnostic("warning", message, line=self.written.line, key=self.key)

    def report_expected(self, right: str) -> None:
        """Add the error that says what was expected and what was found."""
        self.add_error(f"expected {right}, got {describe_node(self.written)}")

    @property
    def is_empty(self) -> bool:
        """Whether the value is empty."""
        return isinstance(self.written, ScalarNode) and self.written.kind == "nothing"

    @property
    def is_text(self) -> bool:
        """Whether the value is a string that is not blank."""
        return isinstance(self.written, ScalarNode) and self.written.kind == "text" and bool(self.written.raw.strip())

    def read_text(self, right: str = "a string") -> str:
        """Return a string without surrounding whitespace."""
        if isinstance(self.written, ScalarNode) and self.is_text:
            return self.written.raw.strip()
        self.report_expected(right)
        return ""

    def read_secret(self) -> str:
        """Return a string as written; no message repeats it."""
        if isinstance(self.written, ScalarNode) and self.written.kind == "text":
            return self.written.raw
        self.add_error("expected a string, got another type")
        return ""

    def read_url(self) -> str:
        """Return an HTTP URL. It may contain a password, so no message repeats it."""
        text = self.read_secret().strip()
        host = text.partition("://")[2]
        if not text.startswith(("http://", "https://")) or not host or any(sign.isspace() for sign in text):
            self.add_error("not a valid URL; expected one such as https://host.example/v1")
        return text.rstrip("/")

    def read_bool(self) -> bool:
        """Return a boolean."""
        if isinstance(self.written, ScalarNode) and isinstance(self.written.value, bool):
            return self.written.value
        self.report_expected("true or false")
        return True

    def read_int(self, least: int = 1) -> int:
        """Return an integer of at least `least`."""
        if isinstance(self.written, ScalarNode) and self.written.kind == "whole" and int(self.written.raw) >= least:
            return int(self.written.raw)
        self.report_expected(f"an integer of at least {least}")
        return least

    def read_positive_number(self, right: str = "a number above 0") -> float:
        """Return a number above zero, such as seconds or money."""
        if isinstance(self.written, ScalarNode) and self.written.kind in ("whole", "number"):
            value = float(self.written.raw)
            if value > 0:
                return value
        self.report_expected(right)
        return 1.0

    def read_size(self) -> int:
        """Return a number of bytes above zero, given as a number or with a unit."""
        size = parse_size(self.written.raw.replace("_", "")) if isinstance(self.written, ScalarNode) else None
        if size is None:
            self.report_expected("a size such as 20GB, 500MB or a number of bytes")
        return size or 1

    def read_choice(self, words: Collection[str]) -> str:
        """Return one of `words`."""
        right = f"{', '.join(list(words)[:-1])} or {list(words)[-1]}"
        word = self.read_text(right)
        if word and word not in words:
            self.add_error(f"unknown value {quote_text(word)}; expected {right}")
        return word

    def read_texts(self, right: str = "a list of strings") -> tuple[str, ...]:
        """Return a list of strings; a single string is a list of one."""
        if isinstance(self.written, MappingNode):
            self.report_expected(right)
            return ()
        return tuple(text for item in self.iter_items() if (text := item.read_text(right)))

    def iter_items(self) -> Iterator[SettingValue]:
        """Return a SettingValue for each item of a list, or one for the value itself if it is not a list."""
        items = self.written.items if isinstance(self.written, ListNode) else (self.written,)
        return (SettingValue(page=self.page, key=self.key, written=item) for item in items)

    def iter_entries(self, right: str) -> Iterator[tuple[str, SettingValue]]:
        """Yield the entries of a mapping by the names in the file; `right` describes the mapping in an error."""
        if not isinstance(self.written, MappingNode):
            self.report_expected(right)
            return
        for spelled, written in self.written.fields.items():
            name = spelled.strip()
            slot = SettingValue(page=self.page, key=f"{self.key}.{name}", written=written)
            self.page.lines[slot.key] = written.line
            if not name:
                slot.add_error("the name is empty; enter a name")
            elif slot.is_empty:
                slot.report_expected("a value (or remove the entry)")
            else:
                yield name, slot

    def read_fields(self, known: Collection[str], *, also: Mapping[str, str] | None = None) -> dict[str, SettingValue]:
        """Return the entries of a mapping by key, without empty ones; an unknown key gets a warning.

        `also` maps other spellings to known keys.
        """
        if not isinstance(self.written, MappingNode):
            self.report_expected(f"a mapping with keys such as {' or '.join(list(known)[:2])}")
            return {}
        spellings = {key: key for key in known} | dict(also or {})
        found: dict[str, SettingValue] = {}
        for spelled, written in self.written.fields.items():
            key = spellings.get(spelled, spelled)
            slot = SettingValue(page=self.page, key=f"{self.key}.{key}" if self.key else key, written=written)
            if spelled not in spellings:
                slot.warn_unknown(spelled, spellings)
            elif key in found:
                slot.add_error(f"appears twice, here and on line {found[key].written.line}; keep only one")
            elif not slot.is_empty:
                found[key] = slot
                self.page.lines[slot.key] = written.line
        return found

    def warn_unknown(self, spelled: str, known: Collection[str]) -> None:
        """Add a warning about an unknown key, with the closest known key."""
        if not self.page.foreign:
            near = get_close_matches(spelled[:40], sorted(known), n=1, cutoff=0.0)
            self.add_warning(f"unknown key, ignored; the closest known key is {near[0]}")
