"""The placement interfaces: how a run starts workers and waits for them, and how runs are queued for a fleet of hosts.

A worker is a run like any other, in its own process. The parent run records the worker's run id before starting it, so
that the parent can find the worker after a restart. The parent waits for the result, and stops the worker when the work
is no longer needed.

In a fleet, a placement engine decides which host tries a job next, but its claims are hints: before a host starts to
work, it must acquire the run's lease in the store. So an engine may deliver a job twice or lose it. A host that cannot
acquire the lease hands the job back, and an unfinished run without a job is queued again.

All methods raise PlacementUnavailable while the engine cannot be reached. They can be called again later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Protocol

from msgspec import Meta, Struct, field

from ..values.agent import Agent, Budget, Permissions
from ..values.event import MessageReceived, WorkerReturned, WorkerSent
from ..values.fleet_job import FleetJob, HostOffer, JobClaim, JobStatus
from ..values.request import AttachedFile


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


Idle = Callable[[], AbstractContextManager[None]]
"""Returns a context manager that pauses the timeouts of the waiting caller."""


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """A worker's options, with the names that the API uses. The agent's file or the settings supply what is not given.

    `after` lists branches whose workers have to succeed first, and `base` is the commit that the branch starts at.
    A read-only worker gets no checkout. With `is_unattended`, nobody is asked: actions that need permission are denied.
    `approved` lists rules for actions that the worker can take without asking. On a fleet, the worker runs on a host
    with all `labels`, and workers with a higher `priority` start first. `also` lists folders in additional
    repositories; the worker gets a checkout of each.
    """

    after: tuple[str, ...] = ()
    base: str = ""
    role: str | None = None
    model: str | None = None
    engine: str | None = None
    max_turns: Annotated[int, Meta(ge=1)] | None = None
    budget: Budget | None = None
    timeout: Annotated[float, Meta(ge=1)] | None = None
    max_restarts: Annotated[int, Meta(ge=0)] | None = None
    approved: tuple[str, ...] = field(default=(), name="auto_approve")
    is_reader: bool = field(default=False, name="read_only")
    is_unattended: bool = field(default=False, name="unattended")
    labels: tuple[str, ...] = ()
    priority: int = 0
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Teammate:
    """A team member: the name to address messages to, the member's run, and the member's agent in that run."""

    name: str
    run: str
    agent: str


DEFAULT_OPTIONS = WorkerOptions()


class Placement(Protocol):
    """Starts workers for a run and waits for them."""

    @property
    def is_worker(self) -> bool:
        """Whether this run belongs to a worker, and so already has its own checkout."""
        ...

    @property
    def parent_operation(self) -> str:
        """The operation in the parent run that this run works for, or an empty string if there is no parent run."""
        ...

    async def send_worker(
        self,
        sent: WorkerSent,
        agent: Agent | None,
        others: Sequence[Agent],
        *,
        operation: str,
        options: WorkerOptions,
        restrictions: Permissions,
    ) -> None:
        """Start a worker that runs this agent, or the default agent; do nothing if it was already started.

        The budget in `options` can only reduce the agent's own budget. `restrictions` contains the sender's rules
        for actions that are denied or need permission. Raise Mistake if the worker cannot be started.
        """
        ...

    async def wait_for_result(self, run: str, *, idle: Idle = nullcontext) -> WorkerReturned:
        """Wait for a worker and return its result.

        While the worker is queued or waiting for a person, the context manager that `idle` returns is active.
        """
        ...

    async def poll_result(self, run: str) -> WorkerReturned | None:
        """Return a worker's result, or None if the worker has not ended."""
        ...

    async def describe_worker(self, run: str) -> str:
        """Return a worker's state in one line."""
        ...

    async def stop_workers(self, runs: Sequence[str]) -> None:
        """Stop workers whose work is no longer needed."""
        ...

    async def list_teammates(self, team: str) -> list[Teammate]:
        """Return the lead and the members of a team, and its workers that have not ended, except this run's worker.

        Each worker is listed under two names. One is the name of its agent. The other is its branch or, if the worker
        is read-only, its own name. `team` is the path of the team's operation. If this run belongs to a worker, that
        operation is in the run that started the worker; otherwise, it is in this run.
        """
        ...

    async def post_message(self, to: Teammate, message: MessageReceived, files: Sequence[AttachedFile] = ()) -> bool:
        """Post a message to an agent in any run, unless a message with the same id has already been posted.

        Return False if the run ended before it took the message. `files` contains the message's attachments.
        """
        ...
