"""A slot: one key of a settings file with the value that stands there, and how such values are read.

Reading a value that is wrong notes a finding on the page and gives a harmless stand-in, so that
one look at a file tells everything about it; of a page with an error nothing counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from ..values.byte_size import parse_size
from ..values.diagnostic import Finding, Severity
from ..values.located_yaml import Fields, Items, Scalar, Written, described, quoted, shortened

MOST_FINDINGS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The file being read, and what was found out so far; `lines` has the line of every known key.

    A `foreign` file was written for other programs too, so that keys in it need not be ours.
    """

    path: str
    foreign: bool = False
    findings: list[Finding] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def note(self, severity: Severity, message: str, *, line: int | None = None, key: str = "") -> None:
        """Keep one finding about this file, unless there are more than anybody reads."""
        if len(self.findings) < MOST_FINDINGS:
            place = shortened(" ".join(key.split()))
            self.findings.append(Finding(severity=severity, path=self.path, line=line, key=place, message=message))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One value of a page under its key."""

    page: Page
    key: str
    written: Written

    def error(self, message: str) -> None:
        self.page.note("error", message, line=self.written.line, key=self.key)

    def warn(self, message: str) -> None:
        self.page.note("warning", message, line=self.written.line, key=self.key)

    def wrong(self, right: str) -> None:
        """The error that says what stands here and what would be right."""
        self.error(f"{described(self.written)}; {right} would be right")

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands here."""
        return isinstance(self.written, Scalar) and self.written.kind == "nothing"

    @property
    def is_text(self) -> bool:
        """Whether a text stands here that is not blank."""
        return isinstance(self.written, Scalar) and self.written.kind == "text" and bool(self.written.raw.strip())

    def text(self, right: str = "text in quotes") -> str:
        """Text, without the blanks around it."""
        if isinstance(self.written, Scalar) and self.is_text:
            return self.written.raw.strip()
        self.wrong(right)
        return ""

    def secret(self) -> str:
        """Text as it is, which no message repeats."""
        if isinstance(self.written, Scalar) and self.written.kind == "text":
            return self.written.raw
        self.error("what stands here is not text; text in quotes would be right")
        return ""

    def address(self) -> str:
        """An address of HTTP. It may carry a password, so that no message repeats it."""
        text = self.secret().strip()
        host = text.partition("://")[2]
        if not text.startswith(("http://", "https://")) or not host or any(sign.isspace() for sign in text):
            self.error("this is no address; one such as https://host.example/v1 would be right")
        return text.rstrip("/")

    def flag(self) -> bool:
        """True or false."""
        if isinstance(self.written, Scalar) and isinstance(self.written.value, bool):
            return self.written.value
        self.wrong("true or false")
        return True

    def whole(self, least: int = 1) -> int:
        """A whole number of at least `least`."""
        if isinstance(self.written, Scalar) and self.written.kind == "whole" and int(self.written.raw) >= least:
            return int(self.written.raw)
        self.wrong(f"a whole number of at least {least}")
        return least

    def amount(self, right: str = "a number above 0") -> float:
        """A number above zero, such as seconds or money."""
        if isinstance(self.written, Scalar) and self.written.kind in ("whole", "number"):
            value = float(self.written.raw)
            if value > 0:
                return value
        self.wrong(right)
        return 1.0

    def size(self) -> int:
        """Bytes above zero, as a number or with a unit."""
        size = parse_size(self.written.raw.replace("_", "")) if isinstance(self.written, Scalar) else None
        if size is None:
            self.wrong("a size such as 20GB, 500MB or a number of bytes")
        return size or 1

    def choice(self, words: Collection[str]) -> str:
        """One of `words`."""
        right = f"{', '.join(list(words)[:-1])} or {list(words)[-1]}"
        word = self.text(right)
        if word and word not in words:
            self.error(f"{quoted(word)} is not known; {right} would be right")
        return word

    def texts(self, right: str = "a list of texts") -> tuple[str, ...]:
        """A list of texts; one text is a list of one."""
        if isinstance(self.written, Fields):
            self.wrong(right)
            return ()
        return tuple(text for item in self.items() if (text := item.text(right)))

    def items(self) -> Iterator[Slot]:
        """The items of a list, each as a slot of its own; the slot itself where no list stands."""
        items = self.written.items if isinstance(self.written, Items) else (self.written,)
        return (Slot(page=self.page, key=self.key, written=item) for item in items)

    def entries(self, right: str) -> Iterator[tuple[str, Slot]]:
        """The values of a mapping under the names that the person gave; `right` is what else to write."""
        if not isinstance(self.written, Fields):
            self.wrong(right)
            return
        for spelled, written in self.written.fields.items():
            name = spelled.strip()
            slot = Slot(page=self.page, key=f"{self.key}.{name}", written=written)
            self.page.lines[slot.key] = written.line
            if not name:
                slot.error("the name is empty; a name would be right")
            elif slot.is_empty:
                slot.wrong("a value, or no such entry,")
            else:
                yield name, slot

    def fields(self, known: Collection[str], *, also: Mapping[str, str] | None = None) -> dict[str, Slot]:
        """The values of a mapping by key, without those left empty; a key that is not known is warned about.

        A spelling in `also` stands for the key that it leads to.
        """
        if not isinstance(self.written, Fields):
            self.wrong(f"a mapping with keys such as {' or '.join(list(known)[:2])}")
            return {}
        spellings = {key: key for key in known} | dict(also or {})
        found: dict[str, Slot] = {}
        for spelled, written in self.written.fields.items():
            key = spellings.get(spelled, spelled)
            slot = Slot(page=self.page, key=f"{self.key}.{key}" if self.key else key, written=written)
            if spelled not in spellings:
                slot.warn_unknown(spelled, spellings)
            elif key in found:
                slot.error(f"stands twice, here and on line {found[key].written.line}; once would be right")
            elif not slot.is_empty:
                found[key] = slot
                self.page.lines[slot.key] = written.line
        return found

    def warn_unknown(self, spelled: str, known: Collection[str]) -> None:
        """The warning about a key that nobody reads, with the nearest one that is read."""
        if not self.page.foreign:
            near = get_close_matches(spelled[:40], sorted(known), n=1, cutoff=0.0)
            self.warn(f"is not a known key and is ignored; the nearest known key is {near[0]}")
