"""Add syntax highlighting to the lines of a diff: mark the keywords, strings, comments, numbers and names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from anyio import Lock
from msgspec import UNSET

from ...system.child_process import OutputBuffer, build_environment, run_process
from ...system.process_group import ProgramNotStarted
from ...views.diff_hunks import DiffFile, DiffHunk

PROGRAM = Path(__file__).with_name("_syntax_program.py")
SECONDS = 5.0
MOST_CHARACTERS = 400_000
"""The maximum number of characters of a diff to highlight. Files beyond this limit are not highlighted."""
MOST_FILES = 400
"""How many files are cached."""
LARGEST_OUTPUT = 32 * 1024 * 1024

LANGUAGES = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "javascript"),
    **dict.fromkeys((".ts", ".tsx", ".mts"), "typescript"),
    **dict.fromkeys((".c", ".h"), "c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp", ".hh"), "cpp"),
    **dict.fromkeys((".sh", ".bash", ".zsh"), "bash"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    **dict.fromkeys((".html", ".htm", ".vue"), "html"),
    **dict.fromkeys((".xml", ".svg"), "xml"),
    **dict.fromkeys((".ini", ".cfg", ".conf"), "ini"),
    **dict.fromkeys((".tf", ".hcl"), "terraform"),
    **dict.fromkeys((".ex", ".exs"), "elixir"),
    **dict.fromkeys((".kt", ".kts"), "kotlin"),
    ".cs": "csharp",
    ".css": "css",
    ".dart": "dart",
    ".go": "go",
    ".hs": "haskell",
    ".java": "java",
    ".json": "json",
    ".lua": "lua",
    ".md": "markdown",
    ".php": "php",
    ".proto": "protobuf",
    ".ps1": "powershell",
    ".r": "r",
    ".rb": "ruby",
    ".rs": "rust",
    ".scala": "scala",
    ".scss": "scss",
    ".sql": "sql",
    ".swift": "swift",
    ".toml": "toml",
    ".zig": "zig",
    "dockerfile": "docker",
    "makefile": "make",
}
"""The known languages, keyed by file extension or whole file name, in lower case."""

HunkSpans = list[list[tuple[int, int, str]]]
"""The spans of each line of a hunk. Each span is its start, end and kind."""


class DiffSyntax:
    """Adds syntax highlighting to diffs, and caches it for the most recently shown files.

    `seconds` is the time limit for one diff. Files that are not processed by then are not highlighted.
    """

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._known: dict[tuple[str, str], list[HunkSpans]] = {}
        """The spans of each file, keyed by path and digest, most recently used last. Unfinished files have none."""
        self._lock = Lock()

    async def add_to(self, files: list[DiffFile]) -> None:
        """Add `syntax` to the lines of each file whose language is known."""
        async with self._lock:
            chosen = list(_choose_files(files))
            new = [file for file in chosen if _key_of(file) not in self._known]
            found = await _run_program([_build_input(file) for file in new], self._seconds) if new else []
            for number, file in enumerate(new):
                self._known[_key_of(file)] = found[number] if number < len(found) else []
            for file in chosen:
                spans = self._known[_key_of(file)] = self._known.pop(_key_of(file))
                if spans:
                    _add_spans(file, spans)
            for old in list(self._known)[:-MOST_FILES]:
                del self._known[old]


def find_language(path: str) -> str | None:
    """Return the language of a file, or None if it is not known."""
    name = PurePosixPath(path.lower())
    return LANGUAGES.get(name.suffix) or LANGUAGES.get(name.name)


def _key_of(file: DiffFile) -> tuple[str, str]:
    return file.path, file.digest


def _choose_files(files: list[DiffFile]) -> Iterator[DiffFile]:
    """Yield the files whose language is known, until MOST_CHARACTERS is reached. Skip files that are incomplete."""
    left = MOST_CHARACTERS
    for file in files:
        lines = [line for hunk in file.hunks for line in hunk.lines]
        if find_language(file.path) is None or file.omitted or any(line.cut is not UNSET for line in lines):
            continue
        left -= sum(len(line.text) for line in lines)
        if left >= 0:
            yield file


def _build_input(file: DiffFile) -> dict[str, Any]:
    texts = [_join_side(hunk, mark) for hunk in file.hunks for mark in "-+"]
    return {"language": find_language(file.path), "texts": texts}


def _join_side(hunk: DiffHunk, mark: str) -> str:
    """Return the old side of a hunk (`-`) or the new one (`+`) as text."""
    return "\n".join(line.text for line in hunk.lines if line.mark in (mark, " "))


def _add_spans(file: DiffFile, spans: list[HunkSpans]) -> None:
    """Add syntax spans to the lines of a file's hunks. Unchanged lines get their spans from the new side."""
    for hunk, old, new in zip(file.hunks, spans[::2], spans[1::2], strict=True):
        sides = {"-": iter(old), "+": iter(new)}
        for line in hunk.lines:
            if line.mark == " ":
                next(sides["-"])
            if line.mark in "+- " and (found := next(sides["-" if line.mark == "-" else "+"])):
                line.syntax = found


async def _run_program(files: list[dict[str, Any]], seconds: float) -> list[list[HunkSpans]]:
    """Run the syntax program on these files, and return the spans of each file.

    If the program has to be stopped early, the result does not contain the files that were not finished.
    """
    output = OutputBuffer(LARGEST_OUTPUT)
    # Isolated: a module in the directory or in PYTHONPATH cannot shadow one that the program needs.
    argv = [sys.executable, "-I", str(PROGRAM)]
    try:
        await run_process(
            argv,
            env=build_environment(),
            directory=PROGRAM.parent,
            take=output.append,
            take_stderr=lambda chunk: True,
            timeout=seconds,
            stdin=msgspec.json.encode(files),
        )
    except ProgramNotStarted:
        return []
    # An incomplete last line belongs to a file that was not finished.
    return [msgspec.json.decode(line, type=list[HunkSpans]) for line in bytes(output).split(b"\n")[:-1]]
