"""Replace the files in a checkout with those from another commit, without moving its branch or changing its index."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from .repository import GitLocation, call_git, read_git_output, resolve_location
from .snapshot import take_snapshot

SWITCH_SECONDS = 600.0


async def switch_tree(place: GitLocation, commit: str) -> None:
    """Write a commit's files to a checkout, and remove the files that the commit does not have.

    Files that git ignores are kept. Raise OutsideFailed, with nothing changed, if a file changes in the meantime.
    """
    at = resolve_location(place)
    current = await take_snapshot(at)
    with TemporaryDirectory(prefix="podium-switch-") as folder:
        index = Path(folder) / "index"
        await read_git_output(at, "read-tree", current, index=index)
        # The index must know which files are unchanged; this command fails if any file differs, which is checked below.
        await call_git(at, "update-index", "-q", "--refresh", index=index, timeout=SWITCH_SECONDS)
        await read_git_output(at, "read-tree", "-m", "-u", current, commit, index=index, timeout=SWITCH_SECONDS)
