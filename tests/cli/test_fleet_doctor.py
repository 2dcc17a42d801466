"""`podium doctor` on a PostgreSQL store: the server, the connection, the clocks and the hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from podium import __version__
from podium.store.postgres.connection import close_idle_connections
from podium.store.postgres.schema import load_migrations
from podium.testing.postgres_cluster import PostgresCluster

from ..store.tls_server import run_tls_cluster
from .conftest import Desk

NEWEST = load_migrations()[-1].number


@pytest.fixture
def store(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("PODIUM_STORE", postgres_url)
    yield postgres_url
    close_idle_connections()


def read_facts(desk: Desk, code: int = 0, **variables: str) -> dict[str, dict[str, str]]:
    said = desk.invoke("doctor", "--json", **variables)
    assert said.exit_code == code, said.output
    return {fact["what"]: fact for fact in json.loads(said.stdout)["facts"]}


def change(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())


def add_host(url: str, name: str, *, version: str, seen: str = "now()", offset: float = 0.0) -> None:
    change(
        url,
        "INSERT INTO podium.host (name, login, version, seen, state, clock_offset) VALUES"
        f" ('{name}', 'podium_host_{name}', '{version}', {seen}, 'active', {offset})",
    )


def test_doctor_measures_the_server_and_changes_nothing_in_an_empty_database(desk: Desk, store: str) -> None:
    facts = read_facts(desk)

    assert "PostgreSQL" in facts["store"]["text"]
    assert facts["store"]["text"].endswith("has no tables yet; the first run creates them")
    assert facts["connection"]["text"].startswith("the server answers in ")
    assert facts["connection"]["text"].endswith("without TLS; the connection does not leave this machine")
    assert facts["clock"] == {"what": "clock", "level": "fine", "text": "agrees with the server's"}
    with psycopg.connect(store) as connection:
        assert connection.execute("SELECT to_regnamespace('podium')").fetchone() == (None,)


def test_doctor_shows_the_version_and_the_clock_of_every_host(desk: Desk, store: str) -> None:
    assert desk.invoke("store", "init").exit_code == 0
    add_host(store, "alpha", version=__version__)
    add_host(store, "beta", version=__version__, offset=-90)
    add_host(store, "gamma", version=__version__, seen="now() - interval '1 hour'")
    add_host(store, "delta", version="", seen="NULL")

    facts = read_facts(desk)
    assert facts["store"]["level"] == "fine"
    assert facts["host alpha"]["text"] == f"active; Podium {__version__}, clock agrees with the server's"
    assert facts["host beta"]["level"] == "note"
    assert "clock is 90.0 s behind the server's; times on timelines" in facts["host beta"]["text"]
    assert facts["host gamma"]["text"].startswith("lost: it has not reported for 36")
    assert facts["host delta"]["text"] == "never started; to start it, run podium host on its machine"

    add_host(store, "old", version="0.0.1")
    facts = read_facts(desk, code=1)
    assert facts["host old"]["level"] == "problem"
    assert facts["host old"]["text"].startswith("active; Podium 0.0.1, clock agrees with the server's; ")
    assert "; its version of Podium is not compatible with this version " in facts["host old"]["text"]
    listed = desk.invoke("hosts")
    assert listed.stdout.count(__version__) == 3
    assert f"Podium on old is not compatible with this version ({__version__})" in listed.stderr


def test_doctor_reports_a_store_of_another_version_without_migrating_it(desk: Desk, store: str) -> None:
    assert desk.invoke("store", "init").exit_code == 0
    change(store, f"INSERT INTO podium.schema_version VALUES ({NEWEST + 1}, 'later', '9.0.0')")
    newer = read_facts(desk, code=1)["store"]
    change(store, f"DELETE FROM podium.schema_version WHERE number >= {NEWEST}")
    older = read_facts(desk)["store"]

    assert newer["level"] == "problem"
    assert f"has store version {NEWEST + 1}, last migrated by Podium 9.0.0" in newer["text"]
    assert f"Podium 9.0.0; this is Podium {__version__}" in newer["text"]
    assert older["level"] == "note"
    assert f"has store version {NEWEST - 1}" in older["text"]
    assert older["text"].endswith("update Podium on all machines, then run podium store migrate")
    with psycopg.connect(store) as connection:
        assert connection.execute("SELECT max(number) FROM podium.schema_version").fetchone() == (NEWEST - 1,)


def test_doctor_says_why_a_server_cannot_be_used(desk: Desk, postgres_cluster: PostgresCluster) -> None:
    unsafe = read_facts(desk, code=1, PODIUM_STORE="postgresql://me:secret@db.example/podium")["store"]["text"]
    closed = read_facts(desk, code=1, PODIUM_STORE="postgresql://me:secret@127.0.0.1:1/podium")["store"]["text"]

    assert "its connection is not verified by TLS; add ?sslmode=verify-full" in unsafe
    assert "cannot reach the store postgresql://me@127.0.0.1:1/podium" in closed
    assert "secret" not in unsafe + closed


def test_doctor_shows_the_version_of_tls_and_a_certificate_that_cannot_be_verified(desk: Desk) -> None:
    with run_tls_cluster() as (cluster, certificate):
        url = cluster.make_url().replace("127.0.0.1", "localhost") + "?sslmode=verify-full&sslrootcert="
        verified = read_facts(desk, PODIUM_STORE=f"{url}{certificate}")["connection"]["text"]
        refused = read_facts(desk, code=1, PODIUM_STORE=f"{url}{desk.home}/none.pem")["store"]["text"]

    assert "TLSv1." in verified
    assert "sslmode=verify-full" in verified
    assert "none.pem" in refused
