"""A slot: one key of a settings file with the value that stands there, and how such values are read.

Reading a value that is wrong notes a finding on the page and gives a harmless stand-in, so that
one look at a file tells everything about it; of a page with an error nothing counts.
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
    """The file being read, and what was found out so far; `lines` has the line of every known key.

    A `foreign` file was written for other programs too, so that keys in it need not be ours.
    """

    path: str
    foreign: bool = False
    diagnostics: list[Diagnostic] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def add_diagnostic(self, severity: Severity, message: str, *, line: int | None = None, key: str = "") -> None:
        """Keep one finding about this file, unless there are more than anybody reads."""
        if len(self.diagnostics) < MOST_DIAGNOSTICS:
            place = truncate_text(" ".join(key.split()))
            self.diagnostics.append(
                Diagnostic(severity=severity, path=self.path, line=line, key=place, message=message)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingValue:
    """One value of a page under its key."""

    page: FileDiagnostics
    key: str
    written: LocatedNode

    def add_error(self, message: str) -> None:
        self.page.add_diagnostic("error", message, line=self.written.line, key=self.key)

    def add_warning(self, message: str) -> None:
        self.page.add_diagnostic("warning", message, line=self.written.line, key=self.key)

    def report_expected(self, right: str) -> None:
        """The error that says what stands here and what would be right."""
        self.add_error(f"{describe_node(self.written)}; {right} would be right")

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands here."""
        return isinstance(self.written, ScalarNode) and self.written.kind == "nothing"

    @property
    def is_text(self) -> bool:
        """Whether a text stands here that is not blank."""
        return isinstance(self.written, ScalarNode) and self.written.kind == "text" and bool(self.written.raw.strip())

    def read_text(self, right: str = "text in quotes") -> str:
        """Text, without the blanks around it."""
        if isinstance(self.written, ScalarNode) and self.is_text:
            return self.written.raw.strip()
        self.report_expected(right)
        return ""

    def read_secret(self) -> str:
        """Text as it is, which no message repeats."""
        if isinstance(self.written, ScalarNode) and self.written.kind == "text":
            return self.written.raw
        self.add_error("what stands here is not text; text in quotes would be right")
        return ""

    def read_url(self) -> str:
        """An address of HTTP. It may carry a password, so that no message repeats it."""
        text = self.read_secret().strip()
        host = text.partition("://")[2]
        if not text.startswith(("http://", "https://")) or not host or any(sign.isspace() for sign in text):
            self.add_error("this is no address; one such as https://host.example/v1 would be right")
        return text.rstrip("/")

    def read_bool(self) -> bool:
        """True or false."""
        if isinstance(self.written, ScalarNode) and isinstance(self.written.value, bool):
            return self.written.value
        self.report_expected("true or false")
        return True

    def read_int(self, least: int = 1) -> int:
        """A whole number of at least `least`."""
        if isinstance(self.written, ScalarNode) and self.written.kind == "whole" and int(self.written.raw) >= least:
            return int(self.written.raw)
        self.report_expected(f"a whole number of at least {least}")
        return least

    def read_positive_number(self, right: str = "a number above 0") -> float:
        """A number above zero, such as seconds or money."""
        if isinstance(self.written, ScalarNode) and self.written.kind in ("whole", "number"):
            value = float(self.written.raw)
            if value > 0:
                return value
        self.report_expected(right)
        return 1.0

    def read_size(self) -> int:
        """Bytes above zero, as a number or with a unit."""
        size = parse_size(self.written.raw.replace("_", "")) if isinstance(self.written, ScalarNode) else None
        if size is None:
            self.report_expected("a size such as 20GB, 500MB or a number of bytes")
        return size or 1

    def read_choice(self, words: Collection[str]) -> str:
        """One of `words`."""
        right = f"{', '.join(list(words)[:-1])} or {list(words)[-1]}"
        word = self.read_text(right)
        if word and word not in words:
            self.add_error(f"{quote_text(word)} is not known; {right} would be right")
        return word

    def read_texts(self, right: str = "a list of texts") -> tuple[str, ...]:
        """A list of texts; one text is a list of one."""
        if isinstance(self.written, MappingNode):
            self.report_expected(right)
            return ()
        return tuple(text for item in self.iter_items() if (text := item.read_text(right)))

    def iter_items(self) -> Iterator[SettingValue]:
        """The items of a list, each as a slot of its own; the slot itself where no list stands."""
        items = self.written.items if isinstance(self.written, ListNode) else (self.written,)
        return (SettingValue(page=self.page, key=self.key, written=item) for item in items)

    def iter_entries(self, right: str) -> Iterator[tuple[str, SettingValue]]:
        """The values of a mapping under the names that the person gave; `right` is what else to write."""
        if not isinstance(self.written, MappingNode):
            self.report_expected(right)
            return
        for spelled, written in self.written.fields.items():
            name = spelled.strip()
            slot = SettingValue(page=self.page, key=f"{self.key}.{name}", written=written)
            self.page.lines[slot.key] = written.line
            if not name:
                slot.add_error("the name is empty; a name would be right")
            elif slot.is_empty:
                slot.report_expected("a value, or no such entry,")
            else:
                yield name, slot

    def read_fields(self, known: Collection[str], *, also: Mapping[str, str] | None = None) -> dict[str, SettingValue]:
        """The values of a mapping by key, without those left empty; a key that is not known is warned about.

        A spelling in `also` stands for the key that it leads to.
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
                slot.add_error(f"stands twice, here and on line {found[key].written.line}; once would be right")
            elif not slot.is_empty:
                found[key] = slot
                self.page.lines[slot.key] = written.line
        return found

    def warn_unknown(self, spelled: str, known: Collection[str]) -> None:
        """The warning about a key that nobody reads, with the nearest one that is read."""
        if not self.page.foreign:
            near = get_close_matches(spelled[:40], sorted(known), n=1, cutoff=0.0)
            self.add_warning(f"is not a known key and is ignored; the nearest known key is {near[0]}")
