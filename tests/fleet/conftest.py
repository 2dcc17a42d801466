from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from podium.fleet.pgqueuer_placement import install_queue
from podium.testing.nats_server import run_nats_server
from podium.testing.postgres_cluster import PostgresCluster, run_cluster

from .engines import Engine

ENGINES = ("pgqueuer", "nats")


@pytest.fixture(scope="session")
def queue_url(postgres_cluster: PostgresCluster) -> str:
    """The URL of a database with PgQueuer's tables, which the tests of one process share."""
    url = postgres_cluster.create_database("placement")
    asyncio.run(install_queue(url))
    return url


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An empty placement engine."""
    if request.param == "nats":
        with run_nats_server() as server:
            yield Engine(name="nats", url=server.url)
    else:
        url: str = request.getfixturevalue("queue_url")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("TRUNCATE podium_queue.job, podium_queue.job_log")
        yield Engine(name="pgqueuer", url=url)


@pytest.fixture(params=ENGINES)
def own_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An empty placement engine whose server can be stopped and started."""
    if request.param == "nats":
        with run_nats_server() as server:
            yield Engine(name="nats", url=server.url, stop=server.stop, start=server.start)
    else:
        with run_cluster() as cluster:
            url = cluster.make_url()
            asyncio.run(install_queue(url))
            yield Engine(name="pgqueuer", url=url, stop=cluster.stop, start=cluster.start)
