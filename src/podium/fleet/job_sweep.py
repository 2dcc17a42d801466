"""Queue unfinished runs that have no job, and requeue jobs that nobody is working on.

A run that is paused, or that is waiting for a provider's limit to reset, has no job; it needs one when it is resumed or
the limit has reset. A job can also be missing because the process that created the run died before it queued the job,
because the placement engine lost it, or because a host deleted it. A malicious host can also hold a job without working
on it, or postpone it for years. A job that is queued needlessly does no harm: the host that claims it does not get the
lease of a run that has ended or belongs to another process.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from ..core.job_placement import JobSubmission
from ..values.errors import PlacementUnavailable
from ..values.fleet_job import FleetJob

SWEEP_SECONDS = 10.0
STUCK_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedJobs:
    """The jobs of the runs that have not ended, oldest first, and the runs that a live process owns."""

    jobs: Sequence[FleetJob]
    running: frozenset[str] = frozenset()


FindUnfinished = Callable[[], Awaitable[UnfinishedJobs]]


class JobSweep:
    """Compares the unfinished runs with the jobs in the queue, and queues the jobs that are missing or stuck.

    If no live process has owned a job's run for `stuck_seconds`, the job is removed and queued again, behind the other
    jobs of its priority. This also happens to jobs that are only waiting for a free host. The oldest run is queued
    first, so these jobs keep their order.
    """

    def __init__(
        self, placement: JobSubmission, find_unfinished: FindUnfinished, *, stuck_seconds: float = STUCK_SECONDS
    ) -> None:
        self._placement = placement
        self._find_unfinished = find_unfinished
        self._stuck_seconds = stuck_seconds
        self._waiting_since: dict[str, float] = {}

    async def find_missing_jobs(self) -> list[str]:
        """Return the runs that have no job and that no live process owns."""
        unfinished = await self._find_unfinished()
        known = {status.job.run for status in await self._placement.list_jobs()} | unfinished.running
        return [job.run for job in unfinished.jobs if job.run not in known]

    async def queue_missing_jobs(self) -> list[str]:
        """Queue missing and stuck jobs once, and return their runs."""
        # Runs are read before jobs: a run that ends in between may be queued needlessly, but no run is missed.
        unfinished = await self._find_unfinished()
        known = {status.job.run for status in await self._placement.list_jobs()}
        queued = []
        for job in self._find_due(unfinished, known):
            if job.run in known:
                await self._placement.cancel(job.run)
            if await self._placement.submit(job):
                queued.append(job.run)
        return queued

    def _find_due(self, unfinished: UnfinishedJobs, known: set[str]) -> list[FleetJob]:
        """Return the jobs that are missing or stuck. A run that a live process owns needs no job."""
        now = time.monotonic()
        waiting = [job for job in unfinished.jobs if job.run not in unfinished.running]
        self._waiting_since = {job.run: self._waiting_since.get(job.run, now) for job in waiting}
        due = [
            job for job in waiting if job.run not in known or now - self._waiting_since[job.run] >= self._stuck_seconds
        ]
        for job in due:
            self._waiting_since[job.run] = now
        return due

    async def run(self, *, report: Callable[[str], None]) -> None:
        """Queue missing and stuck jobs at regular intervals, until the task is cancelled."""
        while True:
            try:
                queued = await self.queue_missing_jobs()
                await self._placement.delete_history()
            except PlacementUnavailable as error:
                report(str(error))
            else:
                for run in queued:
                    report(f"run {run} had no job, or nobody had worked on it for a long time; it was queued again")
            await anyio.sleep(SWEEP_SECONDS)
