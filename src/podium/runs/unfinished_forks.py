"""Remove the checkouts of forks whose process was killed before it wrote the run, so that none belongs to no run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from anyio import CancelScope, to_thread

from ..files.settings import Settings
from ..patterns.in_worker import BRANCH_PREFIX
from ..store.reader import StoreReader
from ..store.worktree_ledger import Ledger
from ..system.file_lock import try_lock_descriptor
from ..system.folder_removal import make_private_folder
from ..values.errors import Mistake, NoSuchRun, StoreFailed
from ..values.store_address import StoreAddress, make_local_path
from ..workspace.git.branch import HEADS
from ..workspace.git.repository import Repository, read_git_output
from ..workspace.git.snapshot import SNAPSHOT_REFS, as_ref_name
from ..workspace.worktrees.worktree import Worktrees
from ..workspace.worktrees.worktree_folder import DEFAULT_FOLDER_PATTERN

FORK_BRANCHES = "podium/fork"


@asynccontextmanager
async def note_fork(settings: Settings, run: str, directory: Path) -> AsyncIterator[None]:
    """Note that the fork `run` of a run in `directory` is being created. If the block fails, remove its checkout.

    If this process is killed, the note stays, and `remove_unfinished_forks` removes the checkout.
    """
    with _lock_note(_notes_folder(settings.store) / quote(run, safe="")) as note:
        is_new = not await to_thread.run_sync(_has_run, settings.store, run)
        await to_thread.run_sync(_write_note, note, directory)
        try:
            yield
        except BaseException:
            with CancelScope(shield=True):
                if is_new:
                    await _remove_fork(settings, directory, run)
            raise
        finally:
            _notes_folder(settings.store).joinpath(quote(run, safe="")).unlink(missing_ok=True)


async def remove_unfinished_forks(settings: Settings) -> list[str]:
    """Remove the checkouts of forks that no process creates any more and that have no run. Return their ids."""
    folder = _notes_folder(settings.store)
    removed: list[str] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        with suppress(BlockingIOError), _lock_note(path) as note:
            run, directory = unquote(path.name), Path(os.fsdecode(os.pread(note, os.fstat(note).st_size, 0)))
            if directory.is_absolute() and not await to_thread.run_sync(_has_run, settings.store, run):
                await _remove_fork(settings, directory, run)
                removed.append(run)
            path.unlink(missing_ok=True)
    return removed


def open_fork_worktrees(settings: Settings, repository: Repository) -> Worktrees:
    """Return the worktrees of a repository, for the checkouts of forks."""
    return Worktrees(
        repository=repository,
        ledger=Ledger(settings.store),
        folder=settings.worktrees.folder or DEFAULT_FOLDER_PATTERN,
        quota=settings.worktrees.quota,
    )


def _notes_folder(store: StoreAddress) -> Path:
    return make_local_path(store, "forks")


@contextmanager
def _lock_note(path: Path) -> Iterator[int]:
    """Open and lock a note. Raise BlockingIOError if a process holds it, which still creates the fork."""
    make_private_folder(path.parent)
    note = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock_descriptor(note):
            raise BlockingIOError(f"{path} is in use")
        yield note
    finally:
        os.close(note)


def _write_note(note: int, directory: Path) -> None:
    os.write(note, os.fsencode(directory))
    os.fsync(note)  # a worktree is on disk soon, and must not outlive its note in a power failure


def _has_run(store: StoreAddress, run: str) -> bool:
    if isinstance(store, Path) and not store.exists():
        return False
    with StoreReader(store) as reader:
        try:
            reader.read_summary(run)
        except NoSuchRun:
            return False
        except StoreFailed:  # damaged, but there
            return True
    return True


async def _remove_fork(settings: Settings, directory: Path, run: str) -> None:
    """Remove the worktree, the branches and the snapshots of a fork that has no run."""
    try:
        repository = Repository.at(Repository.at(directory).main_folder)
    except Mistake:  # the repository is gone, or the fork has no checkout of its own
        return
    worktrees = open_fork_worktrees(settings, repository)
    await worktrees.reconcile()
    for one in await worktrees.ledger.list_worktrees(repository.common_dir):
        if one.run == run:
            await worktrees.remove(one.branch, force=True)
    own = (f"{HEADS}{FORK_BRANCHES}/{run}", f"{HEADS}{BRANCH_PREFIX}/{run}/", f"{SNAPSHOT_REFS}/{as_ref_name(run)}/")
    refs = (await read_git_output(repository, "for-each-ref", "--format=%(refname)", "--", *own)).split()
    await read_git_output(
        repository, "update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in refs).encode()
    )
