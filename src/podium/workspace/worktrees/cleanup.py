"""Cleaning up: which worktrees there are, whose they are, and which can go.

Only what Podium made is ever removed; every worktree is told of, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...store.sqlite.worktree_ledger import WorktreeRow
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
    """A worktree in a list. `foreign` is one that Podium did not make, `missing` one whose folder is not there."""

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
    """What cleaning up does with one worktree, and why."""

    path: Path
    branch: str
    act: CleanupAction
    why: str


async def list_worktrees(of: Worktrees) -> list[WorktreeSummary]:
    """All worktrees of a repository but its own: first ours, the oldest first, then those of others.

    What ours take is measured, and remembered.
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
    of: Worktrees, *, busy: Callable[[], Collection[str]] = tuple, force: bool = False, dry_run: bool = False
) -> list[CleanupResult]:
    """Remove what is not needed any more, and say of every worktree what became of it.

    `busy` tells which runs have not ended. With `force` unmerged and uncommitted work is saved, and goes as
    well; with `dry_run` nothing is touched.
    """
    lines = []
    if not dry_run:
        for one in await of.reconcile():
            if not one.path.exists():
                lines.append(CleanupResult(path=one.path, branch=one.branch, act="removed", why=one.what))
    there = await list_worktrees(of)
    # Asked only now: a worker that was hired meanwhile may have its worktree among these already.
    unfinished = busy()
    for worktree in there:
        lines.append(await _clean_up_worktree(of, worktree, busy=unfinished, force=force, dry_run=dry_run))
    return lines


async def _clean_up_worktree(
    of: Worktrees, one: WorktreeSummary, *, busy: Collection[str], force: bool, dry_run: bool
) -> CleanupResult:
    def make_result(act: CleanupAction, why: str) -> CleanupResult:
        return CleanupResult(path=one.path, branch=one.branch, act=act, why=why)

    if not one.is_ours:
        return make_result("left", "Podium did not make it")
    if one.state in ("making", "removing"):
        return make_result("kept", "another process is making or removing it, or died doing so")
    if why := _reason_to_keep(one, busy, force=force):
        return make_result("kept", why)
    if one.state == "missing":
        why = "its folder is gone"
    elif one.status is not None and not one.status.is_clean:
        why = f"forced, with {one.status.describe_unsaved()}"
    else:
        why = "all of it is committed and merged"
    if dry_run:
        return make_result("removed", why)
    try:
        removed = await of.remove(one.branch, force=force)
    except PodiumError as error:
        return make_result("kept", str(error))
    return make_result("removed", f"{why}; {removed}" if removed.saved else why)


def _reason_to_keep(one: WorktreeSummary, busy: Collection[str], *, force: bool = False) -> str:
    """Why a worktree of ours stays; nothing where it can go."""
    if one.run and one.run in busy:
        return f"its run {one.run} has not ended"
    if one.trouble:
        return one.trouble
    if one.state == "ready" and one.status is not None and not one.status.is_clean and not force:
        return f"it has {one.status.describe_unsaved()}"
    return "" if one.state in ("ready", "missing") else "it is being made or removed"


async def _describe_worktree(of: Worktrees, noted: WorktreeRow) -> WorktreeSummary:
    state: State = "missing" if noted.state == "gone" else noted.state
    if noted.state == "ready" and not noted.path.exists():
        state = "missing"
    status, trouble = None, ""
    if state == "ready":
        try:
            status = await of.standing(checkout_from_record(noted))
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
