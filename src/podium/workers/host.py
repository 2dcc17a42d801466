"""Offer this machine to a fleet: claim jobs, run their workers, and hand back the jobs that this machine cannot do.

The host and its workers own the runs jointly, under one id: the host renews the lease, and the workers write. If the
host dies, its workers exit, the lease expires, and another host takes over the runs.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from .. import __version__
from ..fleet.fleet_database import HEARTBEAT_SECONDS, FleetDatabase, HostRow, open_fleet_database
from ..fleet.host_loop import HandBack, HostLoop, JobSweep
from ..fleet.pgqueuer_placement import PgQueuerPlacement
from ..runs.run_authority import load_run_start
from ..runs.runs import Runs
from ..store.postgres.login import find_host_name
from ..store.postgres.schema import load_migrations
from ..store.reader import StoreReader
from ..store.run_leases import OwnerId
from ..store.wakeup import Wakeup
from ..values.actor import PODIUM
from ..values.errors import Mistake, PlacementUnavailable, PodiumError, RunRefused
from ..values.event import Noticed, RunStarted
from ..values.fleet_job import HostOffer, JobClaim, are_compatible, check_name
from ..values.plain_text import format_count
from ..values.store_address import PostgresAddress
from ..views.run_phase import is_startable
from .commander import Commander
from .commander_run import open_worker_notifier
from .commander_socket import SocketInUse
from .unfinished_workers import describe_ending

WAITING_SECONDS = 2.0
"""How long to postpone a job whose run is waiting for other runs."""
REFUSED_SECONDS = 30.0
"""How long a host ignores a run that it refused, so that other hosts can claim the run."""
PASSED_ON_SECONDS = 0.5
"""How long a refused job waits before another host can claim it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """The labels and slots that a host offers, and how long its workers may continue after a request to shut down.

    `grace` is in seconds.
    """

    labels: tuple[str, ...] = ()
    slots: int = 8
    grace: float = 60.0


def require_host_login(store: PostgresAddress, name: str = "") -> str:
    """Return the name of the host that the login in the store's address belongs to.

    Raise Mistake if the login does not belong to a host, or if it belongs to a host other than `name`. An empty `name`
    matches every host.
    """
    found = find_host_name(store)
    if not found:
        raise Mistake(
            f"the login for {store} does not belong to a host; create a host with podium hosts add {name or 'NAME'}, "
            "and set PODIUM_STORE to the address that it prints"
        )
    if name and name != found:
        raise Mistake(f"the login for {store} belongs to host {found}, not {name}; omit --name or use {name}'s login")
    return found


async def run_host(
    runs: Runs,
    environ: Mapping[str, str],
    owner: OwnerId,
    options: HostOptions,
    report: Callable[[str], None],
    *,
    fire_schedules: Callable[[HostOffer, Callable[[str], None]], Coroutine[object, object, None]],
) -> None:
    """Offer this machine to the fleet until SIGTERM or SIGINT arrives, or the fleet asks the machine to shut down.

    `owner` is the owner id that the store uses for its runs. `report` is called with one sentence for each
    event that a person should know about. `fire_schedules` starts runs at set times until it is cancelled. Raise
    Mistake if this machine cannot be a host.
    """
    store = runs.settings.store
    assert isinstance(store, PostgresAddress)
    name = require_host_login(store)
    for label in options.labels:
        check_name(label, "label")
    offer = HostOffer(host=name, labels=options.labels, store_version=load_migrations()[-1].number)
    async with (
        open_fleet_database(store, owner.id) as database,
        PgQueuerPlacement(store.url, lease_seconds=owner.lease_seconds) as placement,
        open_worker_notifier(runs, environ) as notifier,
    ):
        commander = Commander(runs, environ, notifier, host_owner=owner)
        work = HostWork(name, runs, commander, database)
        loop = HostLoop(
            placement,
            offer,
            slots=options.slots,
            run_job=work.run_job,
            leases=database,
            report=report,
            read_limits=database.read_limits,
            find_waiting=database.find_waiting_runs,
        )
        _require_compatible_hosts(name, await database.list_hosts())
        await database.register_host(offer, slots=options.slots, version=__version__)

        async def offer_machine(wakeup: Wakeup, group: TaskGroup) -> None:
            presence = HostPresence(database, loop, options, report)
            group.start_soon(presence.report_forever)
            group.start_soon(presence.drain_on_signals)
            group.start_soon(commander.recheck_deadlines, wakeup)
            group.start_soon(fire_schedules, offer, report)
            group.start_soon(lambda: JobSweep(placement, database.find_unfinished).run(report=report))
            report(f"host {name} is ready: {options.slots} slots, labels: {', '.join(options.labels) or 'none'}")
            await loop.run()
            await presence.report_gone()

        try:
            await commander.serve(offer_machine)
        except SocketInUse as error:
            raise Mistake(f"host {name} is already running on this machine with this Podium home ({error})") from error


def _require_compatible_hosts(name: str, hosts: Sequence[HostRow]) -> None:
    """Raise Mistake if a host that accepts jobs runs a version of Podium that is incompatible with this one."""
    for host in hosts:
        if host.name != name and host.is_alive and not are_compatible(host.version, __version__):
            raise Mistake(
                f"Podium {__version__} on host {name} is not compatible with Podium {host.version} on the active host "
                f"{host.name}; update the older one, or stop {host.name} first"
            )


class HostPresence:
    """Reports that a host is alive, and drains it when a signal arrives or the fleet asks for it."""

    def __init__(
        self, database: FleetDatabase, loop: HostLoop, options: HostOptions, report: Callable[[str], None]
    ) -> None:
        self._database = database
        self._loop = loop
        self._grace = options.grace
        self._report = report
        self._is_draining = False

    async def report_forever(self) -> None:
        """Report the state of the host until cancelled."""
        while True:
            with suppress(PlacementUnavailable):  # the host loop reports this error
                if await self._database.report_state("draining" if self._is_draining else "active"):
                    self._drain("requested by the fleet")
            await anyio.sleep(HEARTBEAT_SECONDS)

    async def drain_on_signals(self) -> None:
        """Drain the host on the first SIGTERM or SIGINT. On the second, hand its runs back to the queue immediately."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for received in signals:
                if self._is_draining:
                    self._report("handing back all runs now")
                    self._loop.drain(grace=0)
                else:
                    self._drain(received.name)

    async def report_gone(self) -> None:
        """Report that the host has shut down."""
        try:
            await self._database.report_state("gone")
        except PlacementUnavailable as error:
            self._report(str(error))

    def _drain(self, why: str) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        runs = format_count(len(self._loop.runs), "run")
        self._report(f"draining ({why}): {runs} can continue for up to {self._grace:g} s before being handed back")
        self._loop.drain(grace=self._grace)


class HostWork:
    """Works on the jobs that a host has claimed."""

    def __init__(self, name: str, runs: Runs, commander: Commander, database: FleetDatabase) -> None:
        self._name = name
        self._runs = runs
        self._commander = commander
        self._database = database
        self._refused_until: dict[str, float] = {}

    async def run_job(self, claim: JobClaim, epoch: int) -> HandBack | None:
        """Work on a run whose lease this host has acquired. Return None if the run has ended or is paused."""
        run = claim.job.run
        try:
            if self._refused_until.get(run, 0.0) > time.monotonic():
                return HandBack(delay=PASSED_ON_SECONDS)
            return await self._run_worker(run)
        finally:
            # The worker has released the run or has died; either way, another host can continue.
            with anyio.CancelScope(shield=True), anyio.move_on_after(HEARTBEAT_SECONDS, shield=True):
                await self._release_run(run)

    async def _run_worker(self, run: str) -> HandBack | None:
        is_open, waiting = await to_thread.run_sync(self._read_run, run)
        if not is_open:
            return None  # if the run is resumed or its limit resets, the sweep queues it again
        if waiting == "not yet":
            return HandBack(delay=WAITING_SECONDS)
        if waiting:
            await self._runs.fail(run, waiting, by=PODIUM)
            return None
        try:
            started = await to_thread.run_sync(load_run_start, self._runs.settings.store, run)
        except RunRefused as error:
            reason = str(error)
        else:
            reason = self._explain_unfit(started) or await self._commander.run_claimed_worker(run, started)
        if reason:
            await self._refuse_run(run, reason)
            return HandBack(delay=PASSED_ON_SECONDS)
        is_open, _ = await to_thread.run_sync(self._read_run, run)
        return HandBack() if is_open else None

    def _read_run(self, run: str) -> tuple[bool, str]:
        """Return whether a host may work on a run now, and a message about the runs that must succeed before it starts.

        The message is empty if all these runs have succeeded. If one of them has ended without success, the message
        says how that run ended. Otherwise, the message is `not yet`.
        """
        with StoreReader(self._runs.settings.store) as reader:
            summary = reader.read_summary(run)
            started = summary.started
            before = [reader.read_summary(one) for one in (started.errand.after if started.errand else ())]
        waiting = ""
        for one in before:
            if not one.is_over:
                waiting = waiting or "not yet"
            elif one.phase != "succeeded":
                waiting = describe_ending(one)
                break
        return is_startable(summary.last.event, now=time.time()), waiting

    def _explain_unfit(self, started: RunStarted) -> str:
        """Return the reason why this machine cannot run the agents of a run, or an empty string if it can."""
        if not are_compatible(started.version, __version__):
            return (
                f"it was created by Podium {started.version}, which is not compatible with Podium {__version__} "
                "on this host"
            )
        try:
            self._runs.check_agents(started)
        except PodiumError as error:
            return str(error)
        return ""

    async def _refuse_run(self, run: str, reason: str) -> None:
        """Record once on the timeline why this host cannot work on a run, and leave the run to other hosts."""
        self._refused_until[run] = time.monotonic() + REFUSED_SECONDS
        notice = Noticed(text=f"Host {self._name} cannot work on this run: {reason}")
        entries = await self._runs.read_entries(run)
        if not any(entry.event == notice for entry in entries):
            await (await self._runs.claim_idle(run, by=PODIUM)).record_and_release(notice)

    async def _release_run(self, run: str) -> None:
        with suppress(PlacementUnavailable):  # the lease expires
            await self._database.release_run(run)
