"""Reading and writing whole files of the checkout."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from anyio import to_thread
from msgspec import Meta

from ..core.engine import ToolAnswer
from ..core.gate import Deed, Unfit
from ..values.action import Action
from ..values.event import ToolUse
from .checkout_files import entered
from .file_change import ABSENT, LARGEST, Change, content, current, digest, recovered, told
from .tool_arguments import Arguments, canonical, read, schema
from .unified_diff import lines

LONGEST_LINE = 2000
LARGEST_ANSWER = 256 * 1024
SNIFFED = 8192

KINDS = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)

PathOfFile = Annotated[str, Meta(description="The file, relative to the checkout.")]


# Reading


class ReadArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of read_file."""

    path: PathOfFile
    offset: Annotated[int, Meta(ge=1, description="The first line to read, counted from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=100_000, description="How many lines to read at most.")] = 2000


class ReadFile:
    """`read_file`: numbered lines of a text file."""

    name = "read_file"
    description = (
        "Read a text file. Each line comes with its number and a tab before it. Long files come in parts: "
        "what is left out, and how to get it, is said at the end."
    )
    parameters = schema(ReadArguments)
    is_parallel = True
    timeout = 60.0

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def prepare(self, call: ToolUse) -> Deed:
        asked = read(call, ReadArguments)

        def located() -> str:
            with entered(self._directory) as checkout:
                found = checkout.locate(asked.path).as_file()
            if found.kind == "absent":
                raise Unfit(f"There is no file {found.path}; use glob to see which there are.")
            return found.path

        path = await to_thread.run_sync(located)

        async def act() -> ToolAnswer:
            return await to_thread.run_sync(self._answer, path, asked.offset, asked.limit)

        return Deed(arguments=canonical(asked, path=path), act=act, is_reading=True)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None

    def _answer(self, path: str, offset: int, limit: int) -> ToolAnswer:
        with entered(self._directory) as checkout, told(path), checkout.file(path) as fd:
            size = os.fstat(fd).st_size
            with os.fdopen(fd, "rb", closefd=False) as file:
                start = file.read(SNIFFED)
                if b"\0" in start:
                    raise Unfit(f"{path} is {_kind(start)} of {size} bytes, not text; it cannot be read as lines.")
                file.seek(0)
                return _numbered(file, path, offset, limit)


def _kind(start: bytes) -> str:
    return next((kind for mark, kind in KINDS if start.startswith(mark)), "binary data")


def _numbered(file: BinaryIO, path: str, offset: int, limit: int) -> ToolAnswer:
    """The lines that were asked for. Nothing but them is held in memory, however long the file's lines are."""
    shown: list[str] = []
    size = number = 0
    while len(shown) < limit and size < LARGEST_ANSWER:
        line, length = _line(file)
        if length == 0:
            return _whole(path, shown, number, offset)
        number += 1
        if number >= offset:
            shown.append(f"{number:>6}\t{_cut(line, length)}")
            size += len(shown[-1].encode()) + 1
    if file.read(1):
        shown.append(f"[{path} goes on; read on with offset={number + 1}]")
    return ToolAnswer(text="\n".join(shown))


def _whole(path: str, shown: list[str], count: int, offset: int) -> ToolAnswer:
    if shown:
        return ToolAnswer(text="\n".join(shown))
    if count == 0 and offset == 1:
        return ToolAnswer(text=f"[{path} is empty]")
    return ToolAnswer(text=f"{path} has {count} lines; an offset up to {max(count, 1)} would work.", is_error=True)


def _line(file: BinaryIO) -> tuple[bytes, int]:
    """The start of the next line, and how long all of it is; a length of 0 at the end of the file."""
    start = file.readline(4 * LONGEST_LINE)
    length, part = len(start), start
    while part and not part.endswith(b"\n"):
        part = file.readline(1 << 16)
        length += len(part)
    return start, length


def _cut(line: bytes, length: int) -> str:
    text = line.decode(errors="replace").removesuffix("\n").removesuffix("\r").removeprefix("\ufeff")
    if len(text) <= LONGEST_LINE and length == len(line):
        return text
    return f"{text[:LONGEST_LINE]} [this line is cut; it has {length} bytes]"


# Writing


class WriteArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of write_file."""

    path: PathOfFile
    content: Annotated[str, Meta(description="All that the file shall hold.")]


class WriteFile:
    """`write_file`: a file with this content, and the directories above it."""

    name = "write_file"
    description = (
        "Create a file, or replace all of what it holds. Missing directories are made. To change a part of a "
        "file, use edit_file."
    )
    parameters = schema(WriteArguments)
    is_parallel = False
    timeout = 60.0

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def prepare(self, call: ToolUse) -> Deed:
        asked = read(call, WriteArguments)
        return await to_thread.run_sync(self._prepared, asked)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return await recovered(self._directory, began, _written)

    def _prepared(self, asked: WriteArguments) -> Deed:
        after = encoded(asked.content, "content")
        if len(after) > LARGEST:
            raise Unfit(f"`content` is larger than {LARGEST >> 20} MiB; write less at once.")
        with entered(self._directory) as checkout:
            path = checkout.locate(asked.path).as_file().path
            with told(path):
                before_hash = current(checkout, path)
            before, note = None, ""
            if before_hash != ABSENT:
                try:
                    there = content(checkout, path)
                    before, before_hash = there.decode(), digest(there)
                except (UnicodeDecodeError, Unfit):
                    note = f"{path} is there already and is not text, or too large to be shown; it would be replaced.\n"
        change = Change(directory=self._directory, path=path, before=before, before_hash=before_hash, after=after)
        return change.deed(canonical(asked, path=path), _written, note=note)


def _written(path: str, arguments: Mapping[str, Any], is_new: bool) -> str:
    count = len(lines(arguments["content"]))
    plural = "line" if count == 1 else "lines"
    return f"Created {path} with {count} {plural}." if is_new else f"Overwrote {path}; it has {count} {plural} now."


def encoded(text: str, argument: str) -> bytes:
    """The text in UTF-8. Raises Unfit where it has halves of characters in it."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Unfit(f"`{argument}` has half a character in it, at {error.start}; give text that is valid.") from error
