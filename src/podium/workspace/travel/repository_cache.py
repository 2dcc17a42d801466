"""Keep a bare mirror of each remote repository in the Podium home, and exchange commits with the remote through it.

A mirror contains only what was fetched for runs on this machine. Everything that is fetched stays in packs, so that
the repository of a run can link to them. For a run RUN, the refs on the remote are `refs/podium/runs/RUN/base`, if its
base is not on a branch there, and `refs/podium/runs/RUN/EPOCH`, which only the run's owner in that epoch pushes to.
A process that has lost the run can therefore never change what its successor pushes.

A checkpoint is a commit of the files in the checkout that git does not ignore, including uncommitted changes. Its first
parent is the commit that was checked out, so that the branch can be restored too, and its second parent is the previous
checkpoint. The newest checkpoint therefore keeps all earlier checkpoints and their commits reachable. No branch ever
contains a checkpoint.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from ...system.file_lock import wait_file_lock
from ...system.owned_files import remove_folder
from ...values.errors import OutsideFailed
from ..git.repository import Checkout, Repository, call_git, read_git_output, split_nul_paths
from ..git.snapshot import SNAPSHOT_SECONDS, as_ref_name, find_nested_repositories, take_snapshot, write_commit
from .remote_git import TRANSFER_SECONDS, call_remote_git, describe_remote_failure
from .remote_url import RemoteUrl, parse_remote_url

MOST_IGNORED = 20
"""The maximum number of paths that `list_left_out` returns. Further paths are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint; `head` is the commit that was checked out."""

    commit: str
    head: str


CACHE_FOLDER = "repositories"
RUN_REFS = "refs/podium/runs"
LATEST_REF = "refs/podium/latest"
"""The ref in a mirror that points to the last commit that was fetched by commit id."""
BRANCH_REFS = "refs/podium/heads"
"""The refs in a mirror that point to the remote's branches."""
FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")
SHORT = 12


def run_ref(run: str, part: str | int) -> str:
    """Return the name of a run's ref. `part` is an epoch or `base`, or `*` for a pattern that matches all its refs."""
    return f"{RUN_REFS}/{as_ref_name(run)}/{part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The mirror of one remote repository. `folder` contains everything that belongs to the remote."""

    remote: RemoteUrl
    folder: Path

    @property
    def path(self) -> Path:
        """The path of the bare repository."""
        return self.folder / "mirror.git"

    @property
    def repository(self) -> Repository:
        """The bare repository, for git calls that do not talk to the remote."""
        return Repository(root=self.path, git_dir=self.path, common_dir=self.path)

    @asynccontextmanager
    async def hold_lock(self) -> AsyncIterator[int]:
        """Prevent other processes from changing the mirror until the block ends. Create or repair the mirror first."""
        async with wait_file_lock(self.folder / "lock") as lock:
            if self.path.exists():
                await to_thread.run_sync(_remove_interrupted_files, self.path)
            else:
                await self._create(lock)
            yield lock

    async def _create(self, lock: int) -> None:
        """Create the bare repository under a temporary name, so that a killed process leaves no partial mirror."""
        unfinished = self.folder / "mirror.git.new"
        if unfinished.exists():
            await to_thread.run_sync(remove_folder, unfinished)
        init = ("init", "--quiet", "--bare", "--template=", "--initial-branch=main", "--", str(unfinished))
        await read_git_output(self.folder, *init, lock=lock)
        await to_thread.run_sync(unfinished.rename, self.path)

    async def has_commit(self, commit: str) -> bool:
        """Return whether the mirror contains a commit."""
        asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
        return (await call_git(self.repository, *asked)).code == 0

    # Fetching

    async def fetch_runs(self, runs: Collection[str], commits: Collection[str] = ()) -> None:
        """Fetch the refs of the given runs, and each given commit that the mirror does not contain.

        Raise OutsideFailed if the fetch fails or a commit is not on the remote.
        """
        async with self.hold_lock():
            await self._fetch([f"+{run_ref(run, '*')}:{run_ref(run, '*')}" for run in runs])
            for commit in commits:
                if not await self.has_commit(commit):
                    await self._fetch_commit(commit)

    async def _fetch_commit(self, commit: str) -> None:
        """Fetch a commit by its id. If the server does not allow that, fetch all branches instead."""
        try:
            await self._fetch([f"+{commit}:{LATEST_REF}"])
        except OutsideFailed:
            await self._fetch([f"+refs/heads/*:{BRANCH_REFS}/*"])
        if not await self.has_commit(commit):
            raise OutsideFailed(f"commit {commit[:SHORT]} is not on {self.remote.text}; push a branch that contains it")

    async def _fetch(self, refspecs: list[str]) -> None:
        done = await call_remote_git(self.path, self.remote, *FETCH, "--", self.remote.text, *refspecs)
        if done.code != 0:
            raise OutsideFailed(f"cannot fetch from {describe_remote_failure(self.remote, done)}", retryable=True)

    # Pushing

    async def push(
        self, objects: Path, commit: str, ref: str, *, expected: str = "", timeout: float = TRANSFER_SECONDS
    ) -> None:
        """Push a commit from an object folder to a ref on the remote.

        The ref must point to `expected`, or must not exist if `expected` is empty. The push also succeeds if the ref
        was deleted, or if it points to another commit that the object folder contains, because that commit comes from
        an earlier push whose result was lost. Raise OutsideFailed if the push fails.
        """
        if not self.path.exists():
            async with self.hold_lock():
                pass  # creates the mirror
        told = await self._try_push(objects, commit, ref, expected, timeout)
        if "stale info" in told:  # git reports this if the ref is not at the expected commit
            actual = (await self.list_refs([ref], timeout=timeout)).get(ref, "")
            if actual == commit:
                return
            if actual and not await self._has_object(objects, actual):
                told = f"{self.remote.text}: another process has pushed {actual[:SHORT]} to {ref}"
            else:
                told = await self._try_push(objects, commit, ref, actual, timeout)
        if told:
            raise OutsideFailed(f"cannot push to {told}", retryable=True)

    async def _try_push(self, objects: Path, commit: str, ref: str, expected: str, timeout: float) -> str:
        """Push a commit. Return an empty string if the push succeeds, and the reason for the failure otherwise."""
        told = ("push", "--quiet", "--no-verify", f"--force-with-lease={ref}:{expected}")
        where = ("--", self.remote.text, f"{commit}:{ref}")
        done = await call_remote_git(self.path, self.remote, *told, *where, objects=objects, timeout=timeout)
        return "" if done.code == 0 else describe_remote_failure(self.remote, done)

    async def push_branch(self, objects: Path, commit: str, branch: str) -> None:
        """Push a commit from an object folder to a branch on the remote, without overwriting others' commits.

        Raise OutsideFailed if the push fails, for example because the branch there has other commits.
        """
        if not self.path.exists():
            async with self.hold_lock():
                pass  # creates the mirror
        told = ("push", "--quiet", "--no-verify", "--", self.remote.text, f"{commit}:refs/heads/{branch}")
        done = await call_remote_git(self.path, self.remote, *told, objects=objects)
        if done.code != 0:
            raise OutsideFailed(f"cannot push to {describe_remote_failure(self.remote, done)}", retryable=True)

    async def _has_object(self, objects: Path, commit: str) -> bool:
        asked = ("cat-file", "-e", f"{commit}^{{commit}}")
        return (await call_remote_git(self.path, self.remote, *asked, objects=objects)).code == 0

    # Refs on the remote

    async def list_refs(self, patterns: Collection[str], *, timeout: float = TRANSFER_SECONDS) -> dict[str, str]:
        """Return the remote's refs that match these patterns, as a mapping from ref to commit id."""
        asked = ("ls-remote", "--quiet", "--refs", "--", self.remote.text, *patterns)
        done = await call_remote_git(self.path, self.remote, *asked, timeout=timeout)
        if done.code != 0:
            raise OutsideFailed(f"cannot read {describe_remote_failure(self.remote, done)}", retryable=True)
        lines = (line.split("\t", 1) for line in done.out.decode(errors="replace").splitlines())
        return {name: commit for commit, name in lines}

    async def delete_runs(self, runs: Collection[str]) -> int:
        """Delete the refs of these runs on the remote and in the mirror.

        Return the number of refs that were deleted on the remote.
        """
        async with self.hold_lock():
            refs = await self.list_refs([run_ref(run, "*") for run in runs])
            if refs:
                # With the leases, git keeps a ref that another process has pushed to since it was listed.
                leases = (f"--force-with-lease={ref}:{commit}" for ref, commit in refs.items())
                gone = ("push", "--quiet", "--no-verify", *leases, "--", self.remote.text, *(f":{ref}" for ref in refs))
                done = await call_remote_git(self.path, self.remote, *gone)
                if done.code != 0:
                    raise OutsideFailed(f"cannot delete refs on {describe_remote_failure(self.remote, done)}")
            for run in runs:
                await delete_local_refs(self.repository, run)
        return len(refs)


async def delete_local_refs(repository: Repository, run: str) -> None:
    """Delete the refs of a run in a repository on this machine."""
    asked = ("for-each-ref", "--format=delete %(refname)", f"{RUN_REFS}/{as_ref_name(run)}/")
    if listed := await read_git_output(repository, *asked):
        await read_git_output(repository, "update-ref", "--stdin", stdin=f"{listed}\n".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryCache:
    """The mirrors in a Podium home."""

    home: Path

    def open_mirror(self, remote: RemoteUrl | str) -> Mirror:
        """Return the mirror of a remote, which is created on first use. Raise Mistake if the URL cannot be used."""
        url = parse_remote_url(remote) if isinstance(remote, str) else remote
        return Mirror(remote=url, folder=self.home.resolve() / CACHE_FOLDER / url.folder_name)


def _remove_interrupted_files(mirror: Path) -> None:
    """Remove temporary files and lock files left behind by git processes that were killed.

    The caller must hold the mirror's lock, so that no git process is using them.
    """
    leftovers = [
        *(mirror / "objects" / "pack").glob("tmp_*"),
        *mirror.glob("*.lock"),
        *(mirror / "refs").rglob("*.lock"),
    ]
    for path in leftovers:
        with suppress(OSError):
            path.unlink()


async def take_checkpoint(checkout: Checkout, *, run: str, epoch: int, previous: str = "") -> Checkpoint:
    """Write a checkpoint of the checkout's current files, and return it.

    Return `previous`, the previous checkpoint, if neither the files nor the branch have changed since.
    """
    snapshot = await take_snapshot(checkout)
    tree, head = await _read_tree_and_parent(checkout, snapshot)
    if previous and (tree, head) == await _read_tree_and_parent(checkout, previous):
        return Checkpoint(commit=previous, head=head)
    message = f"Checkpoint of run {run}\n\nPodium-Run: {run}\nPodium-Epoch: {epoch}\n"
    parents = [head, previous] if previous else [head]
    return Checkpoint(commit=await write_commit(checkout, tree, parents, message), head=head)


async def _read_tree_and_parent(checkout: Checkout, commit: str) -> tuple[str, str]:
    """Return the tree and the first parent of a commit."""
    out = await read_git_output(checkout, "rev-parse", "--end-of-options", f"{commit}^{{tree}}", f"{commit}^1")
    tree, parent = out.splitlines()[-2:]
    return tree, parent


async def list_left_out(checkout: Checkout) -> tuple[str, ...]:
    """Return the paths that a checkpoint omits: files and folders that git ignores, and nested repositories.

    If there are more than MOST_IGNORED paths, the last item says how many were not listed.
    """
    asked = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    found = await call_git(checkout, *asked, timeout=SNAPSHOT_SECONDS)
    ignored = split_nul_paths(found.out.decode(errors="backslashreplace")) if found.code == 0 else []
    left = sorted({*ignored, *(f"{name}/" for name in await find_nested_repositories(checkout))})
    more = len(left) - MOST_IGNORED
    return tuple(left) if more <= 0 else (*left[:MOST_IGNORED], f"and {more} more")


async def restore_checkpoint(checkout: Checkout, commit: str) -> None:
    """Write a checkpoint's files to a checkout of its first parent. Uncommitted changes remain uncommitted."""
    writing = ("read-tree", "--reset", "-u", "--no-recurse-submodules", commit)
    await read_git_output(checkout, *writing, timeout=SNAPSHOT_SECONDS)
    await read_git_output(checkout, "read-tree", "HEAD")


def object_folder(checkout: Checkout) -> Path:
    """Return the object folder of a checkout's repository."""
    return checkout.common_dir / "objects"
