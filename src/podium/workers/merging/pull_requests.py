"""Push the branches of a merge train, and open a pull request for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from anyio import to_thread

from ...runs.queries.decision_lookup import list_decisions
from ...values.actor import Actor, act
from ...values.errors import Mistake, OutsideFailed
from ...workspace.git.revision import branch_tip, contains_commit
from ...workspace.merging.merge_train import Train
from ...workspace.travel.forge import Forge, OpenedRequest, choose_forge
from ...workspace.travel.remote_url import Remote, find_remote
from ...workspace.travel.repository_cache import RepositoryCache
from ..queries.worker_lookup import RepoContext
from .pull_request_text import describe_pull_request


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlace:
    """Where pull requests are opened: the remote that branches are pushed to, and its forge."""

    remote: Remote
    forge: Forge


async def find_request_place(context: RepoContext) -> RequestPlace:
    """Return where to open pull requests for a repository. Raise Mistake if it has no remote or no forge."""
    remote = await find_remote(context.repository)
    if remote is None:
        raise Mistake(f"{context.root} has no remote for pull requests; add one with git remote add origin URL")
    settings = context.settings
    forge = choose_forge(
        remote.url, setting=settings.forge, outside=context.repository.main_folder, folder=settings.home
    )
    return RequestPlace(remote=remote, forge=forge)


@act("approve")
async def open_pull_requests(
    context: RepoContext, place: RequestPlace, train: Train, *, by: Actor
) -> AsyncIterator[OpenedRequest]:
    """Push each merged branch and open its pull request, in the order of the train, and yield each request.

    Raise OutsideFailed if a push or the forge's program fails. Requests that are already open stay open, and the next
    call finds them.
    """
    workers = {one.worker_task.branch: one for one in await to_thread.run_sync(context.load_workers)}
    decisions = await to_thread.run_sync(list_decisions, context.store, context.root)
    mirror = RepositoryCache(home=context.settings.home).open_mirror(place.remote.url)
    for merged in train.merged:
        worker = workers.get(merged.branch)
        tip = await branch_tip(context.repository, merged.branch)
        if not await contains_commit(context.repository, train.commit, tip):
            raise OutsideFailed(f"{merged.branch} has changed since it was checked; run the command again")
        made = [one for one in decisions if worker is not None and one.run in (worker.run, worker.worker_task.parent)]
        request = describe_pull_request(merged.branch, train, worker, made)
        await mirror.push_branch(context.repository.common_dir / "objects", tip, merged.branch)
        yield await place.forge.open_request(request)
