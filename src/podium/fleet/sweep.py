"""Queue runs that are not finished and have no job.

A job can be missing because the process that created the run died before it queued the job, because the placement
engine lost it, or because a host deleted it. A job that is queued needlessly does no harm: the host that claims it
does not get the lease of a run that has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio

from ..core.job_placement import JobSubmission
from ..values.errors import PlacementUnavailable
from ..values.fleet_job import FleetJob

SWEEP_SECONDS = 10.0

FindUnfinished = Callable[[], Awaitable[Sequence[FleetJob]]]


async def queue_missing_jobs(placement: JobSubmission, find_unfinished: FindUnfinished) -> list[str]:
    """Queue the unfinished runs that have no job, and return them."""
    # Runs first: a run that ends between the two calls is queued needlessly, and none is overlooked.
    unfinished = await find_unfinished()
    known = {status.job.run for status in await placement.list_jobs()}
    return [job.run for job in unfinished if job.run not in known and await placement.submit(job)]


async def keep_jobs_queued(
    placement: JobSubmission, find_unfinished: FindUnfinished, *, report: Callable[[str], None]
) -> None:
    """Queue unfinished runs that have no job, again and again, until the task is cancelled."""
    while True:
        try:
            queued = await queue_missing_jobs(placement, find_unfinished)
        except PlacementUnavailable as error:
            report(str(error))
        else:
            for run in queued:
                report(f"run {run} had no job and was queued again")
        await anyio.sleep(SWEEP_SECONDS)
