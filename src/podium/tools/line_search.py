"""Search files for matching lines in a child process, so that a search that takes too long can be stopped.

`search_with_ripgrep` uses ripgrep, and `search_files` uses Podium's own search program. Both return `Hits`.
"""

from __future__ import annotations

import re
import sys
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct

from ..system.child_process import OutputBuffer, ProcessExit, Wrap, build_environment, run_process
from . import _line_search_program

TIMEOUT = 30.0
LARGEST_OUTPUT = 8 * 1024 * 1024

_UNREAD = re.compile(rb"(?:rg: )?(?:\./)*(.+): (?:Permission denied|Operation not permitted) \(os error \d+\)")
_SUMMARY = b'"type":"summary"}'
"""The end of the last line that ripgrep prints after a complete search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepQuery:
    """A search query."""

    pattern: str
    ignore_case: bool
    context: int
    max_matches: int


class Hit(Struct, frozen=True, kw_only=True):
    """A matching line, or a context line."""

    path: str
    line: int
    text: str
    is_match: bool


@dataclass(slots=True, kw_only=True)
class Hits:
    """The search hits, ordered by path and line. If `is_cut`, there are more. `error` says why the search failed.

    `unread` lists files that could not be opened.
    """

    lines: list[Hit] = field(default_factory=list)
    is_cut: bool = False
    has_timed_out: bool = False
    error: str = ""
    unread: list[str] = field(default_factory=list)


async def search_files(directory: Path, paths: Sequence[str], query: GrepQuery, *, timeout: float = TIMEOUT) -> Hits:
    """Search files with Podium's own search program instead of ripgrep."""
    asked = {
        "pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "context": query.context,
        "most": query.max_matches,
        "paths": list(paths),
    }
    # Python runs in isolated mode and without site-packages, because the program does not need them, and Python starts
    # three times as fast.
    argv = [sys.executable, "-I", "-S", str(_line_search_program.__file__)]
    return await _run_search(argv, directory, _parse_own_hits, query, timeout, stdin=msgspec.json.encode(asked))


async def search_with_ripgrep(
    program: str,
    directory: Path,
    under: str,
    query: GrepQuery,
    is_searched: Callable[[str], bool],
    wrap: Wrap | None = None,
    *,
    timeout: float = TIMEOUT,
) -> Hits:
    """Use ripgrep to search the files under a located directory, except files that git ignores.

    Hits in files for which `is_searched` returns False are discarded.
    """
    argv = [
        program,
        "--no-config",
        "--json",
        "--hidden",
        "--glob=!.git",
        "--no-ignore-dot",
        "--no-ignore-global",
        "--no-follow",
        "--sort=path",
        f"--context={query.context}",
        "--max-filesize=64M",
        "--ignore-case" if query.ignore_case else "--case-sensitive",
        "-e",
        query.pattern,
        "--",
        f"./{under}",
    ]

    def parse_hits(line: bytes) -> list[Hit]:
        return [hit for hit in parse_ripgrep_hits(line) if is_searched(hit.path)]

    return await _run_search(wrap(argv) if wrap else argv, directory, parse_hits, query, timeout)


async def _run_search(
    argv: list[str],
    directory: Path,
    parse_hits: Callable[[bytes], list[Hit]],
    query: GrepQuery,
    timeout: float,
    *,
    stdin: bytes = b"",
) -> Hits:
    output = OutputBuffer(LARGEST_OUTPUT)
    ended = await run_process(
        argv, env=build_environment(), directory=directory, timeout=timeout, take=output.append, stdin=stdin
    )
    return await to_thread.run_sync(_collect_hits, output, ended, parse_hits, query)


def _collect_hits(
    output: OutputBuffer, ended: ProcessExit, parse_hits: Callable[[bytes], list[Hit]], query: GrepQuery
) -> Hits:
    found = Hits(is_cut=output.is_cut, has_timed_out=ended.has_timed_out)
    matches, has_finished = 0, False
    *lines, rest = bytes(output).split(b"\n")
    for line in lines:
        if (denied := _UNREAD.fullmatch(line)) is not None:
            found.unread.append(denied[1].decode(errors="replace"))
            continue
        if not line.startswith(b"{"):
            rest = line
            continue
        has_finished = has_finished or line.endswith(_SUMMARY)
        for hit in parse_hits(line):
            matches += hit.is_match
            if matches > query.max_matches:
                found.is_cut = True
                return found
            found.lines.append(hit)
    # Ripgrep also exits with 2 if it could not open some of the files, but then it has searched the others.
    if not found.lines and not has_finished and (ended.code > 1 or (ended.code == 1 and rest.strip())):
        # Ripgrep exits with 1 if nothing matches. Neither program prints its error messages as JSON.
        found.error = rest.decode(errors="replace").strip() or str(ended)
    return found


def _parse_own_hits(line: bytes) -> list[Hit]:
    return [msgspec.json.decode(line, type=Hit)]


# Ripgrep's JSON output


class _RipgrepText(Struct):
    text: str | None = None
    bytes: str | None = None

    def __str__(self) -> str:
        return self.text if self.text is not None else b64decode(self.bytes or "").decode(errors="replace")


class _RipgrepData(Struct):
    path: _RipgrepText | None = None
    lines: _RipgrepText | None = None
    line_number: int | None = None


class _RipgrepMessage(Struct):
    type: str
    data: _RipgrepData


def parse_ripgrep_hits(line: bytes) -> list[Hit]:
    """Return the hits in a line of ripgrep's JSON output, or an empty list if the line contains no hit."""
    message = msgspec.json.decode(line, type=_RipgrepMessage)
    data = message.data
    if message.type not in ("match", "context") or data.path is None or data.lines is None or data.line_number is None:
        return []
    path = str(data.path).removeprefix("./").removeprefix("./")
    text = str(data.lines).removesuffix("\n").removesuffix("\r")
    return [Hit(path=path, line=data.line_number, text=text, is_match=message.type == "match")]
