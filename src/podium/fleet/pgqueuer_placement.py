"""Place jobs with PgQueuer, in the store's database.

PgQueuer enqueues and dequeues. Its own statements for renewing, returning and completing a job match only the job's
number, so a host that was suspended past its lease would complete the job of the host that took over. This module has
its own statements, which also match the claim's token: PgQueuer's `queue_manager_id`, new for each call to `claim`.

Queries and notifications use separate connections, because a connection that waits for notifications executes
nothing else. PgQueuer's notifications say neither that a job was handed back nor which run was cancelled, so the
statements in this module send their own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, cast
from uuid import UUID, uuid4

import msgspec
import psycopg
from msgspec import Struct
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder
from pgqueuer.domain.settings import DBSettings, Durability
from pgqueuer.domain.types import Channel, QueueEntrypoint, QueueManagerId
from pgqueuer.ports.driver import Driver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.queries import Queries

from ..values.errors import PlacementUnavailable
from ..values.fleet_job import FleetJob, HostOffer, JobClaim, JobClass, JobStatus, check_job
from .fleet_database import DatabaseConnection

SCHEMA = "podium_queue"
CHANNEL = "podium_queue"
LEASE_SECONDS = 30.0
MAX_LOG_AGE = timedelta(days=1)

_SETTINGS = DBSettings(
    # All names are given, because PgQueuer reads missing ones from environment variables such as CHANNEL.
    prefix="",
    db_schema=SCHEMA,
    channel=Channel(CHANNEL),
    function="notify_change",
    statistics_table="job_statistics",
    queue_status_type="job_status",
    queue_table="job",
    queue_table_log="job_log",
    trigger="notify_change",
    schedules_table="job_schedule",
    durability=Durability.durable,
)
_WITHOUT_LIMIT = EntrypointExecutionParameter(0)


class PgQueuerPlacement:
    """Jobs in a PgQueuer queue. The connections are opened when needed, and closed at the end of `async with`."""

    def __init__(self, url: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.lease_seconds = lease_seconds
        self._lease = timedelta(seconds=lease_seconds)
        self._database = DatabaseConnection(url)
        self._notifications = DatabaseConnection(url)
        self._queries = _make_queries(self._database)

    async def __aenter__(self) -> PgQueuerPlacement:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._database.aclose()
        await self._notifications.aclose()

    # For commanders

    async def submit(self, job: FleetJob) -> bool:
        check_job(job)
        added = await self._queries.enqueue(
            job.job_class.key, msgspec.json.encode(job), job.priority, dedupe_key=job.run, on_conflict="skip"
        )
        return added != [None]

    async def cancel(self, run: str) -> bool:
        return bool(await self._database.fetch(_CANCEL, run, _encode_notice(cancelled=run)))

    async def list_jobs(self) -> list[JobStatus]:
        rows = await self._database.fetch(_LIST)
        decoded = [(_decode_job(row["payload"]), row["status"]) for row in rows]
        return [
            JobStatus(job=job, state="queued" if status == "queued" else "claimed")
            for job, status in decoded
            if job is not None
        ]

    async def delete_history(self) -> None:
        await self._database.execute(_DELETE_LOG, MAX_LOG_AGE)

    # For hosts

    async def claim(self, offer: HostOffer, free: int) -> list[JobClaim]:
        found = await self._database.fetch(_FIND_CLASSES, self._lease)
        accepted = [key for row in found if _is_accepted(offer, key := str(row["entrypoint"]))]
        if not accepted:
            return []
        token = uuid4()
        rows = await self._queries.dequeue(
            batch_size=free,
            entrypoints={QueueEntrypoint(key): _WITHOUT_LIMIT for key in accepted},
            queue_manager_id=QueueManagerId(token),
            global_concurrency_limit=None,
            heartbeat_timeout=self._lease,
        )
        claims = []
        for row in rows:
            job = _decode_job(row.payload)
            if job is not None and job.job_class.key == row.entrypoint:
                claims.append(JobClaim(job=job, token=str(token), handle=str(row.id)))
            else:
                # Forged or damaged. If the run exists and has not ended, the sweep queues it again.
                await self._database.execute(_FINISH, row.id, token)
        return claims

    async def renew(self, claims: Sequence[JobClaim]) -> frozenset[str]:
        rows = await self._database.fetch(
            _RENEW, [int(claim.handle) for claim in claims], [UUID(claim.token) for claim in claims]
        )
        kept = {row["id"] for row in rows}
        return frozenset(claim.job.run for claim in claims if int(claim.handle) not in kept)

    async def hand_back(self, claim: JobClaim, *, delay: float = 0.0) -> bool:
        returned = await self._database.fetch(
            _HAND_BACK, int(claim.handle), UUID(claim.token), timedelta(seconds=delay), _encode_notice()
        )
        return bool(returned)

    async def finish(self, claim: JobClaim) -> bool:
        return bool(await self._database.fetch(_FINISH, int(claim.handle), UUID(claim.token)))

    async def wait_for_change(self, timeout: float) -> frozenset[str]:
        connection, is_new = await self._notifications.open()
        deadline = time.monotonic() + timeout
        try:
            if is_new:
                await connection.execute(f"LISTEN {CHANNEL}")
                return frozenset()  # notifications sent before this were missed
            while (left := deadline - time.monotonic()) > 0:
                notices = [
                    _decode_notice(received.payload)
                    async for received in connection.notifies(timeout=left, stop_after=1)
                ]
                # Every finished job causes a notification about a deleted row, which nobody needs.
                if any(notice.operation != "delete" for notice in notices):
                    return frozenset(notice.cancelled for notice in notices if notice.cancelled)
        except psycopg.OperationalError as error:
            await connection.close()
            raise PlacementUnavailable("lost the connection to the fleet's database") from error
        return frozenset()


async def install_queue(url: str) -> None:
    """Create PgQueuer's tables, or upgrade them to the installed release, and grant hosts access to them."""
    database = DatabaseConnection(url)
    queries = _make_queries(database)
    try:
        if await queries.schema_is_installed():
            await queries.upgrade()
        else:
            await queries.install()
        await database.execute(_GRANT)
    finally:
        await database.aclose()


class _Notice(Struct, frozen=True, omit_defaults=True):
    """A notification from PgQueuer or from this module.

    PgQueuer sets `operation`, the kind of change to its table. This module sets `cancelled` to the cancelled run.
    """

    operation: str = ""
    cancelled: str = ""


class _QueueDriver(Driver):
    """A driver that lets PgQueuer execute its statements on Podium's connection. PgQueuer never listens on it."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        return await self._database.fetch(query, *args)

    async def execute(self, query: str, *args: object) -> str:
        await self._database.execute(query, *args)
        return ""


def _make_queries(database: DatabaseConnection) -> Queries:
    driver = cast(Any, _QueueDriver)(database)  # PgQueuer never calls the inherited methods
    return Queries(driver, qbe=QueryBuilderEnvironment(_SETTINGS), qbq=QueryQueueBuilder(_SETTINGS))


def _is_accepted(offer: HostOffer, key: str) -> bool:
    try:
        return offer.accepts(JobClass.from_key(key))
    except msgspec.MsgspecError:
        return False


def _decode_job(payload: object) -> FleetJob | None:
    """Return the job, or None if the payload is not a job. Any host can write any payload to the queue."""
    try:
        return msgspec.json.decode(cast(bytes, payload or b""), type=FleetJob)
    except msgspec.MsgspecError:
        return None


def _encode_notice(*, cancelled: str = "") -> str:
    return msgspec.json.encode(_Notice(cancelled=cancelled)).decode()


def _decode_notice(payload: str) -> _Notice:
    try:
        return msgspec.json.decode(payload, type=_Notice)
    except msgspec.MsgspecError:
        return _Notice()


_FIND_CLASSES = f"""
WITH RECURSIVE queued AS (
    (SELECT entrypoint FROM {SCHEMA}.job WHERE status = 'queued' ORDER BY entrypoint LIMIT 1)
    UNION ALL
    SELECT (
        SELECT entrypoint FROM {SCHEMA}.job
        WHERE status = 'queued' AND entrypoint > queued.entrypoint ORDER BY entrypoint LIMIT 1
    )
    FROM queued WHERE queued.entrypoint IS NOT NULL
)
SELECT entrypoint FROM queued WHERE entrypoint IS NOT NULL
UNION
SELECT entrypoint FROM {SCHEMA}.job WHERE status = 'picked' AND heartbeat < now() - $1::interval
"""
"""A query for the classes of jobs that can be claimed. It reads the index once for each class, not for each job."""

_LIST = f"""
SELECT payload, status::text AS status FROM {SCHEMA}.job
WHERE status IN ('queued', 'picked') ORDER BY priority DESC, id
"""

_RENEW = f"""
UPDATE {SCHEMA}.job SET heartbeat = now()
FROM unnest($1::bigint[], $2::uuid[]) AS claim (id, token)
WHERE job.id = claim.id AND job.queue_manager_id = claim.token AND job.status = 'picked'
RETURNING job.id
"""

_HAND_BACK = f"""
WITH returned AS (
    UPDATE {SCHEMA}.job
    SET status = 'queued', queue_manager_id = NULL, execute_after = now() + $3::interval,
        attempts = attempts + 1, updated = now()
    WHERE id = $1 AND queue_manager_id = $2 AND status = 'picked'
    RETURNING id, entrypoint, priority
), logged AS (
    INSERT INTO {SCHEMA}.job_log (job_id, status, entrypoint, priority)
    SELECT id, 'queued', entrypoint, priority FROM returned
)
SELECT id, pg_notify('{CHANNEL}', $4) FROM returned
"""

_FINISH = f"""
WITH finished AS (
    DELETE FROM {SCHEMA}.job WHERE id = $1 AND queue_manager_id = $2 AND status = 'picked'
    RETURNING id, entrypoint, priority
)
INSERT INTO {SCHEMA}.job_log (job_id, status, entrypoint, priority)
SELECT id, 'successful', entrypoint, priority FROM finished RETURNING job_id
"""

_CANCEL = f"""
WITH cancelled AS (
    DELETE FROM {SCHEMA}.job WHERE dedupe_key = $1 AND status IN ('queued', 'picked')
    RETURNING id, entrypoint, priority
), logged AS (
    INSERT INTO {SCHEMA}.job_log (job_id, status, entrypoint, priority)
    SELECT id, 'canceled', entrypoint, priority FROM cancelled
)
SELECT id, pg_notify('{CHANNEL}', $2) FROM cancelled
"""

_DELETE_LOG = f"DELETE FROM {SCHEMA}.job_log WHERE created < now() - $1::interval"

_GRANT = """
DO $do$ BEGIN
    IF to_regprocedure('podium.grant_to_hosts()') IS NOT NULL THEN
        PERFORM podium.grant_to_hosts();
    END IF;
END $do$
"""
