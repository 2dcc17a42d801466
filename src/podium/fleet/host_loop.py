"""A host's main loop: claim jobs, acquire their leases, work on them, and renew the claims.

The run's lease in the store decides who works on a run; the claim on the job is only a hint. So the loop continues
to work if the placement engine is gone, or if the claim is lost but the lease is not. It stops work on a job that was
cancelled, and on a run whose lease is lost.

A run that is paused, or that is waiting for a provider's limit to reset, has no job; it needs one when it is resumed or
the limit has reset. A job can also be missing because the process that created the run died before it queued the job,
because the placement engine lost it, or because a host deleted it. A malicious host can also hold a job without working
on it, or postpone it for years. A job that is queued needlessly does no harm: the host that claims it does not get the
lease of a run that has ended or belongs to another process.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import anyio
import msgspec
from anyio import CancelScope, Event, create_task_group, move_on_after
from anyio.abc import TaskGroup

from ..core.placement import JobClaims, JobSubmission
from ..values.errors import PlacementUnavailable
from ..values.fleet_job import FleetJob, HostOffer, JobClaim

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


POLL_SECONDS = 0.5
"""How long to wait before looking for jobs that were not announced, such as those left by a host that died."""
RETRY_SECONDS = 5.0
"""How long to wait before a job is retried after an error."""
HELD_SECONDS = 0.25
"""How long to wait before a job is retried if another process owns its run.

Each subsequent wait is longer by this amount, up to RETRY_SECONDS.
"""
FULL_SECONDS = 1.0
"""How long to wait before a job is retried if its team or provider was at its limit."""
CLEANUP_SECONDS = 10.0
"""How long the host tries to finish a job or hand it back. After that, it gives up, and the claim lapses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWon:
    """The host owns the run, with this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRefused:
    """The host must not work on the run.

    `over`: the run has ended or has no job in the store. `held`: another process owns it, or this process's own lease
    has lapsed. `full`: its team or provider has reached a limit. `unfit`: it is not allowed on this host.
    """

    reason: Literal["over", "held", "full", "unfit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandBack:
    """The host did not finish the job; other hosts can claim it after `delay` seconds."""

    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FullLimits:
    """The teams and providers that are at their limits."""

    teams: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()


LeaseAnswer = LeaseWon | LeaseRefused
RunJob = Callable[[JobClaim, int], Awaitable[HandBack | None]]
"""A function that works on a claimed job. Its arguments are the claim and the epoch of the run's lease.

It returns None if the run has ended, and a HandBack if the job is not finished.
"""


class RunLeases(Protocol):
    """The run leases in the store, for one process."""

    async def win_lease(self, job: FleetJob) -> LeaseAnswer:
        """Acquire the lease of the job's run for this process, if that is allowed."""
        ...

    async def holds_lease(self, run: str) -> bool:
        """Return whether this process owns a run. Raise PlacementUnavailable if that cannot be determined now."""
        ...


ReadLimits = Callable[[], Awaitable[FullLimits]]
FindWaiting = Callable[[Sequence[str]], Awaitable[frozenset[str]]]
"""A function that returns which of the given runs have unfinished workers."""


async def read_no_limits() -> FullLimits:
    """Return an empty FullLimits object, which means that no team or provider is at its limit."""
    return FullLimits()


async def _find_none_waiting(runs: Sequence[str]) -> frozenset[str]:
    """Return an empty set, which means that no run is waiting for workers."""
    return frozenset()


@dataclass(slots=True)
class _Work:
    """A job that this host works on."""

    claim: JobClaim
    scope: CancelScope = field(default_factory=CancelScope)
    is_lost: bool = False

    def stop(self) -> None:
        """Stop the work because the job was cancelled or the run's lease is lost."""
        self.is_lost = True
        self.scope.cancel()

    def adopt(self, claim: JobClaim) -> None:
        """Continue with a new claim on the same run, because the old one lapsed or the run had two jobs."""
        self.claim = claim
        self.is_lost = False


class HostLoop:
    """A host's main loop, which works on up to `slots` jobs at once until it is asked to drain.

    A run that waits for its workers occupies no slot, because the workers may need the slot.
    `report` is called with a message when something goes wrong.
    """

    def __init__(
        self,
        placement: JobClaims,
        offer: HostOffer,
        *,
        slots: int,
        run_job: RunJob,
        leases: RunLeases,
        report: Callable[[str], None],
        read_limits: ReadLimits = read_no_limits,
        find_waiting: FindWaiting = _find_none_waiting,
    ) -> None:
        self._placement = placement
        self._offer = offer
        self._slots = slots
        self._run_job = run_job
        self._leases = leases
        self._report = report
        self._read_limits = read_limits
        self._find_waiting = find_waiting
        self._work: dict[str, _Work] = {}
        self._refused: Counter[str] = Counter()
        self._is_unavailable = False
        self._news = Event()
        self._draining = Event()
        self._grace = CancelScope()

    @property
    def runs(self) -> list[str]:
        """The runs that this host works on."""
        return list(self._work)

    def drain(self, *, grace: float = math.inf) -> None:
        """Claim no more jobs, and end the loop when the current jobs are done.

        After `grace` seconds, the work on the remaining jobs is stopped, and they are handed back. A second call
        can change this grace period.
        """
        self._grace.deadline = anyio.current_time() + grace
        self._draining.set()
        self._news.set()

    async def run(self) -> None:
        """Claim jobs and work on them until `drain` is called and the current jobs are done."""
        async with create_task_group() as group:
            async with create_task_group() as jobs:
                group.start_soon(self._renew_claims)
                group.start_soon(self._watch_changes)
                group.start_soon(self._hand_back_after_grace)
                await self._claim_jobs(jobs)
            group.cancel_scope.cancel()

    async def _claim_jobs(self, jobs: TaskGroup) -> None:
        """Claim jobs and start a task for each in the group `jobs`, until `drain` is called."""
        while not self._draining.is_set():
            self._news = Event()
            claims = await self._try_claim()
            for claim in claims:
                if (work := self._work.get(claim.job.run)) is not None:
                    work.adopt(claim)
                else:
                    work = self._work[claim.job.run] = _Work(claim)
                    jobs.start_soon(self._work_on, work)
                if self._draining.is_set():
                    work.scope.cancel()
            if not claims:
                with move_on_after(POLL_SECONDS):
                    await self._news.wait()

    async def _try_claim(self) -> Sequence[JobClaim]:
        """Claim jobs for the free slots and return the claims.

        Return an empty sequence if no slot is free or the placement engine is unavailable.
        """
        try:
            free = self._slots - len(self._work)
            if free <= 0:
                free += len(await self._find_waiting(self.runs))
            if free <= 0:
                return ()
            full = await self._read_limits()
            offer = msgspec.structs.replace(self._offer, full_teams=full.teams, full_providers=full.providers)
            claims = await self._placement.claim(offer, free)
        except PlacementUnavailable as error:
            if not self._is_unavailable:
                self._report(
                    f"{error}; running jobs continue, and no new jobs are claimed until the problem is resolved"
                )
            self._is_unavailable = True
            return ()
        self._is_unavailable = False
        return claims

    async def _watch_changes(self) -> None:
        """Wake the claiming loop when there may be new jobs, and stop the work on cancelled jobs."""
        while True:
            try:
                cancelled = await self._placement.wait_for_change(POLL_SECONDS)
            except PlacementUnavailable:
                await anyio.sleep(POLL_SECONDS)
                continue
            for run in cancelled & self._work.keys():
                self._work[run].stop()
            self._news.set()

    async def _renew_claims(self) -> None:
        while True:
            await anyio.sleep(self._placement.lease_seconds / 4)
            if not self._work:
                continue
            try:
                lost = await self._placement.renew([work.claim for work in self._work.values()])
            except PlacementUnavailable:
                continue
            for run in lost & self._work.keys():
                if not await self._holds_lease(run) and run in self._work:
                    self._work[run].stop()

    async def _holds_lease(self, run: str) -> bool:
        try:
            return await self._leases.holds_lease(run)
        except PlacementUnavailable:
            return True  # the host keeps working until it knows that the lease is lost

    async def _hand_back_after_grace(self) -> None:
        await self._draining.wait()
        with self._grace:
            await anyio.sleep_forever()
        for work in self._work.values():
            work.scope.cancel()

    async def _work_on(self, work: _Work) -> None:
        """Acquire the lease, do the work, and then finish the job or hand it back."""
        outcome: HandBack | None = HandBack()
        try:
            with work.scope:
                outcome = await self._do_job(work.claim)
        finally:
            # A job that was cancelled or lost to another host is neither finished nor handed back.
            with move_on_after(CLEANUP_SECONDS, shield=True):
                if not work.is_lost:
                    await self._settle(work.claim, outcome)
            del self._work[work.claim.job.run]
            self._news.set()

    async def _do_job(self, claim: JobClaim) -> HandBack | None:
        try:
            match await self._leases.win_lease(claim.job):
                case LeaseWon(epoch=epoch):
                    del self._refused[claim.job.run]
                    return await self._run_job(claim, epoch)
                case LeaseRefused(reason="over"):
                    del self._refused[claim.job.run]
                    return None
                case LeaseRefused(reason="unfit"):
                    # The job differs from its row in the store. After it is removed, the sweep queues it correctly.
                    self._report(f"run {claim.job.run} is not allowed on this host; its job was removed")
                    return None
                case LeaseRefused(reason="held"):
                    self._refused[claim.job.run] += 1
                    return HandBack(delay=min(RETRY_SECONDS, HELD_SECONDS * self._refused[claim.job.run]))
                case LeaseRefused(reason="full"):
                    return HandBack(delay=FULL_SECONDS)
        except Exception as error:
            # An error in one job must not end the host's other jobs.
            self._report(f"run {claim.job.run} was handed back: {error}")
        return HandBack(delay=RETRY_SECONDS)

    async def _settle(self, claim: JobClaim, outcome: HandBack | None) -> None:
        """Finish a job or hand it back. If the engine stays down, the claim lapses, and another host gets the job."""
        while True:
            try:
                if outcome is None:
                    await self._placement.finish(claim)
                else:
                    await self._placement.hand_back(claim, delay=outcome.delay)
            except PlacementUnavailable:
                await anyio.sleep(POLL_SECONDS)
            else:
                return
