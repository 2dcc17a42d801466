"""The placement engine for tests: it has a real server, and as many connections as a test opens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from anyio import fail_after

from podium.core.placement import JobPlacement
from podium.fleet.pgqueuer_placement import PgQueuerPlacement
from podium.values.fleet_job import FleetJob, HostOffer, JobClaim

PATIENCE = 30.0
ANY_HOST = HostOffer(host="any")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A placement engine that runs. `stop` and `start` are there if the test has a server of its own."""

    url: str
    stop: Callable[[], None] | None = None
    start: Callable[[], None] | None = None

    def connect(self, *, lease: float = 30.0) -> AbstractAsyncContextManager[JobPlacement]:
        """Connect as another process would."""
        return PgQueuerPlacement(self.url, lease_seconds=lease)


async def claim_jobs(
    placement: JobPlacement, count: int = 1, *, offer: HostOffer = ANY_HOST, free: int | None = None
) -> list[JobClaim]:
    """Claim jobs as a host does, until this many are claimed."""
    claims: list[JobClaim] = []
    with fail_after(PATIENCE):
        while len(claims) < count:
            found = await placement.claim(offer, free or count - len(claims))
            claims += found
            if not found:
                await placement.wait_for_change(0.1)
    return claims


async def submit_runs(placement: JobPlacement, *runs: str) -> None:
    for run in runs:
        assert await placement.submit(FleetJob(run=run))


def get_runs(claims: Sequence[JobClaim]) -> list[str]:
    return [claim.job.run for claim in claims]
