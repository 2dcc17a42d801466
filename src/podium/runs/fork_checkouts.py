"""Create the checkouts of forks, and remove those of forks whose process was killed before it wrote the run.

A fork works in the original run's folder only if that folder is not in a git repository, or the repository has no
commits. The worktree starts at the commit of the last snapshot before the position. If there is no such snapshot,
there are two cases: if the run has acted since the position, the worktree starts at the current commit, without
uncommitted changes; if not, it starts with the current files.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from anyio import CancelScope, to_thread

from ..files.settings import Settings
from ..patterns.worker_run import BRANCH_PREFIX
from ..store.reader import StoreReader
from ..store.worktree_ledger import Ledger
from ..system.file_lock import try_lock_descriptor
from ..system.owned_files import make_private_folder
from ..values.errors import Mistake, NoSuchRun, OutsideFailed, StoreFailed
from ..values.event import ActionBegan, Entry, SnapshotTaken, WorkerReturned, WorkerSent
from ..values.store_address import StoreAddress, make_local_path
from ..workspace.git.branch import HEADS
from ..workspace.git.repository import Repository, read_git_output
from ..workspace.git.revision import resolve_tree
from ..workspace.git.snapshot import SNAPSHOT_REFS, as_ref_name, keep_snapshot, resolve_commit, take_snapshot
from ..workspace.worktrees.worktree import Worktrees
from ..workspace.worktrees.worktree_folder import DEFAULT_FOLDER_PATTERN
from .assembly.worktree_setup import make_worktree_hook
from .fork_position import rename_branch

NO_SNAPSHOT = "no snapshot was taken before this point"
KEPT_NAME = "fork"
"""The name of a snapshot that protects a fork's commits from git's garbage collection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkCheckout:
    """The folder that a fork works in. `branch` is empty if the fork has no separate checkout."""

    directory: str = ""
    branch: str = ""
    notices: tuple[str, ...] = ()


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


def _open_fork_worktrees(settings: Settings, repository: Repository) -> Worktrees:
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
    worktrees = _open_fork_worktrees(settings, repository)
    await worktrees.reconcile()
    for one in await worktrees.ledger.list_worktrees(repository.common_dir):
        if one.run == run:
            await worktrees.remove(one.branch, force=True)
    own = (f"{HEADS}{FORK_BRANCHES}/{run}", f"{HEADS}{BRANCH_PREFIX}/{run}/", f"{SNAPSHOT_REFS}/{as_ref_name(run)}/")
    refs = (await read_git_output(repository, "for-each-ref", "--format=%(refname)", "--", *own)).split()
    await read_git_output(
        repository, "update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in refs).encode()
    )


async def create_fork_checkout(
    settings: Settings, directory: Path, entries: Sequence[Entry], kept: Sequence[Entry], *, run: str
) -> ForkCheckout:
    """Create the checkout of the fork `run`.

    `directory` is the folder that the original run worked in, `entries` contains the entries of that run, and `kept`
    contains those that the fork shares. Raise Mistake if the folder no longer exists.
    """
    directory = await to_thread.run_sync(_resolve_directory, directory)
    try:
        repository = Repository.at(directory)
        head = await resolve_commit(repository, "HEAD")
    except Mistake as error:
        notice = f"this fork has no checkout of its own and works directly in {directory}: {error}"
        return ForkCheckout(directory=str(directory), notices=(notice,))
    base, notice = await _choose_base(repository, head, entries, kept)
    notices = [notice] if notice else []
    branch = f"{FORK_BRANCHES}/{run}"
    checkout = await _open_fork_worktrees(settings, repository).create(
        branch,
        base=base,
        run=run,
        setup=make_worktree_hook(
            settings.worktrees.setup,
            what="setup",
            home=settings.home,
            store=settings.store,
            is_sandboxed=settings.sandbox,
            hosts=settings.network,
        ),
    )
    try:
        await _keep_commits(repository, base, kept, run=run)
    except OutsideFailed as error:
        notices.append(f"the work of earlier workers may be missing: {error}")
    own = checkout.path / directory.relative_to(repository.root)
    return ForkCheckout(directory=str(own), branch=branch, notices=tuple(notices))


def _resolve_directory(directory: Path) -> Path:
    """Return the real path of a folder, without symbolic links. Raise Mistake if the folder does not exist."""
    if not directory.exists():
        raise Mistake(f"{directory}, where the run worked, no longer exists; restore it, or start a new run")
    return directory.resolve()


async def _choose_base(
    repository: Repository, head: str, entries: Sequence[Entry], kept: Sequence[Entry]
) -> tuple[str, str]:
    """Return the commit that a fork starts from, and a notice if its files may differ from those at the position."""
    shared = {entry.seq for entry in kept}
    actions = [entry.seq for entry in entries if isinstance(entry.event, ActionBegan)]
    for entry in reversed(kept):
        if isinstance(entry.event, SnapshotTaken) and (commit := entry.event.commits.get("")):
            name = entry.event.name
            if all(seq not in shared for seq in actions if seq > entry.seq):
                return commit, ""
            missing = "later changes, up to the position of the fork, are missing"
            return commit, f"the checkout has the files of the snapshot {name}; {missing}"
    if not shared.issuperset(actions):
        missing = "without uncommitted changes"
        return head, f"{NO_SNAPSHOT}: the checkout starts at commit {head[:12]} in {repository.root}, {missing}"
    current = await take_snapshot(repository)
    is_clean = await resolve_tree(repository, current) == await resolve_tree(repository, head)
    return (
        head if is_clean else current,
        f"{NO_SNAPSHOT}: the checkout starts with the current files in {repository.root}",
    )


async def _keep_commits(repository: Repository, base: str, kept: Sequence[Entry], *, run: str) -> None:
    """Create refs to the commits that a fork needs: its base, and the commits of snapshots and of finished workers."""
    sent = {entry.event.run: entry for entry in kept if isinstance(entry.event, WorkerSent)}
    commits = {"": base}
    shared_branches: dict[str, str] = {}
    for entry in kept:
        match entry.event:
            case SnapshotTaken(commits=taken):
                commits |= {branch: commit for branch, commit in taken.items() if branch}
            case WorkerReturned(run=worker, commit=commit) if commit and worker in sent:
                event = sent[worker].event
                assert isinstance(event, WorkerSent)
                commits[event.branch] = commit
                if event.is_shared:
                    shared_branches[rename_branch(event.branch, entry.run, run)] = commit
    await keep_snapshot(repository, run, KEPT_NAME, commits)
    # Members that share a checkout build on each other's work, so their branch in the fork starts at the last commit.
    for branch, commit in shared_branches.items():
        await read_git_output(repository, "update-ref", f"{HEADS}{branch}", commit)
