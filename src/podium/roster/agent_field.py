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

from ..values.diagnostic import Finding, Severity
from ..values.located_yaml import Fields, Items, Scalar, Written, described, quoted, shortened
from .agent_name import is_name, joined, slug

MOST_FINDINGS = 100

_SOURCES = ("builtin:", "user:", "repo:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The file being read: where it is, how it is shown, and what was found out so far.

    `lines` has the line of every known key, nested ones as `team.members`. A `foreign` file was
    written for another program, so that names in it need not follow our rule.
    """

    file: Path
    path: str
    root: Path | None = None
    foreign: bool = False
    findings: list[Finding] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether there are as many findings as anybody reads."""
        return len(self.findings) >= MOST_FINDINGS

    @property
    def has_error(self) -> bool:
        """Whether the file can no longer become an agent."""
        return any(finding.severity == "error" for finding in self.findings)

    def note(self, severity: Severity, message: str, *, line: int | None = None, key: str = "") -> None:
        """Keep one finding about this file; on a full page only if it is the first error."""
        if self.is_full and (severity != "error" or self.has_error):
            return
        place = shortened(" ".join(key.split()))
        self.findings.append(Finding(severity=severity, path=self.path, line=line, key=place, message=message))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One value of a page under its key, spelled as in the file."""

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

    def is_empty(self) -> bool:
        """Whether nothing stands here."""
        return isinstance(self.written, Scalar) and self.written.kind == "nothing"

    def text(self) -> str:
        """Text, without the blanks around it."""
        if isinstance(self.written, Scalar) and self.written.kind == "text":
            return self.written.raw.strip()
        self.wrong("text in quotes")
        return ""

    def sentence(self) -> str:
        """Text on one line, whatever line breaks it is written with."""
        return " ".join(self.text().split())

    def flag(self) -> bool:
        """True or false."""
        if isinstance(self.written, Scalar) and isinstance(self.written.value, bool):
            return self.written.value
        self.wrong("true or false")
        return False

    def whole(self, least: int = 1) -> int:
        """A whole number of at least `least`."""
        if isinstance(self.written, Scalar) and self.written.kind == "whole":
            value = int(self.written.raw)
            if value >= least:
                return value
        self.wrong(f"a whole number of at least {least}")
        return least

    def amount(self) -> float:
        """A number above zero, such as seconds or money."""
        if isinstance(self.written, Scalar) and self.written.kind in ("whole", "number"):
            value = float(self.written.raw)
            if value > 0:
                return value
        self.wrong("a number above 0")
        return 1.0

    def choice(self, words: Collection[str], *, also: Mapping[str, str] | None = None) -> str:
        """One of `words`; a spelling in `also` stands for the word it leads to."""
        spelled = self.written.raw if isinstance(self.written, Scalar) and self.written.kind == "text" else ""
        word = (also or {}).get(spelled, spelled)
        right = joined(list(words), last="or")
        if not spelled:
            self.wrong(right)
        elif word not in words:
            self.error(f"{quoted(spelled)} is not known; {right} would be right")
        return word

    def items(self) -> Iterator[Slot]:
        """The items of a list, each as a slot of its own; the slot itself where no list stands."""
        if not isinstance(self.written, Items):
            yield self
            return
        for item in self.written.items:
            yield Slot(page=self.page, key=self.key, written=item)

    def texts(self, right: str = "a list of texts") -> tuple[str, ...]:
        """A list of texts, one text for each item."""
        if isinstance(self.written, Fields):
            self.wrong(right)
            return ()
        return tuple(text for item in self.items() if (text := item.text()))

    def words(self, right: str = "a list of texts") -> tuple[str, ...]:
        """A list of texts, or one text with commas; commas inside parentheses separate nothing."""
        if not isinstance(self.written, Scalar):
            return self.texts(right)
        if self.written.kind != "text":
            self.wrong(right)
            return ()
        return tuple(word for part in parts(self.written.raw) if (word := part.strip()))

    def name(self) -> str:
        """The name of one agent."""
        if isinstance(self.written, Scalar) and self.written.kind == "text" and self.written.raw.strip():
            return self.referred(self.written.raw.strip())
        self.wrong("one agent's name")
        return ""

    def names(self) -> tuple[str, ...]:
        """A list of agents' names, each once."""
        words = [self.referred(word) for word in self.words("a list of agents' names")]
        names = tuple(dict.fromkeys(words))
        if len(names) < len(words):
            twice = next(name for name, count in Counter(words).items() if count > 1)
            self.warn(f"{quoted(twice)} stands here twice; once would be right")
        return names

    def referred(self, word: str) -> str:
        """`word` as the name of an agent; in a foreign file a display name stands for the name made from it."""
        if self.page.foreign and not is_name(word) and not word.startswith(_SOURCES):
            return slug(word) or word
        return word

    def entries(self) -> Iterator[tuple[str, Slot]]:
        """The values of a mapping under their keys as spelled; nothing where no mapping stands."""
        fields = self.written.fields if isinstance(self.written, Fields) else {}
        for spelled, written in fields.items():
            yield spelled, Slot(page=self.page, key=self.under(spelled), written=written)

    def under(self, key: str) -> str:
        """The place of a nested key: `members` in the slot `team` is `team.members`."""
        return f"{self.key}.{key}" if self.key else key

    def fields(self, known: Collection[str], *, also: Mapping[str, str] | None = None) -> dict[str, Slot]:
        """The values of a mapping by key, in snake_case however they are spelled; without those left empty.

        A key that is not `known` is warned about and left out; a spelling in `also` stands for the key
        it leads to.
        """
        if not isinstance(self.written, Fields):
            self.wrong(f"a mapping with keys such as {joined(list(known)[:3], last='or')}")
            return {}
        spellings = {camel(key): key for key in known} | {key: key for key in known} | dict(also or {})
        found: dict[str, Slot] = {}
        for spelled, slot in self.entries():
            if (key := spellings.get(spelled)) is None:
                slot.warn_unknown(spelled, spellings)
            elif key in found:
                first = found[key]
                slot.error(f"says the same as {first.key} on line {first.written.line}; one of them would be right")
            elif not slot.is_empty():
                found[key] = slot
                self.page.lines[self.under(key)] = slot.written.line
        return found

    def warn_unknown(self, spelled: str, known: Collection[str]) -> None:
        """The warning about a key that nobody reads, with the nearest one that is read."""
        if self.page.is_full:
            return
        near = get_close_matches(spelled[:40], sorted(known), n=1, cutoff=0.0)
        self.warn(f"is not a known key and is ignored; the nearest known key is {near[0]}")


@cache
def camel(key: str) -> str:
    """`max_turns` as `maxTurns`."""
    head, *tail = key.split("_")
    return head + "".join(word.capitalize() for word in tail)


def parts(text: str) -> Iterator[str]:
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
