"""Delegate tasks to workers: write a worker's run to the store, and make sure that a commander is running."""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from anyio import CancelScope, to_thread
from msgspec import structs

from ..core.placement import DEFAULT_OPTIONS, WorkerOptions
from ..files.discovery import load_roster
from ..files.settings import Settings
from ..runs.answers import publish_saved_rules
from ..runs.run_options import RunOptions
from ..runs.runs import Runs
from ..store.reader import StoreReader
from ..store.wakeup import send_wakeup
from ..store.worker_index import WorkerIndex
from ..system.owned_files import make_private_folder
from ..system.trace_parent import trace_parent
from ..values.actor import Actor, act
from ..values.agent import Agent
from ..values.errors import Mistake
from ..values.store_address import StoreAddress, format_store_setting
from ..values.worker_task import DEFAULT_WORKER_AGENT, WorkerTask
from ..workspace.git.repository import Repository
from .checkout_placement import make_origin, place_checkouts
from .fleet_jobs import HERE, WorkerPlace, choose_place, find_fleet, submit_job
from .provider_keys import KeyDelivery, announce_keys, send_keys
from .worker_options import (
    Choose,
    apply_options_to_agent,
    apply_options_to_settings,
    make_best_of_team,
    require_known_tools,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundRun:
    """A request to an agent in the folder `place`.

    `endpoint` is where a client of the server asked for it, such as `a2a/lead`.
    """

    agent: str | Agent
    request: str
    place: Path
    options: RunOptions = field(default_factory=RunOptions)
    is_unattended: bool = False
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorker:
    """A task for a worker on its own branch.

    `at` is a folder in the repository. A read-only worker gets no branch; `branch` is then only its name. `agent` is
    the name of an agent, or an agent followed by the agents that it needs. With `times`, several workers do the task,
    each on its own branch, and `branch` gets the best result; `choose` says how it is found. `parent` is the run that
    starts the worker, and `operation` is the operation in that run. If `is_shared` is set, other members of the team
    work in the same checkout. A worker that `can_move` may continue on another machine, so its files are pushed to the
    remote while it works; a worker in a shared checkout cannot move.
    """

    at: Path
    branch: str
    task: str
    agent: str | Sequence[Agent] = DEFAULT_WORKER_AGENT
    options: WorkerOptions = DEFAULT_OPTIONS
    times: int | None = None
    choose: Choose | None = None
    parent: str = ""
    operation: str = ""
    is_shared: bool = False
    can_move: bool = False


@act("act")
async def delegate(runs: Runs, settings: Settings, new: NewWorker, *, by: Actor, run: str = "") -> str:
    """Delegate a task to a worker, make sure that a commander is running, and return the id of the worker's run.

    `run` is an id chosen in advance; if that run exists, nothing is done. Raise Mistake if the worker or its checkout
    cannot be created.
    """
    with announce_keys(settings.store, run) as delivery:
        run = await create_worker(runs, settings, new, by=by, run=delivery.run)
        # A worker gets its keys from its commander, not from its environment.
        environ = {**os.environ, **runs.provider_variables}
        await to_thread.run_sync(partial(start_commander, settings, environ, delivery=delivery))
    return run


async def create_worker(runs: Runs, settings: Settings, new: NewWorker, *, by: Actor, run: str = "") -> str:
    """Write a worker's run to the store, for a commander or a host that starts it, and return its id.

    `run` is an id chosen in advance; if that run exists, nothing is done.
    """
    if run and await runs.has_run(run):
        return run
    options, store = new.options, runs.settings.store
    agent, *others = _choose_team(new, settings)
    settings = apply_options_to_settings(options, settings)
    agent = apply_options_to_agent(options, agent, settings)
    repository = Repository.at(new.at)
    root = str(repository.main_folder)
    worker_index = WorkerIndex(store)
    waits = tuple(await to_thread.run_sync(_find_preceding_runs, worker_index, root, options.after, new.branch))
    worker_task = structs.replace(_make_worker_task(root, new, settings), after=waits)
    # The lock prevents other workers from taking the branch or the path before this worker is in the index.
    async with worker_index.hold_delegation_lock():
        fleet = await find_fleet(store)
        is_movable = worker_task.has_checkout and not new.is_shared and not options.also
        if fleet.hosts and is_movable and not options.labels:
            options = structs.replace(options, labels=settings.labels)
        run = run or secrets.token_hex(6)
        if worker_task.has_checkout:
            worker_task, settings = await place_checkouts(worker_index, repository, worker_task, options.also, settings)
        if is_movable and (new.can_move or fleet.can_place(worker_task, options)):
            origin = await make_origin(repository, run, worker_task.base, settings.home)
            worker_task = structs.replace(worker_task, origin=origin)
        if fleet.hosts and not fleet.own_host:
            await to_thread.run_sync(publish_saved_rules, settings.home, store)
        team = await to_thread.run_sync(_find_parent_team, store, new.parent) if fleet.hosts else ""
        place = choose_place(fleet, run, agent, worker_task, options, settings, team=team)
        run_options: RunOptions = {"agents": others, "repo": repository.main_folder}
        return await enqueue_worker_run(
            runs, settings, agent, new.task, worker_task, run_options, by=by, run=run, place=place
        )


def _choose_team(new: NewWorker, settings: Settings) -> Sequence[Agent]:
    """Return the agent that does the task, followed by the agents that it needs. Raise Mistake if options conflict."""
    options = new.options
    if not new.parent:  # the rules of a plan are known to the person who approved it
        require_known_tools(options.approved)
    if new.choose is not None and new.times is None:
        raise Mistake("--choose needs --times; give both")
    if new.times is not None and options.is_reader:
        raise Mistake(
            "--times cannot be combined with --read-only, because --times compares checkouts and a read-only "
            "worker has none"
        )
    if options.also and (new.times is not None or options.is_reader):
        other = "--times" if new.times is not None else "--read-only"
        raise Mistake(
            f"--also cannot be combined with {other}, because --also needs a single worker with its own checkouts"
        )
    if isinstance(new.agent, str):
        team: Sequence[Agent] = load_roster(new.at, settings.home).resolve_team(new.agent)
    else:
        team = new.agent
    if new.times is None:
        return team
    return (*make_best_of_team(team[0], new.times, new.choose, settings, options), *team[1:])


def _make_worker_task(root: str, new: NewWorker, settings: Settings) -> WorkerTask:
    """Return a worker's task, still without a checkout."""
    options = new.options
    worker_task = WorkerTask(
        root=root,
        path=root,
        role=options.role or "",
        parent=new.parent,
        operation=new.operation,
        is_unattended=options.is_unattended,
        max_restarts=settings.max_restarts if options.max_restarts is None else options.max_restarts,
        trace_parent=trace_parent.get(),
    )
    if options.is_reader:
        return structs.replace(worker_task, name=new.branch)
    return structs.replace(worker_task, branch=new.branch, base=options.base, is_shared=new.is_shared)


async def enqueue_worker_run(
    runs: Runs,
    settings: Settings,
    agent: str | Agent,
    request: str,
    worker_task: WorkerTask,
    options: RunOptions,
    *,
    by: Actor,
    run: str = "",
    place: WorkerPlace = HERE,
) -> str:
    """Write a worker's run to the store, so that a commander or a host starts it, and return its id.

    `by` is who starts the run. `run` is an id chosen in advance; if that run exists, nothing is done.
    """
    if run and await runs.has_run(run):
        return run
    created = await runs.create(
        agent,
        request,
        options,
        by=by,
        worker_task=worker_task,
        id=run,
        settings=settings,
        job=place.job,
        notice=place.notice,
    )
    store = runs.settings.store
    # Shielded from cancellation: otherwise the run could be left unreleased, and no process could ever claim it.
    with CancelScope(shield=True):
        await to_thread.run_sync(send_keys, store, created.id, runs.provider_variables)
        await created.release()
        if place.job is not None:
            await submit_job(runs.settings, place.job)
    send_wakeup(store, "owner")
    return created.id


def _find_parent_team(store: StoreAddress, parent: str) -> str:
    """Return the name of the team that a run's first agent leads, or an empty string if it leads none."""
    if not parent:
        return ""
    with StoreReader(store) as reader:
        first = reader.read_summary(parent).started.agents[0]
    return "" if first.team is None else first.name


def _find_preceding_runs(worker_index: WorkerIndex, root: str, branches: Iterable[str], branch: str) -> list[str]:
    """Return the run of the newest worker on each of `branches`.

    Raise Mistake if one of them has never had a worker, or if one of them is `branch`, the new worker's own branch.
    """
    found: list[str] = []
    for name in branches:
        if name == branch:
            raise Mistake(f"{branch!r} cannot wait for itself; specify other branches")
        known = worker_index.find_by_name(root, name)
        if not known:
            there = ", ".join(dict.fromkeys(one.name for one in worker_index.list_all(root) if one.name)) or "none"
            raise Mistake(f"cannot wait for branch {name!r}: it has never had a worker; available: {there}")
        found.append(known[-1].run)
    return found


def start_commander(
    settings: Settings, environ: Mapping[str, str] = os.environ, *, delivery: KeyDelivery | None = None
) -> None:
    """Start a commander for the store in these settings.

    If `delivery` is given, the new process inherits the lock of the delivery, and uses the provider keys in `environ`
    for the run `delivery.run`. If another commander is already running, the new process sends these keys to that
    commander and exits. Raise Mistake if the log folder cannot be created.
    """
    logs = settings.home / "logs"
    try:
        make_private_folder(logs)
    except OSError as error:
        raise Mistake(f"cannot start a commander: cannot create {logs} ({error.strerror})") from error
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        sys.executable,
        # Without -P, a module in the current folder could shadow one of Podium's.
        [sys.executable, "-P", "-m", "podium.programs.commander", *([delivery.run] if delivery else [])],
        {**environ, "PODIUM_HOME": str(settings.home), "PODIUM_STORE": format_store_setting(settings.store)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, delivery.descriptor, 0)
            if delivery
            else (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(logs / "commander.log"), appending, 0o600),
        ],
        setsid=True,
    )
    # If the commander exits before this process, this process has to reap it.
    threading.Thread(target=os.waitpid, args=(pid, 0), name="podium-commander", daemon=True).start()


@act("act")
async def enqueue_background_run(
    runs: Runs, settings: Settings, new: BackgroundRun, *, by: Actor, run: str = ""
) -> str:
    """Queue a run, make sure that a commander is running, and return the id of the run.

    `run` is an id chosen in advance; if that run exists, it is not queued again.
    """
    with announce_keys(settings.store, run) as delivery:
        queued = await write_background_run(runs, settings, new, by=by, run=delivery.run)
        start_commander(settings, delivery=delivery)
    return queued


async def write_background_run(
    runs: Runs, settings: Settings, new: BackgroundRun, *, by: Actor, run: str, place: WorkerPlace = HERE
) -> str:
    """Write a run to the store, for the commander or the host that `place` names, and return its id."""
    worker_task = WorkerTask(
        root=str(new.place),
        path=str(new.place),
        is_here=True,
        is_unattended=new.is_unattended,
        endpoint=new.endpoint,
        max_restarts=settings.max_restarts,
    )
    options: RunOptions = {**new.options, "repo": new.place}
    return await enqueue_worker_run(
        runs, settings, new.agent, new.request, worker_task, options, by=by, run=run, place=place
    )
