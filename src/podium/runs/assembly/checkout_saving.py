"""Save the files in the user's checkout before a run changes them and when it ends, so that the run can be undone.

Each state is a commit under `refs/podium/undo/RUN`. Files that git ignores, large files and files that usually
contain secrets are not saved. The states of old runs are removed.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from anyio import move_on_after

from ...core.timeline import Timeline
from ...values.errors import PodiumError
from ...values.event import KINDS, CheckoutSaved, Noticed, RunStarted

UNDO_REFS = "refs/podium/undo"
MOST_KEPT = 200
"""How many saved states of a repository are kept. A run saves two states, and a third if it is undone."""
LONGEST_SECONDS = 20.0
LARGEST_FILE = 20 * 1024 * 1024
"""The maximum size in bytes of a file that is saved."""


class CheckoutSaving:
    """Saves the checkout of one run. A worker's own checkout is not saved, because its branch has all changes."""

    def __init__(self, timeline: Timeline, started: RunStarted) -> None:
        self._timeline = timeline
        self._is_off = not started.repo or (started.errand is not None and not started.errand.is_here)
        self._directory = Path(started.repo)
        self._lock = Lock()

    async def save_before(self) -> None:
        """Save the files once, before the run's first change. If this fails, the run continues but cannot be undone."""
        if self._is_off or self._is_saved("before"):
            return
        async with self._lock:
            if not self._is_saved("before"):
                self._is_off = not await self._save("before")

    async def save_after(self) -> None:
        """Save the files again when the run ends, if they were saved before the run's first change."""
        if not self._is_off and self._is_saved("before") and not self._is_saved("after"):
            await self._save("after")

    def _is_saved(self, moment: Literal["before", "after"]) -> bool:
        return self._timeline.has_outcome(_make_key(moment))

    async def _save(self, moment: Literal["before", "after"]) -> bool:
        # Imported here to keep start-up fast: many runs change no files.
        from ...workspace.git.repository import Repository, read_git_output
        from ...workspace.git.snapshot import take_snapshot

        commit = ""
        try:
            with move_on_after(LONGEST_SECONDS):
                message = f"{moment} run {self._timeline.run}"
                skip = make_skip_test(Repository.at(self._directory).root)
                commit = await take_snapshot(self._directory, message=message, skip=skip)
                await read_git_output(
                    self._directory, "update-ref", f"{UNDO_REFS}/{self._timeline.run}/{moment}", commit
                )
                await _remove_old_states(self._directory)
        except PodiumError:
            return False  # there is no repository, or it has no commit yet
        if not commit:
            text = f"This run cannot be undone: saving the files took longer than {LONGEST_SECONDS:g} s."
            self._timeline.append(Noticed(text=text), scope="")
            return False
        self._timeline.append(CheckoutSaved(commit=commit, moment=moment), scope="", key=_make_key(moment))
        return True


def make_skip_test(root: Path) -> Callable[[str], bool]:
    """Return a function that says whether to skip a file because it is large, unreadable or likely to hold secrets."""
    from ...tools.file_listing import holds_secrets  # imported here to keep start-up fast: many runs change no files

    def is_skipped(path: str) -> bool:
        try:
            return holds_secrets(path) or (root / path).lstat().st_size > LARGEST_FILE
        except OSError:
            return True

    return is_skipped


def _make_key(moment: Literal["before", "after"]) -> str:
    # The prefix keeps this key distinct from the keys of steps.
    return f"/{KINDS[CheckoutSaved]}#{1 if moment == 'before' else 2}"


async def _remove_old_states(directory: Path) -> None:
    """Remove the refs of the oldest saved states, if there are too many."""
    # Imported here to keep start-up fast: many runs change no files.
    from ...workspace.git.repository import read_git_output

    listed = await read_git_output(directory, "for-each-ref", "--sort=creatordate", "--format=%(refname)", UNDO_REFS)
    old = listed.splitlines()[:-MOST_KEPT]
    if old:
        lines = "".join(f"delete {ref}\n" for ref in old)
        await read_git_output(directory, "update-ref", "--stdin", stdin=lines.encode())
