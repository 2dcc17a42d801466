"""Place jobs with NATS JetStream.

A job is a message in a work queue stream, on its own subject: `podium.jobs.CONSUMER.RUN`. The server accepts one
message for each subject, so a run that has a job gets no second one. Each class and priority has a consumer, and a host
pulls from the consumers whose classes it accepts, the highest priority first. `ack_wait` is the lease, `+WPI` renews a
claim, `-NAK` hands a job back, and a redelivery is a takeover.

JetStream accepts an acknowledgement from a host whose message was redelivered to another host. So each claim is also a
message in a second stream, on the subject `podium.claims.RUN`. The stream keeps only the last claim for each run. The
message's sequence number is the claim's token: a host that cannot read or delete that message has lost the claim.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import msgspec
from anyio import fail_after, move_on_after, sleep
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NotFoundError

from ..values.errors import PlacementUnavailable
from ..values.fleet_job import FleetJob, HostOffer, JobClaim, JobClass, JobStatus, check_job
from ..values.placement_address import describe_placement

JOBS = "PODIUM_JOBS"
CLAIMS = "PODIUM_CLAIMS"
CHANGES = "podium.changes"
"""The subject for messages that are not stored in a stream.

An empty message announces that there are jobs to claim. Any other message is the id of a run that was cancelled.
"""

LEASE_SECONDS = 30.0
CLAIMABLE_SECONDS = 1.0
"""The maximum time to wait for a new message to reach its consumer. After that, hosts find the message by polling."""
ANSWER_SECONDS = 2.0
CONNECT_SECONDS = 5.0
RECONNECT_SECONDS = 0.25
MAX_IN_FLIGHT = 100_000
LIST_BATCH = 500

_TOO_MANY_FOR_SUBJECT = 10077
_CANNOT_DELETE = 10057
_JOB_STREAM = StreamConfig(
    name=JOBS,
    subjects=["podium.jobs.*.*"],
    retention=RetentionPolicy.WORK_QUEUE,
    storage=StorageType.FILE,
    discard=DiscardPolicy.NEW,
    discard_new_per_subject=True,
    max_msgs_per_subject=1,
    allow_direct=True,
)
_CLAIM_STREAM = StreamConfig(
    name=CLAIMS, subjects=["podium.claims.*"], storage=StorageType.FILE, max_msgs_per_subject=1, allow_direct=True
)


class NatsPlacement:
    """Jobs in a JetStream work queue. `async with` connects, and creates the streams if needed."""

    def __init__(self, url: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.lease_seconds = lease_seconds
        self._url = url
        self._consumers: set[str] = set()
        """The consumers known to exist."""
        self._leased: set[str] = set()
        """The names of the consumers that are known to use this process's lease time for their claims."""

    async def __aenter__(self) -> NatsPlacement:
        self._client = _SafeClient(requires_tls=urlsplit(self._url).scheme == "tls")
        try:
            await self._connect()
        except BaseException:
            await self._client.close()
            raise
        return self

    async def _connect(self) -> None:
        with _translate_errors():
            with self._limit_connecting():
                await self._client.connect(
                    self._url,
                    name="podium",
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]  # passed to asyncio.sleep
                    error_cb=self._client.keep_error,
                )
            self._stream: JetStreamContext = self._client.jetstream(timeout=ANSWER_SECONDS)
            for config in (_JOB_STREAM, _CLAIM_STREAM):
                await self._stream.add_stream(config)
            self._changes = await self._client.subscribe(CHANGES)

    @contextmanager
    def _limit_connecting(self) -> Iterator[None]:
        """Raise PlacementUnavailable if the client is not connected in time. The client itself would try forever."""
        try:
            with fail_after(CONNECT_SECONDS):
                yield
        except TimeoutError:
            why = self._client.last_failure or "it does not answer"
            server = describe_placement(self._url)
            raise PlacementUnavailable(f"cannot connect to the NATS server {server}: {why}") from None

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()

    # For commanders

    async def submit(self, job: FleetJob) -> bool:
        check_job(job)
        with self._reach_server():
            # The run may have a job of another class, which is on another subject.
            if (await self._stream.stream_info(JOBS, f"podium.jobs.*.{job.run}")).state.subjects:
                return False
            consumer = await self._ensure_consumer(job)
            try:
                stored = await self._stream.publish(f"podium.jobs.{consumer}.{job.run}", msgspec.json.encode(job))
            except APIError as error:
                if error.err_code == _TOO_MANY_FOR_SUBJECT:
                    return False
                raise
            await self._wait_claimable(consumer, stored.seq)
            await self._client.publish(CHANGES)
        return True

    async def cancel(self, run: str) -> bool:
        with self._reach_server():
            purged = await self._purge(JOBS, f"podium.jobs.*.{run}")
            await self._purge(CLAIMS, f"podium.claims.{run}")
            await self._client.publish(CHANGES, run.encode())
        return purged > 0

    async def list_jobs(self) -> list[JobStatus]:
        with self._reach_server():
            jobs = [_decode_job(message.data) for message in await self._read_all(JOBS)]
            claimed = {_get_subject(message).rpartition(".")[2] for message in await self._read_all(CLAIMS)}
        known = sorted((job for job in jobs if job is not None), key=lambda job: -job.priority)
        return [JobStatus(job=job, state="claimed" if job.run in claimed else "queued") for job in known]

    async def delete_history(self) -> None:
        """Do nothing: a work queue keeps no finished jobs."""

    # For hosts

    async def claim(self, offer: HostOffer, free: int) -> list[JobClaim]:
        claims: list[JobClaim] = []
        with self._reach_server():
            for consumer in await self._find_consumers(offer):
                if len(claims) == free:
                    break
                request = {"batch": free - len(claims), "no_wait": True}
                pull = f"$JS.API.CONSUMER.MSG.NEXT.{JOBS}.{consumer}"
                for message in await self._collect(pull, request, free - len(claims)):
                    if (claim := await self._record_claim(offer, message)) is not None:
                        claims.append(claim)
        return claims

    async def renew(self, claims: Sequence[JobClaim]) -> frozenset[str]:
        lost = set()
        with self._reach_server():
            for claim in claims:
                try:
                    await self._stream.get_msg(CLAIMS, seq=int(claim.token), direct=True)
                except NotFoundError:
                    lost.add(claim.job.run)
                else:
                    await self._client.publish(claim.handle, Msg.Ack.Progress)
        return frozenset(lost)

    async def hand_back(self, claim: JobClaim, *, delay: float = 0.0) -> bool:
        answer = Msg.Ack.Nak + (json.dumps({"delay": int(delay * 1e9)}).encode() if delay else b"")
        with self._reach_server():
            if not await self._delete_claim(claim):
                return False
            await self._client.request(claim.handle, answer, timeout=ANSWER_SECONDS)
            await self._client.publish(CHANGES)
        return True

    async def finish(self, claim: JobClaim) -> bool:
        with self._reach_server():
            if not await self._delete_claim(claim):
                return False
            await self._client.request(claim.handle, Msg.Ack.Ack, timeout=ANSWER_SECONDS)
        return True

    async def wait_for_change(self, timeout: float) -> frozenset[str]:
        with self._reach_server():
            try:
                messages = [await self._changes.next_msg(timeout=timeout)]
            except TimeoutError:
                return frozenset()
            while self._changes.pending_msgs:
                messages.append(await self._changes.next_msg(timeout=timeout))
        return frozenset(message.data.decode(errors="replace") for message in messages if message.data)

    # Messages

    @contextmanager
    def _reach_server(self) -> Iterator[None]:
        """Raise PlacementUnavailable if the client is not connected or a request in the block gets no answer."""
        if not self._client.is_connected:
            raise PlacementUnavailable("the NATS server cannot be reached")
        with _translate_errors():
            yield

    async def _ensure_consumer(self, job: FleetJob) -> str:
        """Create the consumer for a job's class and priority, unless it exists, and return its name."""
        key = job.job_class.key
        name = hashlib.sha256(f"{job.priority} {key}".encode()).hexdigest()[:24]
        if name not in self._consumers:
            try:
                # An existing consumer is not changed: a host may have set its own lease time for the consumer.
                await self._stream.consumer_info(JOBS, name)
            except NotFoundError:
                await self._stream.add_consumer(
                    JOBS,
                    ConsumerConfig(
                        durable_name=name,
                        ack_policy=AckPolicy.EXPLICIT,
                        ack_wait=self.lease_seconds,
                        max_ack_pending=MAX_IN_FLIGHT,
                        filter_subject=f"podium.jobs.{name}.*",
                        metadata={"class": key, "priority": str(job.priority)},
                    ),
                )
            self._consumers.add(name)
        return name

    async def _wait_claimable(self, consumer: str, message: int) -> None:
        """Wait until hosts can claim a new message. The server acknowledges a message before a consumer can deliver it.

        A host that is notified too early would find nothing, and would look again only at its next poll.
        """
        with move_on_after(CLAIMABLE_SECONDS):
            while True:
                info = await self._stream.consumer_info(JOBS, consumer)
                if info.num_pending or (info.delivered is not None and info.delivered.stream_seq >= message):
                    return
                await sleep(0.001)

    async def _find_consumers(self, offer: HostOffer) -> list[str]:
        """Return the consumers that may have jobs for this host, those with the highest priority first."""
        infos: list[ConsumerInfo] = []
        while page := await self._stream.consumers_info(JOBS, offset=len(infos)):
            infos += page
            if len(page) < 256:
                break
        found = [
            (int(metadata["priority"]), info.name, info.config)
            for info in infos
            if (metadata := info.config.metadata or {}) and (info.num_pending or info.num_ack_pending)
            if offer.accepts(JobClass.from_key(metadata["class"]))
        ]
        for _, name, config in found:
            await self._set_lease(name, config)
        return [name for _, name, _ in sorted(found, key=lambda one: one[:2], reverse=True)]

    async def _set_lease(self, name: str, config: ConsumerConfig) -> None:
        """Make a consumer's claims expire after this host's lease time, even if another process set a different one."""
        if name in self._leased:
            return
        if config.ack_wait != self.lease_seconds:
            config.ack_wait = self.lease_seconds
            await self._stream.add_consumer(JOBS, config)
        self._leased.add(name)

    async def _record_claim(self, offer: HostOffer, message: Msg) -> JobClaim | None:
        """Record this claim as the latest one for its run. If the message is not a job, remove it and return None."""
        job = _decode_job(message.data)
        if job is None:
            await message.ack()
            return None
        recorded = await self._stream.publish(f"podium.claims.{job.run}", offer.host.encode())
        return JobClaim(job=job, token=str(recorded.seq), handle=message.reply)

    async def _delete_claim(self, claim: JobClaim) -> bool:
        """Delete a claim. Return False if it was already lost. Only one of two concurrent deletions succeeds."""
        # The client's own `delete_msg` has the server overwrite the message on disk, which takes far longer.
        answer = await self._ask(f"STREAM.MSG.DELETE.{CLAIMS}", {"seq": int(claim.token), "no_erase": True})
        if "error" in answer and answer["error"].get("err_code") != _CANNOT_DELETE:
            raise PlacementUnavailable(f"JetStream failed: {answer['error'].get('description')}")
        return "error" not in answer

    async def _purge(self, stream: str, subject: str) -> int:
        """Delete all messages on these subjects, and return how many were deleted."""
        return int((await self._ask(f"STREAM.PURGE.{stream}", {"filter": subject})).get("purged", 0))

    async def _ask(self, question: str, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to JetStream's API and return the response, which may be an error."""
        data = json.dumps(request).encode()
        answer = await self._client.request(f"$JS.API.{question}", data, timeout=ANSWER_SECONDS)
        return dict(json.loads(answer.data))

    async def _read_all(self, stream: str) -> list[Msg]:
        messages: list[Msg] = []
        place = 1
        while True:
            request = {"seq": place, "batch": LIST_BATCH, "next_by_subj": ">"}
            page = await self._collect(f"$JS.API.DIRECT.GET.{stream}", request, LIST_BATCH)
            messages += page
            if len(page) < LIST_BATCH:
                return messages
            place = int((page[-1].headers or {})["Nats-Sequence"]) + 1

    async def _collect(self, subject: str, request: dict[str, Any], most: int) -> list[Msg]:
        """Send a request that is answered by several messages, and return them."""
        inbox = self._client.new_inbox()
        answers = await self._client.subscribe(inbox)
        try:
            await self._client.publish(subject, json.dumps(request).encode(), reply=inbox)
            messages: list[Msg] = []
            while len(messages) < most:
                message = await answers.next_msg(timeout=ANSWER_SECONDS)
                if "Status" in (message.headers or {}):
                    break  # the server has no more messages
                messages.append(message)
            return messages
        finally:
            await answers.unsubscribe()


class _SafeClient(Client):
    """A client that never sends credentials or jobs unencrypted if the address requires TLS."""

    def __init__(self, *, requires_tls: bool) -> None:
        super().__init__()
        self._requires_tls = requires_tls
        self.last_failure = ""

    async def keep_error(self, error: Exception) -> None:
        """Store a connection error's message. The calls affected by the error fail, and the client reconnects."""
        self.last_failure = str(error) or type(error).__name__

    def _connect_command(self) -> bytes:
        # By default, the client continues without TLS if the server, or somebody in between, does not offer it.
        if self._requires_tls and not self._server_info.get("tls_required"):
            raise NatsError("the server does not offer TLS")
        return super()._connect_command()


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except NatsError as error:
        raise PlacementUnavailable(f"the NATS server does not answer: {error}") from error


def _decode_job(data: bytes) -> FleetJob | None:
    try:
        return msgspec.json.decode(data, type=FleetJob)
    except msgspec.MsgspecError:
        return None


def _get_subject(message: Msg) -> str:
    return (message.headers or {}).get("Nats-Subject", "")
