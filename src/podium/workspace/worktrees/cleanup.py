"""List worktrees, and remove those that are no longer needed.

Only worktrees that Podium created are removed. The report says for every worktree what was done and why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...store.worktree_ledger import WorktreeRow
from ...values.errors import PodiumError
from ..git.branch import list_git_worktrees
from ..git.snapshot import PREFIX
from .disk_quota import measure_worktrees
from .worktree import Worktrees, checkout_from_record
from .worktree_status import WorktreeStatus

State = Literal["making", "ready", "removing", "missing", "foreign"]
CleanupAction = Literal["removed", "kept", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeSummary:
    """A worktree in a list. If `state` is `foreign`, Podium did not create it; if `missing`, it has no folder."""

    path: Path
    branch: str
    state: State
    run: str = ""
    created: float = 0.0
    size: int = 0
    status: WorktreeStatus | None = None
    trouble: str = ""

    @property
    def is_ours(self) -> bool:
        return self.state != "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupResult:
    """The action that cleanup took for a worktree, and the reason."""

    path: Path
    branch: str
    act: CleanupAction
    why: str


async def list_worktrees(of: Worktrees) -> list[WorktreeSummary]:
    """Return all worktrees of a repository except the main worktree: Podium's, oldest first, and then the others.

    The sizes of Podium's worktrees are measured and recorded.
    """
    await measure_worktrees(of.ledger, await of.ledger.list_worktrees(of.repository.common_dir))
    ours = await of.ledger.list_worktrees(of.repository.common_dir)
    known = {one.path for one in ours}
    foreign = [
        WorktreeSummary(path=one.path, branch=one.branch, state="foreign")
        for one in (await list_git_worktrees(of.repository))[1:]
        if one.path not in known and not one.path.name.startswith(PREFIX)
    ]
    return [await _describe_worktree(of, one) for one in ours] + foreign


async def clean_up_worktrees(
    of: Worktrees,
    *,
    busy: Callable[[], Collection[str]] = tuple,
    force: bool = False,
    dry_run: bool = False,
    runs: Collection[str] | None = None,
) -> list[CleanupResult]:
    """Remove the worktrees that are no longer needed, and report the action for each worktree.

    `busy` returns the runs that have not ended. With `force`, worktrees with unmerged or uncommitted work are also
    removed, after the work is saved. With `dry_run`, nothing is removed, and the report says what would be removed.
    With `runs`, only the worktrees of these runs are considered.
    """
    lines = []
    if not dry_run:
        for one in await of.reconcile():
            if not one.path.exists() and runs is None:
                lines.append(CleanupResult(path=one.path, branch=one.branch, act="removed", why=one.what))
    there = [one for one in await list_worktrees(of) if runs is None or (one.run and one.run in runs)]
    # Call this after listing, because the list may include the worktree of a worker that has just started.
    unfinished = busy()
    for worktree in there:
        lines.append(await _clean_up_worktree(of, worktree, busy=unfinished, force=force, dry_run=dry_run))
    return lines


async def clean_up_worktrees_of_runs(of: Worktrees, runs: Collection[str]) -> list[CleanupResult]:
    """Remove the worktrees of these runs, which must have ended. Keep worktrees with unmerged or uncommitted work."""
    ours = [one for one in await of.ledger.list_worktrees(of.repository.common_dir) if one.run in runs]
    return [
        await _clean_up_worktree(of, await _describe_worktree(of, one), busy=(), force=False, dry_run=False)
        for one in ours
    ]


async def _clean_up_worktree(
    of: Worktrees, one: WorktreeSummary, *, busy: Collection[str], force: bool, dry_run: bool
) -> CleanupResult:
    def make_result(act: CleanupAction, why: str) -> CleanupResult:
        return CleanupResult(path=one.path, branch=one.branch, act=act, why=why)

    if not one.is_ours:
        return make_result("left", "not created by Podium")
    if one.state in ("making", "removing"):
        return make_result(
            "kept", "another process is creating or removing this worktree, or was interrupted while doing so"
        )
    if why := _reason_to_keep(one, busy, force=force):
        return make_result("kept", why)
    if one.state == "missing":
        why = "its folder no longer exists"
    elif one.status is not None and not one.status.is_clean:
        why = f"forced, with {one.status.describe_unsaved()}"
    else:
        why = "everything is committed and merged"
    if dry_run:
        return make_result("removed", why)
    try:
        removed = await of.remove(one.branch, force=force)
    except PodiumError as error:
        return make_result("kept", str(error))
    return make_result("removed", f"{why}; {removed}" if removed.saved else why)


def _reason_to_keep(one: WorktreeSummary, busy: Collection[str], *, force: bool = False) -> str:
    """Return why a Podium worktree is kept, or an empty string if it can be removed."""
    if one.run and one.run in busy:
        return f"its run {one.run} has not ended"
    if one.trouble:
        return one.trouble
    if one.state == "ready" and one.status is not None and not one.status.is_clean and not force:
        return f"it has {one.status.describe_unsaved()}"
    return "" if one.state in ("ready", "missing") else "it is being created or removed"


async def _describe_worktree(of: Worktrees, noted: WorktreeRow) -> WorktreeSummary:
    state: State = "missing" if noted.state == "gone" else noted.state
    if noted.state == "ready" and not noted.path.exists():
        state = "missing"
    status, trouble = None, ""
    if state == "ready":
        try:
            status = await of.read_status(checkout_from_record(noted))
        except PodiumError as error:
            trouble = str(error)
    return WorktreeSummary(
        path=noted.path,
        branch=noted.branch,
        state=state,
        run=noted.run,
        created=noted.created,
        size=noted.size,
        status=status,
        trouble=trouble,
    )
