"""A PostgreSQL server that is away does not stop the event loop, and a wrong certificate is not waited for."""

from __future__ import annotations

import asyncio
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from anyio import to_thread

from podium.core.timeline import Timeline
from podium.store.mailbox import post_to_mailbox
from podium.store.postgres.connection import close_idle_connections, take_connection
from podium.store.run_leases import OwnerId
from podium.store.run_store import RunStore
from podium.testing.postgres_cluster import run_cluster
from podium.values.errors import StoreFailed
from podium.values.event import MessageReceived, Noticed
from podium.values.request import AttachedFile, read_attachments
from podium.values.store_address import PostgresAddress

from .tls_server import make_certificate, run_tls_cluster


async def test_the_event_loop_goes_on_while_mail_is_read_from_a_server_that_is_away(tmp_path: Path) -> None:
    with run_cluster() as cluster:
        store = PostgresAddress(cluster.make_url(), tmp_path / "runtime")
        async with RunStore(store) as runs:
            lease = runs.begin_run("r")
            timeline = Timeline("r", lease)
            timeline.append(Noticed(text="first"), scope="")
            await timeline.wait_written()
            await to_thread.run_sync(cluster.stop)

            async with anyio.create_task_group() as group:
                group.start_soon(runs.deliver_mail, lease)
                await anyio.wait_all_tasks_blocked()
                # A blocked event loop would not get here before the store gives up.
                await to_thread.run_sync(cluster.start)

    close_idle_connections()


async def test_the_attachments_of_a_message_are_there_when_the_server_is_away(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("remember")
    [file] = read_attachments([tmp_path / "note.txt"])
    with run_cluster() as cluster:
        store = PostgresAddress(cluster.make_url(), tmp_path / "runtime")
        async with RunStore(store) as runs:
            lease = runs.begin_run("r")
            timeline = Timeline("r", lease)
            timeline.append(Noticed(text="first"), scope="")
            await timeline.wait_written()
            lease.deliver = lambda message: None
            await to_thread.run_sync(post_with_attachment, store, file)
            await runs.deliver_mail(lease)
            await to_thread.run_sync(cluster.stop)

            data = runs.read_attachment("r", file.attachment.digest)
            await to_thread.run_sync(cluster.start)

    close_idle_connections()
    assert data == b"remember"


def test_a_store_that_is_closed_reads_no_more_mail(
    postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresAddress(postgres_url, tmp_path / "runtime")
    take_connection(store).close()
    with psycopg.connect(postgres_url) as other, psycopg.connect(postgres_url, autocommit=True) as watch:

        class UnlockingExecutor(ThreadPoolExecutor):
            def shutdown(self, *args: Any, **options: Any) -> None:
                other.rollback()
                super().shutdown(*args, **options)

        async def close_while_reading() -> None:
            asyncio.get_running_loop().set_default_executor(UnlockingExecutor())
            async with RunStore(store, owner=OwnerId(lease_seconds=0.3)):
                other.execute("LOCK TABLE podium.mail IN ACCESS EXCLUSIVE MODE")
                await wait_for_row(
                    watch, "SELECT FROM pg_locks WHERE NOT granted AND relation = 'podium.mail'::regclass"
                )
                [(until,)] = watch.execute("SELECT until FROM podium.owner").fetchall()
                # With each renewal, the store wants to read the mail again.
                await wait_for_row(watch, f"SELECT FROM podium.owner WHERE until > {until + 0.2}")

        asyncio.run(close_while_reading())

    close_idle_connections()
    assert caplog.records == []


async def wait_for_row(connection: psycopg.Connection, query: str) -> None:
    """Wait until a query finds something."""
    with anyio.fail_after(20):
        while not connection.execute(query.encode()).fetchall():  # noqa: ASYNC110 - a row
            await anyio.sleep(0.02)


def post_with_attachment(store: PostgresAddress, file: AttachedFile) -> None:
    message = MessageReceived(id="m", to="a", text="see", attachments=(file.attachment,))
    post_to_mailbox(store, "r", message, files=(file,))


def test_a_certificate_that_cannot_be_verified_is_reported_at_once_also_after_a_connection(tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    with run_tls_cluster() as (cluster, certificate):
        shutil.copy(certificate, trusted)
        url = cluster.make_url().replace("127.0.0.1", "localhost")
        store = PostgresAddress(f"{url}?sslmode=verify-full&sslrootcert={trusted}", tmp_path)
        take_connection(store).close()
        other, _ = make_certificate(tmp_path, "other")
        shutil.copy(other, trusted)
        began = time.monotonic()

        with pytest.raises(StoreFailed, match="certificate"):
            take_connection(store)

    assert time.monotonic() - began < 15, "a server that is away is waited for 30 s"
