"""Return worktrees as JSON fields, and find the runs that may use them."""

from __future__ import annotations

from typing import Any

from ..values.store_address import StoreAddress
from ..workspace.worktrees.cleanup import WorktreeSummary
from .run_lookup import open_reader


def worktree_fields(one: WorktreeSummary) -> dict[str, Any]:
    """Return the fields of a worktree for the JSON list."""
    status = one.status
    values: dict[str, Any] = {
        "branch": one.branch,
        "path": str(one.path),
        "ours": one.is_ours,
        "state": one.state,
        "run": one.run,
        "created_at": one.created,
        "size": one.size,
        "trouble": one.trouble,
    }
    if status is None:
        return values
    numbers = ("ahead", "behind", "unmerged", "modified", "untracked", "added", "removed")
    return values | {
        **{name: getattr(status, name) for name in numbers},
        "commits": [{"id": commit.id, "subject": commit.subject} for commit in status.commits],
        "files": [{"path": file.path, "added": file.added, "removed": file.removed} for file in status.files],
    }


def list_unfinished_runs(store: StoreAddress) -> set[str]:
    """Return the runs that have not ended."""
    if not store.exists():
        return set()
    with open_reader(store) as reader:
        return {summary.id for summary in reader.list_runs() if not summary.is_over}
