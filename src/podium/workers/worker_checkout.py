"""A worker's checkout: made from its base, or from what the workers before it brought together, and measured."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..app import App
from ..setup.settings import Settings
from ..setup.worktree_setup import hook
from ..store.sqlite.worktree_ledger import Ledger
from ..values.errors import Mistake, PodiumError
from ..values.event import RunStarted, WorkCommitted, WorkerPlaced
from ..values.worker_task import Errand
from ..workspace.git.repository import Checkout, Repository
from ..workspace.git.revision import contains, must_hold, tips
from ..workspace.git.snapshot import commit_id, committed
from ..workspace.merging.trial_merge import Clash, Side, attempt
from ..workspace.worktrees.disk_quota import measure
from ..workspace.worktrees.worktree import Worktrees, checkout_of


async def placed(app: App, environ: Mapping[str, str], run: str, errand: Errand) -> Checkout | None:
    """The checkout of a worker, made where there is none yet; None for one that needs none. Raises Mistake."""
    if not errand.has_checkout:
        return None
    repository = Repository.at(Path(errand.root))
    ledger = Ledger(app.settings.store)
    settings = Settings.load(environ, repo=Path(errand.root))
    of = Worktrees(repository=repository, ledger=ledger, quota=settings.worktrees.quota)
    await of.reconciled()
    setup = hook(
        settings.worktrees.setup,
        what="setup",
        home=settings.home,
        store=app.settings.store,
        is_sandboxed=settings.sandbox,
    )
    # What is shared belongs to the run of the team: it is in use for as long as that goes on.
    owner = errand.parent if errand.is_shared else run
    for noted in await ledger.worktrees(repository.common_dir):
        if noted.branch == errand.branch and noted.run == owner:
            checkout = checkout_of(noted)
            # A commander that died may have left it half prepared; who has begun was given it whole.
            is_whole = errand.is_shared or any(isinstance(one.event, WorkerPlaced) for one in await app.entries(run))
            if setup is not None and not is_whole:
                await setup(checkout)
            return checkout
    base = await base_of(app, repository, errand)
    # Where it was delegated to, whatever the settings name by now: its timeline says that it works there.
    return await of.create(errand.branch, base=base, at=Path(errand.path), run=owner, setup=setup)


async def weighed(store: Path, checkout: Checkout | None) -> None:
    """Remember what the checkout of a worker takes when its work is over."""
    if checkout is None:
        return
    ledger = Ledger(store)
    # No worker's trouble: whoever counts by what is remembered looks again before anybody is refused.
    with suppress(PodiumError):
        noted = [one for one in await ledger.worktrees(checkout.common_dir) if one.path == checkout.path]
        await measure(ledger, noted)


async def base_of(app: App, repository: Repository, errand: Errand) -> str | None:
    """Where a branch begins: at its base, with what the workers that it follows have brought. Raises Mistake."""
    sides = [side for side in [await _brought(app, repository, run) for run in errand.after] if side is not None]
    if not sides:
        return errand.base or None
    if errand.base:
        sides.insert(0, Side(name=errand.base, commit=await commit_id(repository, errand.base)))
    await must_hold(repository, errand.branch, {side.name: side.commit for side in sides})
    whole = sides[0]
    for side in sides[1:]:
        whole = Side(name=whole.name, commit=await _merged(repository, whole, side))
    return whole.commit


async def _merged(repository: Repository, whole: Side, side: Side) -> str:
    if await contains(repository, whole.commit, side.commit):
        return whole.commit
    if await contains(repository, side.commit, whole.commit):
        return side.commit
    tried = await attempt(repository, whole, side)
    if isinstance(tried, Clash):
        clash = f"{side.name} and {whole.name} clash in {', '.join(tried.files)}"
        raise Mistake(f"what it follows does not go together: {clash}")
    subject = f"Bring {side.name} together with {whole.name}"
    return await committed(repository, tried.tree, [whole.commit, side.commit], subject)


async def _brought(app: App, repository: Repository, run: str) -> Side | None:
    """What a worker left, with what was added to its branch since, where that is still there; None without a branch."""
    entries = await app.entries(run)
    started = entries[0].event
    assert isinstance(started, RunStarted)
    if started.errand is None or not started.errand.has_checkout:
        return None
    branch = started.errand.branch
    now = (await tips(repository, [branch])).get(branch, "")
    left = next((one.event.commit for one in reversed(entries) if isinstance(one.event, WorkCommitted)), now)
    if not left:
        raise Mistake(f"{branch}, which it follows, is gone, and nothing is known of what was on it")
    return Side(name=branch, commit=now if now and await contains(repository, now, left) else left)
