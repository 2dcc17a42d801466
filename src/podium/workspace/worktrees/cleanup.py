"""Cleaning up: which worktrees there are, whose they are, and which can go.

Only what Podium made is ever removed; every worktree is told of, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...store.sqlite.worktree_ledger import Recorded
from ...values.errors import PodiumError
from ..git.branch import worktrees
from ..git.snapshot import PREFIX
from .disk_quota import measure
from .worktree import Worktrees, checkout_of
from .worktree_status import Standing

State = Literal["making", "ready", "removing", "missing", "foreign"]
Act = Literal["removed", "kept", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A worktree in a list. `foreign` is one that Podium did not make, `missing` one whose folder is not there."""

    path: Path
    branch: str
    state: State
    run: str = ""
    created: float = 0.0
    size: int = 0
    standing: Standing | None = None
    trouble: str = ""

    @property
    def is_ours(self) -> bool:
        return self.state != "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What cleaning up does with one worktree, and why."""

    path: Path
    branch: str
    act: Act
    why: str


async def listed(of: Worktrees) -> list[Listed]:
    """All worktrees of a repository but its own: first ours, the oldest first, then those of others.

    What ours take is measured, and remembered.
    """
    await measure(of.ledger, await of.ledger.worktrees(of.repository.common_dir))
    ours = await of.ledger.worktrees(of.repository.common_dir)
    known = {one.path for one in ours}
    foreign = [
        Listed(path=one.path, branch=one.branch, state="foreign")
        for one in (await worktrees(of.repository))[1:]
        if one.path not in known and not one.path.name.startswith(PREFIX)
    ]
    return [await _described(of, one) for one in ours] + foreign


async def cleanup(
    of: Worktrees, *, busy: Callable[[], Collection[str]] = tuple, force: bool = False, dry_run: bool = False
) -> list[Line]:
    """Remove what is not needed any more, and say of every worktree what became of it.

    `busy` tells which runs have not ended. With `force` unmerged and uncommitted work is saved, and goes as
    well; with `dry_run` nothing is touched.
    """
    lines = []
    if not dry_run:
        for one in await of.reconciled():
            if not one.path.exists():
                lines.append(Line(path=one.path, branch=one.branch, act="removed", why=one.what))
    there = await listed(of)
    # Asked only now: a worker that was hired meanwhile may have its worktree among these already.
    unfinished = busy()
    for worktree in there:
        lines.append(await _cleaned(of, worktree, busy=unfinished, force=force, dry_run=dry_run))
    return lines


async def _cleaned(of: Worktrees, one: Listed, *, busy: Collection[str], force: bool, dry_run: bool) -> Line:
    def line(act: Act, why: str) -> Line:
        return Line(path=one.path, branch=one.branch, act=act, why=why)

    if not one.is_ours:
        return line("left", "Podium did not make it")
    if one.state in ("making", "removing"):
        return line("kept", "another process is making or removing it, or died doing so")
    if why := _kept(one, busy, force=force):
        return line("kept", why)
    if one.state == "missing":
        why = "its folder is gone"
    elif one.standing is not None and not one.standing.is_clean:
        why = f"forced, with {one.standing.unsaved()}"
    else:
        why = "all of it is committed and merged"
    if dry_run:
        return line("removed", why)
    try:
        removed = await of.remove(one.branch, force=force)
    except PodiumError as error:
        return line("kept", str(error))
    return line("removed", f"{why}; {removed}" if removed.saved else why)


def _kept(one: Listed, busy: Collection[str], *, force: bool = False) -> str:
    """Why a worktree of ours stays; nothing where it can go."""
    if one.run and one.run in busy:
        return f"its run {one.run} has not ended"
    if one.trouble:
        return one.trouble
    if one.state == "ready" and one.standing is not None and not one.standing.is_clean and not force:
        return f"it has {one.standing.unsaved()}"
    return "" if one.state in ("ready", "missing") else "it is being made or removed"


async def _described(of: Worktrees, noted: Recorded) -> Listed:
    state: State = "missing" if noted.state == "gone" else noted.state
    if noted.state == "ready" and not noted.path.exists():
        state = "missing"
    stands, trouble = None, ""
    if state == "ready":
        try:
            stands = await of.standing(checkout_of(noted))
        except PodiumError as error:
            trouble = str(error)
    return Listed(
        path=noted.path,
        branch=noted.branch,
        state=state,
        run=noted.run,
        created=noted.created,
        size=noted.size,
        standing=stands,
        trouble=trouble,
    )
