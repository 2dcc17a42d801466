"""Parse a unified diff from git into files, hunks and lines, for pages that show it line by line."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

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


def parse_diff(text: str, *, most_lines: int = MOST_LINES) -> dict[str, Any]:
    """Return the files in a diff as JSON fields.

    Only the first `most_lines` lines of hunks are included; `omitted` is how many were left out. All files and hunks
    are listed, and `added` and `removed` count all changed lines. The `digest` of a file changes when anything in its
    part of the diff changes. If `is_whole` is true, the file's hunks cannot be chosen one by one, for example
    because it is new or a link. Bytes that are not UTF-8 are replaced.
    """
    files: list[dict[str, Any]] = []
    digests = []
    old = new = kept = 0
    hunk: dict[str, Any] | None = None
    for line in _decode(text).removesuffix("\n").split("\n"):
        if line.startswith(_START):
            files.append(_start_file(line.removeprefix(_START)))
            digests.append(sha256())
            hunk = None
        elif not files:
            continue
        elif found := _HUNK.match(line):
            hunk = _start_hunk(found)
            old, new = hunk["old"], hunk["new"]
            files[-1]["hunks"].append(hunk)
        elif hunk is None:
            _read_header(files[-1], line)
        else:
            old, new = _add_line(files[-1], hunk, line, old, new, is_kept=kept < most_lines)
            kept += 1
        digests[-1].update(f"{line}\n".encode())
    for file, digest in zip(files, digests, strict=True):
        file["digest"] = digest.hexdigest()[:DIGEST_LENGTH]
        is_changed = file["status"] == "changed" and not file["old_mode"] and bool(file["hunks"])
        file["is_whole"] = file["is_whole"] or not is_changed
    return {"files": files, "omitted": max(0, kept - most_lines)}


def _decode(text: str) -> str:
    """Replace the surrogates that represent non-UTF-8 bytes, because JSON cannot contain them."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _start_file(names: str) -> dict[str, Any]:
    return {
        "path": _parse_name(names),
        "was": None,
        "status": "changed",
        "binary": False,
        "old_mode": None,
        "mode": None,
        "added": 0,
        "removed": 0,
        "omitted": 0,
        "digest": "",
        "is_whole": False,
        "hunks": [],
    }


def _start_hunk(found: re.Match[str]) -> dict[str, Any]:
    """Return a new hunk from its header, with an empty list of lines.

    `old_count` and `new_count` are the numbers of lines that the hunk covers in the old and the new file.
    """
    old, old_count, new, new_count, heading = found.groups()
    return {
        "old": int(old),
        "old_count": 1 if old_count is None else int(old_count),
        "new": int(new),
        "new_count": 1 if new_count is None else int(new_count),
        "heading": heading.strip(),
        "lines": [],
    }


def _parse_name(names: str) -> str:
    """Return the name in `a/NAME b/NAME`. If the two differ, later lines of the header contain both."""
    if found := _QUOTED_NAMES.fullmatch(names):
        return _unescape(found[1])
    # The name can contain " b/", so split in the middle: both names have the same length.
    return names[2 : 2 + (len(names) - 5) // 2]


def _read_header(file: dict[str, Any], line: str) -> None:
    """Read a line between the name of a file and its first hunk."""
    for start, status, field in (
        ("new file mode ", "added", "mode"),
        ("deleted file mode ", "deleted", "old_mode"),
        ("old mode ", "changed", "old_mode"),
        ("new mode ", "changed", "mode"),
    ):
        if line.startswith(start):
            file["status"], file[field] = status, line.removeprefix(start)
    for start, status in (("rename ", "renamed"), ("copy ", "copied")):
        if line.startswith(f"{start}from "):
            file["status"], file["was"] = status, _unquote(line.removeprefix(f"{start}from "))
        elif line.startswith(f"{start}to "):
            file["path"] = _unquote(line.removeprefix(f"{start}to "))
    if (found := _INDEX.match(line)) is not None:
        file["is_whole"] = found[1] not in _REGULAR_MODES
    if line.startswith("Binary files ") or line == "GIT binary patch":
        file["binary"] = True
    elif line.startswith(("--- ", "+++ ")) and (name := _unquote(line[4:].rstrip("\t"))) != _NO_FILE:
        file["path"] = name[2:]  # without a/ or b/; the new name comes last


def _add_line(
    file: dict[str, Any], hunk: dict[str, Any], line: str, old: int, new: int, *, is_kept: bool
) -> tuple[int, int]:
    """Add a line to a hunk, or only count it, and return the numbers of the next old and new lines."""
    mark, text = line[:1] or " ", line[1:]  # with diff.suppressBlankEmpty, an unchanged empty line has no mark
    row: dict[str, Any] = {"mark": mark, "text": text[:LONGEST_LINE]}
    if len(text) > LONGEST_LINE:
        row["cut"] = len(text) - LONGEST_LINE
    if mark in "+ ":
        row["new"] = new
        new += 1
    if mark in "- ":
        row["old"] = old
        old += 1
    file["added"] += mark == "+"
    file["removed"] += mark == "-"
    if is_kept:
        hunk["lines"].append(row)
    else:
        file["omitted"] += 1
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
