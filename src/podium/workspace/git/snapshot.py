"""The whole of a working tree as one commit, and a place of its own to try a commit in.

A snapshot touches neither the index nor the files nor any ref. What is tried is tried in a folder
outside the repository that is put away at the end; what a killed process left is put away by the next.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from anyio import CancelScope, move_on_after, to_thread

from ...system.folder_removal import remove_folder
from ...values.errors import Mistake, OutsideFailed
from .repository import Checkout, Place, Repository, folder_of, git, git_output, names, pinned

SNAPSHOT_SECONDS = 600.0
CLEANUP_SECONDS = 30.0
PREFIX = "podium-check-"
AUTHOR = "Podium <podium@localhost>"


async def snapshot(place: Place, *, message: str = "Snapshot of the working tree") -> str:
    """The id of a commit that holds the working tree: changes, and new files that are not ignored; its parent is HEAD.

    Repositories and submodules inside are not looked into.
    """
    at = pinned(place)
    head = await git(at, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head.code != 0:
        raise Mistake(f"{folder_of(at)} has no commits yet, and a snapshot needs one to begin from; commit first")
    with _held_folder() as (folder, _):
        index = folder / "index"
        own = at.git_dir / "index"
        if own.is_file():
            # A copy knows which files have not changed, so that they need not be read. It has the time of the original:
            # git reads a file again that was changed in the moment in which the index was written.
            await to_thread.run_sync(shutil.copy2, own, index)
        else:
            await git_output(at, "read-tree", "HEAD", index=index)
        gone, kept = await _changes(at, index)
        await _fed(at, index, "--force-remove", gone)
        await _fed(at, index, "--replace", kept)
        tree = await git_output(at, "write-tree", index=index)
    return await committed(at, tree, [head.out.decode().strip()], message)


async def committed(place: Place, tree: str, parents: list[str], message: str) -> str:
    """The id of a new commit of ours, which no ref names yet."""
    who = f"{AUTHOR} {int(time.time())} +0000"
    lines = [f"tree {tree}", *(f"parent {one}" for one in parents), f"author {who}", f"committer {who}", "", message]
    text = "\n".join((*lines, "")).encode()
    return await git_output(place, "hash-object", "-t", "commit", "-w", "--stdin", stdin=text)


async def nested_repositories(place: Place) -> list[str]:
    """Repositories inside that git does not know: a snapshot has nothing of them."""
    out = await git_output(place, "ls-files", "-z", "--others", "--exclude-standard", timeout=SNAPSHOT_SECONDS)
    return [name.rstrip("/") for name in names(out) if name.endswith("/")]


async def _changes(place: Repository | Checkout, index: Path) -> tuple[list[str], list[str]]:
    """What the working tree has no more, and what it has new or otherwise than the index."""
    listing = ("diff-files", "--name-status", "-z", "--no-renames")
    told = names(await git_output(place, *listing, index=index, timeout=SNAPSHOT_SECONDS))
    others = ("ls-files", "-z", "--others", "--exclude-standard")
    new = names(await git_output(place, *others, index=index, timeout=SNAPSHOT_SECONDS))
    changed = dict(zip(told[1::2], told[::2], strict=True))
    root = folder_of(place)

    def sorted_out() -> tuple[list[str], list[str]]:
        gone = [path for path, state in changed.items() if state == "D" or not _can_be_kept(root / path)]
        kept = [path for path in changed if path not in set(gone)]
        # A name with a slash at its end is a repository of its own.
        return gone, kept + [path for path in new if not path.endswith("/") and _can_be_kept(root / path)]

    return await to_thread.run_sync(sorted_out)


def _can_be_kept(path: Path) -> bool:
    """Whether there is something there that git can hold; a folder that it asks about is a submodule."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)


async def _fed(place: Place, index: Path, how: str, paths: list[str]) -> None:
    if paths:
        fed = b"".join(os.fsencode(path) + b"\0" for path in paths)
        told = ("update-index", "--add", "--remove", how, "-z", "--stdin")
        await git_output(place, *told, stdin=fed, index=index, timeout=SNAPSHOT_SECONDS)


@asynccontextmanager
async def detached(place: Place, commit: str) -> AsyncIterator[Checkout]:
    """A checkout of a commit in a temporary folder, on no branch; put away when the block ends, however it ends."""
    repository = pinned(place)
    base = await commit_id(repository, commit)
    await _sweep(repository)
    with _held_folder() as (folder, lock):
        path = folder / folder.name
        try:
            yield await _made(repository, path, base, lock)
        finally:
            with move_on_after(CLEANUP_SECONDS, shield=True):
                await _put_away(repository, path)


async def commit_id(place: Place, name: str) -> str:
    """The id of the commit that a name means. Raises Mistake."""
    found = await git(place, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found.code != 0:
        raise Mistake(f"{folder_of(place)} has no commit {name!r}; a branch, a tag or a commit's id would do")
    return found.out.decode().strip()


async def registered(place: Repository | Checkout, path: Path, *, branch: str, base: str) -> Checkout:
    """The worktree at a path, with the folder that git keeps for it. Raises OutsideFailed."""

    def found() -> Path | None:
        for own in sorted((place.common_dir / "worktrees").iterdir()):
            with suppress(OSError):
                if os.fsdecode((own / "gitdir").read_bytes()).removesuffix("\n") == str(path / ".git"):
                    return own
        return None

    own = await to_thread.run_sync(found)
    if own is None:
        raise OutsideFailed(f"git made the worktree {path}, but does not list it; git worktree repair may mend that")
    return Checkout(path=path, git_dir=own, common_dir=place.common_dir, branch=branch, base=base)


async def fill(checkout: Checkout, *, lock: int) -> None:
    """Write the files of a worktree that was made without.

    Git would do both at once, with settings that hold only in the new worktree and that nobody could
    have looked through before.
    """
    told = ("reset", "--hard", "--no-recurse-submodules", "--quiet")
    await git_output(checkout, *told, timeout=SNAPSHOT_SECONDS, lock=lock)


async def _made(place: Repository | Checkout, path: Path, base: str, lock: int) -> Checkout:
    told = ("worktree", "add", "--quiet", "--detach", "--no-checkout", "--", str(path), base)
    # Not to be interrupted between what git notes and what it makes.
    with CancelScope(shield=True):
        await git_output(place, *told, lock=lock)
        checkout = await registered(place, path, branch="", base=base)
    await fill(checkout, lock=lock)
    return checkout


async def _put_away(place: Repository | Checkout, path: Path) -> None:
    if await to_thread.run_sync(os.path.lexists, path):
        await to_thread.run_sync(remove_folder, path, abandon_on_cancel=True)
    await git(place, "worktree", "remove", "--force", "--force", "--", str(path))


@contextmanager
def _held_folder() -> Iterator[tuple[Path, int]]:
    """A new folder for this process alone, and the lock that says so as long as somebody has it open."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Somebody who sweeps may have come between.
        if (folder / "lock").exists():
            break
        os.close(lock)
    try:
        yield folder, lock
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


async def _sweep(place: Repository | Checkout) -> None:
    """Put away what processes that were killed have left."""

    def swept() -> list[Path]:
        for folder in Path(tempfile.gettempdir()).resolve().glob(f"{PREFIX}*"):
            _remove_if_left(folder)
        return [path for path in _ours(place.common_dir) if not path.parent.exists()]

    for path in await to_thread.run_sync(swept):
        await git(place, "worktree", "remove", "--force", "--force", "--", str(path))


def _remove_if_left(folder: Path) -> None:
    """Remove a folder of ours that no process holds."""
    with suppress(OSError):
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        lock = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)
        finally:
            os.close(lock)


def _ours(common: Path) -> list[Path]:
    """The temporary worktrees that a repository knows."""
    found = []
    for own in (common / "worktrees").glob(f"{PREFIX}*"):
        with suppress(OSError):
            found.append(Path(os.fsdecode((own / "gitdir").read_bytes()).removesuffix("\n")).parent)
    return found
