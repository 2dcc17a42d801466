"""A host and a commander of a fleet, measured: dispatch, takeover, and a queue to drain."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
from anyio import create_task_group

from podium.core.placement import JobPlacement
from podium.fleet.host_loop import POLL_SECONDS, HandBack, HostLoop, LeaseAnswer, LeaseWon
from podium.fleet.pgqueuer_placement import PgQueuerPlacement
from podium.values.fleet_job import FleetJob, HostOffer, JobClaim

from ..child import serve
from .raw_placement import compute_quantile

OFFER = HostOffer(host="bench")
BATCH = 8


class AnyLease:
    """Leases that every host gets."""

    async def win_lease(self, job: FleetJob) -> LeaseAnswer:
        return LeaseWon(epoch=1)

    async def holds_lease(self, run: str) -> bool:
        return True


def connect(request: dict[str, Any], *, lease: float = 30.0) -> AbstractAsyncContextManager[JobPlacement]:
    return PgQueuerPlacement(request["url"], lease_seconds=lease)


async def dispatch(request: dict[str, Any]) -> dict[str, float]:
    """Submit jobs to an idle host, one after the other. The time is from `submit` until the host works on the job."""
    times: list[float] = []
    begun = anyio.Event()

    async def run_job(claim: JobClaim, epoch: int) -> HandBack | None:
        begun.set()
        return None

    async with connect(request) as commander, connect(request) as placement, create_task_group() as group:
        host = HostLoop(placement, OFFER, slots=4, run_job=run_job, leases=AnyLease(), report=print)
        group.start_soon(host.run)
        for number in range(request["times"] + 3):
            begun = anyio.Event()
            await anyio.sleep(0.01)  # the host has finished the previous job, and waits
            begin = time.perf_counter()
            await commander.submit(FleetJob(run=f"d{number}"))
            await begun.wait()
            times.append(time.perf_counter() - begin)
        host.drain()
    return {"wall": compute_quantile(times[3:], request["share"])}


async def take_over(request: dict[str, Any]) -> dict[str, float]:
    """Wait as a host does for the job of a host that died. The time is from its last sign of life."""
    async with connect(request, lease=request["lease"]) as dead, connect(request, lease=request["lease"]) as other:
        await dead.submit(FleetJob(run="taken"))
        while not await dead.claim(OFFER, 1):
            pass
        begin = time.perf_counter()
        while not (claims := await other.claim(OFFER, 1)):
            await other.wait_for_change(POLL_SECONDS)
        wall = time.perf_counter() - begin
        await other.finish(claims[0])
    return {"wall": wall}


async def fill(request: dict[str, Any]) -> dict[str, float]:
    """Queue jobs."""
    async with connect(request) as commander:
        for number in range(request["jobs"]):
            await commander.submit(FleetJob(run=f"j{number}"))
    return {}


async def drain(request: dict[str, Any]) -> dict[str, float]:
    """Claim and finish jobs until there are none."""
    async with connect(request) as host:
        while claims := await host.claim(OFFER, BATCH):
            async with create_task_group() as group:
                for claim in claims:
                    group.start_soon(host.finish, claim)
        return {"failed": len(await host.list_jobs()) if request["checks"] else 0}


if __name__ == "__main__":
    serve(dispatch=dispatch, take_over=take_over, fill=fill, drain=drain)
