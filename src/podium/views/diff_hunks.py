"""Parse a unified diff from git into files, hunks and lines, for pages that show it line by line."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

MOST_LINES = 20_000
"""Maximum number of hunk lines to include. Further lines are only counted."""
LONGEST_LINE = 4_000
"""Maximum number of characters in a line. The rest is cut off."""
DIGEST_LENGTH = 16

_START = "diff --git "
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
_INDEX = re.compile(r"index [0-9a-f]+\.\.[0-9a-f]+ (\d+)")
_REGULAR_MODES = ("100644", "100755")
_QUOTED_NAMES = re.compile(r'"a/((?:[^"\\]|\\.)*)" (?:"b/(?:[^"\\]|\\.)*"|b/.*)')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_NO_FILE = "/dev/null"


class DiffLine(Struct, kw_only=True):
    """A line of a hunk, with its numbers in the old and the new file. `cut` is the number of characters left out.

    If the language of the file is known, `syntax` lists the parts to highlight, such as keywords and strings: the
    start, the end and the kind of each. Positions are measured in UTF-16 code units.
    """

    mark: str
    text: str
    cut: int | UnsetType = UNSET
    new: int | UnsetType = UNSET
    old: int | UnsetType = UNSET
    syntax: list[tuple[int, int, str]] | UnsetType = UNSET


class DiffHunk(Struct, kw_only=True):
    """A hunk. `old_count` and `new_count` are the numbers of lines that it covers in the old and the new file."""

    old: int
    old_count: int
    new: int
    new_count: int
    heading: str
    lines: list[DiffLine] = []


class DiffFile(Struct, kw_only=True):
    """A file in a diff. `omitted` is the number of its lines that were left out; `added` and `removed` count all.

    `was` is its previous name. The `digest` changes when anything in the file's part of the diff changes. If `is_whole`
    is true, the file's hunks cannot be chosen one by one, for example because it is new or a link.
    """

    path: str
    was: str | None = None
    status: Literal["changed", "added", "deleted", "renamed", "copied"] = "changed"
    binary: bool = False
    old_mode: str | None = None
    mode: str | None = None
    added: int = 0
    removed: int = 0
    omitted: int = 0
    digest: str = ""
    is_whole: bool = False
    hunks: list[DiffHunk] = []


class ParsedDiff(Struct, frozen=True, kw_only=True):
    """The files in a diff, and the number of lines that were left out."""

    files: list[DiffFile]
    omitted: int


def parse_diff(text: str, *, most_lines: int = MOST_LINES) -> ParsedDiff:
    """Return the files in a diff.

    All files and hunks are listed, but only the first `most_lines` lines of hunks are included. Bytes that are not
    UTF-8 are replaced.
    """
    files: list[DiffFile] = []
    digests = []
    old = new = kept = 0
    hunk: DiffHunk | None = None
    for line in _decode(text).removesuffix("\n").split("\n"):
        if line.startswith(_START):
            files.append(DiffFile(path=_parse_name(line.removeprefix(_START))))
            digests.append(sha256())
            hunk = None
        elif not files:
            continue
        elif found := _HUNK.match(line):
            hunk = _start_hunk(found)
            old, new = hunk.old, hunk.new
            files[-1].hunks.append(hunk)
        elif hunk is None:
            _read_header(files[-1], line)
        else:
            old, new = _add_line(files[-1], hunk, line, old, new, is_kept=kept < most_lines)
            kept += 1
        digests[-1].update(f"{line}\n".encode())
    for file, digest in zip(files, digests, strict=True):
        file.digest = digest.hexdigest()[:DIGEST_LENGTH]
        is_changed = file.status == "changed" and not file.old_mode and bool(file.hunks)
        file.is_whole = file.is_whole or not is_changed
    return ParsedDiff(files=files, omitted=max(0, kept - most_lines))


def _decode(text: str) -> str:
    """Replace the surrogates that represent non-UTF-8 bytes, because JSON cannot contain them."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _start_hunk(found: re.Match[str]) -> DiffHunk:
    """Return a new hunk from its header, without lines."""
    old, old_count, new, new_count, heading = found.groups()
    return DiffHunk(
        old=int(old),
        old_count=1 if old_count is None else int(old_count),
        new=int(new),
        new_count=1 if new_count is None else int(new_count),
        heading=heading.strip(),
    )


def _parse_name(names: str) -> str:
    """Return the name in `a/NAME b/NAME`. If the two differ, later lines of the header contain both."""
    if found := _QUOTED_NAMES.fullmatch(names):
        return _unescape(found[1])
    # The name can contain " b/", so split in the middle: both names have the same length.
    return names[2 : 2 + (len(names) - 5) // 2]


def _read_header(file: DiffFile, line: str) -> None:
    """Read a line between the name of a file and its first hunk."""
    word, _, value = line.rpartition(" mode ")
    match word:
        case "new file":
            file.status, file.mode = "added", value
        case "deleted file":
            file.status, file.old_mode = "deleted", value
        case "old":
            file.old_mode = value
        case "new":
            file.mode = value
    if line.startswith(("rename to ", "copy to ")):
        file.path = _unquote(line.partition(" to ")[2])
    elif line.startswith(("rename from ", "copy from ")):
        file.status = "renamed" if line.startswith("rename") else "copied"
        file.was = _unquote(line.partition(" from ")[2])
    if (found := _INDEX.match(line)) is not None:
        file.is_whole = found[1] not in _REGULAR_MODES
    if line.startswith("Binary files ") or line == "GIT binary patch":
        file.binary = True
    elif line.startswith(("--- ", "+++ ")) and (name := _unquote(line[4:].rstrip("\t"))) != _NO_FILE:
        file.path = name[2:]  # without a/ or b/; the new name comes last


def _add_line(file: DiffFile, hunk: DiffHunk, line: str, old: int, new: int, *, is_kept: bool) -> tuple[int, int]:
    """Add a line to a hunk, or only count it, and return the numbers of the next old and new lines."""
    mark, text = line[:1] or " ", line[1:]  # with diff.suppressBlankEmpty, an unchanged empty line has no mark
    row = DiffLine(mark=mark, text=text[:LONGEST_LINE])
    if len(text) > LONGEST_LINE:
        row.cut = len(text) - LONGEST_LINE
    if mark in "+ ":
        row.new = new
        new += 1
    if mark in "- ":
        row.old = old
        old += 1
    file.added += mark == "+"
    file.removed += mark == "-"
    if is_kept:
        hunk.lines.append(row)
    else:
        file.omitted += 1
    return old, new


def _unquote(name: str) -> str:
    """Return a file name without the quotes and escapes that git prints if the name has special characters."""
    found = _QUOTED.fullmatch(name)
    return name if found is None else _unescape(found[1])


def _unescape(name: str) -> str:
    """Replace git's escapes in a name. They are C escapes that represent bytes, such as `\\303\\274`."""
    parts = bytearray()
    end = 0
    for found in _ESCAPE.finditer(name):
        code = found[1]
        parts += name[end : found.start()].encode()
        parts += bytes([int(code, 8) & 0xFF]) if len(code) == 3 else bytes([_ESCAPED.get(code, ord(code) & 0xFF)])
        end = found.end()
    return (parts + name[end:].encode()).decode("utf-8", "replace")
