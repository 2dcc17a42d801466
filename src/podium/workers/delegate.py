"""Delegating: a task is written down for a worker, and a commander is there to see to it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Unpack

from anyio import to_thread
from msgspec import structs

from ..app import App, Given
from ..setup.settings import Settings
from ..store.sqlite.reader import Reader, Summary
from ..store.sqlite.worker_index import Crew, Hired
from ..store.sqlite.worktree_ledger import Ledger
from ..values.agent import Agent
from ..values.errors import Mistake, StoreCorrupt
from ..values.event import RunEnded
from ..values.worker_task import Errand
from ..workspace.git.branch import must_have_room
from ..workspace.git.repository import Repository
from ..workspace.git.revision import must_hold
from ..workspace.git.snapshot import commit_id
from ..workspace.worktrees.worktree import Worktrees
from ..workspace.worktrees.worktree_folder import FOLDER
from .key_promise import Promise
from .unfinished_workers import began


async def delegate(
    app: App,
    agent: str | Agent,
    task: str,
    *,
    at: Path,
    branch: str,
    base: str = "",
    follows: Sequence[str] = (),
    role: str = "",
    parent: str = "",
    operation: str = "",
    is_reader: bool = False,
    is_shared: bool = False,
    is_unattended: bool = False,
    max_restarts: int | None = None,
    run: str = "",
    settings: Settings | None = None,
    **given: Unpack[Given],
) -> str:
    """Have a worker do a task on a branch of its own; the id of its run. Raises Mistake for what cannot be done.

    `at` is a folder of the repository. `follows` are branches whose workers have to succeed first. A reader gets no
    checkout, and `branch` is no more than its name. Those that share a checkout may be on one branch at once.
    `max_restarts` is how often it is started again after a crash, where that is not as the settings say. `run` is an
    id that was chosen before, `settings` are those to work with where they are not this process's own.
    """
    if run and await app.is_known(run):
        return run
    repository = Repository.at(at)
    root = str(repository.main)
    crew = Crew(app.settings.store)
    waits = tuple(await to_thread.run_sync(_followed, crew, root, follows, branch))
    errand = Errand(
        root=root,
        path=root,
        after=waits,
        role=role,
        parent=parent,
        operation=operation,
        is_unattended=is_unattended,
        max_restarts=(settings or app.settings).max_restarts if max_restarts is None else max_restarts,
    )
    given["repo"] = repository.main
    # What was found to be free stays so until the worker is hired.
    async with crew.alone():
        if is_reader:
            errand = structs.replace(errand, name=branch)
        else:
            terms, ledger = (settings or app.settings).worktrees, Ledger(app.settings.store)
            of = Worktrees(repository=repository, ledger=ledger, folder=terms.folder or FOLDER, quota=terms.quota)
            path = await _free(app.settings.store, crew, of, branch, base, is_shared=is_shared)
            if base or not waits:
                # What is meant now, by whoever delegates, in the checkout that they are in.
                base = await commit_id(repository, base or "HEAD")
            errand = structs.replace(errand, path=str(path), branch=branch, base=base, is_shared=is_shared)
        return await app.enqueue(agent, task, errand, run=run, settings=settings, **given)


async def _free(store: Path, crew: Crew, of: Worktrees, branch: str, base: str, *, is_shared: bool) -> Path:
    """Where a worker's checkout will be, or where others of its team have theirs or will have it. Raises Mistake."""
    root = str(of.repository.main)
    if is_shared:
        if (shared := await to_thread.run_sync(_shared, store, crew, root, branch)) is not None:
            return shared
    elif await to_thread.run_sync(_is_taken, store, crew, root, branch):
        raise Mistake(f"a worker is on {branch!r} already; podium workers shows it, and another branch would do")
    path = await of.must_be_free(branch, base=base or None)
    if base:
        await must_hold(of.repository, branch, {base: await commit_id(of.repository, base)})
    others = await to_thread.run_sync(_others, store, crew, branch)
    for other in others:
        if other.path == str(path):
            of_whom = repr(other.branch) if other.root == root else f"{other.branch!r} of {other.root}"
            raise Mistake(f"{path} will be the worktree of {of_whom}; another name than {branch!r} would do")
    must_have_room(branch, [other.branch for other in others if other.root == root])
    return path


def _shared(store: Path, crew: Crew, root: str, branch: str) -> Path | None:
    """Where the first of those that share a branch was sent to: its checkout may be there, or be in the making."""
    with Reader(store) as reader:
        errands = [began(reader.summary(hired.run)).errand for hired in crew.of(root, branch)]
    return next((Path(errand.path) for errand in errands if errand is not None and errand.is_shared), None)


def _is_taken(store: Path, crew: Crew, root: str, branch: str) -> bool:
    """Whether a worker is on a branch, or will be."""
    with Reader(store) as reader:
        return any(_is_on_branch(reader.summary(hired.run)) for hired in crew.of(root, branch) if hired.is_open)


def _is_on_branch(summary: Summary) -> bool:
    """Whether it has not ended, and is no reader that is only called like the branch."""
    errand = began(summary).errand
    return errand is not None and errand.has_checkout and not isinstance(summary.last.event, RunEnded)


def _others(store: Path, crew: Crew, branch: str) -> list[Errand]:
    """The errands of all that have a checkout on another branch, or will have one."""
    found: list[Errand] = []
    with Reader(store) as reader:
        for hired in crew.open():
            # What cannot be read keeps nobody else from working.
            with suppress(StoreCorrupt):
                summary = reader.summary(hired.run)
                errand = began(summary).errand
                if errand is None or errand.is_reader or isinstance(summary.last.event, RunEnded):
                    continue
                if errand.branch != branch:
                    found.append(errand)
    return found


def _followed(crew: Crew, root: str, branches: Iterable[str], branch: str) -> list[str]:
    """The runs of the newest workers of these branches. Raises Mistake where one has none, or would follow itself."""
    found: list[str] = []
    for name in branches:
        if name == branch:
            raise Mistake(f"{branch!r} cannot wait for itself; name the branches that have to be done before")
        known = crew.of(root, name)
        if not known:
            there = ", ".join(dict.fromkeys(one.name for one in crew.all(root) if one.name)) or "none"
            raise Mistake(f"no worker was ever on {name!r}, so nothing can come after it; there are {there}")
        found.append(known[-1].run)
    return found


def newest(crew: Crew, root: str, name: str) -> Hired:
    """The newest worker of a branch or a name, or the one whose run's id begins so. Raises Mistake."""
    if known := crew.of(root, name):
        return known[-1]
    begun = [hired for hired in crew.all() if name and hired.run.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        several = ", ".join(f"{hired.run} ({hired.name})" if hired.name else hired.run for hired in begun)
        raise Mistake(f"{name!r} is the beginning of several workers' ids: {several}; give more of the one you mean")
    there = ", ".join(dict.fromkeys(hired.name or hired.run for hired in crew.all(root))) or "none yet"
    raise Mistake(f"there is no worker {name!r} here; there are: {there}")


def start_commander(
    settings: Settings, environ: Mapping[str, str] = os.environ, *, promise: Promise | None = None
) -> None:
    """See that the store of these settings has a commander; one that finds another at work ends at once.

    What was promised is left to it: it uses the keys of this environment for that run, or brings them to the other.
    """
    logs = settings.home / "logs"
    try:
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"no commander can be started: {logs} cannot be made ({error.strerror}); mend that") from error
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        sys.executable,
        # Without -P a module of the folder that it is started in would be taken for one of ours.
        [sys.executable, "-P", "-m", "podium.workers.commander", *([promise.run] if promise else [])],
        {**environ, "PODIUM_HOME": str(settings.home), "PODIUM_STORE": str(settings.store)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, promise.descriptor, 0)
            if promise
            else (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(logs / "commander.log"), appending, 0o600),
        ],
        setsid=True,
    )
    # It outlives this process, or ends while this one goes on: then somebody has to take note of it.
    threading.Thread(target=os.waitpid, args=(pid, 0), name="podium-commander", daemon=True).start()
