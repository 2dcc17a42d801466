"""Reading one settings file. Whatever it holds, there are findings and never an exception."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from ..values.diagnostic import Finding
from ..values.located_yaml import Malformed, compose
from .mcp_json import compose_json
from .settings_document import Document
from .settings_field import Page, Slot
from .settings_keys import Side, document, servers

MOST_BYTES = 1024 * 1024

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_REASONS = {
    errno.ELOOP: "is a symbolic link that leads back to itself; a regular file would be right",
    errno.ENOENT: "links to something that does not exist; a regular file would be right",
    errno.EACCES: "may not be read by this user; change its permissions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What came of one file; `numbers` has the line of each key. A file with an error says nothing."""

    path: str
    document: Document
    findings: tuple[Finding, ...]
    numbers: dict[str, int]
    is_there: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """The file, if there is one."""
        return (self.path,) if self.is_there else ()

    @property
    def lines(self) -> dict[str, str]:
        """The place of each key."""
        return {key: f"{self.path}:{number}" for key, number in self.numbers.items()}


class Unreadable(Exception):
    """The file cannot be read; the message continues a sentence that begins with its path."""


def read(path: Path, *, path_shown: str, side: Side, root: Path | None = None) -> Reading:
    """What the file at `path` says, which may not lead out of `root`; JSON holds MCP servers and nothing else."""
    page = Page(path=path_shown, foreign=path.suffix == ".json")
    is_there = os.path.lexists(path)
    found = Document()
    if is_there:
        try:
            found = _read(page, decoded(contents(path, root)), side)
        except Unreadable as error:
            page.note("error", str(error))
        except Malformed as error:
            page.note("error", str(error), line=error.line, key=error.key)
    return _finished(page, found, is_there=is_there)


def parsed(text: str, *, path_shown: str) -> Reading:
    """What a person's file would say if `text` stood in it."""
    page = Page(path=path_shown)
    found = Document()
    try:
        found = _read(page, text, "user")
    except Malformed as error:
        page.note("error", str(error), line=error.line, key=error.key)
    return _finished(page, found)


def _finished(page: Page, found: Document, *, is_there: bool = True) -> Reading:
    is_broken = any(finding.severity == "error" for finding in page.findings)
    findings = sorted(page.findings, key=lambda finding: finding.line or 0)
    if page.foreign:
        # Other programs live by this file too; that it is of no use to us stops nobody.
        findings = [structs.replace(finding, severity="warning") for finding in findings]
    return Reading(
        path=page.path,
        document=Document() if is_broken else found,
        findings=tuple(findings),
        numbers=page.lines,
        is_there=is_there,
    )


def _read(page: Page, text: str, side: Side) -> Document:
    if not page.foreign:
        return document(Slot(page=page, key="", written=compose(text)), side)
    top = Slot(page=page, key="", written=compose_json(text))
    slots = top.fields(("mcpServers",))
    return Document(mcp_servers=servers(slots["mcpServers"], side)) if "mcpServers" in slots else Document()


def contents(path: Path, root: Path | None) -> bytes:
    """The bytes of a regular file that is inside `root` after all links are followed; no more than allowed, and one."""
    try:
        real = path.resolve(strict=True)
        if root is not None and not real.is_relative_to(root.resolve()):
            raise Unreadable("leads out of the repository, where nothing is read; a copy inside would be right")
        descriptor = os.open(real, _FLAGS)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Unreadable("is not a regular file; a regular file would be right")
            return file.read(MOST_BYTES + 1)
    except RuntimeError as error:  # how pathlib tells a loop of links before Python 3.13
        raise Unreadable(_REASONS[errno.ELOOP]) from error
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, f"cannot be read: {error.strerror or error}")
        raise Unreadable(reason) from error


def decoded(data: bytes) -> str:
    """`data` as text with lines ended by `\\n`, refused where it is too long or no text."""
    if len(data) > MOST_BYTES:
        raise Unreadable("has more than 1 MiB; a settings file is at most that long")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(10, 0, error.start) + 1
        raise Unreadable(f"is not UTF-8: byte 0x{data[error.start]:02x} on line {line}; save it as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
