"""Replace files atomically: a reader sees either the old content or the new content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..values.errors import Mistake
from .private_folder import make_private_folder


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically, following symbolic links. A new file is readable only by its owner.

    Raise Mistake if the file cannot be written.
    """
    with open_replacement(path) as file:
        file.write(data)


@contextmanager
def open_replacement(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends, and is deleted if the block fails.

    Symbolic links are followed, and a new file is readable only by its owner. Raise Mistake if it cannot be written.
    """
    from tempfile import mkstemp  # imported here for start-up time: most commands write no file

    real = path.resolve()
    try:
        make_private_folder(real.parent)
        mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o600
        handle, name = mkstemp(dir=real.parent, prefix=f".{real.name}.")
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror or error}; check its folder's permissions") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        Path(name).chmod(mode)
        Path(name).replace(real)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Mistake(f"{path} cannot be written: {error.strerror or error}") from error
        raise
