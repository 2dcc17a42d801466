"""Copy the commits of a run from the mirror of its remote into the user's repository on this machine."""

from __future__ import annotations

from ...values.errors import Mistake, OutsideFailed
from ..git.branch import HEADS, list_git_worktrees
from ..git.repository import Repository, call_git, read_git_output
from ..git.revision import SHORT, branch_tips, contains_commit
from .repository_cache import FETCH, Mirror, run_ref

IMPORT_SECONDS = 600.0
IMPORTED_REFS = "refs/podium/imported"
"""The refs in a repository that point to what was last imported into each branch."""


async def import_run(mirror: Mirror, repository: Repository, run: str) -> None:
    """Fetch the refs of a run from the mirror into a repository, under the same names."""
    told = (*FETCH, "--", str(mirror.path), f"+{run_ref(run, '*')}:{run_ref(run, '*')}")
    done = await call_git(repository, *told, timeout=IMPORT_SECONDS, source=mirror.path)
    if done.code != 0:
        raise OutsideFailed(f"cannot copy the commits of run {run} to {repository.root}: {done.err}")


async def import_branch(repository: Repository, branch: str, commit: str, *, is_chosen: bool) -> None:
    """Create a branch at a commit, or fast-forward it unless it already contains the commit.

    `is_chosen` says whether a person chose the name of the branch. If not, only a branch that this function has made
    and nobody has changed moves. Raise Mistake if another one would have to move, if the branch has other commits, or
    if it would have to move while it is checked out.
    """
    tip = (await branch_tips(repository, [branch])).get(branch, "")
    if tip and await contains_commit(repository, tip, commit):
        return
    record = f"{IMPORTED_REFS}/{branch}"
    if tip and not is_chosen:
        known = await call_git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", record)
        if known.out.decode().strip() != tip:
            raise Mistake(
                f"{branch} in {repository.main_folder} is not a branch of this worker, which a host of the fleet "
                f"created, so it stays as it is; rename it with git branch -m to get the worker's branch"
            )
    if tip and not await contains_commit(repository, commit, tip):
        raise Mistake(
            f"{branch} in {repository.main_folder} has commits that its worker's commit {commit[:SHORT]} does not "
            f"contain; rename the branch here with git branch -m, and try again"
        )
    for other in await list_git_worktrees(repository):
        if tip and other.branch == branch:
            raise Mistake(f"{branch!r} is checked out in {other.path}; check out another branch there first")
    await read_git_output(repository, "update-ref", f"{HEADS}{branch}", commit, tip or "0" * len(commit))
    # Without the record, for example because of an older one named like a folder of this one, the branch stays.
    await call_git(repository, "update-ref", record, commit)
