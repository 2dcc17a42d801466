"""Create the checkout of a fork: a new worktree on a new branch, with the files at the fork's position.

A fork works in the original run's folder only if that folder is not in a git repository, or the repository has no
commits. The worktree starts at the commit of the last snapshot before the position. If there is no such snapshot,
there are two cases: if the run has acted since the position, the worktree starts at the current commit, without
uncommitted changes; if not, it starts with the current files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from ..files.settings import Settings
from ..values.errors import Mistake, OutsideFailed
from ..values.event import ActionBegan, Entry, SnapshotTaken, WorkerReturned, WorkerSent
from ..workspace.git.branch import HEADS
from ..workspace.git.repository import Repository, read_git_output
from ..workspace.git.revision import resolve_tree
from ..workspace.git.snapshot import keep_snapshot, resolve_commit, take_snapshot
from .assembly.worktree_setup import make_worktree_hook
from .fork_selection import rename_branch
from .unfinished_forks import FORK_BRANCHES, open_fork_worktrees

NO_SNAPSHOT = "no snapshot was taken before this point"
KEPT_NAME = "fork"
"""The name of a snapshot that protects a fork's commits from git's garbage collection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkCheckout:
    """The folder that a fork works in. `branch` is empty if the fork has no separate checkout."""

    directory: str = ""
    branch: str = ""
    notices: tuple[str, ...] = ()


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
    checkout = await open_fork_worktrees(settings, repository).create(
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
