"""Replacing a file as a whole: whoever reads it sees the old bytes or the new ones."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from tempfile import mkstemp

from ..values.errors import Mistake


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path`, or where the link `path` leads; only the person may read a file that is new."""
    real = path.resolve()
    try:
        real.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o600
        handle, name = mkstemp(dir=real.parent, prefix=f".{real.name}.")
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror or error}; change its permissions") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        Path(name).chmod(mode)
        Path(name).replace(real)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Mistake(f"{path} cannot be written: {error.strerror or error}") from error
        raise
