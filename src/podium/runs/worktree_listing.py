"""The columns of a list of worktrees, its rows, and the runs that may use worktrees."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, Struct, UnsetType

from ..values.byte_size import format_size
from ..values.column import Column
from ..values.plain_text import format_age
from ..values.store_address import StoreAddress
from ..workspace.worktrees.cleanup import WorktreeSummary
from ..workspace.worktrees.worktree_slots import Slot
from ..workspace.worktrees.worktree_status import WorktreeStatus
from .run_lookup import open_reader


class WorktreeRow(Struct, frozen=True, kw_only=True):
    """A worktree in a list, at the time `now`, with the number of its slot if it has one."""

    summary: WorktreeSummary
    slot: int | None = None
    now: float


def _of_status(get: Callable[[WorktreeStatus], object]) -> Callable[[WorktreeRow], object]:
    """Return a function that gets a value from a worktree's status, which a worktree without a folder lacks."""
    return lambda row: UNSET if row.summary.status is None else get(row.summary.status)


def _format_state(row: WorktreeRow) -> str:
    one = row.summary
    return "not managed" if not one.is_ours else "trouble" if one.trouble else one.state


def _format_lines(row: WorktreeRow) -> str:
    status = row.summary.status
    return "-" if status is None else f"+{status.added} -{status.removed}"


def _format_open_files(row: WorktreeRow) -> str:
    status = row.summary.status
    return "-" if status is None else str(status.modified + status.untracked)


def _list_ports(row: WorktreeRow) -> tuple[int, ...] | UnsetType:
    return UNSET if row.slot is None else Slot(row.slot, "").ports


def _format_age(row: WorktreeRow) -> str:
    return format_age(row.now - row.summary.created) if row.summary.is_ours else "-"


WORKTREE_COLUMNS: tuple[Column[WorktreeRow], ...] = (
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
