"""Looking at workers from a command: which repository is meant, who works there, and how each stands."""

from __future__ import annotations

from ...views.worker_state import WorkerState
from ...workspace.worktrees.worktree_status import WorktreeStatus

NO_WORKERS = 'no workers yet; podium delegate BRANCH "task" hires one'


def format_line_count(worker: WorkerState, status: WorktreeStatus | None = None) -> str:
    """How many lines it added and removed: what its branch holds, or its checkout so far."""
    if status is not None:
        new = f" ({status.untracked} new)" if status.untracked else ""
        return f"+{status.added} -{status.removed}{new}"
    return f"+{worker.added} -{worker.removed}" if worker.commit else "-"


def format_worker_cost(worker: WorkerState) -> str:
    """What its thinking cost, as far as the prices are known."""
    if worker.usage.usd:
        return f"${worker.usage.usd:.4f}"
    return "unpriced" if worker.usage.unpriced else "-"


def first_line(text: str) -> str:
    """What a task is about."""
    return next((line for line in text.splitlines() if line.strip()), "")
