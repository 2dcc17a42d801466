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

from ...store.sqlite.worktree_ledger import Ledger, Recorded
from ...system.folder_removal import remove_folder
from ...values.errors import Mistake, OutsideFailed, PodiumError
from ..git.branch import HEADS, branches, must_be_name, must_have_room, worktrees
from ..git.repository import Checkout, Repository, git, git_output
from ..git.snapshot import commit_id, fill, nested_repositories, registered
from .disk_quota import must_be_within_quota, size_of
from .saved_work import Saved, save, save_head, way_back
from .worktree_folder import FOLDER, folder_for, must_be_outside
from .worktree_include import include
from .worktree_status import Standing, standing

Hook = Callable[[Checkout], Awaitable[None]]
"""What a caller does in a worktree, such as the repository's setup after it was trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A worktree that is gone; `saved` is where its work is, where it had any."""

    path: Path
    branch: str
    saved: Saved | None

    def __str__(self) -> str:
        if self.saved is None:
            return f"removed {self.path}; the branch {self.branch} stays"
        return f"removed {self.path}; its work is saved, and {way_back(self.saved, self.branch)} brings it back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
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
    folder: str = FOLDER
    quota: int | None = None
    teardown: Hook | None = None
    """What is done with each before it goes."""

    async def create(
        self,
        branch: str,
        *,
        base: str | None = None,
        at: Path | None = None,
        run: str = "",
        setup: Hook | None = None,
    ) -> Checkout:
        """A worktree on a new branch that begins at `base`, or on the branch that exists. Raises Mistake.

        `at` is where it was said to be before. Where `setup` fails the worktree is put away again.
        """
        await must_be_name(self.repository, branch)
        async with self.ledger.alone() as lock:
            await self._mend(lock)
            path = self.path_for(branch) if at is None else self._outside(at)
            is_new, start = await self._start(branch, base)
            await self._must_be_free(branch, path, is_new=is_new)
            await must_be_within_quota(self.ledger, self.quota)
            noted = await self.ledger.begin(
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
                checkout = await self._make(noted, lock)
                size = await to_thread.run_sync(size_of, path)
                await self.ledger.note(noted, state="ready", git_dir=checkout.git_dir, size=size)
            except BaseException:
                with CancelScope(shield=True):
                    await self._unmake(noted, lock)
                raise
        if setup is not None:
            await self._set_up(checkout, setup)
        return checkout

    async def must_be_free(self, branch: str, *, base: str | None = None) -> Path:
        """Where a worktree for a branch would be. Raises Mistake where it could not be made."""
        await must_be_name(self.repository, branch)
        path = self.path_for(branch)
        is_new, _ = await self._start(branch, base)
        await self._must_be_free(branch, path, is_new=is_new)
        await must_be_within_quota(self.ledger, self.quota)
        return path

    async def remove(self, branch: str, *, force: bool = False) -> Removed:
        """Put a worktree of ours away. Raises Mistake where work would be left behind; forced, that is saved first."""
        checkout = await self.checkout(branch)
        if checkout.path.exists():
            await self._must_be_removable(checkout, force=force)
            if self.teardown is not None:
                await self.teardown(checkout)
        async with self.ledger.alone() as lock:
            await self._mend(lock)
            noted = await self._noted(branch)
            # From here on it is finished even when the caller is cancelled: half of it helps nobody.
            with CancelScope(shield=True):
                removed = await self._remove(noted, lock, force=force)
        return removed

    async def checkout(self, branch: str) -> Checkout:
        """The worktree of ours for a branch. Raises Mistake."""
        return checkout_of(await self._noted(branch))

    async def reconciled(self) -> list[Mended]:
        """Find out what is true of each worktree in the ledger, and mend what a crash left half done."""
        async with self.ledger.alone() as lock:
            return await self._mend(lock)

    async def standing(self, checkout: Checkout) -> Standing:
        """How a worktree of ours stands."""
        return await standing(checkout, main=await commit_id(self._home, "HEAD"))

    def path_for(self, branch: str) -> Path:
        """Where the worktree for a branch is made. Raises Mistake."""
        return folder_for(self.folder, main=self.repository.main, branch=branch)

    def _outside(self, path: Path) -> Path:
        """The folder, also after whatever became a link since it was chosen. Raises Mistake."""
        path = path.parent.resolve() / path.name
        must_be_outside(path, self.repository.main, told=str(path))
        return path

    @property
    def _home(self) -> Repository:
        """The repository itself, wherever in it the person works."""
        common = self.repository.common_dir
        return Repository(root=self.repository.main, git_dir=common, common_dir=common)

    # Making

    async def _start(self, branch: str, base: str | None) -> tuple[bool, str]:
        """Whether the branch is new, and the commit that the work is compared with."""
        start = await commit_id(self.repository, base) if base else await self._first()
        there = await branches(self.repository)
        if branch not in there:
            must_have_room(branch, there)
            return True, start
        common = await git(self.repository, "merge-base", f"{HEADS}{branch}", start)
        if common.code == 0:
            return False, common.out.decode().strip()
        return False, await commit_id(self.repository, f"{HEADS}{branch}")

    async def _first(self) -> str:
        """The commit that is checked out. Raises Mistake where there is none."""
        head = await git(self.repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head.code != 0:
            raise Mistake(f"{self.repository.root} has no commits yet, and a worktree begins from one; commit first")
        return head.out.decode().strip()

    async def _must_be_free(self, branch: str, path: Path, *, is_new: bool) -> None:
        for one in await self.ledger.worktrees():
            is_ours = one.repository == self.repository.common_dir
            if is_ours and one.branch == branch:
                raise Mistake(f"{branch!r} has a worktree already, in {one.path}; podium worktrees lists all")
            if one.path == path:
                of = repr(one.branch) if is_ours else f"{one.branch!r} of {one.repository.parent}"
                raise Mistake(f"{path} is the worktree of {of}; another name than {branch!r} would do")
            if path.is_relative_to(one.path) or one.path.is_relative_to(path):
                raise Mistake(f"{path} and the worktree {one.path} would be in each other; another pattern would do")
        if not is_new:
            for other in await worktrees(self.repository):
                if other.branch == branch:
                    raise Mistake(f"{branch!r} is checked out in {other.path}; switch that to another branch first")
        if _is_there(path):
            raise Mistake(f"{path} exists and is not a worktree of Podium's; move it away, or name another branch")

    async def _make(self, noted: Recorded, lock: int) -> Checkout:
        which = ("--no-track", "-b", noted.branch) if noted.is_new_branch else ()
        begun = noted.base if noted.is_new_branch else noted.branch
        told = ("worktree", "add", "--quiet", "--no-checkout", *which, "--", str(noted.path), begun)
        await git_output(self.repository, *told, lock=lock)
        checkout = await registered(self.repository, noted.path, branch=noted.branch, base=noted.base)
        await fill(checkout, lock=lock)
        await include(self.repository, checkout)
        return checkout

    async def _set_up(self, checkout: Checkout, setup: Hook) -> None:
        try:
            await setup(checkout)
        except BaseException:
            with CancelScope(shield=True):
                await self.remove(checkout.branch, force=True)
            raise

    async def _unmake(self, noted: Recorded, lock: int) -> None:
        """Put away what was never handed to anybody."""
        try:
            checkout = await registered(self.repository, noted.path, branch=noted.branch, base=noted.base)
        except (OutsideFailed, FileNotFoundError):
            pass  # git has not got that far
        else:
            # Without an index no file was written yet.
            if (checkout.git_dir / "index").exists() and noted.path.exists():
                await self._save(checkout, is_kept=False)
            if noted.path.exists():
                await to_thread.run_sync(remove_folder, noted.path)
            await self._drop(noted, lock)
        if noted.is_new_branch:
            # Only where it is as it was made: with the old value, git checks that itself.
            await git(self.repository, "update-ref", "-d", f"{HEADS}{noted.branch}", noted.base)
        await self.ledger.note(noted, state="gone")

    # Removing

    async def _noted(self, branch: str) -> Recorded:
        ours = await self.ledger.worktrees(self.repository.common_dir)
        for one in ours:
            if one.branch == branch:
                return one
        if any(other.branch == branch for other in await worktrees(self.repository)):
            raise Mistake(f"the worktree of {branch!r} is not one of Podium's; git worktree remove puts it away")
        there = ", ".join(one.branch for one in ours)
        raise Mistake(f"no worktree has the branch {branch!r}; " + (f"there is {there}" if there else "there is none"))

    async def _must_be_removable(self, checkout: Checkout, *, force: bool) -> Standing:
        if (checkout.git_dir / "locked").exists():
            raise Mistake(f"{checkout.path} is locked; git worktree unlock {checkout.path} opens it")
        stands = await self.standing(checkout)
        if not stands.is_clean and not force:
            raise Mistake(
                f"{checkout.path} has {stands.unsaved()}; commit and merge them, or remove it with --force, "
                "which saves everything first"
            )
        if inner := await nested_repositories(checkout):
            raise Mistake(
                f"{checkout.path / inner[0]} is a repository of its own, which cannot be saved; move it elsewhere first"
            )
        return stands

    async def _remove(self, noted: Recorded, lock: int, *, force: bool) -> Removed:
        """Move the folder aside, look once more, save, and only then delete."""
        if not noted.path.exists():
            return await self._forget(noted, lock)
        await self.ledger.note(noted, state="removing")
        aside = _aside(noted.path)
        try:
            await to_thread.run_sync(noted.path.rename, aside)
            stands = await self._must_be_removable(replace(checkout_of(noted), path=aside), force=force)
            saved = None if stands.is_clean else await self._save(checkout_of(noted, at=aside), is_kept=True)
        except BaseException as error:
            if aside.exists():
                await to_thread.run_sync(aside.rename, noted.path)
            await self.ledger.note(noted, state="ready")
            if isinstance(error, OSError):
                raise OutsideFailed(f"{noted.path} could not be moved aside, and was left: {error.strerror}") from error
            raise
        await self._finish(noted, lock)
        return Removed(path=noted.path, branch=noted.branch, saved=saved)

    async def _save(self, checkout: Checkout, *, is_kept: bool) -> Saved | None:
        """Save what is in a worktree; with `is_kept` False only where there is anything."""
        if not is_kept and (await self.standing(checkout)).is_clean:
            return None
        return await save(checkout)

    async def _finish(self, noted: Recorded, lock: int) -> None:
        """Let git forget the worktree, which says that all is saved, and delete what was moved aside."""
        await self._drop(noted, lock)
        aside = _aside(noted.path)
        if aside.exists():
            await to_thread.run_sync(remove_folder, aside)
        if _is_there(aside):
            raise OutsideFailed(f"{aside} could not be deleted whole; nothing in it is needed, delete it yourself")
        await self.ledger.note(noted, state="gone")

    async def _drop(self, noted: Recorded, lock: int) -> None:
        """Let git forget a worktree whose folder is gone or elsewhere."""
        told = ("worktree", "remove", "--force", "--force", "--", str(noted.path))
        await git_output(self.repository, *told, lock=lock)

    async def _forget(self, noted: Recorded, lock: int) -> Removed:
        """The folder is gone already, by somebody else's hand."""
        saved = None
        if noted.git_dir.exists():
            saved = await save_head(replace(self._home, git_dir=noted.git_dir), noted.branch)
            await self._drop(noted, lock)
        await self.ledger.note(noted, state="gone")
        return Removed(path=noted.path, branch=noted.branch, saved=saved)

    # Mending

    async def _mend(self, lock: int) -> list[Mended]:
        mended = []
        for noted in await self.ledger.worktrees(self.repository.common_dir):
            what = ""
            try:
                if noted.state == "making":
                    await self._unmake(noted, lock)
                    what = "was never finished and is put away"
                elif noted.state == "removing":
                    what = await self._mend_removal(noted, lock)
                elif not noted.path.exists() and not noted.git_dir.exists():
                    await self.ledger.note(noted, state="gone")
                    what = "was removed by somebody else"
            except PodiumError as error:
                what = f"could not be mended: {error}"
            if what:
                mended.append(Mended(path=noted.path, branch=noted.branch, what=what))
        return mended

    async def _mend_removal(self, noted: Recorded, lock: int) -> str:
        aside = _aside(noted.path)
        if not aside.exists() and noted.path.exists():
            await self.ledger.note(noted, state="ready")
            return "was about to be removed and is as it was"
        if aside.exists() and noted.git_dir.exists():
            # Nobody knows whether all was saved: look again, and put it back.
            await to_thread.run_sync(aside.rename, noted.path)
            await self.ledger.note(noted, state="ready")
            return "was about to be removed and is back as it was"
        if noted.git_dir.exists():
            await self._drop(noted, lock)
        if aside.exists():
            await to_thread.run_sync(remove_folder, aside)
        await self.ledger.note(noted, state="gone")
        return "was saved and is removed"


def checkout_of(noted: Recorded, *, at: Path | None = None) -> Checkout:
    """The worktree as the ledger has it; the worker could not have changed that."""
    return Checkout(
        path=at or noted.path,
        git_dir=noted.git_dir,
        common_dir=noted.repository,
        branch=noted.branch,
        base=noted.base,
    )


def _is_there(path: Path) -> bool:
    """Whether anything has this path, a link that leads nowhere included."""
    return os.path.lexists(path)


def _aside(path: Path) -> Path:
    """Where a worktree waits for its deletion; the name follows from the path, so that it is found after a crash."""
    return path.with_name(f".{path.name}.removing")
