"""The job placement interface: how runs are queued for a fleet of hosts, and how hosts claim them.

A placement engine decides which host tries a job next, but its claims are hints: before a host starts to work, it
must acquire the run's lease in the store. So an engine may deliver a job twice or lose it. A host that cannot acquire
the lease hands the job back, and an unfinished run without a job is queued again.

All methods raise PlacementUnavailable while the engine cannot be reached. They can be called again later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..values.fleet_job import FleetJob, HostOffer, JobClaim, JobStatus


class JobSubmission(Protocol):
    """The part of a placement engine that queues, cancels and lists jobs."""

    async def submit(self, job: FleetJob) -> bool:
        """Queue a job. Return False if the run already has a job, queued or claimed."""
        ...

    async def cancel(self, run: str) -> bool:
        """Remove a run's job and notify the host that claimed it, if any. Return False if the run has no job."""
        ...

    async def list_jobs(self) -> list[JobStatus]:
        """Return all jobs that are not finished."""
        ...

    async def delete_history(self) -> None:
        """Delete the engine's records of jobs that finished more than a day ago."""
        ...


class JobClaims(Protocol):
    """The part of a placement engine that gives jobs to hosts. A claim expires if it is not renewed in time."""

    @property
    def lease_seconds(self) -> float:
        """How long a claim lasts without renewal."""
        ...

    async def claim(self, offer: HostOffer, free: int) -> list[JobClaim]:
        """Claim up to `free` jobs that the host accepts, those with the highest priority first."""
        ...

    async def renew(self, claims: Sequence[JobClaim]) -> frozenset[str]:
        """Renew claims. Return the runs whose claims are lost because the job was cancelled or claimed again."""
        ...

    async def hand_back(self, claim: JobClaim, *, delay: float = 0.0) -> bool:
        """Let other hosts claim the job, after `delay` seconds. Return False if the claim was lost."""
        ...

    async def finish(self, claim: JobClaim) -> bool:
        """Remove the job. If the claim was lost, do nothing and return False."""
        ...

    async def wait_for_change(self, timeout: float) -> frozenset[str]:
        """Wait until there may be jobs to claim or a job is cancelled, for at most `timeout` seconds.

        Return the runs of cancelled jobs. Only one task can wait at a time.
        """
        ...


class JobPlacement(JobSubmission, JobClaims, Protocol):
    """A placement engine: it queues jobs and gives them to hosts."""
