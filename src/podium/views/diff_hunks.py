"""Parse a unified diff from git into files, hunks and lines, for pages that show it line by line."""

from __future__ import annotations

import re
from typing import Any

MOST_LINES = 20_000
"""The number of lines after which the rest of a diff is left out."""

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def parse_diff(text: str, *, most_lines: int = MOST_LINES) -> dict[str, Any]:
    """Return the files of a diff as JSON fields. `omitted` is the number of lines after `most_lines`."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    files: list[dict[str, Any]] = []
    old = new = 0
    hunk: dict[str, Any] | None = None
    for line in lines[:most_lines]:
        if line.startswith("diff --git "):
            files.append(_start_file(line))
            hunk = None
        elif not files:
            continue
        elif found := _HUNK.match(line):
            old, new = int(found[1]), int(found[2])
            hunk = {"old": old, "new": new, "heading": found[3].strip(), "lines": []}
            files[-1]["hunks"].append(hunk)
        elif hunk is None:
            _read_header(files[-1], line)
        else:
            old, new = _add_line(files[-1], hunk, line, old, new)
    return {"files": files, "omitted": max(0, len(lines) - most_lines)}


def _start_file(line: str) -> dict[str, Any]:
    """Return an empty file. Its names are read from later lines, which say them without ambiguity."""
    name = line.rpartition(" b/")[2].rstrip('"')
    return {
        "path": name,
        "was": None,
        "status": "changed",
        "binary": False,
        "mode": None,
        "added": 0,
        "removed": 0,
        "hunks": [],
    }


def _read_header(file: dict[str, Any], line: str) -> None:
    """Read a line between the name of a file and its first hunk."""
    for start, status in (("new file mode ", "added"), ("deleted file mode ", "deleted")):
        if line.startswith(start):
            file["status"], file["mode"] = status, line.removeprefix(start)
    if line.startswith("rename from "):
        file["status"], file["was"] = "renamed", _unquote(line.removeprefix("rename from "))
    elif line.startswith("rename to "):
        file["path"] = _unquote(line.removeprefix("rename to "))
    elif line.startswith("new mode "):
        file["mode"] = line.removeprefix("new mode ")
    elif line.startswith("Binary files ") or line == "GIT binary patch":
        file["binary"] = True
    elif line.startswith("+++ ") and (name := _unquote(line.removeprefix("+++ ").rstrip("\t"))) != "/dev/null":
        file["path"] = name.removeprefix("b/")
    elif line.startswith("--- ") and (name := _unquote(line.removeprefix("--- ").rstrip("\t"))) != "/dev/null":
        file["path"] = name.removeprefix("a/")


def _add_line(file: dict[str, Any], hunk: dict[str, Any], line: str, old: int, new: int) -> tuple[int, int]:
    """Add a line to a hunk, and return the numbers of the next old and new line."""
    mark, text = line[:1], line[1:]
    if mark == "\\":
        hunk["lines"].append({"mark": "\\", "text": text.strip()})
        return old, new
    row: dict[str, Any] = {"mark": mark or " ", "text": text}
    if mark == "+":
        file["added"] += 1
        row["new"] = new
        new += 1
    elif mark == "-":
        file["removed"] += 1
        row["old"] = old
        old += 1
    else:
        row["old"], row["new"] = old, new
        old, new = old + 1, new + 1
    hunk["lines"].append(row)
    return old, new


def _unquote(name: str) -> str:
    """Return a file name as git prints it; git quotes names with special characters."""
    found = _QUOTED.fullmatch(name)
    if found is None:
        return name
    raw = found[1].encode("latin-1", "replace").decode("unicode_escape").encode("latin-1", "replace")
    return raw.decode("utf-8", "replace")
