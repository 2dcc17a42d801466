"""The repository of one run, for a team's work: commits, diffs, snapshots and the merged result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from anyio import to_thread

from ..core.work_repository import MergedWork, WorkBranch
from ..tools.checkout_files import open_checkout
from ..values.errors import Mistake
from ..workspace.git.repository import call_git, read_git_output, resolve_location, split_nul_paths
from ..workspace.git.revision import HEADS
from ..workspace.git.snapshot import commit_files, take_snapshot
from ..workspace.merging.merge_train import CheckResult, TrainBranch, build_train

SNAPSHOT_REFS = "refs/podium/snapshots"
LARGEST_DIFF = 1024 * 1024


class RunRepository:
    """The repository at the folder in which a run works."""

    def __init__(self, directory: Path, run: str) -> None:
        self._directory = directory
        self._run = run

    async def commit_checkout(self) -> str:
        return await take_snapshot(self._directory)

    async def read_diff(self, base: str, commit: str) -> str:
        diff = await read_git_output(self._directory, "diff", "--no-color", "--end-of-options", base, commit)
        if len(diff) > LARGEST_DIFF:
            return f"{diff[:LARGEST_DIFF]}\n[the rest of the diff is left out: it has {len(diff):,} characters]\n"
        return diff

    async def keep_snapshot(self, name: str, commits: Mapping[str, str]) -> None:
        for number, commit in enumerate(dict.fromkeys(commits.values())):
            ref = f"{SNAPSHOT_REFS}/{self._run}/{name}/{number}"
            await read_git_output(self._directory, "update-ref", ref, commit)

    async def list_files(self, commit: str, folder: str) -> list[str]:
        listing = ("ls-tree", "-z", "--name-only", "--end-of-options", commit, f"{folder}/")
        return [path.removeprefix(f"{folder}/") for path in split_nul_paths(await self._read(*listing))]

    async def merge_branches(
        self, branches: Sequence[WorkBranch], *, name: str, files: Mapping[str, str]
    ) -> MergedWork:
        place = resolve_location(self._directory)
        head = await call_git(place, "symbolic-ref", "--quiet", "--short", "HEAD")
        if head.code != 0:
            raise Mistake(f"no branch is checked out in {self._directory}, so the work cannot be merged onto one")
        # A branch of this name is from an attempt that was interrupted: the name contains the run's id.
        await call_git(place, "update-ref", "-d", HEADS + name)
        train = await build_train(
            place,
            [TrainBranch(branch=one.branch, commit=one.commit, after=one.after) for one in branches],
            onto=head.out.decode().strip(),
            integration=name,
            check=_skip_check,
        )
        left_out = {one.branch: one.why for one in train.left_out}
        if train.ref is None:
            return MergedWork(left_out=left_out)
        commit = train.commit
        if files:
            commit = await commit_files(place, commit, files, message="Record the decisions of this work")
            await read_git_output(place, "update-ref", train.ref, commit, train.commit)
        return MergedWork(branch=train.ref.removeprefix(HEADS), commit=commit, left_out=left_out)

    async def write_files(self, files: Mapping[str, str]) -> None:
        await to_thread.run_sync(partial(_write_new_files, self._directory, files))

    async def _read(self, *arguments: str) -> str:
        return await read_git_output(self._directory, *arguments)


async def _skip_check(folder: Path) -> CheckResult:
    """Pass: a team's checks are run on the merged result."""
    return CheckResult(passed=True)


def _write_new_files(directory: Path, files: Mapping[str, str]) -> None:
    with open_checkout(directory) as checkout:
        for path, text in files.items():
            if not (directory / path).exists():
                checkout.write_file(path, text.encode())
