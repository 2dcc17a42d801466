"""Decide whether a new worker runs on a fleet host or on this machine, and queue it for the hosts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.placement import WorkerOptions
from ..engines.model.providers import parse_model
from ..files.model_role import resolve_models
from ..files.settings import Settings
from ..values.agent import Agent
from ..values.errors import Mistake, PlacementUnavailable
from ..values.fleet_job import FleetJob, check_job
from ..values.store_address import PostgresAddress, StoreAddress
from ..values.worker_task import WorkerTask

if TYPE_CHECKING:
    from ..fleet.fleet_database import HostRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The hosts of a store, and the name of the host that this process runs on, if any."""

    hosts: tuple[HostRow, ...] = ()
    own_host: str = ""
    store_version: int = 0

    @property
    def alive(self) -> tuple[HostRow, ...]:
        """The hosts that are currently accepting jobs."""
        return tuple(host for host in self.hosts if host.is_alive)

    def can_place(self, worker_task: WorkerTask, options: WorkerOptions) -> bool:
        """Return whether a worker with this task should run on a host, provided its repository has a remote."""
        is_wanted = bool(self.alive) or bool(self.own_host) or (bool(self.hosts) and bool(options.labels))
        return is_wanted and worker_task.has_checkout and not worker_task.is_shared


NO_FLEET = Fleet()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """Where a worker runs: on a host, which claims `job`, or on this machine if `job` is None.

    `notice` is a sentence for the run's timeline that says where the worker runs, or is empty.
    """

    job: FleetJob | None = None
    notice: str = ""


HERE = WorkerPlace()


async def find_fleet(store: StoreAddress) -> Fleet:
    """Return the hosts of a store. Only a PostgreSQL store has any."""
    if not isinstance(store, PostgresAddress):
        return NO_FLEET
    from ..fleet.fleet_database import open_fleet_database  # imported here because it needs optional packages
    from ..store.postgres.login import find_host_name
    from ..store.postgres.schema import load_migrations

    async with open_fleet_database(store) as database:
        return Fleet(
            hosts=tuple(await database.list_hosts()),
            own_host=find_host_name(store),
            store_version=load_migrations()[-1].number,
        )


def choose_place(
    fleet: Fleet,
    run: str,
    agent: Agent,
    worker_task: WorkerTask,
    options: WorkerOptions,
    settings: Settings,
    *,
    team: str = "",
) -> WorkerPlace:
    """Decide where a new worker runs. Raise Mistake if it needs labels and cannot run on a host."""
    if len(worker_task.checkouts) > 1:
        return _stay_with_repositories(fleet, options)
    remote = "" if worker_task.origin is None else worker_task.origin.remote
    if not fleet.own_host and (not remote or not fleet.can_place(worker_task, options)):
        return _stay_here(fleet, worker_task, options)
    job = FleetJob(
        run=run,
        parent=worker_task.parent,
        labels=tuple(sorted(options.labels)),
        host="" if remote else fleet.own_host,
        priority=options.priority,
        team=team or (agent.name if agent.team is not None else ""),
        provider=_find_provider_name(agent, settings),
        repository=remote,
        store_version=fleet.store_version,
    )
    check_job(job)
    return WorkerPlace(job=job, notice=_describe_queue(fleet, job))


def _stay_with_repositories(fleet: Fleet, options: WorkerOptions) -> WorkerPlace:
    """Choose this machine for a worker that works in several repositories.

    Raise Mistake if the options require labels, or if this machine is a fleet host.
    """
    if options.labels or fleet.own_host:
        why = "a task in several repositories cannot run on a fleet host"
        raise Mistake(f"{why}; delegate it without labels on the machine that has the repositories")
    if not fleet.hosts:
        return HERE
    return WorkerPlace(
        notice="This worker works in several repositories, so it runs on this machine instead of on a fleet host."
    )


def _stay_here(fleet: Fleet, worker_task: WorkerTask, options: WorkerOptions) -> WorkerPlace:
    if options.labels:
        wanted = ", ".join(options.labels)
        if not fleet.hosts:
            raise Mistake(f"no host has the labels {wanted}: this store has no hosts; see podium hosts add --help")
        raise Mistake(
            f"the worker cannot run on a host with the labels {wanted}: it has no checkout of its own, or its "
            "repository has no remote; delegate it without labels, or add a remote with git remote add origin URL"
        )
    if not fleet.hosts or (worker_task.origin is not None and not worker_task.origin.remote):
        return WorkerPlace()  # the run itself records that its repository has no remote
    if not fleet.alive:
        return WorkerPlace(notice="No fleet host is alive, so this worker runs on this machine.")
    return WorkerPlace(
        notice="This worker has no checkout of its own, so it runs on this machine instead of on a fleet host."
    )


def _describe_queue(fleet: Fleet, job: FleetJob) -> str:
    if job.host:
        return f"Queued for host {job.host}."
    if not job.labels:
        return "Queued for a fleet host."
    wanted = ", ".join(job.labels)
    if any(set(job.labels) <= set(host.labels) for host in fleet.alive):
        return f"Queued for a host with the labels {wanted}."
    return f"Queued for a host with the labels {wanted}; no such host is alive, so the worker waits for one."


def _find_provider_name(agent: Agent, settings: Settings) -> str:
    """Return the provider of an agent's model, or an empty string if it is not known."""
    with suppress(Mistake):
        models = resolve_models(agent.model or settings.model, settings.models).models
        return parse_model(models[0])[0].name if models else ""
    return ""


async def submit_job(settings: Settings, job: FleetJob) -> None:
    """Queue a job for the hosts. If the queue is not available now, the hosts find the run themselves."""
    assert isinstance(settings.store, PostgresAddress)
    from ..fleet.pgqueuer_placement import PgQueuerPlacement  # imported here because it needs optional packages

    with suppress(PlacementUnavailable):
        async with PgQueuerPlacement(settings.store.url) as placement:
            await placement.submit(job)


async def find_missing_jobs(store: StoreAddress, *, queues: bool = False) -> list[str]:
    """Return the runs that wait for a host without a job in the queue. With `queues`, queue their jobs.

    Hosts queue missing jobs too, but there may be no host. A store without hosts has no queue.
    """
    if not isinstance(store, PostgresAddress) or not (await find_fleet(store)).hosts:
        return []
    from ..fleet.fleet_database import open_fleet_database  # imported here because it needs optional packages
    from ..fleet.host_loop import JobSweep
    from ..fleet.pgqueuer_placement import PgQueuerPlacement

    async with open_fleet_database(store) as database, PgQueuerPlacement(store.url) as placement:
        sweep = JobSweep(placement, database.find_unfinished)
        return await (sweep.queue_missing_jobs() if queues else sweep.find_missing_jobs())
