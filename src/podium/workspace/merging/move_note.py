"""The note of a branch's move, written before its checkout's files change, and what is done after an interrupted move.

Git updates a checkout's files one after the other and its index last. If it is killed or the disk is full, some files
are missing or cut off, and its lock of the index may stay. Such a file is recognised by its content: it begins like the
file of the new commit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct

from ...system.file_lock import wait_file_lock
from ...system.whole_file import replace_file
from ...values.actor import Actor
from ...values.errors import Mistake, PodiumError
from ...values.plain_text import escape_unprintable
from ..git.lost_files import restore_lost_files
from ..git.repository import Checkout, Repository, call_git, read_git_output, split_nul_paths
from ..git.revision import branch_tip
from ..git.stale_locks import remove_stale_locks

LOCK = "podium-move.lock"
NOTE = "podium-move.json"
LONGEST = 600.0


class MoveNote(Struct, frozen=True, kw_only=True):
    """A move of a checked-out branch from the commit `old` to `new`."""

    root: str
    target: str
    old: str
    new: str


@asynccontextmanager
async def lock_moves(place: Repository | Checkout) -> AsyncIterator[int]:
    """Let nobody else move a branch of this repository until the block ends. Yield the lock's descriptor for git.

    What an interrupted move left half done is undone first.
    """
    async with AsyncExitStack() as stack:
        try:
            lock = await stack.enter_async_context(wait_file_lock(place.common_dir / LOCK))
        except OSError as error:
            raise Mistake(f"{place.common_dir} cannot be written: {error.strerror}; check its permissions") from error
        note = place.common_dir / NOTE
        if await to_thread.run_sync(note.exists):
            await _reset_interrupted_move(note, lock)
        yield lock


def write_note(checkout: Repository, target: str, old: str, new: str) -> None:
    """Write down that a move begins. The caller holds `lock_moves`."""
    note = MoveNote(root=str(checkout.root), target=target, old=old, new=new)
    replace_file(checkout.common_dir / NOTE, msgspec.json.encode(note))


def remove_note(checkout: Repository) -> None:
    """Say that the move has ended."""
    (checkout.common_dir / NOTE).unlink(missing_ok=True)


def describe_author(what: str, by: Actor | None) -> str:
    """Return a reflog message that says what was done, and by whom and through which interface if that is known."""
    return what if by is None else f"{what} by {escape_unprintable(by.name)} ({by.channel})"


async def switch_files(checkout: Repository, old: str, new: str, lock: int) -> bool:
    """Replace the files and the index of `old` with those of `new`. Return False if git cannot write them."""
    done = await call_git(checkout, "read-tree", "-m", "-u", old, new, timeout=LONGEST, lock=lock)
    return done.code == 0


async def reset_half_written(checkout: Repository, old: str, new: str, lock: int) -> bool:
    """Restore the files that a move from `old` to `new` has changed while the index is still that of `old`.

    Files with any other content are the person's, and stay. Return False if git cannot write the files, for example
    because the disk is full.
    """
    done = await call_git(checkout, "diff-index", "--quiet", "--cached", old, timeout=LONGEST, lock=lock)
    if done.code != 0:
        return True
    listed = await read_git_output(checkout, "diff-tree", "-r", "-z", "--no-renames", old, new)
    restored: list[str] = []
    for entry, path in zip(*[iter(split_nul_paths(listed))] * 2, strict=True):
        _, new_mode, old_id, new_id, _ = entry.lstrip(":").split(" ")
        written = b"" if not int(new_mode, 8) else await _read_blob(checkout, new_id)
        file = checkout.root / path
        if not await to_thread.run_sync(_is_cut_off, file, written):
            continue
        if int(old_id, 16):
            restored.append(path)
        else:
            await to_thread.run_sync(partial(file.unlink, missing_ok=True))
    if restored:
        fed = b"".join(os.fsencode(path) + b"\0" for path in restored)
        told = ("checkout-index", "-f", "-u", "-z", "--stdin")
        done = await call_git(checkout, *told, stdin=fed, timeout=LONGEST, lock=lock)
    return done.code == 0


async def _reset_interrupted_move(file: Path, lock: int) -> None:
    try:
        note = msgspec.json.decode(await to_thread.run_sync(file.read_bytes), type=MoveNote)
        checkout = await to_thread.run_sync(Repository.at, Path(note.root))
        # Git inherits the lock of moves, so the git of that move has ended.
        await to_thread.run_sync(remove_stale_locks, checkout, note.target)
        if (tip := await branch_tip(checkout, note.target)) != note.new:
            moved = await read_git_output(checkout, "diff-tree", "-r", "-z", "--name-only", note.old, note.new)
            await restore_lost_files(checkout, among=split_nul_paths(moved))
            staged = await call_git(checkout, "diff-index", "--quiet", "--cached", note.new, timeout=LONGEST)
            if staged.code == 0:
                # All files are those of the new commit, but the branch is not at it.
                if not await switch_files(checkout, note.new, tip, lock):
                    return
            elif tip == note.old and not await reset_half_written(checkout, note.old, note.new, lock):
                return
    except (OSError, msgspec.MsgspecError, PodiumError):
        return  # the checks before the next move say what is wrong with the checkout
    await to_thread.run_sync(partial(file.unlink, missing_ok=True))


def _is_cut_off(file: Path, written: bytes) -> bool:
    """Return whether a file is missing, or its content is the beginning of `written`, or all of it."""
    try:
        mode = file.lstat().st_mode
        if stat.S_ISLNK(mode):
            return os.fsencode(file.readlink()) == written
        return stat.S_ISREG(mode) and file.stat().st_size <= len(written) and written.startswith(file.read_bytes())
    except FileNotFoundError:
        return True
    except OSError:
        return False


async def _read_blob(checkout: Repository, id: str) -> bytes:
    done = await call_git(checkout, "cat-file", "blob", id, timeout=LONGEST)
    return done.out if done.code == 0 else b""
