"""Create, remove and repair worktrees. Each worker has its own worktree, next to the repository and on its own branch.

A worktree is recorded in the ledger before it is created, and stays there until it has been removed. If a crash
interrupts its creation or removal, the next process that creates or removes a worktree repairs it. No work is lost,
except files that git ignores: a worktree is removed only if it is clean or its work was saved first. The branch
remains, because it is the worker's result. The caller provides the repository's setup and teardown commands.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import CancelScope, to_thread

from ...store.worktree_ledger import Ledger, WorktreeRow
from ...system.owned_files import remove_folder
from ...values.errors import Mistake, OutsideFailed, PodiumError
from ..git.branch import HEADS, list_branches, list_git_worktrees, must_be_branch_name, must_not_overlap_branches
from ..git.repository import Checkout, Repository, call_git, read_git_output
from ..git.snapshot import (
    find_nested_repositories,
    find_registered_worktree,
    flush_worktree,
    resolve_commit,
    write_worktree_files,
)
from .disk_quota import measure_folder, must_be_within_quota
from .emptied_worktree import mend_emptied_worktree, remove_emptied_worktree
from .saved_work import SavedWork, restore_command, save_head, save_work
from .worktree_folder import DEFAULT_FOLDER_PATTERN, choose_worktree_folder, must_be_outside_repository
from .worktree_include import copy_included_files
from .worktree_status import WorktreeStatus, read_worktree_status

WorktreeHook = Callable[[Checkout], Awaitable[None]]
"""A callback that acts on a worktree, for example by running the setup command of a trusted repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeRemoval:
    """A removed worktree; `saved` is its saved work, if there was any."""

    path: Path
    branch: str
    saved: SavedWork | None

    def __str__(self) -> str:
        if self.saved is None:
            return f"removed {self.path}; the branch {self.branch} remains"
        return f"removed {self.path}; its work is saved, and {restore_command(self.saved, self.branch)} restores it"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeRepair:
    """A worktree that was only partly created or removed, and how it was repaired."""

    path: Path
    branch: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktrees:
    """The worktrees of one repository. `folder` is the pattern for the paths of new worktrees.

    `quota` is the maximum number of bytes that all worktrees in the ledger can use together.
    """

    repository: Repository
    ledger: Ledger
    folder: str = DEFAULT_FOLDER_PATTERN
    quota: int | None = None
    teardown: WorktreeHook | None = None
    """Runs in each worktree before it is removed."""

    async def create(
        self,
        branch: str,
        *,
        base: str | None = None,
        at: Path | None = None,
        run: str = "",
        setup: WorktreeHook | None = None,
    ) -> Checkout:
        """Create a worktree on the branch, which starts at `base` (by default HEAD) if it is new.

        Raise Mistake if the branch or the path cannot be used, or if the quota is reached. `at` is a path chosen in
        advance. If `setup` fails, the worktree is removed again.
        """
        await must_be_branch_name(self.repository, branch)
        async with self.ledger.hold_worktree_lock() as lock:
            await self._repair_all(lock)
            path = await self._choose_path(branch) if at is None else self._resolve_outside(at)
            is_new, start = await self._find_start(branch, base)
            await self._must_be_available(branch, path, is_new=is_new)
            await must_be_within_quota(self.ledger, self.quota)
            noted = await self.ledger.record_new(
                path,
                repository=self.repository.common_dir,
                branch=branch,
                base=start,
                run=run,
                is_new_branch=is_new,
            )
            if noted is None:
                raise Mistake(
                    f"a worktree for {branch!r} or in {path} already exists; run podium worktrees to list all worktrees"
                )
            try:
                checkout = await self._add_worktree(noted, lock)
                size = await to_thread.run_sync(measure_folder, path)
                await self.ledger.record_state(noted, state="ready", git_dir=checkout.git_dir, size=size)
            except BaseException:
                with CancelScope(shield=True):
                    await self._undo_create(noted, lock)
                raise
        if setup is not None:
            await self._run_setup(checkout, setup)
        return checkout

    async def must_be_creatable(self, branch: str, *, base: str | None = None, reserved: Collection[Path] = ()) -> Path:
        """Return the path for a branch's worktree. Raise Mistake if the worktree could not be created.

        `reserved` contains the paths of worktrees that will be created for other branches.
        """
        await must_be_branch_name(self.repository, branch)
        path = await self._choose_path(branch, reserved)
        is_new, _ = await self._find_start(branch, base)
        await self._must_be_available(branch, path, is_new=is_new)
        await must_be_within_quota(self.ledger, self.quota)
        return path

    async def remove(self, branch: str, *, force: bool = False) -> WorktreeRemoval:
        """Remove a worktree. Raise Mistake if it is locked, contains a nested repository or has unsaved work.

        With `force`, unsaved work is not an error; it is saved before the worktree is removed.
        """
        checkout = await self.find_checkout(branch)
        if checkout.path.exists():
            await self._must_be_removable(checkout, force=force)
            if self.teardown is not None:
                await self.teardown(checkout)
        async with self.ledger.hold_worktree_lock() as lock:
            await self._repair_all(lock)
            noted = await self._find_record(branch)
            # From here on, the removal finishes even if the caller is cancelled, to avoid a partial removal.
            with CancelScope(shield=True):
                removed = await self._remove_worktree(noted, lock, force=force)
        return removed

    async def find_checkout(self, branch: str) -> Checkout:
        """Return the Podium worktree for a branch. Raise Mistake if there is none."""
        return checkout_from_record(await self._find_record(branch))

    async def reconcile(self) -> list[WorktreeRepair]:
        """Repair the repository's worktrees that a crash left partly created or removed, and return the repairs.

        Worktrees that someone else has removed are recorded as removed.
        """
        async with self.ledger.hold_worktree_lock() as lock:
            return await self._repair_all(lock)

    async def read_status(self, checkout: Checkout) -> WorktreeStatus:
        """Return the status of a worktree."""
        return await read_worktree_status(checkout, main=await resolve_commit(self._main_repository, "HEAD"))

    async def _choose_path(self, branch: str, reserved: Collection[Path] = ()) -> Path:
        """Return a path for a branch's worktree that no other worktree has. Raise Mistake if there is none."""
        ours = self.repository.common_dir
        taken = {*reserved}
        taken |= {
            one.path for one in await self.ledger.list_worktrees() if (one.repository, one.branch) != (ours, branch)
        }
        # Git also lists the worktrees of other stores.
        taken |= {one.path for one in await list_git_worktrees(self.repository) if one.branch != branch}
        return choose_worktree_folder(self.folder, main=self.repository.main_folder, branch=branch, taken=taken)

    def _resolve_outside(self, path: Path) -> Path:
        """Resolve a path again, because part of it may have become a link since it was chosen.

        Raise Mistake if the path is inside the repository or contains the repository.
        """
        path = path.parent.resolve() / path.name
        must_be_outside_repository(path, self.repository.main_folder, label=str(path))
        return path

    @property
    def _main_repository(self) -> Repository:
        """The repository, rooted at its main worktree even if the user works in another worktree."""
        common = self.repository.common_dir
        return Repository(root=self.repository.main_folder, git_dir=common, common_dir=common)

    # Creating

    async def _find_start(self, branch: str, base: str | None) -> tuple[bool, str]:
        """Return whether the branch is new, and the commit to compare its work with."""
        start = await resolve_commit(self.repository, base) if base else await self._resolve_head()
        there = await list_branches(self.repository)
        if branch not in there:
            must_not_overlap_branches(branch, there)
            return True, start
        common = await call_git(self.repository, "merge-base", f"{HEADS}{branch}", start)
        if common.code == 0:
            return False, common.out.decode().strip()
        return False, await resolve_commit(self.repository, f"{HEADS}{branch}")

    async def _resolve_head(self) -> str:
        """Return the commit at HEAD. Raise Mistake if the repository has no commits."""
        head = await call_git(self.repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head.code != 0:
            raise Mistake(
                f"{self.repository.root} has no commits yet, but a worktree needs a commit to start from; commit first"
            )
        return head.out.decode().strip()

    async def _must_be_available(self, branch: str, path: Path, *, is_new: bool) -> None:
        for one in await self.ledger.list_worktrees():
            is_ours = one.repository == self.repository.common_dir
            if is_ours and one.branch == branch:
                raise Mistake(
                    f"{branch!r} already has a worktree, in {one.path}; run podium worktrees to list all worktrees"
                )
            if one.path == path:
                of = repr(one.branch) if is_ours else f"{one.branch!r} of {one.repository.parent}"
                raise Mistake(f"{path} is the worktree of {of}; use a name other than {branch!r}")
            if path.is_relative_to(one.path) or one.path.is_relative_to(path):
                raise Mistake(f"{path} and the worktree {one.path} would be nested; use another folder pattern")
        if not is_new:
            for other in await list_git_worktrees(self.repository):
                if other.branch == branch:
                    raise Mistake(f"{branch!r} is checked out in {other.path}; check out another branch there first")
        if _path_exists(path):
            raise Mistake(f"{path} exists and is not a Podium worktree; move it elsewhere, or use another branch")

    async def _add_worktree(self, noted: WorktreeRow, lock: int) -> Checkout:
        which = ("--no-track", "-b", noted.branch) if noted.is_new_branch else ()
        begun = noted.base if noted.is_new_branch else noted.branch
        told = ("worktree", "add", "--quiet", "--no-checkout", *which, "--", str(noted.path), begun)
        await read_git_output(self.repository, *told, lock=lock)
        checkout = await find_registered_worktree(self.repository, noted.path, branch=noted.branch, base=noted.base)
        await write_worktree_files(checkout, lock=lock)
        await copy_included_files(self.repository, checkout)
        await flush_worktree(checkout)
        return checkout

    async def _run_setup(self, checkout: Checkout, setup: WorktreeHook) -> None:
        try:
            await setup(checkout)
        except BaseException:
            with CancelScope(shield=True):
                await self.remove(checkout.branch, force=True)
            raise

    async def _undo_create(self, noted: WorktreeRow, lock: int) -> None:
        """Remove a worktree whose creation failed or was interrupted."""
        try:
            checkout = await find_registered_worktree(self.repository, noted.path, branch=noted.branch, base=noted.base)
        except (OutsideFailed, FileNotFoundError):
            # Git has not registered it yet, or a power failure has emptied its files.
            await to_thread.run_sync(remove_emptied_worktree, noted.path, noted.repository)
        else:
            # If there is no index yet, no files have been written, so there is nothing to save.
            if (checkout.git_dir / "index").exists() and noted.path.exists():
                await self._save_changes(checkout, is_kept=False)
            if noted.path.exists():
                await to_thread.run_sync(remove_folder, noted.path)
            await self._unregister_worktree(noted, lock)
        if noted.is_new_branch:
            # Git deletes the branch only if it is still at this commit.
            await call_git(self.repository, "update-ref", "-d", f"{HEADS}{noted.branch}", noted.base)
        await self.ledger.record_state(noted, state="gone")

    # Removing

    async def _find_record(self, branch: str) -> WorktreeRow:
        ours = await self.ledger.list_worktrees(self.repository.common_dir)
        for one in ours:
            if one.branch == branch:
                return one
        if any(other.branch == branch for other in await list_git_worktrees(self.repository)):
            raise Mistake(f"the worktree of {branch!r} was not created by Podium; remove it with git worktree remove")
        there = ", ".join(one.branch for one in ours)
        raise Mistake(
            f"no worktree for the branch {branch!r}; "
            + (f"available: {there}" if there else "Podium has created no worktrees in this repository")
        )

    async def _must_be_removable(self, checkout: Checkout, *, force: bool) -> WorktreeStatus:
        if (checkout.git_dir / "locked").exists():
            raise Mistake(f"{checkout.path} is locked; unlock it with git worktree unlock {checkout.path}")
        status = await self.read_status(checkout)
        if not status.is_clean and not force:
            raise Mistake(
                f"{checkout.path} has {status.describe_unsaved()}; commit and merge your work, or remove the "
                "worktree with --force, which saves everything first"
            )
        if inner := await find_nested_repositories(checkout):
            raise Mistake(
                f"{checkout.path / inner[0]} is a nested repository, which cannot be saved; move it elsewhere first"
            )
        return status

    async def _remove_worktree(self, noted: WorktreeRow, lock: int, *, force: bool) -> WorktreeRemoval:
        """Rename a worktree's folder, check the worktree again, save its work, and only then delete the folder."""
        if not noted.path.exists():
            return await self._record_missing(noted, lock)
        await self.ledger.record_state(noted, state="removing")
        aside = _removal_path(noted.path)
        try:
            await to_thread.run_sync(noted.path.rename, aside)
            status = await self._must_be_removable(replace(checkout_from_record(noted), path=aside), force=force)
            saved = (
                None
                if status.is_clean
                else await self._save_changes(checkout_from_record(noted, at=aside), is_kept=True)
            )
        except BaseException as error:
            if aside.exists():
                await to_thread.run_sync(aside.rename, noted.path)
            await self.ledger.record_state(noted, state="ready")
            if isinstance(error, OSError):
                raise OutsideFailed(f"cannot rename {noted.path} ({error.strerror}); it was not removed") from error
            raise
        await self._finish_removal(noted, lock)
        return WorktreeRemoval(path=noted.path, branch=noted.branch, saved=saved)

    async def _save_changes(self, checkout: Checkout, *, is_kept: bool) -> SavedWork | None:
        """Save a worktree's work. If `is_kept` is False and the worktree is clean, return None instead."""
        if not is_kept and (await self.read_status(checkout)).is_clean:
            return None
        return await save_work(checkout)

    async def _finish_removal(self, noted: WorktreeRow, lock: int) -> None:
        """Unregister the worktree from git, and then delete the renamed folder.

        The worktree's work must already be saved, because the next repair deletes the folder if the removal is
        interrupted after the worktree was unregistered.
        """
        await self._unregister_worktree(noted, lock)
        aside = _removal_path(noted.path)
        if aside.exists():
            await to_thread.run_sync(remove_folder, aside)
        if _path_exists(aside):
            raise OutsideFailed(
                f"{aside} could not be deleted completely; its work is saved, so you can delete the folder yourself"
            )
        await self.ledger.record_state(noted, state="gone")

    async def _unregister_worktree(self, noted: WorktreeRow, lock: int) -> None:
        """Remove git's registration of a worktree whose folder was deleted or renamed."""
        told = ("worktree", "remove", "--force", "--force", "--", str(noted.path))
        await read_git_output(self.repository, *told, lock=lock)

    async def _record_missing(self, noted: WorktreeRow, lock: int) -> WorktreeRemoval:
        """Record that a worktree's folder no longer exists, and save its commits if no branch or remote has them."""
        saved = None
        if noted.git_dir.exists():
            saved = await save_head(replace(self._main_repository, git_dir=noted.git_dir), noted.branch)
            await self._unregister_worktree(noted, lock)
        await self.ledger.record_state(noted, state="gone")
        return WorktreeRemoval(path=noted.path, branch=noted.branch, saved=saved)

    # Repairing

    async def _repair_all(self, lock: int) -> list[WorktreeRepair]:
        repairs = []
        for noted in await self.ledger.list_worktrees(self.repository.common_dir):
            what = ""
            try:
                if noted.state == "making":
                    await self._undo_create(noted, lock)
                    what = "was never finished and has been removed"
                elif noted.state == "removing":
                    what = await self._repair_removal(noted, lock)
                elif not noted.path.exists() and not noted.git_dir.exists():
                    await self.ledger.record_state(noted, state="gone")
                    what = "was removed by someone else"
                elif await mend_emptied_worktree(checkout_from_record(noted), lock):
                    what = "had lost what git knows about it, and has been repaired"
            except PodiumError as error:
                what = f"could not be repaired: {error}"
            if what:
                repairs.append(WorktreeRepair(path=noted.path, branch=noted.branch, what=what))
        return repairs

    async def _repair_removal(self, noted: WorktreeRow, lock: int) -> str:
        aside = _removal_path(noted.path)
        if not aside.exists() and noted.path.exists():
            await self.ledger.record_state(noted, state="ready")
            return "was not removed, because the removal was interrupted"
        if aside.exists() and noted.git_dir.exists():
            # It is unknown whether all work was saved, so restore the folder; the next removal checks again.
            await to_thread.run_sync(aside.rename, noted.path)
            await self.ledger.record_state(noted, state="ready")
            return "was restored, because its removal was interrupted"
        if noted.git_dir.exists():
            await self._unregister_worktree(noted, lock)
        if aside.exists():
            await to_thread.run_sync(remove_folder, aside)
        await self.ledger.record_state(noted, state="gone")
        return "was saved and has been removed"


def checkout_from_record(noted: WorktreeRow, *, at: Path | None = None) -> Checkout:
    """Return the checkout according to its record in the ledger, which workers cannot change."""
    return Checkout(
        path=at or noted.path,
        git_dir=noted.git_dir,
        common_dir=noted.repository,
        branch=noted.branch,
        base=noted.base,
    )


def _path_exists(path: Path) -> bool:
    """Return whether this path exists, even as a dangling link."""
    return os.path.lexists(path)


def _removal_path(path: Path) -> Path:
    """Return the path to which a worktree's folder is renamed before it is deleted.

    If the removal was interrupted, the next repair looks for the folder at this path.
    """
    return path.with_name(f".{path.name}.removing")
