"""The faults that happen to a fleet, in an order that a seed decides."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from signal import SIGCONT, SIGSTOP

import anyio
from anyio import create_task_group, to_thread

from ..fleet_lab import LEASE
from .history_lab import PEOPLE, WATCH_SECONDS, HistoryLab
from .service import Service, send_signal

LONGEST_STALL = LEASE + 4
LONGEST_RESTART = 3.0
SUSPENDED_FOR = (LEASE + 1, LEASE + 3)


class Faults:
    """Injects faults into a lab, and counts them by kind."""

    def __init__(self, lab: HistoryLab, random: Random) -> None:
        self._lab = lab
        self._random = random
        self.count: Counter[str] = Counter()
        self.log: list[str] = []
        self._start = time.monotonic()
        self._database = anyio.Lock()
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "host killed": self.kill_host,
            "host suspended": self._suspend_host,
            "commander killed": self._kill_commander,
            "database restarted": self._restart_database,
            "database crashed": self.crash_database,
            "connections cut": self._cut_connections,
            "connections stalled": self._stall_connections,
        }

    @property
    def kinds(self) -> list[str]:
        return list(self._kinds)

    async def wait_busy_host(self) -> Service:
        """Wait until a host works on a run, and return it."""
        while not (busy := await to_thread.run_sync(self._lab.find_busy_hosts)):  # noqa: ASYNC110 - a table
            await anyio.sleep(WATCH_SECONDS)
        return self._lab.services[busy[0]]

    async def inject_forever(self, longest_pause: float) -> None:
        """Inject random faults until cancelled, with a random pause before each. Two can happen at the same time."""

        async def inject_one_by_one() -> None:
            while True:
                for kind in self._random.sample(self.kinds, len(self.kinds)):
                    await anyio.sleep(self._random.uniform(0, longest_pause))
                    await self._kinds[kind]()

        async with create_task_group() as group:
            group.start_soon(inject_one_by_one)
            group.start_soon(inject_one_by_one)

    def _record(self, kind: str, what: str) -> None:
        self.count[kind] += 1
        self.log.append(f"{time.monotonic() - self._start:7.2f}  {kind}: {what}")

    def _choose(self, kind: str) -> Service:
        return self._random.choice(self._lab.list_services(kind))

    async def kill_host(self, host: Service | None = None) -> None:
        """Kill a host, which takes its workers with it, and start it again after a while."""
        host = host or self._choose("host")
        host.is_held = True
        host.kill()
        self._record("host killed", host.name)
        await anyio.sleep(self._random.uniform(0, LEASE + 1))
        host.is_held = False

    async def _suspend_host(self) -> None:
        """Suspend a host and its workers until others have taken over its runs, and let them continue."""
        host = self._choose("host")
        # A process that is started between two looks is suspended by the second one.
        stopped = {*host.send_signal(SIGSTOP), *host.send_signal(SIGSTOP)}
        self._record("host suspended", f"{host.name}, {len(stopped)} processes")
        try:
            await anyio.sleep(self._random.uniform(*SUSPENDED_FOR))
        finally:
            for pid in stopped:
                send_signal(pid, SIGCONT)

    async def _kill_commander(self) -> None:
        """Kill the process that delegates, one that leads a team, or one that answers requests."""
        running = [one for one in self._lab.services.values() if not one.name.startswith("host") and one.is_running]
        one = self._random.choice(running)
        one.kill()
        self._record("commander killed", one.name)

    async def _restart_database(self) -> None:
        await self._stop_and_start("fast")
        self._record("database restarted", "fast")

    async def crash_database(self) -> None:
        """Stop the database as a crash does, and start it again after a while."""
        await self._stop_and_start("immediate")
        self._record("database crashed", "immediate")

    async def _stop_and_start(self, mode: str) -> None:
        async with self._database:
            await to_thread.run_sync(self._lab.cluster.stop, mode)
            try:
                await anyio.sleep(self._random.uniform(0, LONGEST_RESTART))
            finally:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(self._lab.cluster.start)

    async def _cut_connections(self) -> None:
        name = self._random.choice(list(self._lab.proxies))
        self._record("connections cut", f"{self._lab.proxies[name].cut()} of {name}")

    async def _stall_connections(self) -> None:
        """Stall the connections of a host or of the people, and let them flow again, or cut them."""
        name = self._random.choice([name for name in self._lab.proxies if name != PEOPLE] * 2 + [PEOPLE])
        proxy = self._lab.proxies[name]
        proxy.stall()
        seconds = self._random.uniform(0.5, LONGEST_STALL)
        is_cut = self._random.random() < 0.5
        self._record("connections stalled", f"{name} for {seconds:.1f} s{', then cut' if is_cut else ''}")
        try:
            await anyio.sleep(seconds)
        finally:
            if is_cut:
                proxy.cut()
            proxy.flow()
