"""Prepare a change to one file with its diff, and write it only if the file was not modified in the meantime.

After a crash, the hashes recorded with the change show whether it was written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from anyio import to_thread

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall
from ..system.program_folders import find_program_folder
from ..values.action import Action
from ..workspace.sandbox.nested_repositories import find_bare_repository
from .checkout_files import CheckoutFiles, format_path, open_checkout
from .unified_diff import UnifiedDiff, build_unified_diff

LARGEST = 10 * 1024 * 1024
ABSENT = ""
"""The value that is used instead of a hash if a file does not exist."""

DescribeChange = Callable[[str, Mapping[str, Any], bool], str]
"""Describes a completed change, given the path, the call's arguments and whether the file is new.

The description must be the same after a crash, so it depends only on recorded values.
"""


FindGuard = Callable[[Path, str], str]
"""Returns why a person must decide on a change of a file in a checkout, or "" if the rules decide."""


def find_repository_guard(directory: Path, path: str) -> str:
    """Return why a person must decide on a change of a file, if it is in a bare git repository or completes one."""
    folder = find_bare_repository(directory, path)
    where = "the checkout" if folder == "." else folder
    return f"with {path}, git takes {where} for a repository, whose configuration can run programs" if folder else ""


def find_program_guard(directory: Path, path: str) -> str:
    """Return why a person must decide on a change of a file, if it is in a folder of programs or in a repository."""
    if folder := find_program_folder(directory, path, os.environ):
        return f"{path} is in {folder}, which holds programs that you run without looking at them"
    return find_repository_guard(directory, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFileChange:
    """The content of a file before and after a change.

    `before` is None if there was no file, or if its content cannot be shown.
    """

    directory: Path
    path: str
    before: str | None
    before_hash: str
    after: bytes
    guard: str = ""

    def prepare_call(self, arguments: Mapping[str, Any], describe: DescribeChange, *, note: str = "") -> PreparedCall:
        """Return the prepared call that makes the change. `note` is shown before the diff."""
        difference = self._build_diff()

        async def write_change() -> ToolAnswer:
            await to_thread.run_sync(self._write_file)
            return ToolAnswer(text=describe(self.path, arguments, self.before_hash == ABSENT))

        return PreparedCall(
            arguments=arguments,
            act=write_change,
            inputs={self.path: self.before_hash},
            outputs={self.path: hash_content(self.after)},
            shown=f"{note}{difference.text}",
            changed_lines=difference.changed_lines,
            guard=self.guard,
        )

    def _build_diff(self) -> UnifiedDiff:
        return build_unified_diff(self.path, self.before, self.after.decode())

    def _write_file(self) -> None:
        with open_checkout(self.directory) as checkout, convert_os_errors(self.path):
            if hash_file(checkout, self.path) != self.before_hash:
                raise InvalidCall(
                    f"{self.path} has changed since this call started, so nothing was written; read it again."
                )
            checkout.write_file(self.path, self.after)


async def recover_change(directory: Path, began: Action, describe: DescribeChange) -> ToolAnswer | None:
    """Return the answer to an interrupted call, or None if the file is unchanged and the call can be repeated.

    The answer says that the change was made, that something else changed the file, or that the file cannot be read.
    """

    def read_current_hash() -> str:
        with open_checkout(directory) as checkout, convert_os_errors(path):
            return hash_file(checkout, path)

    ((path, output),) = began.outputs.items()
    try:
        there = await to_thread.run_sync(read_current_hash)
    except InvalidCall as error:
        return ToolAnswer(text=str(error), is_error=True)
    before = began.inputs.get(path, ABSENT)
    if there == output:
        return ToolAnswer(text=describe(path, began.arguments, before == ABSENT))
    if there == before:
        return None
    return ToolAnswer(
        text=f"The process died while it was changing {path}, and something else has changed the file since then. "
        "Nothing more was written; read the file again.",
        is_error=True,
    )


# Reading whole files


def hash_content(content: bytes) -> str:
    """Return the hash of the content, in the form that actions record."""
    return sha256(content).hexdigest()


def hash_file(checkout: CheckoutFiles, path: str) -> str:
    """Return the current hash of a file, or ABSENT if the file does not exist."""
    try:
        with checkout.open_file(path) as fd, os.fdopen(fd, "rb", closefd=False) as file:
            hashed = sha256()
            while chunk := file.read(1 << 20):
                hashed.update(chunk)
            return hashed.hexdigest()
    except FileNotFoundError:
        return ABSENT


def read_whole_file(checkout: CheckoutFiles, path: str) -> bytes:
    """Return the content of a file. Raise InvalidCall if it is larger than LARGEST."""
    with convert_os_errors(path), checkout.open_file(path) as fd, os.fdopen(fd, "rb", closefd=False) as file:
        read = file.read(LARGEST + 1)
    if len(read) > LARGEST:
        raise InvalidCall(f"{path} is larger than {LARGEST >> 20} MiB; use a command to change it.")
    return read


class convert_os_errors:  # noqa: N801 - reads as a statement where it is used
    """A context manager that converts an OSError to an InvalidCall that mentions the path."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise InvalidCall(f"{format_path(self._path)} cannot be used: {error.strerror or error}.") from error
