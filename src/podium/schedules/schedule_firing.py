"""Start scheduled runs when they are due.

A commander or a host does this for the schedules of its machine, and holds a lock in the store while it starts runs.
The id of a run is derived from its schedule and its due time, so a schedule never starts two runs for the same time,
even if a process is killed while it starts one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from anyio import sleep, to_thread

from ..core.clock import CHECK_SECONDS
from ..files.settings import Settings
from ..runs.runs import Runs
from ..store.schedule_rows import Schedule, Schedules, has_host_on_this_machine, read_schedule_secret
from ..store.store_lock import hold_store_lock
from ..system.identity import read_host_id
from ..values.actor import Actor
from ..values.cron_expression import CronExpression
from ..values.errors import Mistake, PodiumError, StoreFailed
from ..values.fleet_job import FleetJob, HostOffer
from ..values.plain_text import escape_unprintable, format_count, truncate_text
from ..workers.commander_socket import commander_socket_path, is_commander_listening
from ..workers.delegation import BackgroundRun, write_background_run
from ..workers.fleet_jobs import HERE, WorkerPlace
from ..workers.settings_cache import SettingsCache

LATE_SECONDS = 600.0
"""How long after its due time a run can still be started. After that, the due time counts as missed."""
HOST_CHECK_SECONDS = 5.0
"""How often a host checks the schedules. The interval is short, because a new schedule may be due soon."""
MOST_MISSED = 10_000
"""The maximum number of missed due times to count. After a long downtime, further missed times are not counted."""

GetSettings = Callable[[str], Settings]


class ScheduleFiring:
    """Starts the due runs for a store's schedules. `get_settings` returns the settings of a repository.

    `host` is the name of the host that starts these runs and works on them, if this process is a host.
    """

    def __init__(
        self,
        runs: Runs,
        get_settings: GetSettings,
        now: Callable[[], float] = time.time,
        *,
        host: str = "",
        store_version: int = 0,
    ) -> None:
        self._runs = runs
        self._get_settings = get_settings
        self._now = now
        self._host = host
        self._store_version = store_version
        self._schedules = Schedules(runs.settings.store)

    async def fire_as_host(self, report: Callable[[str], None]) -> None:
        """Start due runs regularly until cancelled. `report` is called once for each new error."""
        last = ""
        while True:
            try:
                secret = await to_thread.run_sync(read_schedule_secret, self._runs.settings.home)
                if secret:
                    self._schedules = Schedules(self._runs.settings.store, host_secret=secret)
                    await self.fire_due()
                    last = ""
            except PodiumError as error:
                if str(error) != last:
                    report(last := str(error))
            await sleep(HOST_CHECK_SECONDS)

    async def fire_due(self) -> float | None:
        """Start the due runs. Return the seconds to wait before the next call, or None if no schedule is active."""
        active = await to_thread.run_sync(_list_active_schedules, self._runs.settings)
        if any(one.next_at <= self._now() for one in active):
            try:
                await self._fire_all()
            except StoreFailed:
                return CHECK_SECONDS  # another process holds the lock, or the store is temporarily unavailable
            active = await to_thread.run_sync(_list_active_schedules, self._runs.settings)
        if not active:
            return None
        return min(max(min(one.next_at for one in active) - self._now(), 0.0), CHECK_SECONDS)

    async def has_plans(self) -> bool:
        """Return whether a schedule is active."""
        return bool(await to_thread.run_sync(_list_active_schedules, self._runs.settings))

    async def _fire_all(self) -> None:
        async with hold_store_lock(self._runs.settings.store, "schedules", doing="starting scheduled runs"):
            # Read the schedules under the lock, because another process may have started their runs in the meantime.
            for schedule in await to_thread.run_sync(_list_active_schedules, self._runs.settings):
                if schedule.next_at <= self._now():
                    await self._fire(schedule)

    async def _fire(self, schedule: Schedule) -> None:
        now, find_next = self._now(), partial(_find_next_time, schedule)
        if now - schedule.next_at > LATE_SECONDS:
            late: list[float] = []
            at = schedule.next_at
            while now - at > LATE_SECONDS and len(late) < MOST_MISSED:
                late.append(at)
                at = find_next(at)
            at = max(at, find_next(now - LATE_SECONDS))
            record = partial(self._schedules.record_missed, schedule, len(late), last=late[-1], next_at=at)
            await to_thread.run_sync(record)
            return
        error = await self._start_run(schedule)
        record = partial(self._schedules.record_start, schedule, next_at=find_next(schedule.next_at), error=error)
        await to_thread.run_sync(record)

    async def _start_run(self, schedule: Schedule) -> str:
        """Queue the schedule's next run. If that fails, return the reason, otherwise an empty string."""
        place = Path(schedule.root)
        try:
            if not await to_thread.run_sync(place.is_dir):
                raise Mistake(f"{schedule.root} does not exist")
            settings = self._get_settings(schedule.root)
            await write_background_run(
                self._runs,
                settings,
                BackgroundRun(agent=schedule.agent, request=schedule.request, place=place),
                by=Actor(name=schedule.author, channel="schedule"),
                run=schedule.next_run,
                place=self._choose_place(schedule.next_run),
            )
        except PodiumError as error:
            return truncate_text(escape_unprintable(str(error)), 400)
        return ""

    def _choose_place(self, run: str) -> WorkerPlace:
        """Return where a run is executed. The repository is on this machine, so only this host can claim the run."""
        if not self._host:
            return HERE
        job = FleetJob(run=run, host=self._host, store_version=self._store_version)
        return WorkerPlace(job=job, notice=f"Queued for host {self._host}.")


async def fire_as_host(runs: Runs, environ: Mapping[str, str], offer: HostOffer, report: Callable[[str], None]) -> None:
    """Start due runs regularly until cancelled, for a host. `report` is called for each new error."""
    cache = SettingsCache(environ)
    firing = ScheduleFiring(runs, cache.get_settings, host=offer.host, store_version=offer.store_version)
    await firing.fire_as_host(report)


def _find_next_time(schedule: Schedule, after: float) -> float:
    """Return a schedule's first due time after `after`."""
    return CronExpression.parse(schedule.cron).find_next(after, ZoneInfo(schedule.zone))


def _list_active_schedules(settings: Settings) -> list[Schedule]:
    """Return the schedules of this machine that are not paused."""
    active = Schedules(settings.store).list_active()
    return [one for one in active if one.host == read_host_id(settings.home)]


def describe_unattended_schedules(settings: Settings) -> str:
    """Return a warning if schedules are active but no process starts their runs, otherwise an empty string."""
    active = _list_active_schedules(settings)
    if not active or is_commander_listening(commander_socket_path(settings.store)):
        return ""
    if has_host_on_this_machine(settings.store) and read_schedule_secret(settings.home):
        return ""
    what = format_count(len(active), "active schedule")
    return (
        f"no commander is running, so {what} will not start any runs; "
        "start a commander with podium schedule start or podium serve"
    )
