"""Provide the tools `read_file` and `write_file` for files in the checkout."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from anyio import to_thread
from msgspec import Meta

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall
from ..core.tool_call import Arguments, build_schema, canonical_arguments, parse_arguments
from ..values.action import Action
from ..values.event import ToolUse
from ..values.plain_text import begins_numbered, is_numbered, number_line
from .checkout_files import open_checkout
from .file_change import (
    ABSENT,
    LARGEST,
    FindGuard,
    PendingFileChange,
    convert_os_errors,
    find_repository_guard,
    hash_content,
    hash_file,
    read_whole_file,
    recover_change,
)
from .unified_diff import split_lines

LONGEST_LINE = 2000
SMALL_LINES = 50
SMALL_BYTES = 4096
"""A file of at most so many lines and bytes is always returned whole, whatever part of it was asked for.

Small models often ask for a part that does not contain what they need."""
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

PathOfFile = str
"""The path of a file, relative to the checkout."""


# Reading


class ReadArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of read_file."""

    path: PathOfFile
    offset: Annotated[int, Meta(ge=0, description="First line, from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 2000


class ReadFile:
    """`read_file`: returns the numbered lines of a text file. A small file is returned whole."""

    name = "read_file"
    description = "Read a text file as numbered lines."
    parameters = build_schema(ReadArguments)
    is_parallel = True
    timeout = 60.0

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = parse_arguments(call, ReadArguments)

        def locate_file() -> str:
            with open_checkout(self._directory) as checkout:
                found = checkout.locate(asked.path).as_file()
            if found.kind == "absent":
                raise InvalidCall(f"{found.path} does not exist; use glob to find files.")
            return found.path

        path = await to_thread.run_sync(locate_file)

        async def read_requested_lines() -> ToolAnswer:
            return await to_thread.run_sync(self._read_lines, path, asked.offset, asked.limit)

        return PreparedCall(
            arguments=canonical_arguments(asked, path=path), act=read_requested_lines, is_read_only=True
        )

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None

    def _read_lines(self, path: str, offset: int, limit: int) -> ToolAnswer:
        with open_checkout(self._directory) as checkout, convert_os_errors(path), checkout.open_file(path) as fd:
            size = os.fstat(fd).st_size
            with os.fdopen(fd, "rb", closefd=False) as file:
                start = file.read(SNIFFED)
                if b"\0" in start:
                    raise InvalidCall(
                        f"{path} is {_detect_file_type(start)} of {size} bytes, not UTF-8 text; "
                        "it cannot be read as lines."
                    )
                file.seek(0)
                if size <= SMALL_BYTES and start.count(b"\n") <= SMALL_LINES:
                    offset, limit = 1, SMALL_LINES + 1
                return _number_lines(file, path, max(offset, 1), limit)


def _detect_file_type(start: bytes) -> str:
    return next((kind for mark, kind in KINDS if start.startswith(mark)), "binary data")


def _number_lines(file: BinaryIO, path: str, offset: int, limit: int) -> ToolAnswer:
    """Return the requested lines with their numbers, up to a size limit. Long lines are cut.

    Only these lines are kept in memory.
    """
    shown: list[str] = []
    size = number = 0
    while len(shown) < limit and size < LARGEST_ANSWER:
        line, length = _read_line_start(file)
        if length == 0:
            return _answer_at_file_end(path, shown, number, offset)
        number += 1
        if number >= offset:
            shown.append(number_line(number, _truncate_line(line, length)))
            size += len(shown[-1].encode()) + 1
    if file.read(1):
        shown.append(f"[{path} continues; to read more, use offset={number + 1}]")
    return ToolAnswer(text="\n".join(shown))


def _answer_at_file_end(path: str, shown: list[str], count: int, offset: int) -> ToolAnswer:
    if shown:
        return ToolAnswer(text="\n".join(shown))
    if count == 0 and offset == 1:
        return ToolAnswer(text=f"[{path} is empty]")
    return ToolAnswer(text=f"{path} has {count} lines; use an offset up to {max(count, 1)}.", is_error=True)


def _read_line_start(file: BinaryIO) -> tuple[bytes, int]:
    """Return the start of the next line, and the full length of that line, which is 0 at the end of the file."""
    start = file.readline(4 * LONGEST_LINE)
    length, part = len(start), start
    while part and not part.endswith(b"\n"):
        part = file.readline(1 << 16)
        length += len(part)
    return start, length


def _truncate_line(line: bytes, length: int) -> str:
    text = line.decode(errors="replace").removesuffix("\n").removesuffix("\r").removeprefix("\ufeff")
    if len(text) <= LONGEST_LINE and length == len(line):
        return text
    return f"{text[:LONGEST_LINE]} [line truncated; it has {length} bytes]"


# Writing


class WriteArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of write_file."""

    path: PathOfFile
    content: str


class WriteFile:
    """`write_file`: writes a file and creates missing directories."""

    name = "write_file"
    description = "Create a file or replace its whole content."
    parameters = build_schema(WriteArguments)
    is_parallel = False
    timeout = 60.0

    def __init__(self, directory: Path, *, find_guard: FindGuard = find_repository_guard) -> None:
        self._directory = directory
        self._find_guard = find_guard

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = parse_arguments(call, WriteArguments)
        return await to_thread.run_sync(self._prepare_write, asked)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return await recover_change(self._directory, began, _describe_write)

    def _prepare_write(self, asked: WriteArguments) -> PreparedCall:
        after = encode_utf8(asked.content, "content")
        if len(after) > LARGEST:
            raise InvalidCall(f"`content` is larger than {LARGEST >> 20} MiB; write a smaller file.")
        with open_checkout(self._directory) as checkout:
            path = checkout.locate(asked.path).as_file().path
            with convert_os_errors(path):
                before_hash = hash_file(checkout, path)
            before, note = None, ""
            if before_hash != ABSENT:
                try:
                    there = read_whole_file(checkout, path)
                    before, before_hash = there.decode(), hash_content(there)
                except (UnicodeDecodeError, InvalidCall):
                    note = f"{path} already exists, but is not text or is too large to show; it would be overwritten.\n"
        is_copied = before is not None and is_numbered(asked.content) and not is_numbered(before)
        if is_copied or begins_numbered(asked.content):
            raise InvalidCall(
                "`content` begins with the line numbers that read_file shows, so nothing was written. They are not in "
                "the file: give the content without them, or change a part of the file with edit_file."
            )
        change = PendingFileChange(
            directory=self._directory,
            path=path,
            before=before,
            before_hash=before_hash,
            after=after,
            guard=self._find_guard(self._directory, path),
        )
        return change.prepare_call(canonical_arguments(asked, path=path), _describe_write, note=note)


def _describe_write(path: str, arguments: Mapping[str, Any], is_new: bool) -> str:
    count = len(split_lines(arguments["content"]))
    plural = "line" if count == 1 else "lines"
    return f"Created {path} with {count} {plural}." if is_new else f"Overwrote {path}; it now has {count} {plural}."


def encode_utf8(text: str, argument: str) -> bytes:
    """Encode the text of an argument as UTF-8. Raise InvalidCall if it contains a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidCall(
            f"`{argument}` contains an invalid character at position {error.start}; give valid text."
        ) from error
