"""Worktrees: a checkout of its own for each worker, beside the repository, on a branch of its own.

Each is in the ledger before it exists and until it is gone; what a crash left half done is mended by
the next who makes or removes one. Nothing is lost: what is removed is clean, or was saved before.
The branch stays, being the worker's result. Commands of the repository's are for the caller to run.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import CancelScope, to_thread

from ...store.sqlite.worktree_ledger import Ledger, WorktreeRow
from ...system.folder_removal import remove_folder
from ...values.errors import Mistake, OutsideFailed, PodiumError
from ..git.branch import HEADS, list_branches, list_git_worktrees, must_be_branch_name, must_not_overlap_branches
from ..git.repository import Checkout, Repository, call_git, read_git_output
from ..git.snapshot import find_nested_repositories, find_registered_worktree, resolve_commit, write_worktree_files
from .disk_quota import measure_folder, must_be_within_quota
from .saved_work import SavedWork, restore_command, save_head, save_work
from .worktree_folder import DEFAULT_FOLDER_PATTERN, must_be_outside_repository, resolve_worktree_folder
from .worktree_include import copy_included_files
from .worktree_status import WorktreeStatus, read_worktree_status

WorktreeHook = Callable[[Checkout], Awaitable[None]]
"""What a caller does in a worktree, such as the repository's setup after it was trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeRemoval:
    """A worktree that is gone; `saved` is where its work is, where it had any."""

    path: Path
    branch: str
    saved: SavedWork | None

    def __str__(self) -> str:
        if self.saved is None:
            return f"removed {self.path}; the branch {self.branch} stays"
        return f"removed {self.path}; its work is saved, and {restore_command(self.saved, self.branch)} brings it back"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeRepair:
    """What was found half done, and what became of it."""

    path: Path
    branch: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktrees:
    """The worktrees of one repository. `folder` is the pattern of where new ones are made.

    `quota` is how many bytes all of the ledger's may take.
    """

    repository: Repository
    ledger: Ledger
    folder: str = DEFAULT_FOLDER_PATTERN
    quota: int | None = None
    teardown: WorktreeHook | None = None
    """What is done with each before it goes."""

    async def create(
        self,
        branch: str,
        *,
        base: str | None = None,
        at: Path | None = None,
        run: str = "",
        setup: WorktreeHook | None = None,
    ) -> Checkout:
        """A worktree on a new branch that begins at `base`, or on the branch that exists. Raises Mistake.

        `at` is where it was said to be before. Where `setup` fails the worktree is put away again.
        """
        await must_be_branch_name(self.repository, branch)
        async with self.ledger.hold_worktree_lock() as lock:
            await self._repair_all(lock)
            path = self.path_for(branch) if at is None else self._resolve_outside(at)
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
                    f"a worktree for {branch!r}, or in {path}, is managed already; podium worktrees lists all"
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

    async def must_be_creatable(self, branch: str, *, base: str | None = None) -> Path:
        """Where a worktree for a branch would be. Raises Mistake where it could not be made."""
        await must_be_branch_name(self.repository, branch)
        path = self.path_for(branch)
        is_new, _ = await self._find_start(branch, base)
        await self._must_be_available(branch, path, is_new=is_new)
        await must_be_within_quota(self.ledger, self.quota)
        return path

    async def remove(self, branch: str, *, force: bool = False) -> WorktreeRemoval:
        """Put a worktree of ours away. Raises Mistake where work would be left behind; forced, that is saved first."""
        checkout = await self.find_checkout(branch)
        if checkout.path.exists():
            await self._must_be_removable(checkout, force=force)
            if self.teardown is not None:
                await self.teardown(checkout)
        async with self.ledger.hold_worktree_lock() as lock:
            await self._repair_all(lock)
            noted = await self._find_record(branch)
            # From here on it is finished even when the caller is cancelled: half of it helps nobody.
            with CancelScope(shield=True):
                removed = await self._remove_worktree(noted, lock, force=force)
        return removed

    async def find_checkout(self, branch: str) -> Checkout:
        """The worktree of ours for a branch. Raises Mistake."""
        return checkout_from_record(await self._find_record(branch))

    async def reconcile(self) -> list[WorktreeRepair]:
        """Find out what is true of each worktree in the ledger, and mend what a crash left half done."""
        async with self.ledger.hold_worktree_lock() as lock:
            return await self._repair_all(lock)

    async def standing(self, checkout: Checkout) -> WorktreeStatus:
        """How a worktree of ours stands."""
        return await read_worktree_status(checkout, main=await resolve_commit(self._main_repository, "HEAD"))

    def path_for(self, branch: str) -> Path:
        """Where the worktree for a branch is made. Raises Mistake."""
        return resolve_worktree_folder(self.folder, main=self.repository.main_folder, branch=branch)

    def _resolve_outside(self, path: Path) -> Path:
        """The folder, also after whatever became a link since it was chosen. Raises Mistake."""
        path = path.parent.resolve() / path.name
        must_be_outside_repository(path, self.repository.main_folder, label=str(path))
        return path

    @property
    def _main_repository(self) -> Repository:
        """The repository itself, wherever in it the person works."""
        common = self.repository.common_dir
        return Repository(root=self.repository.main_folder, git_dir=common, common_dir=common)

    # Making

    async def _find_start(self, branch: str, base: str | None) -> tuple[bool, str]:
        """Whether the branch is new, and the commit that the work is compared with."""
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
        """The commit that is checked out. Raises Mistake where there is none."""
        head = await call_git(self.repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head.code != 0:
            raise Mistake(f"{self.repository.root} has no commits yet, and a worktree begins from one; commit first")
        return head.out.decode().strip()

    async def _must_be_available(self, branch: str, path: Path, *, is_new: bool) -> None:
        for one in await self.ledger.list_worktrees():
            is_ours = one.repository == self.repository.common_dir
            if is_ours and one.branch == branch:
                raise Mistake(f"{branch!r} has a worktree already, in {one.path}; podium worktrees lists all")
            if one.path == path:
                of = repr(one.branch) if is_ours else f"{one.branch!r} of {one.repository.parent}"
                raise Mistake(f"{path} is the worktree of {of}; another name than {branch!r} would do")
            if path.is_relative_to(one.path) or one.path.is_relative_to(path):
                raise Mistake(f"{path} and the worktree {one.path} would be in each other; another pattern would do")
        if not is_new:
            for other in await list_git_worktrees(self.repository):
                if other.branch == branch:
                    raise Mistake(f"{branch!r} is checked out in {other.path}; switch that to another branch first")
        if _path_exists(path):
            raise Mistake(f"{path} exists and is not a worktree of Podium's; move it away, or name another branch")

    async def _add_worktree(self, noted: WorktreeRow, lock: int) -> Checkout:
        which = ("--no-track", "-b", noted.branch) if noted.is_new_branch else ()
        begun = noted.base if noted.is_new_branch else noted.branch
        told = ("worktree", "add", "--quiet", "--no-checkout", *which, "--", str(noted.path), begun)
        await read_git_output(self.repository, *told, lock=lock)
        checkout = await find_registered_worktree(self.repository, noted.path, branch=noted.branch, base=noted.base)
        await write_worktree_files(checkout, lock=lock)
        await copy_included_files(self.repository, checkout)
        return checkout

    async def _run_setup(self, checkout: Checkout, setup: WorktreeHook) -> None:
        try:
            await setup(checkout)
        except BaseException:
            with CancelScope(shield=True):
                await self.remove(checkout.branch, force=True)
            raise

    async def _undo_create(self, noted: WorktreeRow, lock: int) -> None:
        """Put away what was never handed to anybody."""
        try:
            checkout = await find_registered_worktree(self.repository, noted.path, branch=noted.branch, base=noted.base)
        except (OutsideFailed, FileNotFoundError):
            pass  # git has not got that far
        else:
            # Without an index no file was written yet.
            if (checkout.git_dir / "index").exists() and noted.path.exists():
                await self._save_changes(checkout, is_kept=False)
            if noted.path.exists():
                await to_thread.run_sync(remove_folder, noted.path)
            await self._unregister_worktree(noted, lock)
        if noted.is_new_branch:
            # Only where it is as it was made: with the old value, git checks that itself.
            await call_git(self.repository, "update-ref", "-d", f"{HEADS}{noted.branch}", noted.base)
        await self.ledger.record_state(noted, state="gone")

    # Removing

    async def _find_record(self, branch: str) -> WorktreeRow:
        ours = await self.ledger.list_worktrees(self.repository.common_dir)
        for one in ours:
            if one.branch == branch:
                return one
        if any(other.branch == branch for other in await list_git_worktrees(self.repository)):
            raise Mistake(f"the worktree of {branch!r} is not one of Podium's; git worktree remove puts it away")
        there = ", ".join(one.branch for one in ours)
        raise Mistake(f"no worktree has the branch {branch!r}; " + (f"there is {there}" if there else "there is none"))

    async def _must_be_removable(self, checkout: Checkout, *, force: bool) -> WorktreeStatus:
        if (checkout.git_dir / "locked").exists():
            raise Mistake(f"{checkout.path} is locked; git worktree unlock {checkout.path} opens it")
        status = await self.standing(checkout)
        if not status.is_clean and not force:
            raise Mistake(
                f"{checkout.path} has {status.describe_unsaved()}; commit and merge them, or remove it with --force, "
                "which saves everything first"
            )
        if inner := await find_nested_repositories(checkout):
            raise Mistake(
                f"{checkout.path / inner[0]} is a repository of its own, which cannot be saved; move it elsewhere first"
            )
        return status

    async def _remove_worktree(self, noted: WorktreeRow, lock: int, *, force: bool) -> WorktreeRemoval:
        """Move the folder aside, look once more, save, and only then delete."""
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
                raise OutsideFailed(f"{noted.path} could not be moved aside, and was left: {error.strerror}") from error
            raise
        await self._finish_removal(noted, lock)
        return WorktreeRemoval(path=noted.path, branch=noted.branch, saved=saved)

    async def _save_changes(self, checkout: Checkout, *, is_kept: bool) -> SavedWork | None:
        """Save what is in a worktree; with `is_kept` False only where there is anything."""
        if not is_kept and (await self.standing(checkout)).is_clean:
            return None
        return await save_work(checkout)

    async def _finish_removal(self, noted: WorktreeRow, lock: int) -> None:
        """Let git forget the worktree, which says that all is saved, and delete what was moved aside."""
        await self._unregister_worktree(noted, lock)
        aside = _removal_path(noted.path)
        if aside.exists():
            await to_thread.run_sync(remove_folder, aside)
        if _path_exists(aside):
            raise OutsideFailed(f"{aside} could not be deleted whole; nothing in it is needed, delete it yourself")
        await self.ledger.record_state(noted, state="gone")

    async def _unregister_worktree(self, noted: WorktreeRow, lock: int) -> None:
        """Let git forget a worktree whose folder is gone or elsewhere."""
        told = ("worktree", "remove", "--force", "--force", "--", str(noted.path))
        await read_git_output(self.repository, *told, lock=lock)

    async def _record_missing(self, noted: WorktreeRow, lock: int) -> WorktreeRemoval:
        """The folder is gone already, by somebody else's hand."""
        saved = None
        if noted.git_dir.exists():
            saved = await save_head(replace(self._main_repository, git_dir=noted.git_dir), noted.branch)
            await self._unregister_worktree(noted, lock)
        await self.ledger.record_state(noted, state="gone")
        return WorktreeRemoval(path=noted.path, branch=noted.branch, saved=saved)

    # Mending

    async def _repair_all(self, lock: int) -> list[WorktreeRepair]:
        repairs = []
        for noted in await self.ledger.list_worktrees(self.repository.common_dir):
            what = ""
            try:
                if noted.state == "making":
                    await self._undo_create(noted, lock)
                    what = "was never finished and is put away"
                elif noted.state == "removing":
                    what = await self._repair_removal(noted, lock)
                elif not noted.path.exists() and not noted.git_dir.exists():
                    await self.ledger.record_state(noted, state="gone")
                    what = "was removed by somebody else"
            except PodiumError as error:
                what = f"could not be mended: {error}"
            if what:
                repairs.append(WorktreeRepair(path=noted.path, branch=noted.branch, what=what))
        return repairs

    async def _repair_removal(self, noted: WorktreeRow, lock: int) -> str:
        aside = _removal_path(noted.path)
        if not aside.exists() and noted.path.exists():
            await self.ledger.record_state(noted, state="ready")
            return "was about to be removed and is as it was"
        if aside.exists() and noted.git_dir.exists():
            # Nobody knows whether all was saved: look again, and put it back.
            await to_thread.run_sync(aside.rename, noted.path)
            await self.ledger.record_state(noted, state="ready")
            return "was about to be removed and is back as it was"
        if noted.git_dir.exists():
            await self._unregister_worktree(noted, lock)
        if aside.exists():
            await to_thread.run_sync(remove_folder, aside)
        await self.ledger.record_state(noted, state="gone")
        return "was saved and is removed"


def checkout_from_record(noted: WorktreeRow, *, at: Path | None = None) -> Checkout:
    """The worktree as the ledger has it; the worker could not have changed that."""
    return Checkout(
        path=at or noted.path,
        git_dir=noted.git_dir,
        common_dir=noted.repository,
        branch=noted.branch,
        base=noted.base,
    )


def _path_exists(path: Path) -> bool:
    """Whether anything has this path, a link that leads nowhere included."""
    return os.path.lexists(path)


def _removal_path(path: Path) -> Path:
    """Where a worktree waits for its deletion; the name follows from the path, so that it is found after a crash."""
    return path.with_name(f".{path.name}.removing")
