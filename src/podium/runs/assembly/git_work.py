"""Commit, compare, snapshot and merge a team's work in the repository that a run works in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from anyio import to_thread

from ...core.run_repository import MergedWork, Records, WorkBranch
from ...tools.checkout_files import open_checkout
from ...values.errors import Mistake
from ...workspace.git.folder_files import read_folder_files
from ...workspace.git.repository import call_git, read_git_output, resolve_location, split_nul_paths
from ...workspace.git.revision import HEADS
from ...workspace.git.snapshot import commit_files, keep_snapshot, switch_tree, take_snapshot, temporary_checkout
from ...workspace.merging.merge_train import CheckResult, TrainBranch, build_train

LARGEST_DIFF = 1024 * 1024


class GitWork:
    """The work of a team in the git repository that a run works in."""

    def __init__(self, directory: Path, run: str) -> None:
        self._directory = directory
        self._run = run

    async def require_branch(self) -> None:
        await self._find_branch()

    async def _find_branch(self) -> str:
        """Return the branch of the run's checkout. Raise Mistake if there is none, or if it has no commit."""
        place = resolve_location(self._directory)
        head = await call_git(place, "symbolic-ref", "--quiet", "--short", "HEAD")
        if head.code != 0:
            raise Mistake(
                f"no branch is checked out in {self._directory} (its HEAD is detached), so work on other branches "
                "cannot be merged; check out a branch with git switch"
            )
        branch = head.out.decode().strip()
        if (await call_git(place, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")).code != 0:
            raise Mistake(
                f"branch {branch} in {self._directory} has no commit, so no other branch can start from it; make a "
                "commit first"
            )
        return branch

    async def commit_checkout(self) -> str:
        return await take_snapshot(self._directory)

    async def list_changes(self, base: str, commit: str) -> Mapping[str, str]:
        options = ("diff", "--name-status", "-z", "--no-renames", "--end-of-options")
        told = split_nul_paths(await read_git_output(self._directory, *options, base, commit))
        return dict(zip(told[1::2], told[::2], strict=True))

    async def read_diff(self, base: str, commit: str, *, without: str = "") -> str:
        paths = ("--", ".", f":(exclude){without}") if without else ()
        diff = await read_git_output(self._directory, "diff", "--no-color", "--end-of-options", base, commit, *paths)
        if len(diff) > LARGEST_DIFF:
            return f"{diff[:LARGEST_DIFF]}\n[diff truncated: {len(diff):,} characters in total]\n"
        return diff

    @asynccontextmanager
    async def open_commit(self, commit: str) -> AsyncIterator[str]:
        async with temporary_checkout(self._directory, commit) as checkout:
            yield str(checkout.path)

    async def keep_snapshot(self, name: str, commits: Mapping[str, str]) -> None:
        await keep_snapshot(self._directory, self._run, name, commits)

    async def merge_branches(self, branches: Sequence[WorkBranch], *, name: str, records: Records | None) -> MergedWork:
        place = resolve_location(self._directory)
        onto = await self._find_branch()
        # The name contains the run's id, so an existing branch with this name is from an interrupted attempt.
        await call_git(place, "update-ref", "-d", HEADS + name)
        train = await build_train(
            place,
            [TrainBranch(branch=one.branch, commit=one.commit, after=one.after) for one in branches],
            onto=onto,
            integration=name,
            check=_skip_check,
            # Snapshots keep the commits of finished steps, even if their branches were deleted.
            can_be_deleted=True,
        )
        left_out = {one.branch: one.why for one in train.left_out}
        if train.ref is None:
            return MergedWork(left_out=left_out)
        commit = train.commit
        if records is not None and (files := records.render(await read_folder_files(place, commit, records.folder))):
            commit = await commit_files(place, commit, files, message="Record the decisions made during this work")
            await read_git_output(place, "update-ref", train.ref, commit, train.commit)
        return MergedWork(branch=train.ref.removeprefix(HEADS), commit=commit, left_out=left_out)

    async def restore_checkout(self, commit: str) -> None:
        await switch_tree(self._directory, commit)

    async def write_records(self, records: Records) -> None:
        await to_thread.run_sync(partial(_write_records, self._directory, records))


async def _skip_check(folder: Path) -> CheckResult:
    """Report success, because a team's checks run later, on the merged result."""
    return CheckResult(passed=True)


def _write_records(directory: Path, records: Records) -> None:
    there = {
        f"{records.folder}/{path.name}": path.read_text(encoding="utf-8", errors="replace")
        for path in (directory / records.folder).glob("*")
        if path.is_file() and not path.is_symlink()
    }
    with open_checkout(directory) as checkout:
        for path, text in records.render(there).items():
            checkout.write_file(path, text.encode())
