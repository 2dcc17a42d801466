"""Locate a run's repository and checkout on this machine.

On the machine where the work was delegated, these are the paths that the run recorded. On any other machine, both are
in the Podium home: `repositories/REMOTE/runs/RUN/repository` and, beside it, the checkout.

The packs of that repository are hard links into the mirror of the remote, so the repository is quick to create and
takes up little space. Unlike a clone that borrows objects, it does not depend on the mirror. Each run has its own
repository, so that the branches of two runs never conflict.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from anyio import to_thread
from msgspec import structs

from ...system.identity import read_host_id
from ...system.owned_files import make_private_folder, remove_folder
from ...values.errors import Mistake, OutsideFailed
from ...values.worker_task import WorkerTask
from ..git.branch import HEADS, list_git_worktrees
from ..git.repository import Repository, call_git, read_git_output
from ..git.revision import SHORT, branch_tips, contains_commit
from ..git.snapshot import as_ref_name
from .repository_cache import FETCH, Mirror, RepositoryCache, run_ref

IMPORT_SECONDS = 600.0
IMPORTED_REFS = "refs/podium/imported"
"""The refs in a repository that point to what was last imported into each branch."""


PARTS = (".pack", ".rev", ".idx")
"""The suffixes of a pack's files, in the order in which the files are linked.

The index comes last, because git uses a pack as soon as its index exists.
"""

REPOSITORY_FOLDER = "repository"


def locate_task(worker_task: WorkerTask, run: str, home: Path) -> WorkerTask:
    """Return the task with its paths replaced by paths on this machine, which do not have to exist yet.

    A task that has no remote or comes from this machine is returned unchanged. So is a task whose remote cannot be
    used; the error is raised later, when its code is fetched.
    """
    origin = worker_task.origin
    try:
        if origin is None or not origin.remote or origin.host == read_host_id(home):
            return worker_task
        mirror = RepositoryCache(home=home).open_mirror(origin.remote)
    except Mistake:
        return worker_task
    name = mirror.remote.name
    checkout = name if name != REPOSITORY_FOLDER else f"{name}-checkout"
    folder = run_folder(mirror, run)
    return structs.replace(worker_task, root=str(folder / REPOSITORY_FOLDER), path=str(folder / checkout))


def run_folder(mirror: Mirror, run: str) -> Path:
    """Return the folder for the repository and the checkout of a run that came from another machine."""
    return mirror.folder / "runs" / as_ref_name(run)


async def open_run_clone(mirror: Mirror, run: str, commit: str) -> Repository:
    """Return the repository of a run, and create it if necessary.

    The repository contains all commits in the mirror, and its HEAD points to `commit`.
    """
    folder = run_folder(mirror, run)
    path = folder / REPOSITORY_FOLDER
    async with mirror.hold_lock() as lock:
        if not path.exists():
            await to_thread.run_sync(lambda: make_private_folder(folder))
            await _create_repository(path, mirror.remote.text, lock)
        repository = Repository.at(path)
        await to_thread.run_sync(_link_packs, mirror.path, repository.common_dir)
        await read_git_output(repository, "update-ref", "--no-deref", "HEAD", commit, lock=lock)
    return repository


async def _create_repository(path: Path, remote: str, lock: int) -> None:
    """Create a repository under a temporary name, so that a killed process leaves no partial repository.

    The repository has the same remote as the mirror, so that workers started from it can move to other machines too.
    """
    unfinished = path.with_name(f"{path.name}.new")
    if unfinished.exists():
        await to_thread.run_sync(remove_folder, unfinished)
    init = ("init", "--quiet", "--template=", "--initial-branch=main", "--", str(unfinished))
    await read_git_output(path.parent, *init, lock=lock)
    await read_git_output(unfinished, "config", "remote.origin.url", remote, lock=lock)
    await to_thread.run_sync(unfinished.rename, path)


def _link_packs(mirror: Path, repository: Path) -> None:
    source, target = mirror / "objects" / "pack", repository / "objects" / "pack"
    target.mkdir(parents=True, exist_ok=True)
    for index in source.glob("*.idx"):
        for part in PARTS:
            one, other = index.with_suffix(part), target / f"{index.stem}{part}"
            if one.exists() and not other.exists():
                _link_file(one, other)


def _link_file(source: Path, target: Path) -> None:
    """Link a file, or copy it if it cannot be linked."""
    try:
        os.link(source, target)
    except OSError:
        unfinished = target.with_name(f"tmp_{target.name}")
        shutil.copy2(source, unfinished)
        unfinished.replace(target)


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
