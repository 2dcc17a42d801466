"""Search the lines of files. This program reads a query as JSON from stdin and prints the hits as JSON lines.

The program runs as a separate process in the checkout, uses only the standard library, and does not follow links.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterator
from typing import TypedDict

LARGEST_FILE = 64 * 1024 * 1024
LONGEST_LINE = 100_000


class Query(TypedDict):
    """What to search for, and where."""

    pattern: str
    ignore_case: bool
    paths: list[str]
    context: int
    most: int


class Hit(TypedDict):
    """A line that matches, or that is shown because it is near one that does."""

    line: int
    text: str
    is_match: bool


def main() -> None:
    """Read the query, search the files and print the hits."""
    asked: Query = json.load(sys.stdin.buffer)
    expression = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    left = asked["most"] + 1  # one more than the limit, to show that there are more hits
    for path in asked["paths"]:
        for hit in _find_hits(path, expression, asked["context"]):
            sys.stdout.write(json.dumps({"path": path, **hit}) + "\n")
            left -= hit["is_match"]
            if left == 0:
                sys.stdout.flush()
                return
        sys.stdout.flush()


def _find_hits(path: str, expression: re.Pattern[str], context: int) -> Iterator[Hit]:
    before: deque[Hit] = deque(maxlen=context)
    after = 0
    for number, raw in enumerate(_read_content(path).split(b"\n"), 1):
        text = raw.decode("utf-8", "replace").removesuffix("\r")[:LONGEST_LINE]
        hit: Hit = {"line": number, "text": text, "is_match": bool(expression.search(text))}
        if hit["is_match"]:
            yield from before
            before.clear()
            after = context
            yield hit
        elif after:
            after -= 1
            yield hit
        else:
            before.append(hit)


def _read_content(path: str) -> bytes:
    """Return the content of a file without its final newline, or b"" if it is unreadable, binary or too large."""
    try:
        fd = _open_without_links(path)
    except OSError:
        return b""
    with os.fdopen(fd, "rb") as file:
        there = os.fstat(fd)
        if not stat.S_ISREG(there.st_mode) or there.st_size > LARGEST_FILE:
            return b""
        content = file.read()
    return b"" if b"\0" in content else content.removesuffix(b"\n")


def _open_without_links(path: str) -> int:
    """Open a file by descending directory by directory, without following links, and return its descriptor."""
    *above, name = path.split("/")
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in above:
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = below
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=fd)
    finally:
        os.close(fd)


if __name__ == "__main__":
    main()
