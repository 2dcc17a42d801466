"""List the worktrees of a repository and of its workers in other repositories, and clean them up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import to_thread
from msgspec import UNSET, Struct, UnsetType

from ...runs.queries.run_lookup import open_reader
from ...store.reader import StoreReader
from ...values.column import Column
from ...values.errors import NoSuchRun, PodiumError
from ...values.plain_text import format_age, format_size
from ...values.store_address import StoreAddress
from ...workspace.git.repository import Repository
from ...workspace.worktrees.cleanup import CleanupResult, WorktreeSummary, clean_up_worktrees
from ...workspace.worktrees.worktree import Worktrees
from ...workspace.worktrees.worktree_slots import Slot
from ...workspace.worktrees.worktree_status import WorktreeStatus
from .worker_lookup import open_worktrees


class ListedWorktree(Struct, frozen=True, kw_only=True):
    """A worktree in a list, at the time `now`, with the number of its slot if it has one."""

    summary: WorktreeSummary
    slot: int | None = None
    now: float


def _of_status(get: Callable[[WorktreeStatus], object]) -> Callable[[ListedWorktree], object]:
    """Return a function that gets a value from a worktree's status, which a worktree without a folder lacks."""
    return lambda row: UNSET if row.summary.status is None else get(row.summary.status)


def _format_state(row: ListedWorktree) -> str:
    one = row.summary
    return "not managed" if not one.is_ours else "trouble" if one.trouble else one.state


def _format_lines(row: ListedWorktree) -> str:
    status = row.summary.status
    return "-" if status is None else f"+{status.added} -{status.removed}"


def _format_open_files(row: ListedWorktree) -> str:
    status = row.summary.status
    return "-" if status is None else str(status.modified + status.untracked)


def _list_ports(row: ListedWorktree) -> tuple[int, ...] | UnsetType:
    return UNSET if row.slot is None else Slot(row.slot, "").ports


def _format_age(row: ListedWorktree) -> str:
    return format_age(row.now - row.summary.created) if row.summary.is_ours else "-"


WORKTREE_COLUMNS: tuple[Column[ListedWorktree], ...] = (
    Column("branch", "Branch", lambda row: row.summary.branch),
    Column("state", "State", lambda row: row.summary.state, text=_format_state),
    Column("ours", "Managed", lambda row: row.summary.is_ours, "data", shown="nowhere"),
    Column("run", "Run", lambda row: row.summary.run, shown="nowhere"),
    Column("ahead", "Ahead", _of_status(lambda status: status.ahead), "number"),
    Column("behind", "Behind", _of_status(lambda status: status.behind), "number", spare=1),
    Column("unmerged", "Unmerged", _of_status(lambda status: status.unmerged), "number", shown="nowhere"),
    Column("added", "Lines", _of_status(lambda status: status.added), "number", text=_format_lines),
    Column("removed", "Removed lines", _of_status(lambda status: status.removed), "number", shown="nowhere"),
    Column("modified", "Open", _of_status(lambda status: status.modified), "number", text=_format_open_files),
    Column("untracked", "Untracked", _of_status(lambda status: status.untracked), "number", shown="nowhere"),
    Column("slot", "Slot", lambda row: UNSET if row.slot is None else row.slot, "number", spare=2),
    Column("ports", "Ports", _list_ports, "data", shown="nowhere"),
    Column(
        "size",
        "Size",
        lambda row: row.summary.size,
        "size",
        text=lambda row: format_size(row.summary.size) if row.summary.is_ours else "-",
        spare=3,
    ),
    Column("created_at", "Made", lambda row: row.summary.created, "age", text=_format_age, spare=4),
    Column("trouble", "Trouble", lambda row: row.summary.trouble, shown="nowhere"),
    Column("commits", "Commits", _of_status(lambda status: status.commits), "data", shown="nowhere"),
    Column("files", "Files", _of_status(lambda status: status.files), "data", shown="nowhere"),
    Column("path", "Folder", lambda row: str(row.summary.path)),
)
"""The columns of a list of worktrees."""


def list_unfinished_runs(store: StoreAddress) -> set[str]:
    """Return the runs that have not ended."""
    if not store.exists():
        return set()
    with open_reader(store) as reader:
        return {summary.id for summary in reader.list_runs() if not summary.is_over}


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWorktree:
    """A worktree in the repository `root` that belongs to a worker of another repository."""

    root: str
    path: Path
    branch: str
    run: str


async def list_other_worktrees(worktrees: Worktrees) -> list[OtherWorktree]:
    """Return the worktrees in other repositories that belong to workers of this repository."""
    ledger, repository = worktrees.ledger, worktrees.repository
    rows = [row for row in await ledger.list_worktrees() if row.run and row.repository != repository.common_dir]
    main = str(repository.main_folder)

    def select() -> list[OtherWorktree]:
        found: list[OtherWorktree] = []
        with StoreReader(ledger.store) as reader:
            for row in rows:
                with suppress(NoSuchRun):
                    task = reader.read_summary(row.run).started.errand
                    if task is not None and task.root == main:
                        roots = [one.root for one in task.checkouts[1:] if one.path == str(row.path)]
                        found += [
                            OtherWorktree(root=root, path=row.path, branch=row.branch, run=row.run) for root in roots
                        ]
        return found

    return await to_thread.run_sync(select) if rows else []


async def clean_up_all_worktrees(worktrees: Worktrees, *, force: bool, dry_run: bool) -> list[CleanupResult]:
    """Remove the worktrees that a repository and its workers no longer need, in this and in other repositories."""
    busy = partial(list_unfinished_runs, worktrees.ledger.store)
    lines = await clean_up_worktrees(worktrees, busy=busy, force=force, dry_run=dry_run)
    others = await list_other_worktrees(worktrees)
    for root in dict.fromkeys(one.root for one in others):
        own = [one for one in others if one.root == root]
        try:
            there, runs = open_worktrees(Repository.at(Path(root))), {one.run for one in own}
            lines += await clean_up_worktrees(there, busy=busy, force=force, dry_run=dry_run, runs=runs)
        except PodiumError as error:
            lines += [CleanupResult(path=one.path, branch=one.branch, act="kept", why=str(error)) for one in own]
    return lines
