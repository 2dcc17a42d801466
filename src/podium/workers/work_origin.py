"""Record where the code of a new run is, and make sure that other machines can get the commit that it starts from."""

from __future__ import annotations

from pathlib import Path

from ..system.host_id import read_host_id
from ..values.errors import Mistake, OutsideFailed
from ..values.worker_task import RepositoryOrigin
from ..workspace.git.repository import Repository, read_git_output
from ..workspace.git.revision import SHORT
from ..workspace.travel.remote_url import Remote, find_remote
from ..workspace.travel.repository_cache import RepositoryCache, run_ref


async def make_origin(repository: Repository, run: str, base: str, home: Path) -> RepositoryOrigin:
    """Return the origin of a run that may move between machines. Push its base if no remote branch contains it.

    Raise Mistake if the repository's remote cannot be used, or if the base cannot be pushed.
    """
    remote = await find_remote(repository)
    if remote is not None and base and not await _is_on_remote_branch(repository, remote, base):
        await _push_base(repository, remote, run, base, home)
    return RepositoryOrigin(
        path=str(repository.main_folder),
        host=read_host_id(home),
        remote="" if remote is None else remote.url.text,
        base=base,
    )


async def _is_on_remote_branch(repository: Repository, remote: Remote, base: str) -> bool:
    """Return whether a branch on the remote contains a commit, as far as the repository knows."""
    branches = f"refs/remotes/{remote.name}/"
    asked = ("for-each-ref", "--count=1", "--format=%(refname)", f"--contains={base}", branches)
    return bool(await read_git_output(repository, *asked))


async def _push_base(repository: Repository, remote: Remote, run: str, base: str, home: Path) -> None:
    mirror = RepositoryCache(home=home).open_mirror(remote.url)
    try:
        await mirror.push(repository.common_dir / "objects", base, run_ref(run, "base"))
    except OutsideFailed as error:
        raise Mistake(
            f"the work starts at commit {base[:SHORT]}, which is not on any branch of {remote.name} and could not be "
            f"pushed: {error}; push a branch that contains it, and delegate again"
        ) from error
