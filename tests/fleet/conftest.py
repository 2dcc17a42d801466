from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from podium.fleet.pgqueuer_placement import install_queue
from podium.testing.postgres_cluster import PostgresCluster, run_cluster

from .engines import Engine


@pytest.fixture(scope="session")
def queue_url(postgres_cluster: PostgresCluster) -> str:
    """The URL of a database with PgQueuer's tables, which the tests of one process share."""
    url = postgres_cluster.create_database("placement")
    asyncio.run(install_queue(url))
    return url


@pytest.fixture
def engine(queue_url: str) -> Engine:
    """An empty placement engine."""
    with psycopg.connect(queue_url, autocommit=True) as connection:
        connection.execute("TRUNCATE podium_queue.job, podium_queue.job_log")
    return Engine(url=queue_url)


@pytest.fixture
def own_engine() -> Iterator[Engine]:
    """An empty placement engine whose server can be stopped and started."""
    with run_cluster() as cluster:
        url = cluster.make_url()
        asyncio.run(install_queue(url))
        yield Engine(url=url, stop=cluster.stop, start=cluster.start)
