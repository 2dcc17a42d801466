"""Searching lines in a child process, so that an expression that never comes to an end can be stopped.

Two programs do it: ripgrep where it is installed, else a small one of our own. Both give the same hits.
"""

from __future__ import annotations

import sys
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct

from ..system.child_process import Ended, Wrap, run
from . import _line_search_program

TIMEOUT = 30.0
LARGEST_OUTPUT = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is searched for."""

    pattern: str
    ignore_case: bool
    context: int
    most: int


class Hit(Struct, frozen=True, kw_only=True):
    """A line that matches, or one beside it."""

    path: str
    line: int
    text: str
    is_match: bool


@dataclass(slots=True, kw_only=True)
class Hits:
    """What was found, in the order of paths and lines."""

    lines: list[Hit] = field(default_factory=list)
    is_cut: bool = False
    is_late: bool = False
    error: str = ""


async def in_files(directory: Path, paths: Sequence[str], wanted: Wanted, *, timeout: float = TIMEOUT) -> Hits:
    """Search these files, with a program of our own."""
    asked = {
        "pattern": wanted.pattern,
        "ignore_case": wanted.ignore_case,
        "context": wanted.context,
        "most": wanted.most,
        "paths": list(paths),
    }
    # Isolated and without site packages: it needs nothing of them, and starts in a third of the time.
    argv = [sys.executable, "-I", "-S", str(_line_search_program.__file__)]
    return await _searched(argv, directory, _own_hits, wanted, timeout, stdin=msgspec.json.encode(asked))


async def with_ripgrep(
    program: str,
    directory: Path,
    under: str,
    wanted: Wanted,
    is_searched: Callable[[str], bool],
    wrap: Wrap | None = None,
    *,
    timeout: float = TIMEOUT,
) -> Hits:
    """Search what git would take under a located directory, with ripgrep."""
    argv = [
        program,
        "--no-config",
        "--json",
        "--hidden",
        "--glob=!.git",
        "--no-ignore-dot",
        "--no-ignore-global",
        "--no-messages",
        "--no-follow",
        "--sort=path",
        f"--context={wanted.context}",
        "--max-filesize=64M",
        "--ignore-case" if wanted.ignore_case else "--case-sensitive",
        "-e",
        wanted.pattern,
        "--",
        f"./{under}",
    ]

    def hits(line: bytes) -> list[Hit]:
        return [hit for hit in ripgrep_hits(line) if is_searched(hit.path)]

    return await _searched(wrap(argv) if wrap else argv, directory, hits, wanted, timeout)


async def _searched(
    argv: list[str],
    directory: Path,
    hits_of: Callable[[bytes], list[Hit]],
    wanted: Wanted,
    timeout: float,
    *,
    stdin: bytes = b"",
) -> Hits:
    output = bytearray()

    def take(chunk: bytes) -> bool:
        output.extend(chunk)
        return len(output) <= LARGEST_OUTPUT

    ended = await run(argv, directory=str(directory), timeout=timeout, take=take, stdin=stdin)
    return await to_thread.run_sync(_gathered, bytes(output), ended, hits_of, wanted)


def _gathered(output: bytes, ended: Ended, hits_of: Callable[[bytes], list[Hit]], wanted: Wanted) -> Hits:
    found = Hits(is_cut=len(output) > LARGEST_OUTPUT, is_late=ended.is_late)
    matches = 0
    *lines, rest = output.split(b"\n")
    for line in lines:
        if not line.startswith(b"{"):
            rest = line
            continue
        for hit in hits_of(line):
            matches += hit.is_match
            if matches > wanted.most:
                found.is_cut = True
                return found
            found.lines.append(hit)
    if not found.lines and (ended.code > 1 or (ended.code == 1 and rest.strip())):
        # Ripgrep ends with 1 where nothing matches; what either of them complains of is no JSON.
        found.error = rest.decode(errors="replace").strip() or str(ended)
    return found


def _own_hits(line: bytes) -> list[Hit]:
    return [msgspec.json.decode(line, type=Hit)]


# Ripgrep's own form


class _Text(Struct):
    text: str | None = None
    bytes: str | None = None

    def __str__(self) -> str:
        return self.text if self.text is not None else b64decode(self.bytes or "").decode(errors="replace")


class _Data(Struct):
    path: _Text | None = None
    lines: _Text | None = None
    line_number: int | None = None


class _Message(Struct):
    type: str
    data: _Data


def ripgrep_hits(line: bytes) -> list[Hit]:
    """The hit that a line of ripgrep's JSON is; none for its other messages."""
    message = msgspec.json.decode(line, type=_Message)
    data = message.data
    if message.type not in ("match", "context") or data.path is None or data.lines is None or data.line_number is None:
        return []
    path = str(data.path).removeprefix("./").removeprefix("./")
    text = str(data.lines).removesuffix("\n").removesuffix("\r")
    return [Hit(path=path, line=data.line_number, text=text, is_match=message.type == "match")]
