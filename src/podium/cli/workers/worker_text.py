"""Format facts about workers, for use in several commands."""

from __future__ import annotations

import time

from ...values.plain_text import format_countdown
from ...views.worker_state import WorkerState
from ...workspace.worktrees.worktree_status import WorktreeStatus
from ..terminal.text import format_money

NO_WORKERS = 'no workers yet; start one with: podium delegate BRANCH "task"'


def format_line_count(worker: WorkerState, status: WorktreeStatus | None = None) -> str:
    """Format how many lines a worker added and removed: in its checkout if `status` is given, else on its branch.

    The lines in additional repositories count too.
    """
    if status is not None:
        new = f" ({status.untracked} new)" if status.untracked else ""
        return f"+{status.added} -{status.removed}{new}"
    added = worker.added + sum(one.added for one in worker.also)
    removed = worker.removed + sum(one.removed for one in worker.also)
    return f"+{added} -{removed}" if worker.commit else "-"


def format_worker_cost(worker: WorkerState) -> str:
    """Format the cost of a worker's model calls, as far as their prices are known."""
    if worker.usage.usd:
        return format_money(worker.usage.usd)
    return "unpriced" if worker.usage.unpriced else "-"


def format_worker_status(worker: WorkerState) -> str:
    """Return a worker's status, and whether its work is unproved.

    If it is waiting for a provider's limit to reset, include the remaining time.
    """
    if worker.wakes_at is None:
        return f"{worker.state}, unproved" if worker.unproved else worker.state
    return f"waiting_limit {format_countdown(worker.wakes_at - time.time())}"


def first_line(text: str) -> str:
    """Return the first non-blank line of a task."""
    return next((line for line in text.splitlines() if line.strip()), "")
