"""Giving a worker its checkout: made from its base, or from what the workers before it brought together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..app import App
from ..errand import Errand
from ..errors import Mistake
from ..event import RunStarted, WorkerPlaced
from ..settings import Settings
from ..store.worktrees import Ledger
from ..workspace.git import Checkout, Repository
from ..workspace.merge import Clash, Side, attempt
from ..workspace.preparing import hook
from ..workspace.revision import contains, tip
from ..workspace.snapshot import commit_id, committed
from ..workspace.worktree import Worktrees, checkout_of


async def placed(app: App, environ: Mapping[str, str], run: str, errand: Errand) -> Checkout | None:
    """The checkout of a worker, made where there is none yet; None for a reader. Raises Mistake."""
    if errand.is_reader:
        return None
    repository = Repository.at(Path(errand.root))
    ledger = Ledger(app.settings.store)
    of = Worktrees(repository=repository, ledger=ledger)
    await of.reconciled()
    settings = Settings.load(environ, repo=Path(errand.root))
    setup = hook(
        settings.worktrees.get("setup"),
        what="setup",
        home=settings.home,
        store=app.settings.store,
        is_sandboxed=settings.sandbox,
    )
    for noted in await ledger.worktrees(repository.common_dir):
        if noted.branch == errand.branch and noted.run == run:
            checkout = checkout_of(noted)
            # A commander that died may have left it half prepared; who has begun was given it whole.
            if setup is not None and not any(isinstance(one.event, WorkerPlaced) for one in await app.entries(run)):
                await setup(checkout)
            return checkout
    base = await base_of(app, repository, errand)
    return await of.create(errand.branch, base=base, run=run, setup=setup)


async def base_of(app: App, repository: Repository, errand: Errand) -> str | None:
    """Where a branch begins: at its base, with what the workers that it follows have brought. Raises Mistake."""
    branches = [branch for branch in [await _branch_of(app, run) for run in errand.after] if branch]
    if not branches:
        return errand.base or None
    names = [errand.base, *branches] if errand.base else branches
    commit = await commit_id(repository, names[0]) if errand.base else await tip(repository, names[0])
    for name in names[1:]:
        commit = await _merged(repository, commit, name, names[0])
    return commit


async def _merged(repository: Repository, commit: str, branch: str, first: str) -> str:
    theirs = await tip(repository, branch)
    if await contains(repository, commit, theirs):
        return commit
    if await contains(repository, theirs, commit):
        return theirs
    tried = await attempt(repository, Side(name=first, commit=commit), Side(name=branch, commit=theirs))
    if isinstance(tried, Clash):
        raise Mistake(f"what it follows does not go together: {branch} and {first} clash in {', '.join(tried.files)}")
    return await committed(repository, tried.tree, [commit, theirs], f"Bring {branch} together with {first}")


async def _branch_of(app: App, run: str) -> str:
    started = (await app.entries(run))[0].event
    assert isinstance(started, RunStarted)
    return "" if started.errand is None else started.errand.branch
