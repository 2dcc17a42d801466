"""Sealed copies: what a command runs is what was approved, whatever happens to the file meanwhile.

A copy lies in the Podium home, which no command sees, and is laid over the file inside the sandbox.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .mounts import Mount


@dataclass(frozen=True, slots=True)
class SealedCopies:
    """The copies for one command."""

    mounts: tuple[Mount, ...] = ()

    def remove(self) -> None:
        """Put them away."""
        for mount in self.mounts:
            with suppress(OSError):
                if mount.source is not None:
                    mount.source.unlink()


@dataclass(frozen=True, slots=True)
class SealedFiles:
    """Where copies are kept while their command runs."""

    folder: Path

    def make_copies(self, checkout: Path, files: Mapping[str, bytes]) -> SealedCopies:
        """Copies of these files of a checkout, as they are given."""
        if not files:
            return SealedCopies()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mounts: list[Mount] = []
        for name, content in files.items():
            copy = self.folder / f"seal-{secrets.token_hex(8)}"
            mounts.append(Mount("read", checkout / name, copy))
            copy.write_bytes(content)
            # As its original: git would take another mode for a change.
            is_executable = bool(_read_mode(checkout / name) & 0o100)
            copy.chmod(0o555 if is_executable else 0o444)
        return SealedCopies(tuple(mounts))


def _read_mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0o100
