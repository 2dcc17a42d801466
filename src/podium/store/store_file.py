"""Read and write store files, which contain exported runs and everything that belongs to the runs.

A store file is a gzip file of JSON lines. The first line names the format and the columns of each table. Each further
line is a row: an array that begins with the name of its table. The last line contains the number of rows and the
SHA-256 of all lines before it, so that a truncated or changed file is detected. Binary values are in Base64.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from gzip import GzipFile
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from .. import __version__
from ..system.atomic_file import open_replacement
from ..values.errors import Mistake, StoreCorrupt

FORMAT = 1

TABLES: dict[str, tuple[str, ...]] = {
    "run": ("id", "created", "epoch"),
    "last_group": ("id",),
    "run_group": ("id", "kind", "repo", "team", "name", "position", "pinned", "archived"),
    "placement": ("run", "place", "name", "position", "pinned", "archived", "manual"),
    "worker": ("run", "root", "branch", "is_open"),
    "worktree": (
        *("host", "path", "repository", "branch", "base", "run", "git_dir", "is_new_branch", "state", "created"),
        "size",
    ),
    "command_key": ("key", "digest", "id", "at", "reply"),
    "schedule": (
        *("id", "cron", "zone", "agent", "request", "root", "host", "created", "is_paused", "next_at", "last_at"),
        *("last_run", "missed", "missed_at", "error"),
    ),
    "issue_claim": (
        *("source", "issue", "token", "claimed", "root", "title", "body", "author", "url", "state", "agent", "branch"),
        *("note", "comment", "comment_at", "comment_tries", "comment_url"),
    ),
    "entry": ("run", "seq", "epoch", "kind", "key", "line", "hash"),
    "mail": ("run", "ref", "at", "line", "taken"),
    "attachment": ("run", "message", "digest", "data"),
    "artifact": ("digest", "data"),
}
"""The columns of each table in a store file, in the order in which the tables are written."""

BINARY_COLUMNS = frozenset(("line", "hash", "data", "reply"))


class FileRow(NamedTuple):
    """A row of a table, with its values in the order of the columns in TABLES."""

    table: str
    values: tuple[Any, ...]


class _Header(Struct):
    """The first line of a store file."""

    podium_store: int
    release: str
    tables: dict[str, tuple[str, ...]]


class StoreFileWriter:
    """Writes the lines of a store file."""

    def __init__(self, file: GzipFile) -> None:
        self._file = file
        self._digest = sha256()
        self._rows = 0
        self._write_line(_Header(podium_store=FORMAT, release=__version__, tables=TABLES))

    def write_rows(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows of a table. The values of each row are in the order of the columns in TABLES."""
        is_binary = [column in BINARY_COLUMNS for column in TABLES[table]]
        for row in rows:
            values = [
                b64encode(value).decode() if binary and value is not None else value
                for binary, value in zip(is_binary, row, strict=True)
            ]
            self._write_line([table, *values])
        self._rows += len(rows)

    def write_end(self) -> None:
        """Write the last line."""
        self._write_line(["end", self._rows, self._digest.hexdigest()])

    def _write_line(self, content: object) -> None:
        line = msgspec.json.encode(content) + b"\n"
        self._digest.update(line)
        self._file.write(line)


@contextmanager
def write_store_file(path: Path) -> Iterator[StoreFileWriter]:
    """Yield a writer for a store file that replaces `path` when the block ends. Raise Mistake if writing fails."""
    with open_replacement(path) as file, GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
        writer = StoreFileWriter(packed)
        yield writer
        writer.write_end()


def read_store_file(path: Path) -> Iterator[FileRow]:
    """Yield the rows of a store file.

    Raise Mistake if the file cannot be read or has an unknown format, and StoreCorrupt if it is damaged or not a gzip
    file. Damage may be detected only after the last row.
    """
    try:
        with path.open("rb") as file, GzipFile(fileobj=file, mode="rb") as packed:
            yield from _read_rows(packed, path)
    except (EOFError, zlib.error) as error:
        raise _explain_damage(path) from error
    except OSError as error:
        # BadGzipFile, which is raised if the file is not a gzip file or its checksum is wrong, has no error number.
        if error.errno is None:
            raise StoreCorrupt(f"{path} is not a store file, or is damaged ({error}); nothing was changed") from error
        raise Mistake(f"{path} cannot be read: {error.strerror}") from error


def _read_rows(packed: GzipFile, path: Path) -> Iterator[FileRow]:
    first = packed.readline()
    binary = {table: _find_binary(table) for table in TABLES}
    _require_known_format(first, path)
    digest = sha256(first)
    for rows, line in enumerate(packed):
        try:
            table, *values = msgspec.json.decode(line, type=list[Any])
            if table == "end":
                if values != [rows, digest.hexdigest()] or packed.read(1):
                    raise _explain_damage(path)
                return
            for place in binary[table]:
                values[place] = None if values[place] is None else b64decode(values[place], validate=True)
            if len(values) != len(TABLES[table]):
                raise _explain_damage(path)
        except (msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError) as error:
            raise _explain_damage(path) from error
        yield FileRow(table, tuple(values))
        digest.update(line)
    raise _explain_damage(path)


def _find_binary(table: str) -> list[int]:
    return [place for place, column in enumerate(TABLES[table]) if column in BINARY_COLUMNS]


def _require_known_format(line: bytes, path: Path) -> None:
    try:
        header = msgspec.json.decode(line, type=_Header)
    except msgspec.MsgspecError as error:
        raise Mistake(f"{path} is not a store file; create one with podium store export") from error
    if header.podium_store > FORMAT or header.tables != TABLES:
        raise Mistake(
            f"{path} was written by Podium {header.release} (format {header.podium_store}); this is Podium "
            f"{__version__}, which reads format {FORMAT}; update Podium, or export the store again with {__version__}"
        )


def _explain_damage(path: Path) -> StoreCorrupt:
    return StoreCorrupt(f"{path} is incomplete or was modified, so it was not read; export the store again")
