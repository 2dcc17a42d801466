"""A change to one file: made ready with its diff, done to no file but the one it was made for.

After a crash, the hashes that were recorded with it tell whether it was done.
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
from ..core.gate import Deed, Unfit
from ..values.action import Action
from .checkout_files import Checkout, entered, shown
from .unified_diff import Comparison, compared

LARGEST = 10 * 1024 * 1024
ABSENT = ""
"""What stands for the hash of a file that is not there."""

Said = Callable[[str, Mapping[str, Any], bool], str]
"""What is said of a change that was done: from its path, its arguments, and whether the file is new.

It is the same after a crash, and so depends on nothing but what was recorded.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file's content before and after; `before` is None where there is no file, or none that is text."""

    directory: Path
    path: str
    before: str | None
    before_hash: str
    after: bytes

    def deed(self, arguments: Mapping[str, Any], said: Said, *, note: str = "") -> Deed:
        """The change made ready. `note` precedes the diff where that does not say everything."""
        difference = self._difference()

        async def act() -> ToolAnswer:
            await to_thread.run_sync(self._write)
            return ToolAnswer(text=said(self.path, arguments, self.before_hash == ABSENT))

        return Deed(
            arguments=arguments,
            act=act,
            inputs={self.path: self.before_hash},
            outputs={self.path: digest(self.after)},
            shown=f"{note}{difference.text}",
            changed_lines=difference.changed_lines,
        )

    def _difference(self) -> Comparison:
        return compared(self.path, self.before, self.after.decode())

    def _write(self) -> None:
        with entered(self.directory) as checkout, told(self.path):
            if current(checkout, self.path) != self.before_hash:
                raise Unfit(f"{self.path} was changed meanwhile, and was left as it is; read it again.")
            checkout.write(self.path, self.after)


async def recovered(directory: Path, began: Action, said: Said) -> ToolAnswer | None:
    """What to say of a change that had begun: done, still to be done (None), or overtaken by somebody else."""

    def found() -> str:
        with entered(directory) as checkout, told(path):
            return current(checkout, path)

    ((path, output),) = began.outputs.items()
    try:
        there = await to_thread.run_sync(found)
    except Unfit as error:
        return ToolAnswer(text=str(error), is_error=True)
    before = began.inputs.get(path, ABSENT)
    if there == output:
        return ToolAnswer(text=said(path, began.arguments, before == ABSENT))
    if there == before:
        return None
    return ToolAnswer(
        text=f"{path} was about to be changed when the process died, and somebody else has changed it since; it was "
        "left as it is. Read it again.",
        is_error=True,
    )


# Reading whole files


def digest(content: bytes) -> str:
    """The hash that a file with this content has in an action."""
    return sha256(content).hexdigest()


def current(checkout: Checkout, path: str) -> str:
    """The hash of the file that is there now."""
    try:
        with checkout.file(path) as fd, os.fdopen(fd, "rb", closefd=False) as file:
            hashed = sha256()
            while chunk := file.read(1 << 20):
                hashed.update(chunk)
            return hashed.hexdigest()
    except FileNotFoundError:
        return ABSENT


def content(checkout: Checkout, path: str) -> bytes:
    """The whole of a file. Raises Unfit where it is too large to be worked on as one text."""
    with told(path), checkout.file(path) as fd, os.fdopen(fd, "rb", closefd=False) as file:
        read = file.read(LARGEST + 1)
    if len(read) > LARGEST:
        raise Unfit(f"{path} is larger than {LARGEST >> 20} MiB; use a command to change it.")
    return read


class told:  # noqa: N801 - reads as a statement where it is used
    """A block in which what the system refuses becomes a sentence about the path."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise Unfit(f"{shown(self._path)} cannot be used: {error.strerror or error}.") from error
