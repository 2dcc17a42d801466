"""Seal files, so that a command runs exactly the content that was approved, even if the file changes later.

A copy of the approved content is stored in the Podium home, which commands cannot see. The copy is mounted over the
file inside the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...system.owned_files import make_owned_name, make_private_folder
from .mounts import Mount


@dataclass(frozen=True, slots=True)
class SealedCopies:
    """The sealed copies for one command."""

    mounts: tuple[Mount, ...] = ()

    def remove(self) -> None:
        """Delete the copies."""
        for mount in self.mounts:
            with suppress(OSError):
                if mount.source is not None:
                    mount.source.unlink()


@dataclass(frozen=True, slots=True)
class SealedFiles:
    """The folder for sealed copies of files. A copy exists only while the command that needs it runs."""

    folder: Path

    def make_copies(self, checkout: Path, files: Mapping[str, bytes]) -> SealedCopies:
        """Write a sealed copy of each file. `files` maps the path of a file in the checkout to its approved content."""
        if not files:
            return SealedCopies()
        make_private_folder(self.folder)
        mounts: list[Mount] = []
        for name, content in files.items():
            copy = self.folder / make_owned_name("seal")
            mounts.append(Mount("read", checkout / name, copy))
            copy.write_bytes(content)
            # The copy is executable if the original is, because git would report another mode as a change.
            is_executable = bool(_read_mode(checkout / name) & 0o100)
            copy.chmod(0o555 if is_executable else 0o444)
        return SealedCopies(tuple(mounts))


def _read_mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0o100
