"""The columns of a list of workers, and its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from msgspec import UNSET, Struct

from ...system.locations import format_path
from ...values.column import Column, RowColumns
from ...values.plain_text import format_countdown, format_duration, format_money
from ...values.worker_task import WorkerTask
from ...views.worker_state import WorkerState
from ...workspace.worktrees.worktree_status import WorktreeStatus

NO_WORKERS = 'no workers yet; start one with: podium delegate BRANCH "task"'
_NO_STATUSES: Mapping[str, WorktreeStatus] = MappingProxyType({})


class ListedWorker(Struct, frozen=True, kw_only=True):
    """A worker in a list, at the time `now`, with the status of its checkout if it has not ended.

    If `names_repo` is true, the terminal shows which repository the worker belongs to.
    """

    worker: WorkerState
    status: WorktreeStatus | None = None
    now: float
    names_repo: bool = False

    @property
    def worker_task(self) -> WorkerTask:
        return self.worker.worker_task


def make_worker_rows(
    workers: Iterable[WorkerState],
    statuses: Mapping[str, WorktreeStatus] = _NO_STATUSES,
    *,
    now: float,
    names_repo: bool = False,
) -> list[ListedWorker]:
    """Return workers as rows of a list. `statuses` contains the status of their checkouts, keyed by run."""
    return [
        ListedWorker(worker=worker, status=statuses.get(worker.run), now=now, names_repo=names_repo)
        for worker in workers
    ]


def format_line_count(worker: WorkerState, status: WorktreeStatus | None = None) -> str:
    """Format how many lines a worker added and removed: in its checkout if `status` is given, else on its branch.

    The lines in additional repositories count too.
    """
    if status is not None:
        new = f" ({status.untracked} new)" if status.untracked else ""
        return f"+{status.added} -{status.removed}{new}"
    return f"+{worker.added} -{worker.removed}" if worker.commit else "-"


def format_worker_status(worker: WorkerState, *, now: float) -> str:
    """Return a worker's status, and whether its work is unproved.

    If it is waiting for a provider's limit to reset, include the remaining time.
    """
    if worker.wakes_at is None:
        return f"{worker.state}, unproved" if worker.unproved else worker.state
    return f"waiting_limit {format_countdown(worker.wakes_at - now)}"


def _format_branch(row: ListedWorker) -> str:
    """Return a worker's branch and the names of its additional repositories.

    For a worker without a checkout, return its name and its kind, `(here)` or `(reader)`.
    """
    worker_task = row.worker_task
    if worker_task.has_checkout:
        return " + ".join((worker_task.branch, *(one.name for one in worker_task.checkouts[1:])))
    return f"{worker_task.name} {'(here)' if worker_task.is_here else '(reader)'}".lstrip()


def _format_task(row: ListedWorker) -> str:
    """Return the first line of a worker's task that is not blank."""
    place = f"{format_path(Path(row.worker_task.root))}: " if row.names_repo else ""
    return place + next((line for line in row.worker.task.splitlines() if line.strip()), "")


def _format_cost(row: ListedWorker) -> str:
    """Format the cost of a worker's model calls, as far as their prices are known."""
    usage = row.worker.usage
    return format_money(usage.usd) if usage.usd else "unpriced" if usage.unpriced else "-"


def _format_wait(row: ListedWorker) -> str:
    since = row.worker.waiting_since
    return format_duration(row.now - since) if since else "-"


def _list_files(row: ListedWorker) -> tuple[str, ...]:
    return row.worker.works[0].files if row.status is None else tuple(file.path for file in row.status.files)


WORKER_COLUMNS: tuple[Column[ListedWorker], ...] = (
    Column("id", "Worker", lambda row: row.worker.run),
    Column("name", "Name", lambda row: row.worker.name, shown="page"),
    Column("branch", "Branch", lambda row: row.worker_task.branch, text=_format_branch),
    Column(
        "state",
        "State",
        lambda row: row.worker.state,
        text=lambda row: format_worker_status(row.worker, now=row.now),
    ),
    Column("agent", "Agent", lambda row: row.worker.agent, shown="page"),
    Column("role", "Role", lambda row: row.worker_task.role, shown="page"),
    Column("task", "Task", lambda row: row.worker.task, text=_format_task, fills=True),
    Column("repo", "Repository", lambda row: row.worker_task.root, shown="nowhere"),
    Column("path", "Checkout", lambda row: row.worker_task.path, shown="nowhere"),
    Column("after", "After", lambda row: row.worker_task.after, "data", shown="nowhere"),
    Column("parent", "Started by", lambda row: row.worker_task.parent, shown="nowhere"),
    Column("reader", "Read-only", lambda row: row.worker_task.is_reader, "data", shown="page"),
    Column("tool", "Tool", lambda row: row.worker.tool, spare=4),
    Column(
        "added",
        "Lines",
        lambda row: row.worker.works[0].added if row.status is None else row.status.added,
        "number",
        text=lambda row: format_line_count(row.worker, row.status),
        spare=2,
    ),
    Column(
        "removed",
        "Removed lines",
        lambda row: row.worker.works[0].removed if row.status is None else row.status.removed,
        "number",
        shown="page",
    ),
    Column("new_files", "New files", lambda row: row.status.untracked if row.status else 0, "number", shown="nowhere"),
    Column("tokens", "Tokens", lambda row: row.worker.usage.tokens, "number", spare=5),
    Column("usd", "Cost", lambda row: row.worker.usage.usd, "money", text=_format_cost, spare=3),
    Column(
        "waiting_since",
        "Waits",
        lambda row: row.worker.waiting_since or None,
        "age",
        text=_format_wait,
        spare=1,
    ),
    Column("waiting_for", "Waits for", lambda row: row.worker.waiting_for, "data", shown="nowhere"),
    Column("wakes_at", "Continues", lambda row: row.worker.wakes_at, "age", shown="nowhere"),
    Column("answer", "Answer", lambda row: row.worker.answer, shown="page"),
    Column("why", "Reason", lambda row: row.worker.why, shown="page"),
    Column("unproved", "Unproved", lambda row: row.worker.unproved or UNSET, shown="page"),
    Column("base", "Base", lambda row: row.worker.base, shown="nowhere"),
    Column("commit", "Commit", lambda row: row.worker.commit, shown="nowhere"),
    Column("commits", "Commits", lambda row: row.worker.works[0].commits, "data", shown="nowhere"),
    Column("files", "Files", _list_files, "data", shown="nowhere"),
    Column("checks", "Checks", lambda row: row.worker.checks, "data", shown="page"),
    Column("usage", "Usage", lambda row: row.worker.usage, "usage", shown="nowhere"),
    Column("hired_at", "Delegated", lambda row: row.worker.delegated_at, "age", shown="nowhere"),
    Column("seconds", "Took", lambda row: row.worker.seconds, "duration", shown="nowhere"),
    Column("restarts", "Restarts", lambda row: row.worker.restarts, "number", shown="nowhere"),
    Column("model", "Model", lambda row: row.worker.model, shown="page"),
    Column("context", "Context", lambda row: row.worker.context, "data", shown="page"),
    Column("also", "Also in", lambda row: row.worker.works[1:], "data", shown="nowhere"),
)
"""The columns of a list of workers. `hired_at` is when the task was delegated."""

WorkerObject = Annotated[dict[str, object], RowColumns(WORKER_COLUMNS)]
"""A worker as the JSON of lists has it."""
